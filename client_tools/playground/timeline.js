/** The lines of the time line: their labels, the search in them, and the merging of pieces. */

import { labelOf, pieceOf } from "./labels.js";
import { eventOf } from "./recorder.js";

/** @typedef {import("./recorder.js").RecordedStep} RecordedStep */

/**
 * @typedef {object} Line
 * @property {"sent" | "received"} direction
 * @property {string} label the event's type, or the request
 * @property {import("./labels.js").Kind | "sent"} kind
 * @property {string} id of its first frame; "" if there is none
 * @property {string} lastId
 * @property {string} data as it was sent or received; merged pieces are joined
 * @property {number} count the number of its steps
 * @property {number} at milliseconds since the post
 * @property {number} lastAt
 * @property {number} time milliseconds since 1970
 * @property {string} piece equal for neighbours that may be merged; "" if it is never merged
 */

/** Longest merged line, in characters. */
const MAX_CHARS = 20_000;

/**
 * @param {RecordedStep} kept
 * @param {boolean} merge whether it may be merged with its neighbours
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
 * @param {string | null} exchange null: pieces are not merged
 */
function readFrame(data, exchange) {
  const event = eventOf(data);
  const { label, kind } = labelOf(event, data);
  const piece = exchange === null ? null : pieceOf(event);
  if (piece === null) return { label, kind, data };
  return { label, kind, data: piece.text, piece: [exchange, label, ...piece.of].join(" ") };
}

/**
 * @param {Line} line to extend
 * @param {Line} next
 * @returns {boolean} whether `next` was merged into `line`
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
