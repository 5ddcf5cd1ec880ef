/** The owed calls of a conversation, by its events, and the results that a person gives. */

import { isOurs } from "./tools.js";

/** @typedef {import("../js/src/index.js").Event} Event */
/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("../js/src/index.js").ToolMessage} ToolMessage */
/** @typedef {import("./asks.js").Result} Result */

export class OwedCalls {
  /** Calls that wait for an answer.
   * @type {Set<string>} */
  open;
  /** Open calls that this page runs. */
  mine = new Set();
  /**
   * True once another client has answered a call of this page's tools: the rest is in the history.
   */
  wentOnElsewhere = false;
  /** True if calls were closed without an event, so that the page shows an old state. */
  isOutdated = false;
  /** Calls that were owed when the history was read; null once an event has listed the owed calls.
   * @type {Set<string> | null} */
  #expected;
  /** Calls with an answer in the events. */
  #answered = new Set();

  /** @param {OwedCall[]} [expected] calls that were owed when the history was read */
  constructor(expected = []) {
    this.open = new Set(expected.map(({ id }) => id));
    this.#expected = expected.length > 0 ? new Set(this.open) : null;
  }

  /** @param {Event} event */
  feed(event) {
    if (event.type === "run-start") {
      // a run starts when nothing is owed any more
      this.isOutdated ||= [...this.open].some((id) => !this.#answered.has(id));
      this.#reset([]);
    } else if (event.type === "owed") {
      const expected = this.#expected;
      this.#reset(event.toolCalls);
      this.isOutdated ||= expected !== null && !isSame(expected, this.open);
    } else if (event.type === "client-tool-result" || event.type === "client-decision") {
      this.#close(event.toolCallId);
    } else if (event.type === "call-elsewhere") {
      this.mine.delete(event.toolCallId);
      if (event.state === "answered") this.#close(event.toolCallId);
      this.wentOnElsewhere ||= event.state === "answered";
    }
  }

  /** Note the end of the events: expected calls without an event were closed before they began. */
  end() {
    this.isOutdated ||= this.#expected !== null;
  }

  /** @param {OwedCall[]} calls */
  #reset(calls) {
    this.#expected = null;
    this.open = new Set(calls.map(({ id }) => id));
    this.mine = new Set(calls.filter(isOurs).map(({ id }) => id));
  }

  /** @param {string} id */
  #close(id) {
    this.#answered.add(id);
    this.open.delete(id);
    this.mine.delete(id);
  }
}

/**
 * @param {Set<string>} ids
 * @param {Set<string>} others
 */
function isSame(ids, others) {
  return ids.size === others.size && [...ids].every((id) => others.has(id));
}

/**
 * @param {{id: string} & Result} reply
 * @returns {ToolMessage}
 */
export function resultOf({ id, content, isError }) {
  return { role: "tool", toolCallId: id, content, ...(isError && { isError }) };
}

/**
 * @param {unknown} content of a result
 * @returns {string} as text for the page
 */
export function shownResult(content) {
  return typeof content === "string" ? content : JSON.stringify(content);
}
