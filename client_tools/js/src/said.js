/** The text of an answer, over all its runs, without what was rewound. */

import { LimitExceeded } from "./errors.js";
import { isBehind } from "./events.js";

/** @typedef {import("./events.js").Event} Event */

/** Default limit of the texts of an answer. */
export const MAX_CHARS = 64 * 1024 * 1024;

export class SaidText {
  /** The text of the runs that have ended: they are never rewound. */
  #ended = "";
  /** @type {{cursor: string, content: string}[]} the text of the current run */
  #pieces = [];
  #text = "";
  #maxChars;

  /** @param {number} [maxChars] limit of the text */
  constructor(maxChars = MAX_CHARS) {
    this.#maxChars = maxChars;
  }

  /** The text of all runs; a blank line separates runs between which client tools ran. */
  get text() {
    return this.#text;
  }

  /**
   * @param {Event} event
   * @throws {LimitExceeded}
   */
  add(event) {
    if (event.type === "text") {
      this.#pieces.push(event);
      this.#append(event.content);
    } else if (event.type === "run-end") {
      this.#ended = this.#text;
      this.#pieces = [];
    } else if (event.type === "rewind") {
      this.#pieces = this.#pieces.filter(({ cursor }) => !isBehind(cursor, event.to));
      this.#text = this.#ended;
      for (const { content } of this.#pieces) this.#append(content);
    }
  }

  /** @param {string} content */
  #append(content) {
    const isFirst = this.#text !== "" && this.#text.length === this.#ended.length;
    this.#text += isFirst ? `\n\n${content}` : content;
    if (this.#text.length > this.#maxChars) {
      throw new LimitExceeded("the answer is longer than the limit of its texts");
    }
  }
}
