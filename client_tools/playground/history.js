/** The server's record of a conversation, read as what the page shows. */

import { asRecord } from "./api.js";

/**
 * @typedef {object} PastCall
 * @property {string} id
 * @property {string} name
 * @property {string} arguments
 */

/**
 * @typedef {{role: "user", id: string, text: string}} PastUser
 * @typedef {{role: "assistant", id: string, text: string, calls: PastCall[], partial: boolean}} PastAnswer
 * @typedef {{role: "tool", id: string, callId: string, text: string, isError: boolean, synthetic: string | null}} PastResult
 * @typedef {PastUser | PastAnswer | PastResult} PastMessage
 */

/** Messages of a long conversation that are shown; older ones stay on the server. */
export const SHOWN_MESSAGES = 400;
const PAGE = 100;

/**
 * @param {import("./api.js").Api} api
 * @param {string} conversationId
 * @param {number} count how many messages there are
 * @param {AbortSignal} signal
 * @returns {Promise<PastMessage[]>} the newest ones, oldest first
 */
export async function loadHistory(api, conversationId, count, signal) {
  /** @type {unknown[]} */
  const raw = [];
  /** @type {number | null} */
  let after = Math.max(0, count - SHOWN_MESSAGES);
  while (after !== null && raw.length < 2 * SHOWN_MESSAGES) {
    const page = await api.messages(conversationId, { after, limit: PAGE, signal });
    raw.push(...page.messages);
    after = page.messages.length > 0 ? page.next : null;
  }
  return raw.flatMap((value) => readMessage(asRecord(value)));
}

/**
 * @param {Record<string, unknown>} message
 * @returns {PastMessage[]} one message, or none when the page has no way to show it
 */
export function readMessage(message) {
  const id = String(message.id ?? "");
  const text = contentText(message.content);
  switch (message.role) {
    case "user":
      return [{ role: "user", id, text }];
    case "assistant":
      return [
        {
          role: "assistant",
          id,
          text,
          calls: list(message.toolCalls).map(readCall),
          partial: message.partial === true,
        },
      ];
    case "tool":
      return [
        {
          role: "tool",
          id,
          text,
          callId: String(message.toolCallId ?? ""),
          isError: message.isError === true,
          synthetic: typeof message.synthetic === "string" ? message.synthetic : null,
        },
      ];
    default:
      return [];
  }
}

/**
 * @param {unknown} value
 * @returns {PastCall}
 */
function readCall(value) {
  const call = asRecord(value);
  const inner = asRecord(call.function);
  return {
    id: String(call.id ?? ""),
    name: String(inner.name ?? ""),
    arguments: String(inner.arguments ?? ""),
  };
}

/**
 * @param {unknown} content a string, or parts
 * @returns {string}
 */
export function contentText(content) {
  if (typeof content === "string") return content;
  return list(content).map(partText).join("\n");
}

/**
 * @param {unknown} value
 * @returns {string}
 */
function partText(value) {
  const part = asRecord(value);
  if (typeof part.text === "string") return part.text;
  if (part.type === "data") return JSON.stringify(part.data);
  return `[${String(part.name ?? part.type ?? "attachment")}]`;
}

/**
 * @param {unknown} value
 * @returns {unknown[]}
 */
function list(value) {
  return Array.isArray(value) ? value : [];
}
