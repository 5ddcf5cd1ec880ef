/**
 * Decoder of server-sent events by the WHATWG HTML standard, one chunk of bytes at a time.
 *
 * A block without `data` dispatches nothing but sets the last event id; an unfinished block at the
 * end of the stream is dropped.
 */

import { LimitExceeded } from "./errors.js";

/**
 * @typedef {object} SseEvent
 * @property {string} id the last event id when the event was dispatched, "" if there was none
 * @property {string} event its type, "message" if the stream names none
 * @property {string} data its data lines, joined by LF
 */

export class SseDecoder {
  /** The id of the last finished block, to resume after. */
  lastEventId = "";
  /** Milliseconds that the server asks to wait before a reconnect, if it does.
   * @type {number | null} */
  retry = null;
  /** Number of comments so far. */
  comments = 0;

  #utf8 = new TextDecoder();
  #maxChars;
  #line = "";
  #skipLineFeed = false;
  #id = "";
  #event = "";
  /** @type {string[]} */
  #data = [];
  #dataChars = 0;

  /** @param {number} maxChars characters that one unfinished event may hold */
  constructor(maxChars) {
    this.#maxChars = maxChars;
  }

  /**
   * @param {Uint8Array} bytes one chunk, split anywhere
   * @returns {SseEvent[]} the events that these bytes complete
   * @throws {LimitExceeded} if an event is too large
   */
  feed(bytes) {
    let text = this.#utf8.decode(bytes, { stream: true });
    if (text === "") return [];
    if (this.#skipLineFeed && text.startsWith("\n")) text = text.slice(1);
    this.#skipLineFeed = text === "" ? false : text.endsWith("\r");

    const lines = text.split(/\r\n|\r|\n/);
    lines[0] = this.#line + lines[0];
    this.#line = lines.pop() ?? "";

    /** @type {SseEvent[]} */
    const events = [];
    for (const line of lines) {
      if (line === "") this.#dispatch(events);
      else this.#field(line);
    }
    if (this.#line.length + this.#dataChars > this.#maxChars) {
      throw new LimitExceeded("an event of the stream is too large");
    }
    return events;
  }

  /** @param {SseEvent[]} events */
  #dispatch(events) {
    this.lastEventId = this.#id;
    if (this.#data.length > 0) {
      events.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
    }
    this.#event = "";
    this.#data = [];
    this.#dataChars = 0;
  }

  /** @param {string} line */
  #field(line) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const start = line[colon + 1] === " " ? colon + 2 : colon + 1;
    const value = colon < 0 ? "" : line.slice(start);
    if (colon === 0) this.comments += 1;
    else if (name === "data") this.#append(value);
    else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "retry" && /^[0-9]+$/.test(value)) this.retry = Number(value);
  }

  /** @param {string} value */
  #append(value) {
    this.#data.push(value);
    this.#dataChars += value.length + 1;
    if (this.#dataChars > this.#maxChars) {
      throw new LimitExceeded("an event of the stream is too large");
    }
  }
}
