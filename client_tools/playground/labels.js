/** What a frame of any of the server's protocols is, for the time line. */

import { asRecord } from "../js/src/json.js";

/** @typedef {"text" | "tool" | "error" | "other"} Kind */

/**
 * The field with the piece of a text, and those that say which text it is, by the type of event.
 *
 * @type {Record<string, [string, ...string[]]>}
 */
const PIECES = {
  // /send-message
  text: ["content"],
  reasoning: ["delta", "parentToolCallId"],
  "agent-text": ["delta", "parentToolCallId"],
  "tool-call-args": ["delta", "toolCallId", "parentToolCallId"],
  // AG-UI
  TEXT_MESSAGE_CONTENT: ["delta", "messageId"],
  REASONING_MESSAGE_CONTENT: ["delta", "messageId"],
  TOOL_CALL_ARGS: ["delta", "toolCallId"],
  // AI SDK
  "text-delta": ["delta", "id"],
  "reasoning-delta": ["delta", "id"],
  "tool-input-delta": ["inputTextDelta", "toolCallId"],
};
const TEXTS = new Set(["text", "TEXT_MESSAGE_CONTENT", "text-delta", "content delta"]);

/**
 * @param {Record<string, unknown>} event empty if the data is no object
 * @param {string} data of the frame
 * @returns {{label: string, kind: Kind}}
 */
export function labelOf(event, data) {
  const label = nameOf(event) ?? data.slice(0, 40);
  return { label, kind: kindOf(label) };
}

/**
 * @param {Record<string, unknown>} event
 * @returns {{text: string, of: string[]} | null} the piece of a text that it is, if it is one
 */
export function pieceOf(event) {
  if (event.object === "content" && event.delta === true && typeof event.text === "string") {
    return { text: event.text, of: [String(event.msg_id)] };
  }
  if (event.event === "turn:patch") return patchOf(asRecord(event.data));
  const fields = Object.hasOwn(PIECES, String(event.type)) ? PIECES[String(event.type)] : undefined;
  if (!fields) return null;
  const [field, ...of] = fields;
  const text = event[field];
  if (typeof text !== "string") return null;
  return { text, of: of.map((name) => String(event[name] ?? "")) };
}

/** @param {Record<string, unknown>} patch of a turn on the chat socket */
function patchOf({ patch_type: kind, turn_id: turn, data }) {
  const { text_delta: text, type } = asRecord(data);
  if (kind !== "add_content" || typeof text !== "string") return null;
  return { text, of: [String(turn), String(type)] };
}

/**
 * @param {Record<string, unknown>} event
 * @returns {string | null} null if it has no name
 */
function nameOf({ type, object, status, delta, event, data }) {
  // the Agent API, whose `type` is that of a message or a part
  if (typeof object === "string") return `${object} ${delta === true ? "delta" : String(status)}`;
  if (typeof event === "string") {
    const { patch_type: patch } = asRecord(data);
    return typeof patch === "string" ? `${event} ${patch}` : event;
  }
  return typeof type === "string" ? type : null;
}

/**
 * @param {string} label
 * @returns {Kind}
 */
function kindOf(label) {
  if (/^(error|RUN_ERROR|SUBAGENT_ERROR|system:error|\w+ failed)$/.test(label)) return "error";
  if (/^tool|^TOOL|_tool|tool_/.test(label)) return "tool";
  return TEXTS.has(label) ? "text" : "other";
}
