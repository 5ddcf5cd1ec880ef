/**
 * Creates the elements of this page: text is always a text node, so a model's text never becomes
 * HTML.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {{class?: string, type?: "button" | "submit" | "checkbox" | "radio", title?: string,
 *   label?: string, onClick?: () => void}} [props]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  if (props.class) element.className = props.class;
  if (props.type) element.setAttribute("type", props.type);
  if (props.title) element.title = props.title;
  if (props.label) element.setAttribute("aria-label", props.label);
  if (props.onClick) element.addEventListener("click", props.onClick);
  element.append(...children);
  return element;
}

/**
 * @param {string} text
 * @param {() => void} onClick
 * @param {string} [className]
 */
export function button(text, onClick, className = "button") {
  return el("button", { class: className, type: "button", onClick }, text);
}

/**
 * @param {string} name of a symbol in index.html
 * @returns {SVGSVGElement}
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/**
 * @template {Element} T
 * @param {string} selector of an element in index.html
 * @param {new () => T} kind
 * @returns {T}
 */
export function need(selector, kind) {
  const found = document.querySelector(selector);
  if (found instanceof kind) return found;
  throw new Error(`the page has no ${selector}`);
}

/** Strings in JSON, and letters of right-to-left scripts. */
const STRINGS = /("[^"\\]*(?:\\.[^"\\]*)*")/s;
const RIGHT_TO_LEFT =
  /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/**
 * Isolate the strings of JSON, so that right-to-left text does not reorder its surroundings.
 *
 * @param {string} json
 * @returns {(Node | string)[]}
 */
export function isolateStrings(json) {
  if (!RIGHT_TO_LEFT.test(json)) return [json];
  return json.split(STRINGS).map((piece) => {
    if (!RIGHT_TO_LEFT.test(piece)) return piece;
    const isolated = el("bdi", {}, piece);
    isolated.dir = "ltr";
    return isolated;
  });
}

/**
 * Offer a text, or bytes, as a file.
 *
 * @param {BlobPart} content
 * @param {string} name
 * @param {number} timeout milliseconds until the file is released
 * @param {string} [type]
 */
export function download(content, name, timeout, type = "application/json") {
  const link = el("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), timeout);
}
