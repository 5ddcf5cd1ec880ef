/**
 * The time line beside the chat: each post and each event, with its id and the time since the post.
 */

import { escapeProse } from "../js/src/index.js";
import { parseJson } from "../js/src/json.js";
import { el } from "./dom.js";
import { join, lineOf, matches, sincePost } from "./timeline.js";

/** @typedef {import("./recorder.js").RecordedStep} RecordedStep */
/** @typedef {import("./timeline.js").Line} Line */

/** Lines that are shown; older ones are dropped. */
export const MAX_LINES = 500;
/** Characters of one line that are shown. */
const MAX_CHARS = 20_000;
const PREVIEW_CHARS = 200;

export class Inspector {
  #list;
  #counters;
  #stepsOf;
  #total = 0;
  #merge = true;
  #wanted = "";
  /** @type {LineRow[]} in order; the last ones are drawn in the next animation frame */
  #lines = [];
  #isDue = false;

  /**
   * @param {HTMLElement} list
   * @param {HTMLElement[]} counters elements that show the number of lines
   * @param {() => RecordedStep[]} stepsOf returns all recorded steps
   */
  constructor(list, counters, stepsOf) {
    this.#list = list;
    this.#counters = counters;
    this.#stepsOf = stepsOf;
    this.clear();
  }

  clear() {
    this.#total = 0;
    this.#lines = [];
    this.#list.replaceChildren();
    this.#showCount();
  }

  /**
   * Change the display of the recorded steps.
   *
   * @param {{merge?: boolean, wanted?: string}} change whether pieces are merged; text that a line
   *   must contain
   */
  choose({ merge = this.#merge, wanted = this.#wanted }) {
    this.#merge = merge;
    this.#wanted = wanted;
    this.clear();
    for (const kept of this.#stepsOf()) this.add(kept);
  }

  /** @param {RecordedStep} kept */
  add(kept) {
    const line = lineOf(kept, this.#merge);
    const last = this.#lines.at(-1);
    if (last && join(last.line, line)) last.isStale = true;
    else if (matches(line, this.#wanted)) this.#append(line);
    else return;
    if (!this.#isDue) requestAnimationFrame(() => this.#flush());
    this.#isDue = true;
  }

  /** @param {Line} line */
  #append(line) {
    this.#total += 1;
    this.#lines.push(new LineRow(line));
    if (this.#lines.length > 2 * MAX_LINES) this.#trim();
  }

  #trim() {
    for (const old of this.#lines.splice(0, this.#lines.length - MAX_LINES)) old.element?.remove();
  }

  toEnd() {
    this.#list.scrollTop = this.#list.scrollHeight;
  }

  /** Draw the changed lines, once per animation frame. */
  #flush() {
    this.#isDue = false;
    const { scrollHeight, scrollTop, clientHeight } = this.#list;
    const atEnd = scrollHeight - scrollTop - clientHeight < 40;
    this.#trim();
    for (const shown of this.#lines) {
      if (shown.isStale) shown.draw(this.#list);
    }
    this.#showCount();
    if (atEnd) this.toEnd();
  }

  #showCount() {
    const kept = this.#list.childElementCount;
    const text = this.#total > kept ? `last ${kept} of ${this.#total}` : String(kept);
    for (const counter of this.#counters) counter.textContent = text;
  }
}

/** A line of the list, and its element once it is drawn. */
class LineRow {
  isStale = true;
  /** @type {HTMLElement | null} */
  element = null;

  /** @param {Line} line */
  constructor(line) {
    this.line = line;
  }

  /** @param {HTMLElement} list */
  draw(list) {
    this.isStale = false;
    const isOpen = this.element?.querySelector("details")?.open ?? false;
    const element = elementOf(this.line, isOpen);
    if (this.element) this.element.replaceWith(element);
    else list.append(element);
    this.element = element;
  }
}

/**
 * @param {Line} line
 * @param {boolean} isOpen
 * @returns {HTMLElement}
 */
function elementOf(line, isOpen) {
  const { direction, label, kind, id, data, count } = line;
  const time = el("time", { title: clock(line.time) }, timeText(line));
  time.dateTime = new Date(line.time).toISOString();
  const head = el("span", { class: "line-head" }, el("span", { class: "kind" }, label), time);
  if (count > 1) head.insertBefore(el("span", { class: "pieces" }, `×${count}`), time);
  if (id) head.insertBefore(eventId(id), time);
  const preview = el(
    "code",
    { class: "preview" },
    escapeProse(data.slice(0, PREVIEW_CHARS)) || "no body",
  );
  const details = el("details", {}, el("summary", {}, head, preview));
  details.addEventListener("toggle", () => details.append(el("pre", {}, pretty(line))), {
    once: true,
  });
  details.open = isOpen;
  const item = el("li", { class: "line" }, details);
  item.dataset.direction = direction;
  item.dataset.kind = kind;
  return item;
}

/** @param {Line} line */
function timeText({ direction, at, lastAt, count, time }) {
  if (direction === "sent" && at === 0) return clock(time);
  return count > 1 ? `${sincePost(at)} … ${sincePost(lastAt).slice(1)}` : sincePost(at);
}

/**
 * @param {string} id its run id is shortened if there is no room, the position in the run is not
 * @returns {HTMLElement}
 */
function eventId(id) {
  const dot = id.lastIndexOf(".");
  return el(
    "span",
    { class: "event-id", title: id },
    el("span", {}, id.slice(0, dot + 1)),
    id.slice(dot + 1),
  );
}

/** @param {Line} line */
function pretty({ data, id, lastId, count }) {
  const kept = data.length > MAX_CHARS ? `${data.slice(0, MAX_CHARS)} …` : data;
  const value = count > 1 ? undefined : parseJson(kept);
  const body = escapeProse(value === undefined ? kept : JSON.stringify(value, null, 2));
  if (!id) return body || "no body";
  return `id: ${id}${count > 1 ? ` … ${lastId}\n${count} pieces, joined:` : ""}\n\n${body}`;
}

/**
 * @param {number} time milliseconds since 1970
 * @returns {string} local time to the millisecond
 */
function clock(time) {
  const date = new Date(time);
  const [h, m, s] = [date.getHours(), date.getMinutes(), date.getSeconds()].map((n) =>
    String(n).padStart(2, "0"),
  );
  return `${h}:${m}:${s}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
