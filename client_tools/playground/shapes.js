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

/** What the elements were made of, except their parts.
 * @type {WeakMap<Node, string>} */
const signatures = new WeakMap();
/** @type {WeakMap<Node, CodeBlock>} */
const blocks = new WeakMap();

/**
 * Make the nodes behind one of a parent's fit; those that are too many are removed.
 *
 * @param {Element} parent
 * @param {readonly Part[]} parts
 * @param {ChildNode | null} [after] null: from the first
 * @returns {ChildNode[]} a node for each part
 */
export function patch(parent, parts, after = null) {
  let node = after ? after.nextSibling : parent.firstChild;
  const made = parts.map((part) => {
    const next = node?.nextSibling ?? null;
    const fitting = fit(node, part);
    if (fitting !== node && node) node.replaceWith(fitting);
    else if (!node) parent.append(fitting);
    node = next;
    return fitting;
  });
  for (let extra = node; extra; extra = node) {
    node = extra.nextSibling;
    extra.remove();
  }
  return made;
}

/**
 * @param {Part} part
 * @returns {string} the text that it shows
 */
export function textOf(part) {
  if (typeof part === "string") return part;
  return "code" in part ? part.code : part.parts.map(textOf).join("");
}

/**
 * @param {ChildNode | null} node
 * @param {Part} part
 * @returns {ChildNode} the node, if it fits or can be changed; else a new one
 */
function fit(node, part) {
  if (typeof part === "string") {
    if (!(node instanceof Text)) return document.createTextNode(part);
    setText(node, part);
    return node;
  }
  if ("code" in part) {
    const block = (node && blocks.get(node)) ?? new CodeBlock();
    blocks.set(block.element, block);
    block.update(part);
    return block.element;
  }
  const { tag, kind, href, label, role, start } = part;
  const signature = JSON.stringify([tag, kind, href, label, role, start]);
  const isFitting = node instanceof HTMLElement && signatures.get(node) === signature;
  const element = isFitting ? node : make(part);
  signatures.set(element, signature);
  patch(element, part.parts);
  return element;
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
 */
export function setText(node, text) {
  if (node.data === text) return;
  if (text.startsWith(node.data)) node.appendData(text.slice(node.length));
  else node.data = text;
}
