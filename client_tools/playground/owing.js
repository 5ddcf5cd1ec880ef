/** What a conversation owes while its events come, and the answers that people give. */

import { isOurs } from "./tools.js";

/** @typedef {import("../js/src/index.js").Event} Event */
/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("../js/src/index.js").ToolMessage} ToolMessage */
/** @typedef {import("./asks.js").Result} Result */

export class Owing {
  /** Those that wait for an answer. */
  open = new Set();
  /** Those of them that this page runs. */
  mine = new Set();
  /** Whether another client has answered a call of this page's tools. */
  wentOnElsewhere = false;

  /** @param {Event} event */
  feed(event) {
    if (event.type === "run-start") this.#reset([]);
    else if (event.type === "owed") this.#reset(event.toolCalls);
    else if (event.type === "client-tool-result") this.#close(event.toolCallId);
    else if (event.type === "call-elsewhere") {
      this.mine.delete(event.toolCallId);
      if (event.state === "answered") this.#close(event.toolCallId);
      this.wentOnElsewhere ||= event.state === "answered";
    }
  }

  /** @param {OwedCall[]} calls */
  #reset(calls) {
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
