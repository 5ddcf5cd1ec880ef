/** The server's routes. */

import { InvalidArgument } from "./errors.js";

/** @typedef {import("./http.js").Connection} Connection */
/** @typedef {import("./http.js").Http} Http */

/** Without these a client could neither answer calls, nor know what became void, nor what an answer that has to fit a schema is. */
const NEEDED = ["owed", "rewind", "run", "output"];

/**
 * @typedef {object} Post what one action of the user, or one round of tools, says; may be sent again as it is
 * @property {string} key
 * @property {Record<string, unknown>} body
 * @property {string} [path] where it is posted, default: to the server's first agent
 */

/**
 * @param {Iterable<string>} wanted
 * @returns {string[]} what the server is asked for: the same in each request, so that each event comes once
 */
export function included(wanted) {
  return [...new Set([...NEEDED, ...wanted])];
}

/**
 * @param {Http} http
 * @param {Post} post
 * @param {{after: string, signal: AbortSignal, exchange: number}} options
 * @returns {Promise<Connection>}
 */
export function postMessages(
  http,
  { key, body, path = "send-message" },
  { after, signal, exchange },
) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "text/event-stream", "Idempotency-Key": `"${key}"` };
  if (after) headers["Last-Event-ID"] = after;
  return http.stream(path, { method: "POST", headers, body, signal, exchange });
}

/**
 * @param {Http} http
 * @param {string} conversationId
 * @param {{runId: string | null, after: string, include: string[], signal: AbortSignal, exchange: number}} options
 *   without `runId` and `after`: the newest run
 * @returns {Promise<Connection>}
 */
export function openStream(http, conversationId, { runId, after, include, signal, exchange }) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "text/event-stream" };
  if (after) headers["Last-Event-ID"] = after;
  const run = runId && !after ? `&runId=${encodeURIComponent(runId)}` : "";
  const query = `include=${include.map(encodeURIComponent).join(",")}${run}`;
  return http.stream(`${conversationPath(conversationId)}/stream?${query}`, {
    headers,
    signal,
    exchange,
  });
}

/**
 * @param {string} id
 * @returns {string}
 * @throws {InvalidArgument}
 */
export function conversationPath(id) {
  return `conversations/${step(id, "a conversation's id")}`;
}

/**
 * @param {string} agentId
 * @returns {string} where this agent is asked
 * @throws {InvalidArgument}
 */
export function agentPath(agentId) {
  return `v1/aibot/bots/${step(agentId, "an agent's name")}/send-message`;
}

/**
 * @param {string} name
 * @param {string} what it is
 */
function step(name, what) {
  // a URL cannot name these two: they mean the folder, and the one above
  if (name === "" || name === "." || name === "..")
    throw new InvalidArgument(`${what} cannot be this`);
  try {
    return encodeURIComponent(name);
  } catch {
    throw new InvalidArgument(`${what} is not well-formed text`);
  }
}

/**
 * @param {Headers} headers of an answer
 * @returns {import("./events.js").Left | null} what was left of the limits of conversation and owner when it began
 */
export function leftOf(headers) {
  const kinds = /** @type {const} */ (["tokens", "seconds", "cost"]);
  const told = kinds.map(
    (kind) => /** @type {const} */ ([kind, headers.get(`X-Budget-Left-${kind}`) ?? ""]),
  );
  const left = told
    .filter(([, text]) => /^\d{1,15}(\.\d{1,15})?$/.test(text))
    .map(([kind, text]) => [kind, Number(text)]);
  return left.length > 0 ? Object.fromEntries(left) : null;
}

/** @returns {string} a random UUID, also on pages that are served without TLS */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
