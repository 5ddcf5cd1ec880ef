/** Follow a stream of events to its end, over as many connections as needed. */
export type WatchEvent = import("./events.js").WatchEvent;
export type Connection = import("./http.js").Connection;
export type Backoff = import("./retry.js").Backoff;
export type FollowOptions = {
    /**
     * opens the stream after the event with
     * this id; "": from its start
     */
    open: (after: string) => Promise<Connection>;
    /**
     * the cursor to begin after
     */
    after: string;
    backoff: Backoff;
    /**
     * stops following
     */
    signal: AbortSignal;
    /**
     * milliseconds without a byte after which a connection counts as lost
     */
    silence: number;
    eventChars: number;
    /**
     * called with each frame as it was
     * received
     */
    trace: (step: import("./trace.js").Step) => void;
    /**
     * the cursor to begin after when the log of this run
     * has lost what was read; default: the start of the stream
     */
    restart?: (run: string) => string;
    /**
     * events to yield when a connection has
     * opened
     */
    opening?: (after: string) => WatchEvent[];
    /**
     * whether a ping counts as progress
     */
    isOftenSilent?: boolean;
};
/** @typedef {import("./events.js").WatchEvent} WatchEvent */
/** @typedef {import("./http.js").Connection} Connection */
/** @typedef {import("./retry.js").Backoff} Backoff */
/**
 * @typedef {object} FollowOptions
 * @property {(after: string) => Promise<Connection>} open opens the stream after the event with
 *   this id; "": from its start
 * @property {string} after the cursor to begin after
 * @property {Backoff} backoff
 * @property {AbortSignal} signal stops following
 * @property {number} silence milliseconds without a byte after which a connection counts as lost
 * @property {number} eventChars
 * @property {(step: import("./trace.js").Step) => void} trace called with each frame as it was
 *   received
 * @property {(run: string) => string} [restart] the cursor to begin after when the log of this run
 *   has lost what was read; default: the start of the stream
 * @property {(after: string) => WatchEvent[]} [opening] events to yield when a connection has
 *   opened
 * @property {boolean} [isOftenSilent] whether a ping counts as progress
 */
/**
 * Yield each event once; return at `[DONE]`, the only sign that a run has ended, or after
 * `deleted`, that of a conversation. If the run's log has lost events that were read, as a store
 * may in a crash, rewind all of them and read the run from its start.
 *
 * @param {FollowOptions} options
 * @returns {AsyncGenerator<WatchEvent, void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export declare function follow({ open, after, backoff, signal, silence, eventChars, trace, restart, opening, isOftenSilent, }: FollowOptions): AsyncGenerator<WatchEvent, void, void>;
