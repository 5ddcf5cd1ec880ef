/** When to try again: exponential backoff with jitter, bounded, and never before the server allows it. */
export type Retry = import("./limits.js").Retry & {
    contact: import("./contact.js").Contact;
};
/** @typedef {import("./limits.js").Retry & {contact: import("./contact.js").Contact}} Retry how often to try, and whether it ever went well */
export declare class Backoff {
    #private;
    /** Milliseconds that a stream asked to wait before a reconnect.
     * @type {number | null} */
    asked: number | null;
    /**
     * @param {Retry} retry
     * @param {AbortSignal} signal gives up
     * @param {boolean} [busyToo] whether a conversation that is busy is asked again
     * @param {(error: unknown) => void} [onPause] is told why, before each wait
     */
    constructor(retry: Retry, signal: AbortSignal, busyToo?: boolean, onPause?: (error: unknown) => void);
    /** Somebody is there, whatever becomes of the answer. */
    answered(): void;
    /** It went well: the count begins anew. */
    succeeded(): void;
    /**
     * Waits until the next attempt.
     *
     * @param {unknown} error what became of the last one
     * @returns {Promise<void>} throws the error when another attempt makes no sense, or the signal's reason
     */
    failed(error: unknown): Promise<void>;
}
/**
 * @template T
 * @param {() => Promise<T>} attempt something that may be done twice
 * @param {Backoff} backoff
 * @returns {Promise<T>}
 */
export declare function persist<T>(attempt: () => Promise<T>, backoff: Backoff): Promise<T>;
/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>} rejects with the signal's reason when it is given
 */
export declare function pause(milliseconds: number, signal: AbortSignal): Promise<void>;
