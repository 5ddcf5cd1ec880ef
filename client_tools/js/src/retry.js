/** When to try again: exponential backoff with jitter, bounded, and never before the server allows it. */

import { PASSING } from "./contact.js";
import { ApiError, ConnectionLost, PassbackError, ProtocolError } from "./errors.js";

/** @typedef {import("./limits.js").Retry & {contact: import("./contact.js").Contact}} Retry how often to try, and whether it ever went well */

export class Backoff {
  /** Milliseconds that a stream asked to wait before a reconnect.
   * @type {number | null} */
  asked = null;

  #retry;
  #signal;
  #busyToo;
  #onPause;
  #failures = 0;
  #answered = false;
  #began = performance.now();

  /**
   * @param {Retry} retry
   * @param {AbortSignal} signal gives up
   * @param {boolean} [busyToo] whether a conversation that is busy is asked again
   * @param {(error: unknown) => void} [onPause] is told why, before each wait
   */
  constructor(retry, signal, busyToo = false, onPause = () => {}) {
    this.#retry = retry;
    this.#signal = signal;
    this.#busyToo = busyToo;
    this.#onPause = onPause;
  }

  /** Somebody is there, whatever becomes of the answer. */
  answered() {
    this.#answered = true;
  }

  /** It went well: the count begins anew. */
  succeeded() {
    this.#failures = 0;
  }

  /**
   * Waits until the next attempt.
   *
   * @param {unknown} error what became of the last one
   * @returns {Promise<void>} throws the error when another attempt makes no sense, or the signal's reason
   */
  async failed(error) {
    this.#signal.throwIfAborted();
    this.#failures += 1;
    const { attempts, unanswered } = this.#retry;
    const most = this.#answered ? attempts : Math.min(attempts, unanswered);
    if (!this.#mayPass(error) || this.#failures >= most) throw error;
    const least = error instanceof PassbackError ? 1000 * (error.retryAfter ?? 0) : 0;
    if (least > this.#retry.longestDelay) throw error;
    const delay = Math.max(least, this.#delay());
    const { isMade, longest } = this.#retry.contact;
    if (!isMade && performance.now() - this.#began + delay > longest) throw error;
    // who answers there is no passback server, and will hardly become one
    if (!isMade && longest < Infinity && error instanceof ProtocolError) throw error;
    this.#onPause(error);
    await pause(delay, this.#signal);
  }

  /** @param {unknown} error */
  #mayPass(error) {
    if (error instanceof ConnectionLost) return true;
    if (error instanceof ProtocolError) return error.retryable;
    if (!(error instanceof ApiError)) return false;
    return PASSING.has(error.status ?? 0) || (this.#busyToo && error.code === "conversation_busy");
  }

  #delay() {
    const first = this.asked ?? this.#retry.firstDelay;
    const longest = Math.min(this.#retry.longestDelay, first * 2 ** (this.#failures - 1));
    return longest * (0.5 + Math.random() / 2);
  }
}

/**
 * @template T
 * @param {() => Promise<T>} attempt something that may be done twice
 * @param {Backoff} backoff
 * @returns {Promise<T>}
 */
export async function persist(attempt, backoff) {
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      await backoff.failed(error);
    }
  }
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>} rejects with the signal's reason when it is given
 */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
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
