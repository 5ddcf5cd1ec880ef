/** Abort signals that follow others; browsers still in use lack `AbortSignal.any`. */
export declare class Aborter {
    #private;
    /** @param {AbortSignal} [parent] aborts this one, too, until `close` */
    constructor(parent?: AbortSignal);
    get signal(): AbortSignal;
    /** Abort, and stop following the parent.
     * @param {unknown} [reason] */
    close(reason?: unknown): void;
}
/**
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal} signal
 * @returns {Promise<T>} rejects with the signal's reason as soon as it aborts, whatever the promise
 *   does
 */
export declare function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T>;
