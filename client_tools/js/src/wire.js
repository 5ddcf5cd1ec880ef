/** The server's routes. */

import { InvalidArgument } from "./errors.js";

/** @typedef {import("./http.js").Connection} Connection */
/** @typedef {import("./http.js").Http} Http */

/** Kinds of events that this library itself needs. */
const ALWAYS_INCLUDED = ["owed", "rewind", "run", "output"];

/**
 * @typedef {object} Post a user's message or a round of results; may be sent again unchanged
 * @property {string} key
 * @property {Record<string, unknown>} body
 * @property {string} [path] default: that of the server's first agent
 */

/**
 * @param {Iterable<string>} wanted
 * @returns {string[]} the kinds of events to ask for: the same in each request, so that each event
 *   comes once
 */
export function included(wanted) {
  return [...new Set([...ALWAYS_INCLUDED, ...wanted])];
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
 * @param {{runId: string | null, after: string, include: string[], signal: AbortSignal, exchange:
 *   number}} options without `runId` and `after`, it follows the newest run
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
 * @param {Http} http
 * @param {string} conversationId
 * @param {{after: string, absent: "wait" | "refuse", include: string[], signal: AbortSignal,
 *   exchange: number}} options
 * @returns {Promise<Connection>} the events of all runs
 */
export function openConversation(
  http,
  conversationId,
  { after, absent, include, signal, exchange },
) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "text/event-stream" };
  if (after) headers["Last-Event-ID"] = after;
  const waits = absent === "wait" ? "&absent=wait" : "";
  const query = `include=${include.map(encodeURIComponent).join(",")}${waits}`;
  return http.stream(`${conversationPath(conversationId)}/events?${query}`, {
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
  return `conversations/${pathSegment(id, "a conversation's id")}`;
}

/**
 * @param {string} agentId
 * @returns {string} the path of posts to this agent
 * @throws {InvalidArgument}
 */
export function agentPath(agentId) {
  return `v1/aibot/bots/${pathSegment(agentId, "an agent's name")}/send-message`;
}

/**
 * @param {string} name
 * @param {string} what its kind, for the error
 */
function pathSegment(name, what) {
  // in a URL, `.` and `..` mean the folder and its parent
  if (name === "" || name === "." || name === "..") {
    throw new InvalidArgument(`${what} cannot be "${name}"`);
  }
  try {
    return encodeURIComponent(name);
  } catch {
    throw new InvalidArgument(`${what} is not well-formed text`);
  }
}

/**
 * @param {Headers} headers of a response
 * @returns {import("./events.js").Left | null} the rest of the limits of conversation and owner
 *   when it began
 */
export function readBudgetLeft(headers) {
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
