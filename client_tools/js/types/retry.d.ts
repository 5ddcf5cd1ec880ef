/** When to try again: exponential backoff with jitter, bounded, and never before the server allows it. */
export type Retry = import("./limits.js").Retry & {
    contact: Contact;
};
/** Whether a passback server has ever answered a client, be it with a refusal. */
export declare class Contact {
    isMade: boolean;
    /** Milliseconds that one request, with its repeats, may take until then. */
    longest: number;
    /** @param {Partial<import("./limits.js").Retry>} [given] by the caller, whose own count of attempts is kept to */
    constructor({ attempts, unanswered }?: Partial<import("./limits.js").Retry>);
}
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
