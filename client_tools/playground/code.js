/** A block of code: its language, a button that copies it, and its text in colours. */

import { escapeInvisible, escapeProse } from "../js/src/index.js";
import { copyButton } from "./copy.js";
import { el } from "./dom.js";
import { highlight } from "./highlighter.js";
import { textParts } from "./textparts.js";

/** @typedef {import("./shapes.js").CodeShape} CodeShape */
/** @typedef {import("./highlighter.js").Run} Run */

/** Longer code has one colour. */
const MOST_COLOURED = 50_000; // characters
/** Parts of a block that may be elements of their own. */
const MOST_RUNS = 10_000;
/** Distance from the screen at which a block gets its colours. */
const NEAR = "600px";

/** The token types of the library that have a colour, by the first word of their names. */
const COLOURS = new Map(
  Object.entries({
    keyword: ["keyword", "built_in", "literal", "operator", "selector-tag", "doctag"],
    string: ["string", "regexp", "char", "link", "subst"],
    comment: ["comment", "quote", "meta"],
    number: ["number", "symbol", "bullet"],
    name: ["title", "section", "name", "type", "attr", "attribute", "property", "tag", "variable"],
    added: ["addition"],
    removed: ["deletion"],
  }).flatMap(([colour, scopes]) => scopes.map((scope) => [scope, `code-${colour}`])),
);

/** @type {WeakMap<Element, () => void>} */
const onNear = new WeakMap();
const near =
  typeof IntersectionObserver === "undefined"
    ? null
    : new IntersectionObserver(
        (entries) => {
          for (const { isIntersecting, target } of entries) {
            if (isIntersecting) onNear.get(target)?.();
          }
        },
        { rootMargin: NEAR },
      );

export class CodeBlock {
  element;
  #code = "";
  #language = "";
  #isWhole = false;
  #title = el("span", { class: "language" });
  shown = el("code");
  #scroller = el("pre", { label: "Code" }, this.shown);

  constructor() {
    const copy = copyButton(() => this.#code, "Copy the code", "Copy");
    this.#scroller.setAttribute("role", "region");
    this.#scroller.tabIndex = 0;
    this.element = el(
      "figure",
      { class: "code-block" },
      el("figcaption", {}, this.#title, copy),
      this.#scroller,
    );
    onNear.set(this.element, () => void this.#colour());
  }

  /**
   * Take what is to be shown: `shown` is to have `parts`, and then gets its colours.
   *
   * @param {CodeShape} shape
   * @returns {boolean} whether anything differs
   */
  update({ code, language, isWhole }) {
    if (code === this.#code && language === this.#language && isWhole === this.#isWhole) {
      return false;
    }
    if (language !== this.#language) {
      this.#title.textContent = escapeInvisible(language);
      this.#scroller.setAttribute("aria-label", `Code, ${this.#title.textContent}`);
    }
    this.#code = code;
    this.#language = language;
    this.#isWhole = isWhole;
    near?.unobserve(this.element);
    return true;
  }

  get parts() {
    return textParts(escapeProse(this.#code));
  }

  /** Colour it when it is near the screen. */
  offerColours() {
    const isShort = this.#code.length <= MOST_COLOURED;
    if (this.#isWhole && this.#language && isShort) near?.observe(this.element);
  }

  async #colour() {
    near?.unobserve(this.element);
    const [code, language] = [this.#code, this.#language];
    const runs = await highlight(code, language);
    if (!runs || runs.length > MOST_RUNS) return;
    const boxes = [...this.shown.querySelectorAll(".part")];
    if (boxes.length === 0) boxes.push(this.shown);
    for (const [index, box] of boxes.entries()) {
      if (code !== this.#code || language !== this.#language || !this.#isWhole) return;
      const isLast = index === boxes.length - 1;
      const taken = isLast ? runs : takeRuns(runs, box.textContent?.length ?? 0);
      box.replaceChildren(...taken.map(coloured));
      if (!isLast) await new Promise(requestAnimationFrame);
    }
  }
}

/**
 * @param {Run[]} runs of which the first are removed
 * @param {number} length
 * @returns {Run[]} those with so many characters
 */
function takeRuns(runs, length) {
  /** @type {Run[]} */
  const taken = [];
  for (let rest = length; rest > 0 && runs[0]; ) {
    const [scope, text] = runs[0];
    taken.push([scope, text.slice(0, rest)]);
    if (text.length <= rest) runs.shift();
    else runs[0] = [scope, text.slice(rest)];
    rest -= text.length;
  }
  return taken;
}

/** @param {Run} run */
function coloured([scope, text]) {
  const shown = escapeProse(text);
  const colour = COLOURS.get(/^[\w-]*/.exec(scope)?.[0] ?? "");
  return colour ? el("span", { class: colour }, shown) : shown;
}
