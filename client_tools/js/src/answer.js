/** What the runs of one `send` have said so far, without what became void. */

import { isBehind } from "./cursors.js";
import { LimitExceeded } from "./errors.js";

/** @typedef {import("./events.js").Event} Event */

/**
 * @typedef {object} Call
 * @property {string} id
 * @property {string} name
 * @property {string} arguments JSON as text, perhaps not whole yet
 * @property {boolean} complete whether the arguments are whole
 * @property {unknown} [result] of the server's tool, or of this client's
 * @property {boolean} [isError]
 */

const MAX_CHARS = 64 * 1024 * 1024;

export class Answer {
  /** What a rewind may still take back, and all that calls are made of.
   * @type {Event[]} */
  #events = [];
  /** Of the runs that have ended. */
  #settled = { text: "", reasoning: "", chars: 0 };
  #text = "";
  #reasoning = "";
  /** @type {Call[] | null} */
  #calls = null;
  #chars = 0;
  #maxChars;

  /** @param {number} [maxChars] that it may keep */
  constructor(maxChars = MAX_CHARS) {
    this.#maxChars = maxChars;
  }

  /**
   * @param {Event} event
   * @throws {LimitExceeded}
   */
  add(event) {
    if (event.type === "rewind") return this.#rewind(event);
    this.#keep(event);
    if (this.#chars > this.#maxChars) throw new LimitExceeded("the answer is too long to be kept");
    this.#events.push(event);
    // a run that has ended is never rewound
    if (event.type === "run-end") this.#settle();
  }

  /** The text of all runs. */
  get text() {
    return this.#text;
  }

  /** The model's reasoning, for those who asked for it. */
  get reasoning() {
    return this.#reasoning;
  }

  /** @returns {readonly Call[]} in the order in which they began; the same list as long as nothing has changed */
  get calls() {
    this.#calls ??= callsOf(this.#events);
    return this.#calls;
  }

  /** @param {import("./events.js").RewindEvent} event */
  #rewind({ to }) {
    const kept = this.#events.filter(({ cursor }) => !isBehind(cursor, to));
    ({ text: this.#text, reasoning: this.#reasoning, chars: this.#chars } = this.#settled);
    this.#events = kept;
    for (const event of kept) this.#keep(event);
    this.#calls = null;
  }

  #settle() {
    this.#events = this.#events.filter(isOfCall);
    const chars = this.#chars - this.#events.reduce((sum, event) => sum + charsOf(event), 0);
    this.#settled = { text: this.#text, reasoning: this.#reasoning, chars };
  }

  /** @param {Event} event */
  #keep(event) {
    if (event.type === "text") this.#text += event.content;
    else if (event.type === "reasoning") this.#reasoning += event.delta;
    if (isOfCall(event)) this.#calls = null;
    this.#chars += charsOf(event);
  }
}

/** @param {readonly Event[]} events */
function callsOf(events) {
  /** @type {Map<string, Call>} */
  const calls = new Map();
  for (const event of events) {
    if (event.type === "tool-call-start") calls.set(event.toolCallId, begun(event));
    if (event.type === "owed") addOwed(calls, event.toolCalls);
    const call = "toolCallId" in event ? calls.get(event.toolCallId) : undefined;
    if (call) apply(call, event);
    const waiting = event.type === "interrupt" ? calls.get(event.payload.toolCallId ?? event.id) : undefined;
    if (waiting) waiting.complete = true;
  }
  return [...calls.values()];
}

/** @param {Event} event */
function isOfCall(event) {
  return "toolCallId" in event || event.type === "owed" || event.type === "interrupt";
}

/**
 * Who resumes has not seen how the calls began.
 *
 * @param {Map<string, Call>} calls
 * @param {import("./events.js").OwedCall[]} owed
 */
function addOwed(calls, owed) {
  for (const { id, name, arguments: text } of owed) {
    if (!calls.has(id)) calls.set(id, { id, name, arguments: text, complete: true });
  }
}

/** @param {{toolCallId: string, toolCallName: string}} event */
function begun({ toolCallId, toolCallName }) {
  return { id: toolCallId, name: toolCallName, arguments: "", complete: false };
}

/**
 * @param {Call} call
 * @param {Event} event
 */
function apply(call, event) {
  if (event.type === "tool-call-args") call.arguments += event.delta;
  else if (event.type === "tool-call-end") call.complete = true;
  else if (event.type === "tool-result") call.result = event.result;
  else if (event.type === "client-tool-result") {
    call.result = event.content;
    call.isError = event.isError;
  }
}

/** @param {Event} event */
function charsOf(event) {
  if (event.type === "text") return event.content.length;
  return event.type === "reasoning" || event.type === "tool-call-args" ? event.delta.length : 0;
}
