/** Calls of a chat that were answered elsewhere, or given up: the stream does not say so, the history does. */

import { why } from "./calls.js";

/** @typedef {import("./calls.js").Call} Call */
/** @typedef {import("./chat.js").ChatState["entries"]} Entries */
/** @typedef {Map<string, {result: unknown, isError: boolean, synthetic?: import("./events.js").Synthetic}>} Results by the ids of calls */

/** Messages of one page of the history, and how many pages are looked through. */
const PAGE = 100;
const PAGES = 5;

/**
 * @param {Entries} entries
 * @returns {string[]} the calls without a result, those of sub-agents included
 */
export function unanswered(entries) {
  const calls = entries.flatMap((entry) => (entry.role === "assistant" ? entry.calls.flatMap(withInner) : []));
  return calls.flatMap((call) => (call.complete && !("result" in call) ? [call.id] : []));
}

/**
 * Looks from the end of the history.
 *
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {ReadonlySet<string>} ids of calls
 * @param {AbortSignal} signal
 * @returns {Promise<Results>} what there is for them
 */
export async function pastResults(client, conversationId, ids, signal) {
  /** @type {Results} */
  const results = new Map();
  let { total: end } = await client.messages(conversationId, { limit: 1, signal });
  for (let page = 0; page < PAGES && end > 0 && results.size < ids.size; page += 1) {
    const after = Math.max(0, end - PAGE);
    const { messages } = await client.messages(conversationId, { after, limit: end - after, signal });
    for (const message of messages.map(innermost)) {
      if (message.role !== "tool" || !ids.has(message.toolCallId)) continue;
      results.set(message.toolCallId, { result: message.content, isError: message.isError === true, ...why(message) });
    }
    end = after;
  }
  return results;
}

/**
 * @param {Entries} entries
 * @param {Results} results
 * @returns {Entries} with the results at their calls
 */
export function withResults(entries, results) {
  /** @param {Call} call @returns {Call} */
  const settled = (call) => ({ ...call, ...results.get(call.id), ...(call.calls && { calls: call.calls.map(settled) }) });
  return entries.map((entry) => (entry.role === "assistant" ? { ...entry, calls: entry.calls.map(settled) } : entry));
}

/** @param {Call} call @returns {Call[]} */
function withInner(call) {
  return [call, ...(call.calls ?? []).flatMap(withInner)];
}

/** @param {import("./messages.js").Message} message @returns {import("./messages.js").Message} what a sub-agent has, itself */
function innermost(message) {
  return message.role === "child" ? innermost(message.message) : message;
}
