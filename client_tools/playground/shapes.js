/**
 * Makes elements of shapes, and changes those that are there to fit: what stays the same keeps its
 * node, so that a selection in it survives.
 *
 * The tags and classes of shapes are constants of this page; all other text becomes text nodes.
 */

import { CodeBlock } from "./code.js";
import { el } from "./dom.js";

/**
 * @typedef {object} Shape an element to be
 * @property {keyof HTMLElementTagNameMap} tag
 * @property {string} [kind] its class
 * @property {string} [href] an address that `addressOf` has accepted
 * @property {string} [label] its name for screen readers
 * @property {"img" | "region"} [role]
 * @property {number} [start] the first number of a list
 * @property {Part[]} parts
 */
/**
 * @typedef {object} CodeShape a block of code
 * @property {string} code
 * @property {string} language "": not known
 * @property {boolean} isWhole false if more of it may come
 */
/** @typedef {string | Shape | CodeShape} Part */

/** Characters, and lines, that are as much work as an element. */
const CHARACTERS = 16;
const LINES = 4;

/** What the elements were made of, except their parts.
 * @type {WeakMap<Node, string>} */
const signatures = new WeakMap();
/** @type {WeakMap<Node, CodeBlock>} */
const blocks = new WeakMap();

/**
 * Make the nodes behind one of a parent's fit, in steps: each yields how much the browser has to do
 * for it, about 20 microseconds for 1.
 *
 * @param {Element} parent
 * @param {readonly Part[]} parts
 * @param {ChildNode | null} [after] null: from the first
 * @param {boolean} [isWhole] whether nodes that are too many are removed
 * @returns {Generator<number, ChildNode[]>} ends with a node for each part
 */
export function* patch(parent, parts, after = null, isWhole = true) {
  let node = after ? after.nextSibling : parent.firstChild;
  /** @type {ChildNode[]} */
  const made = [];
  for (const part of parts) {
    const next = node?.nextSibling ?? null;
    const fitting = fit(node, part);
    if (fitting !== node) {
      if (node) node.replaceWith(fitting);
      else parent.append(fitting);
      yield 1;
    }
    yield* fill(fitting, part);
    node = next;
    made.push(fitting);
  }
  while (isWhole && node) {
    const extra = node;
    node = extra.nextSibling;
    extra.remove();
    yield 0;
  }
  return made;
}

/**
 * @param {ChildNode | null} node
 * @param {Part} part
 * @returns {ChildNode} the node, if it can be filled with the part; else a new one
 */
function fit(node, part) {
  if (typeof part === "string") return node instanceof Text ? node : document.createTextNode("");
  if ("code" in part) {
    if (node && blocks.has(node)) return node;
    const block = new CodeBlock();
    blocks.set(block.element, block);
    return block.element;
  }
  const { tag, kind, href, label, role, start } = part;
  const signature = JSON.stringify([tag, kind, href, label, role, start]);
  if (node instanceof HTMLElement && signatures.get(node) === signature) return node;
  const element = make(part);
  signatures.set(element, signature);
  return element;
}

/**
 * @param {ChildNode} node that fits
 * @param {Part} part
 * @returns {Generator<number, void>}
 */
function* fill(node, part) {
  if (typeof part === "string") {
    if (!(node instanceof Text) || !setText(node, part)) return;
    yield part.length / CHARACTERS + part.split("\n").length / LINES;
  } else if ("code" in part) {
    const block = blocks.get(node);
    if (!block?.update(part)) return;
    yield* patch(block.shown, block.parts);
    block.offerColours();
  } else if (node instanceof HTMLElement) {
    yield* patch(node, part.parts);
  }
}

/** @param {Shape} shape */
function make({ tag, kind, href, label, role, start }) {
  const element = el(tag, { ...(kind && { class: kind }), ...(label && { label }) });
  if (role) element.setAttribute("role", role);
  // what is wider than the page is scrolled by the keyboard, too
  if (role === "region") element.tabIndex = 0;
  if (element instanceof HTMLOListElement && start !== undefined) element.start = start;
  if (element instanceof HTMLAnchorElement && href) {
    element.href = href;
    element.title = href;
    element.target = "_blank";
    element.rel = "noopener noreferrer";
  }
  return element;
}

/**
 * Change as little as possible, because a selection ends where text is replaced.
 *
 * @param {Text} node
 * @param {string} text
 * @returns {boolean} whether there was a difference
 */
function setText(node, text) {
  if (node.data === text) return false;
  if (text.startsWith(node.data)) node.appendData(text.slice(node.length));
  else node.data = text;
  return true;
}
