/** The worker of reader.js: reads texts as Markdown, one piece for each message. */

import { Markdown } from "./markdown.js";
import { MarkdownStream } from "./stream.js";

/** @typedef {import("./reader.js").Piece} Piece */
/** @typedef {import("./reader.js").Answer} Answer */

const markdown = new Markdown();
/** What has come of the texts that are not finished, by their numbers.
 * @type {Map<number, {stream: MarkdownStream, source: string, isOpen: boolean}>} */
const texts = new Map();

const begin = () => ({ stream: new MarkdownStream(markdown), source: "", isOpen: true });

/**
 * @param {Piece} piece
 * @returns {Answer | "refused"}
 */
function read({ text, added, isOpen }) {
  const start = performance.now();
  const isNew = !texts.has(text);
  const known = texts.get(text) ?? begin();
  texts.set(text, known);
  known.source += added;
  const isAnew = (known.isOpen && !isOpen && known.stream.end(known.source)) || isNew;
  known.isOpen = isOpen;
  const reading = known.stream.read(known.source, isOpen);
  if ((reading.isDone && !isOpen) || reading.isTooLarge) texts.delete(text);
  if (reading.isTooLarge) return "refused";
  const time = performance.now() - start;
  return { ...reading, start: known.stream.start, isAnew, time };
}

addEventListener("message", ({ data }) => {
  if (typeof data === "number") texts.delete(data);
  else postMessage(read(data));
});
postMessage(null);
