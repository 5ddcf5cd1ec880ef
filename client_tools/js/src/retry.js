/** Retries: exponential backoff with jitter, bounded, and never sooner than the server allows. */

import { TRANSIENT_STATUSES } from "./contact.js";
import { ApiError, ConnectionLost, PassbackError, ProtocolError, isBusy } from "./errors.js";

/**
 * @typedef {import("./options.js").Retry & {contact: import("./contact.js").Contact}} Retry the
 *   options, and whether the server has ever answered
 */

export class Backoff {
  /** Milliseconds that a stream asks to wait before a reconnect.
   * @type {number | null} */
  serverDelay = null;

  #retry;
  #signal;
  #retryBusy;
  #onPause;
  #failures = 0;
  #answered = false;
  #began = performance.now();

  /**
   * @param {Retry} retry
   * @param {AbortSignal} signal aborts
   * @param {boolean} [retryBusy] whether a request that a busy conversation refused is retried
   * @param {(error: unknown) => void} [onPause] called with the error before each wait
   */
  constructor(retry, signal, retryBusy = false, onPause = () => {}) {
    this.#retry = retry;
    this.#signal = signal;
    this.#retryBusy = retryBusy;
    this.#onPause = onPause;
  }

  /** Note that a server has answered, if only with an error. */
  answered() {
    this.#answered = true;
  }

  /** Reset the count of failures. */
  succeeded() {
    this.#failures = 0;
  }

  /**
   * Wait until the next attempt.
   *
   * @param {unknown} error of the last attempt
   * @returns {Promise<void>} rejects with the error if there is no further attempt, or with the
   *   signal's reason
   */
  async failed(error) {
    this.#signal.throwIfAborted();
    this.#failures += 1;
    const { attempts, unanswered } = this.#retry;
    const most = this.#answered ? attempts : Math.min(attempts, unanswered);
    if (!this.#isTransient(error) || this.#failures >= most) throw error;
    const least = error instanceof PassbackError ? 1000 * (error.retryAfter ?? 0) : 0;
    if (least > this.#retry.longestDelay) throw error;
    const delay = Math.max(least, this.#delay());
    const { isMade, longest } = this.#retry.contact;
    if (!isMade && performance.now() - this.#began + delay > longest) throw error;
    // a foreign server will hardly become a passback server
    if (!isMade && longest < Infinity && error instanceof ProtocolError) throw error;
    this.#onPause(error);
    await pause(delay, this.#signal);
  }

  /** @param {unknown} error */
  #isTransient(error) {
    if (error instanceof ConnectionLost) return true;
    if (error instanceof ProtocolError) return error.retryable;
    if (!(error instanceof ApiError)) return false;
    return TRANSIENT_STATUSES.has(error.status ?? 0) || (this.#retryBusy && isBusy(error));
  }

  #delay() {
    const first = this.serverDelay ?? this.#retry.firstDelay;
    const longest = Math.min(this.#retry.longestDelay, first * 2 ** (this.#failures - 1));
    return longest * (0.5 + Math.random() / 2);
  }
}

/**
 * @template T
 * @param {() => Promise<T>} attempt an idempotent operation
 * @param {Backoff} backoff
 * @returns {Promise<T>}
 */
export async function withRetry(attempt, backoff) {
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
 * @returns {Promise<void>} rejects with the signal's reason if aborted
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
