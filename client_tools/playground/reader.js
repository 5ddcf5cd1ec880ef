/**
 * Reads Markdown in a worker, so that no text stops the page, whatever is in it: a piece that takes
 * too long is given up. The worker starts with the first text.
 */

/** @typedef {import("./stream.js").Reading} Reading */
/**
 * @typedef {object} Piece
 * @property {number} text its number, see `nextNumber`
 * @property {string} added what has come since the last piece
 * @property {boolean} isOpen whether more may come
 */
/**
 * @typedef {object} Reply
 * @property {number} start the number of characters in closed blocks
 * @property {boolean} isAnew whether the parts begin with the first block again
 * @property {number} time milliseconds that reading took
 */
/** @typedef {Reading & Reply} Answer */
/**
 * Why there is no answer: the piece takes too long or the text is too large, or there is no worker;
 * or the worker ended by another piece, and knows nothing of the text any more.
 *
 * @typedef {"refused" | "lost"} Refusal
 */

/** Time for one piece, and for the library to be loaded. */
const LIMIT = 2000; // milliseconds
const LOADING_LIMIT = 30_000; // milliseconds
/** Pieces that may fail before no more are read. */
const MOST_FAILURES = 20;

/** What takes the answers of the pieces that the worker has; the first one is in work.
 * @type {((answer: Answer | Refusal) => void)[]} */
const waiting = [];
/** @type {Worker | null} */
let worker = null;
let isLoaded = false;
let failures = 0;
let numbers = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @returns {number} the number of a text of which the worker knows nothing */
export function nextNumber() {
  numbers += 1;
  return numbers;
}

/** @returns {number} the pieces that are not answered */
export function piecesInWork() {
  return waiting.length;
}

/**
 * @param {Piece} piece
 * @returns {Promise<Answer | Refusal>}
 */
export function readPiece(piece) {
  return new Promise((finish) => {
    if (failures >= MOST_FAILURES) return finish("refused");
    worker ??= startWorker();
    worker.postMessage(piece);
    waiting.push(finish);
    if (waiting.length === 1) startTimer();
  });
}

/** @param {number} text that is not to be read any further */
export function forgetText(text) {
  worker?.postMessage(text);
}

function startWorker() {
  const started = new Worker(new URL("markdown-worker.js", import.meta.url), { type: "module" });
  started.addEventListener("message", ({ data }) => {
    if (isLoaded) waiting.shift()?.(data);
    isLoaded = true;
    startTimer();
  });
  started.addEventListener("error", () => {
    if (!isLoaded) failures = MOST_FAILURES;
    fail();
  });
  return started;
}

/** Give the first piece its time. */
function startTimer() {
  clearTimeout(timer);
  if (waiting.length === 0) return;
  const half = (isLoaded ? LIMIT : LOADING_LIMIT) / 2;
  // in two halves: the page may have stood still, and the answer may be there
  timer = setTimeout(() => {
    timer = setTimeout(fail, half);
  }, half);
}

function fail() {
  clearTimeout(timer);
  failures += 1;
  worker?.terminate();
  worker = null;
  isLoaded = false;
  const [first, ...others] = waiting.splice(0);
  first?.("refused");
  for (const finish of others) finish("lost");
}
