/** What the bars of a waterfall say in words, and the marks of its time axis. */

import { escapeProse } from "../js/src/visible.js";

/** @typedef {import("./spans.js").Row} Row */
/** @typedef {import("./spans.js").Span} Span */

/** @type {Record<Span["kind"], string>} */
const KINDS = {
  request: "request",
  missing: "no connection",
  run: "run",
  queue: "waits in the queue",
  model: "model call",
  tool: "works",
  client: "waits for a client's result",
  person: "waits for a person",
};
/** @type {Record<Span["state"], string>} */
const STATES = {
  open: "goes on",
  done: "",
  failed: "failed",
  stopped: "stopped",
  paused: "paused",
  void: "void, another worker began it anew",
  skipped: "skipped",
};
/** Lengths between two marks of the axis, in milliseconds, times a power of ten. */
const STEPS = [1, 2, 5, 10];
const MINUTE = 60_000; // milliseconds
/** Lengths between marks that are above 10 s, in seconds. */
const LONG_STEPS = [10, 15, 30, ...[1, 2, 5, 10, 15, 30, 60].map((count) => 60 * count)];

/**
 * @param {Row} row
 * @returns {string} its name for people
 */
export function nameOf({ kind, name, title }) {
  if (kind === "run" || kind === "contact") return name;
  return escapeProse(title || name) || (kind === "agent" ? "sub-agent" : "call");
}

/**
 * @param {Row} row
 * @returns {number | null} the sum of its times in milliseconds, null if it goes on
 */
export function lengthOf({ spans }) {
  let sum = 0;
  for (const { from, to } of spans) {
    if (to === null) return null;
    sum += to - from;
  }
  return sum;
}

/**
 * @param {Row} row
 * @param {number} zero the beginning of its answer
 * @returns {string[]} the row in words: its name, then each of its spans, then the rest
 */
export function wordsOf(row, zero) {
  const { kind, name, title, tokens, progress } = row;
  const of = kind === "tool" && title && name && title !== name ? ` (${name})` : "";
  const model = kind === "model" && title ? `Model call, ${title}` : "";
  const named = model || (kind === "agent" ? "Sub-agent " : "") + nameOf(row) + of;
  const spans = row.spans.map((span) => spanWords(span, zero));
  const rest = [
    ...(tokens ? [`${tokens.input} tokens in, ${tokens.output} out`] : []),
    ...(progress ? [`last progress: ${progress}`] : []),
  ];
  return [named, ...spans, ...rest].map(escapeProse);
}

/**
 * @param {Span} span
 * @param {number} zero
 */
function spanWords({ kind, from, to, state, note, isRough, first, worked }, zero) {
  const about = isRough ? "about " : "";
  const length = to === null ? "" : `${about}${duration(to - from)}`;
  const begun = `from +${duration(from - zero)}`;
  return [
    [KINDS[kind], length, begun].filter((each) => each !== "").join(" "),
    STATES[state],
    note,
    first > 0 ? `first piece after ${duration(first - from)}` : "",
    worked > 0 ? `${duration(worked)} by the server's clock` : "",
  ]
    .filter((each) => each !== "")
    .join(", ");
}

/**
 * @param {number} milliseconds
 * @returns {string} such as "12 ms", "4.21 s" or "2 min 5 s"
 */
export function duration(milliseconds) {
  const ms = Math.max(0, Math.round(milliseconds));
  if (ms < 1000) return `${ms} ms`;
  if (ms < MINUTE) return `${Number((ms / 1000).toFixed(ms < 10_000 ? 2 : 1))} s`;
  const seconds = Math.round((ms % MINUTE) / 1000);
  const minutes = Math.floor(ms / MINUTE) + (seconds === 60 ? 1 : 0);
  const rest = seconds % 60 ? ` ${seconds} s` : "";
  if (minutes < 60) return `${minutes} min${rest}`;
  return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
}

/**
 * @param {number} total milliseconds that the axis spans
 * @param {number} most marks
 * @returns {number[]} the places of the marks, in milliseconds; 0 is one of them
 */
export function marksOf(total, most) {
  const step = stepOf(total / most);
  const count = Math.min(most, Math.floor(total / step));
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

/** @param {number} least */
function stepOf(least) {
  const long = LONG_STEPS.find((each) => 1000 * each >= least);
  if (least > 10_000) return long ? 1000 * long : Math.ceil(least / (60 * MINUTE)) * 60 * MINUTE;
  const power = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(least, 1))));
  return (STEPS.find((each) => each * power >= least) ?? 10) * power;
}
