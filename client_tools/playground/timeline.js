/** The lines of the time line: what a step is called, what of it is looked for, and which ones are pieces of one. */

import { eventOf } from "./recorder.js";

/** @typedef {import("./recorder.js").Kept} Kept */

/**
 * @typedef {object} Line
 * @property {"sent" | "received"} direction
 * @property {string} label the event's type, or the request
 * @property {"sent" | "text" | "tool" | "error" | "other"} kind
 * @property {string} id of its first frame; "" for what has none
 * @property {string} lastId
 * @property {string} data as it crossed the wire; of merged pieces, the pieces joined
 * @property {number} count how many steps it stands for
 * @property {number} at milliseconds since the post
 * @property {number} lastAt
 * @property {number} time milliseconds since 1970
 * @property {string} piece equal for neighbours that may be merged; "" for what stands alone
 */

/** @type {Record<string, string>} the field that holds the piece */
const PIECES = {
  text: "content",
  reasoning: "delta",
  "agent-text": "delta",
  "tool-call-args": "delta",
};
/** Characters of a merged line that are kept. */
const MAX_CHARS = 20_000;

/**
 * @param {Kept} kept
 * @param {boolean} merge whether it may be joined with its neighbours
 * @returns {Line}
 */
export function lineOf({ step, exchange, at }, merge) {
  /** @type {Line} */
  const line = {
    direction: "received",
    label: "",
    kind: "other",
    id: "",
    lastId: "",
    data: "",
    count: 1,
    at,
    lastAt: at,
    time: step.time,
    piece: "",
  };
  switch (step.kind) {
    case "request": {
      const after = step.headers["Last-Event-ID"];
      const data = step.body ?? step.path + (after ? `\nLast-Event-ID: ${after}` : "");
      return {
        ...line,
        direction: "sent",
        kind: "sent",
        label: `${step.method} ${step.path.split("?")[0]}`,
        data,
      };
    }
    case "response": {
      const data = step.body ?? JSON.stringify(step.headers);
      return {
        ...line,
        label: `HTTP ${step.status}`,
        kind: step.status < 400 ? "other" : "error",
        data,
      };
    }
    case "lost":
      return { ...line, label: "connection lost", kind: "error", data: step.message };
    default:
      return {
        ...line,
        id: step.id,
        lastId: step.id,
        ...readFrame(step.data, merge ? exchange : null),
      };
  }
}

/**
 * @param {string} data
 * @param {string | null} exchange null: pieces stay as they are
 */
function readFrame(data, exchange) {
  const event = eventOf(data);
  const label = typeof event.type === "string" ? event.type : data.slice(0, 40);
  const field = Object.hasOwn(PIECES, label) ? PIECES[label] : undefined;
  if (exchange === null || field === undefined || typeof event[field] !== "string")
    return { label, kind: kindOf(label), data };
  const piece = [
    exchange,
    label,
    String(event.toolCallId ?? ""),
    String(event.parentToolCallId ?? ""),
  ].join(" ");
  return { label, kind: kindOf(label), data: String(event[field]), piece };
}

/**
 * @param {string} label
 * @returns {Line["kind"]}
 */
function kindOf(label) {
  if (label === "error") return "error";
  if (label.startsWith("tool")) return "tool";
  return label === "text" ? "text" : "other";
}

/**
 * @param {Line} line is changed
 * @param {Line} next
 * @returns {boolean} whether the next one was a piece of the same, and is in it now
 */
export function join(line, next) {
  if (line.piece === "" || line.piece !== next.piece) return false;
  line.count += next.count;
  line.lastId = next.lastId;
  line.lastAt = next.lastAt;
  if (line.data.length < MAX_CHARS) line.data += next.data;
  return true;
}

/**
 * @param {Line} line
 * @param {string} wanted in lower case
 */
export function matches({ label, id, data }, wanted) {
  return wanted === "" || [label, id, data].some((text) => text.toLowerCase().includes(wanted));
}

/**
 * @param {number} milliseconds
 * @returns {string} such as "+0.412 s"
 */
export function sincePost(milliseconds) {
  return `+${(milliseconds / 1000).toFixed(3)} s`;
}
