/** The raw wire beside the chat: what was posted, and each event with its id and time. Bounded. */

import { asRecord, parseJson } from "./api.js";
import { el } from "./dom.js";

/** @typedef {import("./api.js").Exchange} Exchange */

/** Lines that are kept; older ones are dropped. */
export const MAX_LINES = 500;
/** Characters of one line that are kept. */
const MAX_CHARS = 20_000;
const PREVIEW_CHARS = 200;

export class Inspector {
  #list;
  #counters;
  #total = 0;
  /** @type {HTMLElement[]} */
  #waiting = [];

  /**
   * @param {HTMLElement} list
   * @param {HTMLElement[]} counters where the number of lines is shown
   */
  constructor(list, counters) {
    this.#list = list;
    this.#counters = counters;
    this.clear();
  }

  clear() {
    this.#total = 0;
    this.#waiting = [];
    this.#list.replaceChildren();
    this.#showCount();
  }

  /** @param {import("./sse.js").SseEvent} event */
  seen({ id, data }) {
    const type = asRecord(parseJson(data)).type;
    this.add({ direction: "received", label: typeof type === "string" ? type : data.slice(0, 40), id, data });
  }

  /** @param {Exchange} exchange */
  add(exchange) {
    this.#total += 1;
    if (this.#waiting.length === 0) requestAnimationFrame(() => this.#flush());
    this.#waiting.push(line(exchange));
    if (this.#waiting.length > MAX_LINES) this.#waiting.shift();
  }

  toEnd() {
    this.#list.scrollTop = this.#list.scrollHeight;
  }

  /** One layout per frame, however fast events come. */
  #flush() {
    const { scrollHeight, scrollTop, clientHeight } = this.#list;
    const atEnd = scrollHeight - scrollTop - clientHeight < 40;
    this.#list.append(...this.#waiting);
    this.#waiting = [];
    while (this.#list.childElementCount > MAX_LINES) this.#list.firstElementChild?.remove();
    this.#showCount();
    if (atEnd) this.toEnd();
  }

  #showCount() {
    const kept = this.#list.childElementCount;
    const text = this.#total > kept ? `last ${kept} of ${this.#total}` : String(kept);
    for (const counter of this.#counters) counter.textContent = text;
  }
}

/**
 * @param {Exchange} exchange
 * @returns {HTMLElement}
 */
function line({ direction, label, id, data }) {
  const now = new Date();
  const time = el("time", {}, clock(now));
  time.dateTime = now.toISOString();
  const kept = data.length > MAX_CHARS ? `${data.slice(0, MAX_CHARS)} …` : data;
  const head = el("span", { class: "line-head" }, el("span", { class: "kind" }, label), time);
  if (id) head.insertBefore(eventId(id), time);
  const preview = el("code", { class: "preview" }, kept.slice(0, PREVIEW_CHARS) || "no body");
  const details = el("details", {}, el("summary", {}, head, preview));
  details.addEventListener("toggle", () => details.append(el("pre", {}, pretty(kept, id))), { once: true });
  const item = el("li", { class: "line" }, details);
  item.dataset.direction = direction;
  item.dataset.kind = kindOf(direction, label);
  return item;
}

/**
 * @param {string} id the run's id gives way when there is no room, the place in it does not
 * @returns {HTMLElement}
 */
function eventId(id) {
  const dot = id.lastIndexOf(".");
  return el("span", { class: "event-id", title: id }, el("span", {}, id.slice(0, dot + 1)), id.slice(dot + 1));
}

/**
 * @param {Exchange["direction"]} direction
 * @param {string} label
 */
function kindOf(direction, label) {
  if (direction === "sent") return "sent";
  if (label === "error" || label.startsWith("HTTP ")) return "error";
  if (label.startsWith("tool")) return "tool";
  return label === "text" ? "text" : "other";
}

/**
 * @param {string} data
 * @param {string | undefined} id
 */
function pretty(data, id) {
  const value = parseJson(data);
  const body = value === undefined ? data : JSON.stringify(value, null, 2);
  return id ? `id: ${id}\n\n${body}` : body || "no body";
}

/**
 * @param {Date} date
 * @returns {string} local time to the millisecond
 */
function clock(date) {
  const [h, m, s] = [date.getHours(), date.getMinutes(), date.getSeconds()].map((n) => String(n).padStart(2, "0"));
  return `${h}:${m}:${s}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
