/** First contact: the errors for an address where something else than a passback server answers, or nobody does. */

import { ProtocolError } from "./errors.js";

/** How long a client tries whose server has never answered: then nobody may be there, or the browser hides the answer. */
const FIRST_CONTACT = 2000; // milliseconds
/** Statuses of a gateway, or of a server, that may be another one soon. */
export const PASSING = new Set([429, 502, 503, 504]);
const QUOTED = 80; // characters of an answer that is not ours
/** The header that names each kind of answer of a passback server. @type {[string, string][]} */
const NAMED_BY = [
  ["text/event-stream", "X-Conversation-Id"],
  ["application/json", "X-Request-Id"],
];

/** Remembers that a passback server has answered a client, be it with a refusal. */
export class Contact {
  isMade = false;
  /** Milliseconds that one request, with its repeats, may take until then. */
  longest;

  /** @param {Partial<import("./limits.js").Retry>} [given] by the caller, whose own count of attempts is kept to */
  constructor({ attempts, unanswered } = {}) {
    this.longest = attempts === undefined && unanswered === undefined ? FIRST_CONTACT : Infinity;
  }
}

/**
 * Returns the error for an answer that no passback server gives.
 *
 * @param {string} base the server's address
 * @param {Response} response
 * @param {string} text what of its body was read
 * @param {string | undefined} apiKey is not quoted
 * @returns {ProtocolError}
 */
export function foreignAnswer(base, response, text, apiKey) {
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
      "a proxy leaves out Access-Control-Expose-Headers, so that the browser hides the header (CORS)",
    );
  }
  // a browser tells no more of a redirect than that there was one
  const came =
    response.type === "opaqueredirect"
      ? "a redirect, which is not followed"
      : `status ${status} and ${short(type)}`;
  const what = `${came}${lacks}${begins}`;
  return new ProtocolError(
    `${base} did not answer as a passback server: ${what}. Likely causes: ${causes.join("; ")}`,
    {
      status,
      retryable: PASSING.has(status),
      retryAfter: retryAfterOf(response),
    },
  );
}

/**
 * Says why there may never have been an answer. A browser tells a script no more of a refusal by CORS than that there was none.
 *
 * @param {string} base the server's address
 * @param {unknown} error of the platform, of which Node.js tells the reason
 * @returns {string}
 */
export function neverAnswered(base, error) {
  const reason = error instanceof Error && error.cause instanceof Error ? error.cause : null;
  const why = reason ? ` (${reason.message || reason.name})` : "";
  const { origin: page = "", protocol = "" } = globalThis.location ?? {};
  const causes = ["nobody listens there", "the address is wrong"];
  if (isOfAnotherOrigin(base)) {
    if (page === "null")
      causes.push("the page has no origin, which no server lets in: load it from a web server");
    else
      causes.push(
        `the server does not let in pages of ${page}: set PASSBACK_ALLOWED_ORIGINS=${page} at the server`,
      );
    if (protocol === "https:" && base.startsWith("http:"))
      causes.push("the browser keeps pages of https: from http: addresses");
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
  // a server that gives back what it was sent gives back the key
  if (/bearer/i.test(text) || (apiKey && text.includes(apiKey))) return "";
  return short(text);
}

/** @param {string} text */
function short(text) {
  const line = text.replace(/[\p{C}\p{Z}]+/gu, " ").trim();
  return line.length > QUOTED ? `${Array.from(line).slice(0, QUOTED).join("")}…` : line;
}
