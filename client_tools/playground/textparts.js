/** Cuts long text into boxes of its own, because a browser lays out all of a box at once. */

/** @typedef {import("./shapes.js").Part} Part */

/** A box ends with the last line that begins before so many characters. */
const USUAL = 4000; // characters
/** A line that is longer is broken. */
const LONGEST = 50_000; // characters

/**
 * @param {string} text
 * @returns {Part[]} the text itself, or parts below each other
 */
export function textParts(text) {
  if (text.length <= USUAL) return [text];
  /** @type {Part[]} */
  const parts = [];
  for (let start = 0; start < text.length; ) {
    const end = endOfPart(text, start);
    parts.push({ tag: "span", kind: "part", parts: [text.slice(start, end)] });
    start = end;
  }
  return parts.length === 1 ? [text] : parts;
}

/**
 * @param {string} text
 * @param {number} start
 */
function endOfPart(text, start) {
  if (start + USUAL >= text.length) return text.length;
  const before = text.lastIndexOf("\n", start + USUAL) + 1;
  const end = before > start ? before : text.indexOf("\n", start + USUAL) + 1 || text.length;
  return Math.min(end, start + LONGEST);
}
