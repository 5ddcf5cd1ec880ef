/** The server's history of a conversation, converted for the view. */

import { asRecord, textOrNull } from "../js/src/json.js";

/** @typedef {import("../js/src/index.js").Client} Client */

/**
 * @typedef {object} PastCall
 * @property {string} id
 * @property {string} name
 * @property {string} arguments
 * @property {boolean} client whether a client answers it
 * @property {string | null} title the tool's name for people
 */

/**
 * @typedef {{role: "user", id: string, text: string, words?: string, kept?: string[]}} PastUser a
 *   message with other parts than text has `words`, its text alone, and `kept`, the names of those
 * @typedef {{role: "assistant", id: string, text: string, calls: PastCall[], partial: boolean,
 *   model: string | null}} PastAnswer
 * @typedef {{role: "tool", id: string, callId: string, text: string, isError: boolean, synthetic:
 *   string | null, durationMs: number}} PastResult `durationMs`: 0 if unknown
 * @typedef {{role: "approval", id: string, callId: string, approved: boolean}} PastDecision
 * @typedef {{role: "child", id: string, callId: string, message: PastMessage}} PastChild a message
 *   of the sub-agent that works on a call
 * @typedef {{role: "hidden", id: string}} HiddenMessage one that the page does not show
 * @typedef {PastUser | PastAnswer | PastResult | PastDecision | PastChild | HiddenMessage}
 *   PastMessage
 */

/** Number of messages that are shown of a long conversation. */
const SHOWN_MESSAGES = 1000;
const PAGE = 500;

/**
 * @param {Client} client
 * @param {string} conversationId
 * @param {Pick<import("../js/src/client.js").ConversationView, "running" | "messageCount">} info
 *   the state of the conversation
 * @param {AbortSignal} signal
 * @returns {Promise<PastMessage[]>} the newest ones, oldest first; of the current run only the
 *   messages posted for it, because its stream has the rest
 */
export async function loadHistory(client, conversationId, { running, messageCount }, signal) {
  const first = Math.max(0, (running?.firstMessage ?? messageCount) - SHOWN_MESSAGES);
  const end = Math.min(messageCount, first + 2 * SHOWN_MESSAGES);
  const raw = await loadBetween(client, conversationId, [first, end], signal);
  if (!running) return raw.map(readMessage);
  const ofRun = raw.splice(running.firstMessage - first);
  const said = ofRun.findIndex(isSaid);
  return [...raw, ...(said < 0 ? ofRun : ofRun.slice(0, said))].map(readMessage);
}

/**
 * @param {Record<string, unknown>} message
 * @returns {boolean} whether it is of an agent or a sub-agent
 */
function isSaid({ role, message }) {
  return role === "assistant" || (role === "child" && isSaid(asRecord(message)));
}

/**
 * @param {Client} client
 * @param {string} conversationId
 * @param {[number, number]} range the number of messages to skip, and the end
 * @param {AbortSignal} signal
 */
export async function loadBetween(client, conversationId, [first, end], signal) {
  /** @type {Record<string, unknown>[]} */
  const raw = [];
  /** @type {number | null} */
  let after = first;
  while (after !== null && after < end) {
    const limit = Math.min(PAGE, end - after);
    const { messages, next } = await client.messages(conversationId, { after, limit, signal });
    const page = list(messages);
    raw.push(...page.map(asRecord));
    after = page.length > 0 && typeof next === "number" ? next : null;
  }
  return raw;
}

/**
 * @param {Record<string, unknown>} message
 * @returns {PastMessage}
 */
export function readMessage(message) {
  const id = String(message.id ?? "");
  const text = contentText(message.content);
  switch (message.role) {
    case "user":
      return { role: "user", id, text, ...editable(message.content) };
    case "assistant":
      return {
        role: "assistant",
        id,
        text,
        calls: list(message.toolCalls).map(readCall),
        partial: message.partial === true,
        model: textOrNull(message.model),
      };
    case "tool":
      return {
        role: "tool",
        id,
        text,
        callId: String(message.toolCallId ?? ""),
        isError: message.isError === true,
        synthetic: textOrNull(message.synthetic),
        durationMs: Number(message.durationMs ?? 0),
      };
    case "approval":
      return {
        role: "approval",
        id,
        callId: String(message.toolCallId ?? ""),
        approved: message.approved === true,
      };
    case "child":
      return {
        role: "child",
        id,
        callId: String(message.toolCallId ?? ""),
        message: readMessage(asRecord(message.message)),
      };
    default:
      return { role: "hidden", id };
  }
}

/**
 * @param {unknown} content of a user's message
 * @returns {{words?: string, kept?: string[]}} what can be edited of it, and what cannot, if there
 *   is any such
 */
export function editable(content) {
  const isText = (/** @type {unknown} */ part) => typeof asRecord(part).text === "string";
  const kept = list(content).filter((part) => !isText(part));
  if (kept.length === 0) return {};
  return { words: contentText(list(content).filter(isText)), kept: kept.map(partText) };
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
    client: call.client === true,
    title: textOrNull(call.title),
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
