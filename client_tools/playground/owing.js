/** What a conversation owes while its events come, and the answers that people give. */

import { isOurs } from "./tools.js";

/** @typedef {import("../js/src/index.js").Event} Event */
/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("../js/src/index.js").ToolMessage} ToolMessage */
/** @typedef {import("./asks.js").Result} Result */

export class Owing {
  /** Those that wait for an answer. */
  open;
  /** Those of them that this page runs. */
  mine = new Set();
  /** Whether a call was settled elsewhere, so that what came of it is in the history. */
  wentOnElsewhere = false;
  /** Whether the events have said what is owed. */
  #isTold = false;

  /** @param {OwedCall[]} [expected] what was owed when the history was read */
  constructor(expected = []) {
    this.open = new Set(expected.map(({ id }) => id));
  }

  /** @param {Event} event */
  feed(event) {
    if (event.type === "run-start") {
      // a run begins when nothing is owed any more
      this.wentOnElsewhere ||= this.open.size > 0;
      this.#reset([]);
    } else if (event.type === "owed") this.#reset(event.toolCalls);
    else if (event.type === "client-tool-result" || event.type === "client-decision") this.#close(event.toolCallId);
    else if (event.type === "call-elsewhere") {
      this.mine.delete(event.toolCallId);
      if (event.state === "answered") this.#close(event.toolCallId);
      this.wentOnElsewhere ||= event.state === "answered";
    }
  }

  /** No event comes any more: what was expected and not told of was settled before they began. */
  end() {
    this.wentOnElsewhere ||= !this.#isTold && this.open.size > 0;
  }

  /** @param {OwedCall[]} calls */
  #reset(calls) {
    this.#isTold = true;
    this.open = new Set(calls.map(({ id }) => id));
    this.mine = new Set(calls.filter(isOurs).map(({ id }) => id));
  }

  /** @param {string} id */
  #close(id) {
    this.open.delete(id);
    this.mine.delete(id);
  }
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
 * @returns {string} as it is shown
 */
export function shownResult(content) {
  return typeof content === "string" ? content : JSON.stringify(content);
}
