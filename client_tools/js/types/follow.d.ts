/** Follows one run to its end, over as many connections as that takes. */
export type ErrorEvent = import("./events.js").ErrorEvent;
export type Event = import("./events.js").Event;
export type Place = import("./events.js").Place;
export type Connection = import("./http.js").Connection;
export type Backoff = import("./retry.js").Backoff;
export type FollowOptions = {
    /**
     * opens the run's stream behind the event with this id; "":
     * from its start, as long as no event with an id was seen
     */
    open: (after: string) => Promise<Connection>;
    /**
     * where to begin
     */
    after: string;
    backoff: Backoff;
    /**
     * gives up
     */
    signal: AbortSignal;
    /**
     * milliseconds without a byte after which a connection counts as lost
     */
    silence: number;
    eventChars: number;
    /**
     * is told of each frame as it came
     */
    tell: (step: import("./trace.js").Step) => void;
};
/** @typedef {import("./events.js").ErrorEvent} ErrorEvent */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").Place} Place */
/** @typedef {import("./http.js").Connection} Connection */
/** @typedef {import("./retry.js").Backoff} Backoff */
/**
 * @typedef {object} FollowOptions
 * @property {(after: string) => Promise<Connection>} open opens the run's stream behind the event with this id; "":
 *   from its start, as long as no event with an id was seen
 * @property {string} after where to begin
 * @property {Backoff} backoff
 * @property {AbortSignal} signal gives up
 * @property {number} silence milliseconds without a byte after which a connection counts as lost
 * @property {number} eventChars
 * @property {(step: import("./trace.js").Step) => void} tell is told of each frame as it came
 */
/**
 * Yields each event once; returns at `[DONE]`, the one sign that the run has ended. When the run's log has lost what was
 * read, which a store may do in a crash, all of it is rewound, and the run read from its start.
 *
 * @param {FollowOptions} options
 * @returns {AsyncGenerator<Event | (ErrorEvent & Place), void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export declare function follow({ open, after, backoff, signal, silence, eventChars, tell }: FollowOptions): AsyncGenerator<Event | (ErrorEvent & Place), void, void>;
