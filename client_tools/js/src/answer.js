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
  /** @type {Event[]} */
  #events = [];
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
    this.#chars += sizeOf(event);
    if (this.#chars > this.#maxChars) throw new LimitExceeded("the answer is too long to be kept");
    // what a client has acted on is never taken back, and so pieces before it can become one
    if (event.type === "run-end") this.#join(event.runId);
    this.#events.push(event);
  }

  /** The text of all runs. */
  get text() {
    return this.#events.map((event) => (event.type === "text" ? event.content : "")).join("");
  }

  /** The model's reasoning, for those who asked for it. */
  get reasoning() {
    return this.#events.map((event) => (event.type === "reasoning" ? event.delta : "")).join("");
  }

  /** @returns {Call[]} in the order in which they began */
  get calls() {
    /** @type {Map<string, Call>} */
    const calls = new Map();
    for (const event of this.#events) {
      if (event.type === "tool-call-start") calls.set(event.toolCallId, begun(event));
      const call = "toolCallId" in event ? calls.get(event.toolCallId) : undefined;
      if (call) apply(call, event);
    }
    return [...calls.values()];
  }

  /** @param {import("./events.js").RewindEvent} event */
  #rewind({ to }) {
    this.#events = this.#events.filter(({ cursor }) => !isBehind(cursor, to));
    this.#chars = this.#events.reduce((sum, event) => sum + sizeOf(event), 0);
  }

  /** @param {string | null} runId */
  #join(runId) {
    /** @type {Event[]} */
    const joined = [];
    for (const event of this.#events) {
      const last = joined.at(-1);
      if (event.type === "text" && last?.type === "text" && event.runId === runId && last.runId === runId) {
        joined[joined.length - 1] = { ...event, content: last.content + event.content };
      } else joined.push(event);
    }
    this.#events = joined;
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
function sizeOf(event) {
  if (event.type === "text") return event.content.length;
  return event.type === "reasoning" || event.type === "tool-call-args" ? event.delta.length : 0;
}
