/**
 * Errors of the first contact: no answer, or the answer of something other than a passback server.
 */

import { ProtocolError } from "./errors.js";

// limit of the retries while the server has never answered: the address may be wrong, or the
// browser hides the answer
const FIRST_CONTACT = 2000; // milliseconds
/** Statuses of a gateway or a server that a retry may cure. */
export const TRANSIENT_STATUSES = new Set([429, 502, 503, 504]);
const QUOTED = 80; // characters of a foreign answer
/** The header by which a passback server's answer of each type is recognized.
 * @type {[string, string][]} */
const NAMED_BY = [
  ["text/event-stream", "X-Conversation-Id"],
  ["application/json", "X-Request-Id"],
];

/** State of the first contact: made by any answer of a passback server. */
export class Contact {
  isMade = false;
  /** Milliseconds that a request and its retries may take until then. */
  longest;

  /**
   * @param {Partial<import("./options.js").Retry>} [given] options of the caller; with a number of
   *   attempts of its own there is no time limit
   */
  constructor({ attempts, unanswered } = {}) {
    this.longest = attempts === undefined && unanswered === undefined ? FIRST_CONTACT : Infinity;
  }
}

/**
 * Return the error for an answer that is not a passback server's.
 *
 * @param {string} base the server's address
 * @param {Response} response
 * @param {string} text the part of its body that was read
 * @param {string | undefined} apiKey never quoted
 * @returns {ProtocolError}
 */
export function foreignAnswerError(base, response, text, apiKey) {
  const { status, headers } = response;
  const type = headers.get("Content-Type") ?? "no Content-Type";
  const name = NAMED_BY.find(([kind]) => type.startsWith(kind))?.[1];
  const isUnnamed = response.ok && name !== undefined && !headers.has(name);
  const lacks = isUnnamed ? ` without the header ${name}` : "";
  const quoted = quote(text, apiKey);
  const begins = quoted && `; it begins with ${JSON.stringify(quoted)}`;
  const causes = [
    "the address or the port is wrong",
    "a proxy there does not reach the server, or changes its answers",
  ];
  if (isUnnamed && isOfAnotherOrigin(base)) {
    causes.push(
      "a proxy leaves out Access-Control-Expose-Headers, so that the browser hides the header " +
        "(CORS)",
    );
  }
  // a browser hides everything about a redirect
  const came =
    response.type === "opaqueredirect"
      ? "a redirect, which is not followed"
      : `status ${status} and ${short(type)}`;
  const what = `${came}${lacks}${begins}`;
  return new ProtocolError(
    `${base} did not answer as a passback server: ${what}. Likely causes: ${causes.join("; ")}`,
    {
      status,
      retryable: TRANSIENT_STATUSES.has(status),
      retryAfter: retryAfterOf(response),
    },
  );
}

/**
 * Return the message for a server that has never answered, with likely causes. A browser hides from
 * scripts that CORS was the reason.
 *
 * @param {string} base the server's address
 * @param {unknown} error of the platform; in Node.js it has the reason
 * @returns {string}
 */
export function noAnswerMessage(base, error) {
  const reason = error instanceof Error && error.cause instanceof Error ? error.cause : null;
  const why = reason ? ` (${reason.message || reason.name})` : "";
  const { origin: page = "", protocol = "" } = globalThis.location ?? {};
  const causes = ["nobody listens there", "the address is wrong"];
  if (isOfAnotherOrigin(base)) {
    if (page === "null") {
      causes.push("the page has no origin, which no server lets in: load it from a web server");
    } else {
      causes.push(
        `the server does not let in pages of ${page}: ` +
          `set PASSBACK_ALLOWED_ORIGINS=${page} at the server`,
      );
    }
    if (protocol === "https:" && base.startsWith("http:")) {
      causes.push("the browser keeps pages of https: from http: addresses");
    }
  }
  return `${base} did not answer${why}. Likely causes: ${causes.join("; ")}`;
}

/** @param {Response} response */
export function isEvents(response) {
  return response.headers.get("Content-Type")?.startsWith("text/event-stream") ?? false;
}

/**
 * @param {Response} response
 * @returns {number | null} seconds
 */
export function retryAfterOf(response) {
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  return seconds >= 0 ? seconds : null;
}

/** @param {string} base */
function isOfAnotherOrigin(base) {
  const { origin = "" } = globalThis.location ?? {};
  return origin !== "" && origin !== new URL(base).origin;
}

/**
 * @param {string} text
 * @param {string | undefined} apiKey
 */
function quote(text, apiKey) {
  // a server that echoes the request echoes the key
  if (/bearer/i.test(text) || (apiKey && text.includes(apiKey))) return "";
  return short(text);
}

/** @param {string} text */
function short(text) {
  const line = text.replace(/[\p{C}\p{Z}]+/gu, " ").trim();
  return line.length > QUOTED ? `${Array.from(line).slice(0, QUOTED).join("")}…` : line;
}
