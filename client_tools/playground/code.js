/** A block of code: its language, a button that copies it, and its text in colours. */

import { escapeInvisible, escapeProse } from "../js/src/index.js";
import { copyButton } from "./copy.js";
import { el } from "./dom.js";
import { highlight } from "./highlighter.js";
import { setText } from "./shapes.js";

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
  #text = document.createTextNode("");
  #shown = el("code", {}, this.#text);
  #title = el("span", { class: "language" });
  #scroller = el("pre", { label: "Code" }, this.#shown);

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

  /** @param {CodeShape} shape */
  update({ code, language, isWhole }) {
    if (code === this.#code && language === this.#language && isWhole === this.#isWhole) return;
    if (language !== this.#language) {
      this.#title.textContent = escapeInvisible(language);
      this.#scroller.setAttribute("aria-label", `Code, ${this.#title.textContent}`);
    }
    if (code !== this.#code) this.#showPlain(code);
    this.#code = code;
    this.#language = language;
    this.#isWhole = isWhole;
    if (isWhole && language && code.length <= MOST_COLOURED) near?.observe(this.element);
    else near?.unobserve(this.element);
  }

  /** @param {string} code shown in one colour */
  #showPlain(code) {
    if (!this.#text.isConnected && this.#shown.firstChild !== this.#text) {
      this.#shown.replaceChildren(this.#text);
    }
    setText(this.#text, escapeProse(code));
  }

  async #colour() {
    near?.unobserve(this.element);
    const [code, language] = [this.#code, this.#language];
    const runs = await highlight(code, language);
    const isCurrent = code === this.#code && language === this.#language && this.#isWhole;
    if (!runs || runs.length > MOST_RUNS || !isCurrent) return;
    this.#shown.replaceChildren(...runs.map(coloured));
  }
}

/** @param {Run} run */
function coloured([scope, text]) {
  const shown = escapeProse(text);
  const colour = COLOURS.get(/^[\w-]*/.exec(scope)?.[0] ?? "");
  return colour ? el("span", { class: colour }, shown) : shown;
}
