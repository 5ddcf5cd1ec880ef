/** Follows one run to its end, over as many connections as that takes. */

import { ApiError, NetworkError, asRecord, isAbort, parseJson } from "./api.js";
import { SseDecoder } from "./sse.js";

/** @typedef {import("./sse.js").SseEvent} SseEvent */

/** Connections in a row that may bring no event before we give up. */
export const MAX_FAILURES = 8;
/** The same while nobody has answered yet: perhaps nobody is there. */
export const MAX_UNANSWERED = 4;
/** Milliseconds before the first reconnect; doubled each time, up to the longest. */
const FIRST_DELAY = 400;
const LONGEST_DELAY = 8_000;
/** Milliseconds without a byte after which a connection counts as dead; the server pings every 15 s. */
const SILENCE = 45_000;

/**
 * @typedef {object} FollowOptions
 * @property {(after: string | null) => Promise<Response>} open opens the run's stream behind the event with this id;
 *   null: from its start, as long as no event with an id was seen
 * @property {AbortSignal} signal gives up
 * @property {() => void} [onCut] the connection broke, or there was none; `open` follows after a pause
 * @property {(milliseconds: number, signal: AbortSignal) => Promise<void>} [wait]
 */

/**
 * Yields each event once; returns at `[DONE]`, the one sign that the run has ended.
 *
 * After an `error` of the code `rewound` the run goes on, and comes again from its start: whoever reads this drops
 * what the run had said.
 *
 * @param {FollowOptions} options
 * @returns {AsyncGenerator<SseEvent, void, void>}
 * @throws {ApiError} the server refuses
 * @throws {NetworkError} the connection broke too often
 */
export async function* follow({ open, signal, onCut = () => {}, wait = pause }) {
  /** @type {string | null} */
  let after = null;
  let most = MAX_UNANSWERED;
  let failures = 0;
  for (;;) {
    const decoder = new SseDecoder();
    const { response, error } = await tryOpen(() => open(after));
    if (response) most = MAX_FAILURES;
    let rewound = false;
    for await (const event of readEvents(response, decoder, signal)) {
      failures = 0;
      yield event;
      if (event.data === "[DONE]") {
        if (rewound) break;
        return;
      }
      rewound = isRewound(event.data);
    }
    after = decoder.lastEventId || after;
    failures += 1;
    if (failures >= most) throw error ?? new NetworkError("the connection to the server was lost");
    onCut();
    await wait(delayBefore(failures, decoder.retry ?? retryAfter(error)), signal);
  }
}

/**
 * @param {string} data an event's data
 * @returns {boolean} whether what the run has said so far is void; the event's id then stands for the run's start
 */
export function isRewound(data) {
  const event = data.includes("rewound") ? asRecord(parseJson(data)) : {};
  return event.type === "error" && event.code === "rewound";
}

/**
 * @param {Response | null} response
 * @param {SseDecoder} decoder
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<SseEvent, void, void>} ends where the connection ends, whatever ended it
 */
async function* readEvents(response, decoder, signal) {
  const reader = response?.body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const bytes = await readWithin(reader, SILENCE);
      signal.throwIfAborted();
      if (!bytes) return;
      yield* decoder.feed(bytes);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @param {number} milliseconds
 * @returns {Promise<Uint8Array | null>} null at the end, at a cut, and when nothing came in time
 */
async function readWithin(reader, milliseconds) {
  const timer = setTimeout(() => reader.cancel().catch(() => {}), milliseconds);
  try {
    const { done, value } = await reader.read();
    return done ? null : value;
  } catch (error) {
    if (isAbort(error)) throw error;
    return null;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * @param {() => Promise<Response>} open
 * @returns {Promise<{response: Response | null, error: Error | null}>} an error when another attempt may help
 */
async function tryOpen(open) {
  try {
    return { response: await open(), error: null };
  } catch (error) {
    const passing = error instanceof ApiError && [429, 502, 503, 504].includes(error.status);
    if (passing || error instanceof NetworkError) return { response: null, error };
    throw error;
  }
}

/**
 * @param {Error | null} error
 * @returns {number | null} what the server asked for with it, in milliseconds
 */
function retryAfter(error) {
  const seconds = error instanceof ApiError ? Number(error.retryAfter) : 0;
  return seconds > 0 ? 1000 * seconds : null;
}

/**
 * @param {number} failures
 * @param {number | null} retry what the server asked for, in milliseconds
 */
function delayBefore(failures, retry) {
  const longest = Math.min(LONGEST_DELAY, (retry ?? FIRST_DELAY) * 2 ** (failures - 1));
  return longest * (0.75 + Math.random() / 4);
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>} rejects when the signal is given
 */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", done, { once: true });
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    }
  });
}
