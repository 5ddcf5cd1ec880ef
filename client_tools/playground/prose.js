/**
 * Text of an agent as Markdown, which may still be coming. It is text at once, and Markdown with
 * the next frame; the page stays free for others, however much there is.
 */

import { loadMarkdown } from "./markdown.js";
import { el } from "./dom.js";
import { patch } from "./shapes.js";
import { MarkdownStream } from "./stream.js";

/** Time of a frame that is used. */
const BUDGET = 12; // milliseconds
/** A text that took long to show is shown again after so many times as long. */
const REST = 4;
const LONGEST_REST = 1000; // milliseconds

/** Texts that are not shown as they are, the oldest first.
 * @type {Set<Prose>} */
const waiting = new Set();
/** @type {import("./markdown.js").Markdown | null} */
let markdown = null;
let isPlanned = false;
/** True if there is no parser, and text stays as it is. */
let isPlain = false;

export class Prose {
  element;
  #source = "";
  #isOpen = true;
  #isEnding = false;
  #blocks = el("div", { class: "blocks" });
  /** What is not shown as Markdown yet. */
  #rest = document.createTextNode("");
  /** @type {MarkdownStream | null} */
  #stream = null;
  /** The last node that does not change any more.
   * @type {ChildNode | null} */
  #closed = null;
  #next = 0;

  constructor() {
    this.element = el("div", { class: "text" }, this.#blocks, this.#rest);
  }

  get source() {
    return this.#source;
  }

  /** @param {string} text */
  add(text) {
    this.#source += text;
    this.#rest.appendData(text);
    this.#isOpen = true;
    this.#wait();
  }

  /** Show all of it: nothing more is expected. */
  end() {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#isEnding = true;
    this.#next = 0;
    this.#wait();
  }

  #wait() {
    if (isPlain || waiting.has(this)) return;
    waiting.add(this);
    this.element.setAttribute("aria-busy", "true");
    plan();
  }

  /** Take it as shown, until there is more; or for good. */
  rest(isFinal = !this.#isOpen) {
    waiting.delete(this);
    if (isFinal) this.element.removeAttribute("aria-busy");
  }

  /**
   * @param {import("./markdown.js").Markdown} markdown
   * @param {number} until
   * @returns {boolean} whether all of it is shown
   */
  show(markdown, until) {
    const start = performance.now();
    if (start < this.#next) return false;
    this.#stream ??= new MarkdownStream(markdown);
    if (this.#isEnding && this.#stream.end(this.#source)) this.#closed = null;
    this.#isEnding = false;
    let isDone = false;
    do isDone = this.#showPiece(this.#stream);
    while (!isDone && performance.now() < until);
    const now = performance.now();
    this.#next = now + Math.min(LONGEST_REST, REST * (now - start));
    return isDone;
  }

  /** @param {MarkdownStream} stream */
  #showPiece(stream) {
    const { parts, closed, isDone } = stream.read(this.#source, this.#isOpen);
    const nodes = patch(this.#blocks, parts, this.#closed);
    this.#closed = nodes[closed - 1] ?? this.#closed;
    const rest = isDone ? "" : this.#source.slice(stream.start);
    if (this.#rest.data !== rest) this.#rest.data = rest;
    return isDone;
  }
}

/** Show what is waiting with the next frame. */
function plan() {
  if (isPlanned) return;
  isPlanned = true;
  if (markdown) return void requestAnimationFrame(paint);
  void loadMarkdown().then((loaded) => {
    markdown = loaded;
    isPlain = loaded === null;
    if (loaded) return void requestAnimationFrame(paint);
    for (const prose of waiting) prose.rest(true);
  });
}

function paint() {
  isPlanned = false;
  const until = performance.now() + BUDGET;
  for (const prose of [...waiting].reverse()) {
    if (!prose.element.isConnected) prose.rest();
    else if (markdown && prose.show(markdown, until)) prose.rest();
    if (performance.now() > until) break;
  }
  if (waiting.size > 0) plan();
}
