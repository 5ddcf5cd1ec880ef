/** Follows one run to its end, over as many connections as that takes. */

import { ApiError, NetworkError, isAbort } from "./api.js";
import { SseDecoder } from "./sse.js";

/** @typedef {import("./sse.js").SseEvent} SseEvent */

/** Connections in a row that may bring no event before we give up. */
export const MAX_FAILURES = 8;
/** Milliseconds before the first reconnect; doubled each time, up to the longest. */
const FIRST_DELAY = 400;
const LONGEST_DELAY = 8_000;
/** Milliseconds without a byte after which a connection counts as dead; the server pings every 15 s. */
const SILENCE = 45_000;

/**
 * @typedef {object} FollowOptions
 * @property {(after: string | null) => Promise<Response>} reopen opens the run's stream again
 * @property {AbortSignal} signal gives up
 * @property {(failures: number) => void} [onCut] the connection broke, 0 when it works again
 * @property {(milliseconds: number, signal: AbortSignal) => Promise<void>} [wait]
 */

/**
 * Yields each event once; returns at `[DONE]`, the one sign that the run has ended.
 *
 * @param {Response} response
 * @param {FollowOptions} options
 * @returns {AsyncGenerator<SseEvent, void, void>}
 * @throws {ApiError} the server refuses to go on
 * @throws {NetworkError} the connection broke too often
 */
export async function* follow(response, { reopen, signal, onCut = () => {}, wait = pause }) {
  /** @type {Response | null} */
  let connection = response;
  /** @type {string | null} */
  let after = null;
  let failures = 0;
  for (;;) {
    const decoder = new SseDecoder();
    for await (const event of readEvents(connection, decoder, signal)) {
      if (failures > 0) onCut(0);
      failures = 0;
      yield event;
      if (event.data === "[DONE]") return;
    }
    after = decoder.lastEventId || after;
    failures += 1;
    if (failures > MAX_FAILURES) throw new NetworkError("the connection to the server was lost");
    onCut(failures);
    await wait(delayBefore(failures, decoder.retry), signal);
    connection = await tryReopen(() => reopen(after));
  }
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
 * @param {() => Promise<Response>} reopen
 * @returns {Promise<Response | null>} null when another attempt may help
 */
async function tryReopen(reopen) {
  try {
    return await reopen();
  } catch (error) {
    const passing = error instanceof ApiError && [429, 502, 503, 504].includes(error.status);
    if (passing || error instanceof NetworkError) return null;
    throw error;
  }
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
