/**
 * Reads Markdown while it is being written: only its last block is read anew, and long text in
 * pieces.
 */

import { withoutUnclear } from "./mending.js";

/** @typedef {import("./markdown.js").Markdown} Markdown */
/** @typedef {import("./shapes.js").Part} Part */

/**
 * @typedef {object} Reading
 * @property {Part[]} parts the blocks from the one that was open
 * @property {number} closed number of those that do not change any more
 * @property {boolean} isDone false if there is more to read
 * @property {boolean} isTooLarge whether the elements of the text are too many to be shown
 */

const PIECE = 16_000; // characters
/** Elements and texts of all blocks: a browser goes through them whenever one is added. */
const MOST_ELEMENTS = 10_000;

export class MarkdownStream {
  #markdown;
  /** @type {import("./markdown.js").References} */
  #references = Object.create(null);
  /** Where the open block begins. */
  #start = 0;
  #size = PIECE;
  /** Elements and texts in closed blocks. */
  #elements = 0;

  /** @param {Markdown} markdown */
  constructor(markdown) {
    this.#markdown = markdown;
  }

  /** The number of characters that are in closed blocks. */
  get start() {
    return this.#start;
  }

  /**
   * Note the addresses in the open block; begin anew if a block could look different by one.
   *
   * @param {string} source all of it
   * @returns {boolean} whether it begins anew
   */
  end(source) {
    const rest = source.slice(this.#start);
    if (rest.includes("]:")) this.#markdown.readReferences(rest, this.#references);
    if (Object.keys(this.#references).length === 0) return false;
    this.#start = 0;
    this.#elements = 0;
    return true;
  }

  /**
   * @param {string} source all of it
   * @param {boolean} isOpen whether more may come
   * @returns {Reading}
   */
  read(source, isOpen) {
    const end = this.#endOfPiece(source);
    const isLast = end === source.length;
    const all = source.slice(this.#start, end);
    const piece = isOpen && isLast ? withoutUnclear(all) : all;
    const references = Object.assign(Object.create(null), this.#references);
    const blocks = this.#markdown.parse(piece, references, isOpen && isLast);
    const lines = lineStarts(piece);
    // what only the last line has begun may still be a part of the block above
    const begun = blocks.filter(({ line }) => line < lines.length - 1).length;
    const closed = Math.max(0, begun - 1);
    const elements = this.#elements + sizeOf(blocks);
    this.#elements += sizeOf(blocks.slice(0, closed));
    if (closed > 0) this.#close(piece.slice(0, lines[blocks[closed]?.line ?? 0]));
    if (!isLast && closed === 0) this.#size *= 2;
    const shown = isLast ? blocks : blocks.slice(0, closed);
    const parts = shown.map(({ part }) => part);
    return { parts, closed, isDone: isLast, isTooLarge: elements > MOST_ELEMENTS };
  }

  /** @param {string} source of blocks that are closed */
  #close(source) {
    this.#start += source.length;
    this.#size = PIECE;
    if (source.includes("]:")) this.#markdown.readReferences(source, this.#references);
  }

  /**
   * @param {string} source
   * @returns {number} the end of a line, or of all
   */
  #endOfPiece(source) {
    for (; this.#start + this.#size < source.length; this.#size *= 2) {
      const end = source.lastIndexOf("\n", this.#start + this.#size) + 1;
      if (end > this.#start) return end;
    }
    return source.length;
  }
}

/** @param {readonly import("./markdown.js").Block[]} blocks */
function sizeOf(blocks) {
  return blocks.reduce((sum, { size }) => sum + size, 0);
}

/**
 * @param {string} text
 * @returns {number[]} the places where its lines begin
 */
function lineStarts(text) {
  return [0, ...[...text.matchAll(/\r\n?|\n/g)].map((end) => end.index + end[0].length)];
}
