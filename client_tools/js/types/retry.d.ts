/** Retries: exponential backoff with jitter, bounded, and never sooner than the server allows. */
export type Retry = import("./options.js").Retry & {
    contact: import("./contact.js").Contact;
};
/**
 * @typedef {import("./options.js").Retry & {contact: import("./contact.js").Contact}} Retry the
 *   options, and whether the server has ever answered
 */
export declare class Backoff {
    #private;
    /** Milliseconds that a stream asks to wait before a reconnect.
     * @type {number | null} */
    serverDelay: number | null;
    /**
     * @param {Retry} retry
     * @param {AbortSignal} signal aborts
     * @param {boolean} [retryBusy] whether a request that a busy conversation refused is retried
     * @param {(error: unknown) => void} [onPause] called with the error before each wait
     */
    constructor(retry: Retry, signal: AbortSignal, retryBusy?: boolean, onPause?: (error: unknown) => void);
    /** Note that a server has answered, if only with an error. */
    answered(): void;
    /** Reset the count of failures. */
    succeeded(): void;
    /**
     * Wait until the next attempt.
     *
     * @param {unknown} error of the last attempt
     * @returns {Promise<void>} rejects with the error if there is no further attempt, or with the
     *   signal's reason
     */
    failed(error: unknown): Promise<void>;
}
/**
 * @template T
 * @param {() => Promise<T>} attempt an idempotent operation
 * @param {Backoff} backoff
 * @returns {Promise<T>}
 */
export declare function withRetry<T>(attempt: () => Promise<T>, backoff: Backoff): Promise<T>;
/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>} rejects with the signal's reason if aborted
 */
export declare function pause(milliseconds: number, signal: AbortSignal): Promise<void>;
