/**
 * The waterfall of an answer: a tree of what took time in it, each with its bars on one axis.
 *
 * Drawn at most ten times a second, and not while it is hidden. Between changes only two numbers of
 * the style change, from which the browser places the bars that go on.
 */

import { AnswerLog } from "./answers.js";
import { el, need } from "./dom.js";
import { extentOf, rowsOf } from "./spans.js";
import { duration, lengthOf, marksOf, nameOf, wordsOf } from "./waterfall-words.js";

/** @typedef {import("./answers.js").Answer} Answer */
/** @typedef {import("./recorder.js").RecordedStep} RecordedStep */
/** @typedef {import("./spans.js").Row} Row */
/** @typedef {import("./spans.js").Span} Span */

/** Time between two drawings. */
const PAUSE = 100; // milliseconds
/** Rows that are shown; of more, the last ones. */
export const MAX_ROWS = 500;
/** Marks of the axis. */
const MARKS = 4;
/** The part of the axis in which marks have room. */
const ROOM = 0.85;
const NEWEST = "newest";

export class Waterfall {
  log = new AnswerLog();

  #choice = need("#answer", HTMLSelectElement);
  #tree = need("#bars", HTMLElement);
  #axis = need("#marks", HTMLElement);
  #details = need("#bar-details", HTMLElement);
  #note = need("#waterfall-note", HTMLElement);
  #isShown = false;
  #isDue = false;
  /** What is drawn. */
  #drawn = "";
  #marks = "";
  /** @type {Row[]} */
  #rows = [];
  /** @type {Map<string, BarRow>} */
  #elements = new Map();
  /** Rows whose children are hidden. */
  #closed = new Set();
  /** The row with the focus, or that had it last. */
  #current = "";

  constructor() {
    this.#choice.addEventListener("change", () => this.#draw());
    this.#tree.addEventListener("keydown", (event) => this.#onKey(event));
    this.#tree.addEventListener("focusin", ({ target }) => this.#onFocus(target));
    this.#tree.addEventListener("click", ({ target }) => this.#onClick(target));
    this.clear();
  }

  /** @param {RecordedStep} kept */
  add(kept) {
    if (this.log.add(kept)) this.#schedule();
  }

  clear() {
    this.log.clear();
    this.#closed.clear();
    this.#draw();
  }

  /** @param {boolean} isShown */
  show(isShown) {
    this.#isShown = isShown;
    if (isShown) this.#draw();
  }

