/**
 * Text of an agent as Markdown, which may still be coming. A worker reads it, and the page shows it
 * frame by frame, so it stays free for others, however much there is. What cannot be read in time
 * is shown as text.
 */

import { el } from "./dom.js";
import { forgetText, nextNumber, piecesInWork, readPiece } from "./reader.js";
import { patch } from "./shapes.js";
import { textParts } from "./textparts.js";

/** What a frame is used for: time for scripts, and work for the browser, see `patch`. */
const BUDGET = 12; // milliseconds
const WORK = 1000;
/** A text that took long to show is shown again after so many times as long. */
const REST = 4;
const LONGEST_REST = 1000; // milliseconds
/** Time that Markdown has before the text is shown without. */
const PATIENCE = 200; // milliseconds
/** What is shown of a text that is not read yet. */
const LONGEST_REST_SHOWN = 4000; // characters
/** Pieces that the worker has at once, so that those of a new text are soon read. */
const MOST_PIECES = 16;

/** @typedef {{until: number, work: number}} Budget */

/** Texts that are not shown as they are, the oldest first.
 * @type {Set<Prose>} */
const waiting = new Set();
let isPlanned = false;

export class Prose {
  element;
  #source = "";
  #isOpen = true;
  #blocks = el("div", { class: "blocks" });
  /** What is not shown as Markdown yet: its beginning, and what is hidden. */
  #rest = document.createTextNode("");
  #later = document.createTextNode("");
  #plain = el("span", { class: "unread" }, this.#rest);
  #hidden = el("span", {}, this.#later);
  /** When the rest began to wait. */
  #since = 0;
  /** The number by which the worker knows the text, and how much of it the worker has. */
  #number = nextNumber();
  #sent = 0;
  /** How much is in closed blocks, and in all that are shown. */
  #start = 0;
  #shown = 0;
  /** The last node that does not change any more.
   * @type {ChildNode | null} */
  #closed = null;
  /** An answer of the worker that is being shown.
   * @type {Generator<number, void> | null} */
  #showing = null;
  #isReading = false;
  /** Whether the worker is to be asked again. */
  #isStale = false;
  /** Whether what is not in closed blocks stays text. */
  #isGivenUp = false;
  #failures = 0;
  /** Time that was needed for what is shown, and when the worker may be asked again. */
  #cost = 0;
  #next = 0;

