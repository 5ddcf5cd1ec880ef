/** Follow one run to its end, over as many connections as needed. */
export type ErrorEvent = import("./events.js").ErrorEvent;
export type Event = import("./events.js").Event;
export type Place = import("./events.js").Place;
export type Connection = import("./http.js").Connection;
export type Backoff = import("./retry.js").Backoff;
export type FollowOptions = {
    /**
     * opens the run's stream after the event
     * with this id; "": from its start
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
};
/** @typedef {import("./events.js").ErrorEvent} ErrorEvent */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").Place} Place */
/** @typedef {import("./http.js").Connection} Connection */
/** @typedef {import("./retry.js").Backoff} Backoff */
/**
 * @typedef {object} FollowOptions
 * @property {(after: string) => Promise<Connection>} open opens the run's stream after the event
 *   with this id; "": from its start
 * @property {string} after the cursor to begin after
 * @property {Backoff} backoff
 * @property {AbortSignal} signal stops following
 * @property {number} silence milliseconds without a byte after which a connection counts as lost
 * @property {number} eventChars
 * @property {(step: import("./trace.js").Step) => void} trace called with each frame as it was
 *   received
 */
/**
 * Yield each event once; return at `[DONE]`, the only sign that the run has ended. If the run's log
 * has lost events that were read, as a store may in a crash, rewind all of them and read the run
 * from its start.
 *
 * @param {FollowOptions} options
 * @returns {AsyncGenerator<Event | (ErrorEvent & Place), void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export declare function follow({ open, after, backoff, signal, silence, eventChars, trace }: FollowOptions): AsyncGenerator<Event | (ErrorEvent & Place), void, void>;