  #schedule() {
    if (this.#isDue || !this.#isShown) return;
    this.#isDue = true;
    setTimeout(() => requestAnimationFrame(() => this.#draw()), PAUSE);
  }

  /** @returns {Answer | undefined} the answer that is chosen */
  get #answer() {
    const { answers } = this.log;
    return answers.find(({ number }) => String(number) === this.#choice.value) ?? answers.at(-1);
  }

  #draw() {
    this.#isDue = false;
    this.#drawChoice();
    const answer = this.#answer;
    const drawn = answer ? `${answer.number} ${answer.changes}` : "";
    if (this.#drawn !== drawn) {
      this.#drawn = drawn;
      this.#rows = answer ? rowsOf(answer) : [];
    }
    const { from, to, isOpen } = extentOf(this.#rows, now());
    this.#drawRows(from);
    this.#drawAxis(to - from);
    if (isOpen) this.#schedule();
  }

  #drawChoice() {
    const { answers } = this.log;
    const names = answers.map(({ number }) => String(number));
    const shown = [...this.#choice.options].slice(1).map(({ value }) => value);
    if (this.#choice.options.length > 0 && names.join() === shown.join()) return;
    const { value } = this.#choice;
    const options = names.map((name) => new Option(`Answer ${name}`, name));
    this.#choice.replaceChildren(new Option("Newest answer", NEWEST), ...options);
    this.#choice.value = names.includes(value) ? value : NEWEST;
  }

  /** @param {number} zero */
  #drawRows(zero) {
    const hidden = new Set();
    const open = this.#rows.filter(({ id, parent }) => {
      if (hidden.has(parent) || this.#closed.has(parent)) hidden.add(id);
      return !hidden.has(id);
    });
    const parents = new Set(this.#rows.map(({ parent }) => parent));
    const shown = open.slice(-MAX_ROWS);
    const left = open.length - shown.length;
    this.#note.textContent = left > 0 ? `${left} earlier bars are not shown.` : "";
    if (!shown.some(({ id }) => id === this.#current)) this.#current = shown[0]?.id ?? "";
    const rows = shown.map((row) => {
      const bar = this.#elements.get(row.id) ?? new BarRow();
      this.#elements.set(row.id, bar);
      const isExpanded = parents.has(row.id) ? !this.#closed.has(row.id) : null;
      bar.draw(row, { zero, isExpanded, isCurrent: row.id === this.#current });
      return bar.element;
    });
    const kept = new Set(shown.map(({ id }) => id));
    for (const id of this.#elements.keys()) if (!kept.has(id)) this.#elements.delete(id);
    keepInOrder(this.#tree, rows);
    this.#showDetails(zero);
  }

  /** @param {number} total */
  #drawAxis(total) {
    const length = Math.max(1, total);
    for (const part of [this.#tree, this.#axis]) part.style.setProperty("--total", String(length));
    // one at the very end has no room for its text
    const marks = marksOf(length, MARKS).filter((mark) => mark < ROOM * length);
    const text = marks.join();
    if (this.#marks === text) return;
    this.#marks = text;
    this.#axis.replaceChildren(
      ...marks.map((mark) => {
        const shown = el("span", {}, mark === 0 ? "0" : duration(mark));
        shown.style.setProperty("--at", String(mark));
        return shown;
      }),
    );
  }

  /** @param {number} zero */
  #showDetails(zero) {
    const row = this.#rows.find(({ id }) => id === this.#current);
    const words = row ? wordsOf(row, zero) : [];
    if (this.#details.textContent === words.join("")) return;
    this.#details.replaceChildren(...words.map((each) => el("span", {}, each)));
  }

  // ---------------------------------------------------------------- keys and clicks
  /** @param {EventTarget | null} target */
  #onFocus(target) {
    const id = rowOf(target);
    if (id === undefined || id === this.#current) return;
    this.#elements.get(this.#current)?.setCurrent(false);
    this.#current = id;
    this.#elements.get(id)?.setCurrent(true);
    this.#showDetails(extentOf(this.#rows, now()).from);
  }

  /** @param {EventTarget | null} target */
  #onClick(target) {
    const id = rowOf(target);
    if (id === undefined) return;
    this.#elements.get(id)?.element.focus();
    if (target instanceof Element && target.closest(".twisty")) this.#fold(id, null);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const ids = [...this.#elements.keys()].sort(
      (a, b) => this.#place(a) - this.#place(b),
    );
    const at = ids.indexOf(this.#current);
    const row = this.#rows.find(({ id }) => id === this.#current);
    if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
    const isClosed = this.#closed.has(row.id);
    const child = this.#rows.find(({ parent }) => parent === row.id);
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowDown: () => this.#focus(ids[at + 1]),
      ArrowUp: () => this.#focus(ids[at - 1]),
      Home: () => this.#focus(ids[0]),
      End: () => this.#focus(ids.at(-1)),
      ArrowLeft: () => (child && !isClosed ? this.#fold(row.id, true) : this.#focus(row.parent)),
      ArrowRight: () => (child && isClosed ? this.#fold(row.id, false) : this.#focus(child?.id)),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** @param {string} wanted */
  #place(wanted) {
    return this.#rows.findIndex(({ id }) => id === wanted);
  }

  /** @param {string | undefined} id */
  #focus(id) {
    if (id) this.#elements.get(id)?.element.focus();
  }

  /**
   * @param {string} id
   * @param {boolean | null} isClosed null: the other way round
   */
  #fold(id, isClosed) {
    if (isClosed ?? !this.#closed.has(id)) this.#closed.add(id);
    else this.#closed.delete(id);
    this.#draw();
  }
}

/** One row of the tree. */
class BarRow {
  element = el("li", { class: "bar-row" });
  #twisty = el("span", { class: "twisty" });
  #name = el("span", { class: "bar-name" });
  #length = el("span", { class: "bar-length" });
  #track = el("span", { class: "track" });
  #drawn = "";

  constructor() {
    const label = el("span", { class: "bar-label" }, this.#twisty, this.#name, this.#length);
    this.element.setAttribute("role", "treeitem");
    this.element.append(label, this.#track);
  }

  /**
   * @param {Row} row
   * @param {{zero: number, isExpanded: boolean | null, isCurrent: boolean}} how
   */
  draw(row, { zero, isExpanded, isCurrent }) {
    this.setCurrent(isCurrent);
    const drawn = JSON.stringify([row, zero, isExpanded]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const { element } = this;
    element.dataset.row = row.id;
    element.dataset.kind = row.kind;
    element.style.setProperty("--depth", String(row.depth));
    element.setAttribute("aria-level", String(row.depth + 1));
    element.setAttribute("aria-label", wordsOf(row, zero).join(". "));
    if (isExpanded === null) element.removeAttribute("aria-expanded");
    else element.setAttribute("aria-expanded", String(isExpanded));
    const length = lengthOf(row);
    this.#twisty.textContent = isExpanded === null ? "" : isExpanded ? "▾" : "▸";
    this.#name.textContent = nameOf(row);
    this.#length.textContent = length === null ? "…" : duration(length);
    this.#track.replaceChildren(...row.spans.map((span) => bar(span, zero)));
  }

  /** @param {boolean} isCurrent whether the tab key leads to it */
  setCurrent(isCurrent) {
    this.element.tabIndex = isCurrent ? 0 : -1;
    this.element.setAttribute("aria-selected", String(isCurrent));
  }
}

/**
 * @param {Span} span
 * @param {number} zero
 */
function bar({ kind, from, to, state, isRough }, zero) {
  const shown = el("span", { class: isRough ? "bar-span rough" : "bar-span" });
  shown.dataset.kind = kind;
  shown.dataset.state = state;
  shown.style.setProperty("--from", String(from - zero));
  // one that goes on reaches to the end of the axis
  if (to !== null) shown.style.setProperty("--to", String(to - zero));
  return shown;
}

/** @returns {number} the time as steps have it */
function now() {
  return performance.timeOrigin + performance.now();
}

/**
 * @param {EventTarget | null} target
 * @returns {string | undefined} the id of the row that it is in
 */
function rowOf(target) {
  const found = target instanceof Element ? target.closest(".bar-row") : null;
  return found instanceof HTMLElement ? found.dataset.row : undefined;
}

/**
 * Make these the children of a list; what is in its place already is not touched.
 *
 * @param {HTMLElement} list
 * @param {HTMLElement[]} items
 */
function keepInOrder(list, items) {
  const kept = new Set(items);
  // first, because an element that is moved loses the focus
  for (const old of [...list.children]) {
    if (!(old instanceof HTMLElement && kept.has(old))) old.remove();
  }
  items.forEach((item, index) => {
    const there = list.children[index] ?? null;
    if (there !== item) list.insertBefore(item, there);
  });
}