  constructor() {
    this.#hidden.hidden = true;
    this.element = el("div", { class: "text" }, this.#blocks, this.#plain, this.#hidden);
  }

  get source() {
    return this.#source;
  }

  /** @param {string} text */
  add(text) {
    this.#source += text;
    if (this.#rest.length === 0 && !this.#isGivenUp) {
      this.#since = performance.now();
      this.#hideRest(true);
    }
    const shown = Math.max(0, LONGEST_REST_SHOWN - this.#rest.length);
    this.#rest.appendData(text.slice(0, shown));
    this.#later.appendData(text.slice(shown));
    this.#isOpen = true;
    this.#wait();
  }

  /** Show all of it: nothing more is expected. */
  end() {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#next = 0;
    // once more, with all of it: the machine may have been busy
    if (this.#failures === 1) this.#isGivenUp = false;
    this.#wait();
  }

  #wait() {
    this.#isStale = true;
    if (waiting.has(this)) return;
    waiting.add(this);
    this.element.setAttribute("aria-busy", "true");
    plan();
  }

  /** Take it as shown, until there is more. */
  rest() {
    waiting.delete(this);
    if (!this.#isOpen) this.element.removeAttribute("aria-busy");
    if (this.element.isConnected) return;
    forgetText(this.#number);
    this.#begin();
  }

  /** Let the worker read it from its beginning, when there is more. */
  #begin() {
    this.#number = nextNumber();
    this.#sent = 0;
    this.#showing = null;
    this.#isReading = false;
  }

  /**
   * Go on with it.
   *
   * @param {Budget} budget
   * @returns {boolean} whether all of it is shown
   */
  show(budget) {
    if (!this.#showing && !this.#isReading) {
      if (!this.#isStale) return true;
      if (this.#isGivenUp) this.#showing = this.#showPlain();
      else if (performance.now() > this.#next && piecesInWork() < MOST_PIECES) void this.#read();
    }
    if (this.#showing) this.#advance(this.#showing, budget);
    this.#hideRest(!this.#isGivenUp && performance.now() < this.#since + PATIENCE);
    return !this.#showing && !this.#isReading && !this.#isStale;
  }

  /**
   * @param {Generator<number, void>} showing
   * @param {Budget} budget
   */
  #advance(showing, budget) {
    const start = performance.now();
    for (let isDone = false; !isDone && !isSpent(budget); ) {
      const step = showing.next();
      isDone = step.done === true;
      budget.work -= step.value ?? 0;
      if (isDone) this.#showing = null;
    }
    const now = performance.now();
    this.#cost += now - start;
    if (this.#showing) return;
    this.#next = now + Math.min(LONGEST_REST, REST * this.#cost);
    this.#cost = 0;
  }

  /**
   * Hide what will soon be Markdown: behind Markdown as if it had not come, else with its size.
   *
   * @param {boolean} isSoon
   */
  #hideRest(isSoon) {
    this.#plain.hidden = isSoon && this.#shown > 0;
    this.#plain.classList.toggle("unread", isSoon);
  }

  async #read() {
    const asked = performance.now();
    const [number, isOpen, { length }] = [this.#number, this.#isOpen, this.#source];
    this.#isReading = true;
    this.#isStale = false;
    const added = this.#source.slice(this.#sent);
    this.#sent = length;
    const answer = await readPiece({ text: number, added, isOpen });
    if (number !== this.#number) return;
    this.#isReading = false;
    if (typeof answer === "string") return this.#takeRefusal(answer);
    if (answer.isDone && !isOpen) this.#begin();
    this.#showing = this.#showAnswer(answer, asked, length);
  }

  /**
   * @param {import("./reader.js").Answer} answer
   * @param {number} asked when
   * @param {number} length of the text that is answered
   * @returns {Generator<number, void>}
   */
  *#showAnswer(answer, asked, length) {
    const { parts, closed, start, isDone, isAnew, time } = answer;
    // what is open is read again
    if (isDone) this.#cost += time;
    if (isAnew) this.#closed = null;
    const nodes = yield* patch(this.#blocks, parts, this.#closed, isDone);
    this.#closed = nodes[closed - 1] ?? this.#closed;
    this.#start = start;
    this.#shown = isDone ? length : Math.max(this.#shown, start);
    this.#since = Math.max(this.#since, asked);
    this.#isStale ||= !isDone;
    this.#setRest();
  }

  /**
   * Show as text what is not in closed blocks.
   *
   * @returns {Generator<number, void>}
   */
  *#showPlain() {
    const { length } = this.#source;
    this.#isStale = false;
    const parts = textParts(this.#source.slice(this.#start));
    yield* patch(this.#blocks, [{ tag: "p", kind: "plain", parts }], this.#closed);
    this.#shown = length;
    this.#setRest();
  }

  /** Leave what is not in the blocks. */
  #setRest() {
    const rest = this.#source.slice(this.#shown);
    replaceText(this.#rest, rest.slice(0, LONGEST_REST_SHOWN));
    replaceText(this.#later, rest.slice(LONGEST_REST_SHOWN));
  }

  /** @param {import("./reader.js").Refusal} refusal */
  #takeRefusal(refusal) {
    this.#begin();
    this.#isStale = true;
    if (refusal === "lost") return;
    this.#failures += 1;
    this.#isGivenUp = true;
  }
}

/** @param {Budget} budget */
function isSpent({ work, until }) {
  return work <= 0 || performance.now() > until;
}

/**
 * @param {Text} node
 * @param {string} text
 */
function replaceText(node, text) {
  if (node.data !== text) node.data = text;
}

/** Show what is waiting with the next frame. */
function plan() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(paint);
}

function paint() {
  isPlanned = false;
  const budget = { until: performance.now() + BUDGET, work: WORK };
  for (const prose of [...waiting].reverse()) {
    if (!prose.element.isConnected || prose.show(budget)) prose.rest();
    if (isSpent(budget)) break;
  }
  if (waiting.size > 0) plan();
}
