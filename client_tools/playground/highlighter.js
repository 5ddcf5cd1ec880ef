/**
 * Finds the tokens of code in a worker, so that neither long code nor an expression that never ends
 * stops the page. The worker starts with the first code.
 */

/** @typedef {[scope: string, text: string]} Run text of one token type; "": plain */
/**
 * @typedef {object} Job
 * @property {string} code
 * @property {string} language
 * @property {(runs: Run[] | null) => void} finish
 */

/** Time for one text, and for the first one, which waits for the library. */
const LIMIT = 2000; // milliseconds
const FIRST_LIMIT = 15_000; // milliseconds
/** Workers that may fail before no more are started. */
const MOST_FAILURES = 20;

/** @type {Job[]} the first one is in work */
const jobs = [];
/** @type {Worker | null} */
let worker = null;
let isWarm = false;
let failures = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/**
 * @param {string} code
 * @param {string} language as its author wrote it
 * @returns {Promise<Run[] | null>} all of the code; null if its language is not known, or it took
 *   too long
 */
export function highlight(code, language) {
  return new Promise((finish) => {
    jobs.push({ code, language, finish });
    if (jobs.length === 1) begin();
  });
}

function begin() {
  const job = jobs[0];
  if (!job) return;
  if (failures >= MOST_FAILURES) return end(null);
  worker ??= start();
  timer = setTimeout(fail, isWarm ? LIMIT : FIRST_LIMIT);
  worker.postMessage({ code: job.code, language: job.language });
}

function start() {
  const started = new Worker(new URL("highlight-worker.js", import.meta.url), { type: "module" });
  started.addEventListener("message", ({ data }) => {
    isWarm = true;
    end(data);
  });
  started.addEventListener("error", fail);
  return started;
}

function fail() {
  failures += 1;
  worker?.terminate();
  worker = null;
  isWarm = false;
  end(null);
}

/** @param {Run[] | null} runs */
function end(runs) {
  clearTimeout(timer);
  jobs.shift()?.finish(runs);
  begin();
}
