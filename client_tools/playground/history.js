/** The server's history of a conversation, converted for the view. */

import { asRecord, textOrNull } from "../js/src/json.js";
import { mediaOf } from "./parts.js";

/** @typedef {import("../js/src/index.js").Client} Client */
/** @typedef {import("../js/src/index.js").Usage} Usage */
/** @typedef {import("./parts.js").Medium} Medium */

/**
 * @typedef {object} PastCall
 * @property {string} id
 * @property {string} name
 * @property {string} arguments
 * @property {boolean} client whether a client answers it
 * @property {string | null} title the tool's name for people
 */

/**
 * @typedef {{role: "user", id: string, text: string, words?: string, kept?: string[], attached?:
 *   Medium[], agentId?: string, model?: string}} PastUser a message with other parts than text has
 *   `words`, its text alone, and `kept`, the names of those; `attached` are its media
 * @typedef {{role: "assistant", id: string, text: string, calls: PastCall[], partial: boolean,
 *   model: string | null, attached?: Medium[], usage?: Partial<Usage>, runId?: string}} PastAnswer
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
  const [agentId, model] = [textOrNull(message.agentId), textOrNull(message.model)];
  switch (message.role) {
    case "user":
      return {
        ...{ role: "user", id, text, ...editable(message.content) },
        ...(agentId && { agentId }),
        ...(model && { model }),
      };
    case "assistant":
      return {
        role: "assistant",
        id,
        text,
        calls: list(message.toolCalls).map(readCall),
        partial: message.partial === true,
        model,
        ...attachedOf(message.content),
        ...(message.usage !== undefined && { usage: asRecord(message.usage) }),
        ...(typeof message.runId === "string" && { runId: message.runId }),
      };
    case "tool":
      return {
        role: "tool",
        id,
        text: contentText(message.content, ({ url }) => String(url)),
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
 * @returns {{words?: string, kept?: string[], attached?: Medium[]}} what can be edited of it, and
 *   what cannot, if there is any such
 */
export function editable(content) {
  const isText = (/** @type {unknown} */ part) => typeof asRecord(part).text === "string";
  const kept = list(content).filter((part) => !isText(part));
  if (kept.length === 0) return {};
  const words = contentText(list(content).filter(isText));
  return { words, kept: kept.map((part) => partText(part)), ...attachedOf(content) };
}

/** @param {unknown} content */
function attachedOf(content) {
  const attached = mediaOf(content);
  return attached.length > 0 ? { attached } : {};
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
 * @param {(medium: Record<string, unknown>) => string} [mediumText] returns the text of a medium;
 *   without it, the text has no media, which are shown beside it
 * @returns {string}
 */
export function contentText(content, mediumText) {
  if (typeof content === "string") return content;
  const isShown = (/** @type {unknown} */ part) => mediumText || mediaOf([part]).length === 0;
  return list(content)
    .filter(isShown)
    .map((part) => partText(part, mediumText))
    .join("\n");
}

/**
 * @param {unknown} value
 * @param {(medium: Record<string, unknown>) => string} [mediumText]
 * @returns {string}
 */
function partText(value, mediumText = mediumName) {
  const part = asRecord(value);
  if (typeof part.text === "string") return part.text;
  if (part.type === "data") return JSON.stringify(part.data);
  return mediumText(part);
}

/** @param {Record<string, unknown>} medium */
function mediumName({ name, type }) {
  return `[${String(name ?? type ?? "attachment")}]`;
}

/**
 * @param {unknown} value
 * @returns {unknown[]}
 */
function list(value) {
  return Array.isArray(value) ? value : [];
}
