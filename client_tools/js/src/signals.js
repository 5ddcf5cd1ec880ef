/** Abort signals that follow others; browsers still in use lack `AbortSignal.any`. */

export class Aborter {
  #controller = new AbortController();
  /** @type {AbortSignal | undefined} */
  #parent;

  /** @param {AbortSignal} [parent] aborts this one, too, until `close` */
  constructor(parent) {
    this.#parent = parent;
    if (parent?.aborted) this.#controller.abort(parent.reason);
    else parent?.addEventListener("abort", this.#follow, { once: true });
  }

  get signal() {
    return this.#controller.signal;
  }

  /** Abort, and stop following the parent.
   * @param {unknown} [reason] */
  close(reason) {
    this.#parent?.removeEventListener("abort", this.#follow);
    this.#controller.abort(reason);
  }

  #follow = () => this.#controller.abort(this.#parent?.reason);
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal} signal
 * @returns {Promise<T>} rejects with the signal's reason as soon as it aborts, whatever the promise
 *   does
 */
export function unlessAborted(promise, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
