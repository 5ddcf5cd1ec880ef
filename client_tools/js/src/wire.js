/** The server's routes. */

import { InvalidArgument } from "./errors.js";

/** @typedef {import("./http.js").Connection} Connection */
/** @typedef {import("./http.js").Http} Http */

/** Without these a client could neither answer calls nor know what became void. */
const NEEDED = ["owed", "rewind", "run"];

/**
 * @typedef {object} Post what one action of the user, or one round of tools, says; may be sent again as it is
 * @property {string} key
 * @property {Record<string, unknown>} body
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
export function postMessages(http, { key, body }, { after, signal, exchange }) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "text/event-stream", "Idempotency-Key": `"${key}"` };
  if (after) headers["Last-Event-ID"] = after;
  return http.open("send-message", { method: "POST", headers, body, signal, exchange });
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
  return http.open(`${conversationPath(conversationId)}/stream?${query}`, { headers, signal, exchange });
}

/**
 * @param {string} id
 * @returns {string}
 * @throws {InvalidArgument}
 */
export function conversationPath(id) {
  // a URL cannot name these two: they mean the folder, and the one above
  if (id === "" || id === "." || id === "..") throw new InvalidArgument("a conversation cannot have this id");
  try {
    return `conversations/${encodeURIComponent(id)}`;
  } catch {
    throw new InvalidArgument("a conversation's id is not well-formed text");
  }
}

/** @returns {string} a random UUID, also on pages that are served without TLS */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
