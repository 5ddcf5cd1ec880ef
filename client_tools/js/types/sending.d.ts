/** What one `send` leads to: a run, the calls that it hands back, the run that their results start, and so on. */
import { Round } from "./round.js";
export type ErrorEvent = import("./events.js").ErrorEvent;
export type Event = import("./events.js").Event;
export type OwedCall = import("./events.js").OwedCall;
export type Place = import("./events.js").Place;
export type Post = import("./wire.js").Post;
export type Parts = {
    http: import("./http.js").Http;
    claims: import("./claims.js").Claims;
    toolbox: import("./tools.js").Toolbox;
    limits: import("./limits.js").Limits;
    retry: import("./retry.js").Retry;
};
export type Order = {
    conversationId: string;
    first: Step;
    include: string[];
    /**
     * what becomes of the runs when nobody follows them
     */
    onDisconnect?: string;
    retryBusy?: boolean;
    signal?: AbortSignal;
};
export type RunSource = {
    post: Post;
} | {
    runId: string | null;
    after: string;
};
export type Source = RunSource | {
    calls: OwedCall[];
} | {
    round: Round;
};
export type Step = Source | "where it stands";
/** @typedef {import("./events.js").ErrorEvent} ErrorEvent */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./events.js").Place} Place */
/** @typedef {import("./wire.js").Post} Post */
/**
 * @typedef {object} Parts what a client lends to each of its sendings
 * @property {import("./http.js").Http} http
 * @property {import("./claims.js").Claims} claims
 * @property {import("./tools.js").Toolbox} toolbox
 * @property {import("./limits.js").Limits} limits
 * @property {import("./retry.js").Retry} retry
 */
/**
 * @typedef {object} Order
 * @property {string} conversationId
 * @property {Step} first
 * @property {string[]} include
 * @property {string} [onDisconnect] what becomes of the runs when nobody follows them
 * @property {boolean} [retryBusy]
 * @property {AbortSignal} [signal]
 */
/** @typedef {{post: Post} | {runId: string | null, after: string}} RunSource a post to make, or a run to follow */
/** @typedef {RunSource | {calls: OwedCall[]} | {round: Round}} Source also calls to answer, or answers to post */
/** @typedef {Source | "where it stands"} Step */
/**
 * The events of one `send` or `resume`, in order. Nothing is posted before `start`, or the iteration, begins; it can be iterated
 * once. Leaving it early closes the connection and aborts the signal of running tools; the run goes on at the server.
 */
export declare class Sending {
    #private;
    /**
     * @param {Parts} parts
     * @param {Order} order
     */
    constructor(parts: Parts, order: Order);
    /** Known from the start, also where the caller named none. */
    get conversationId(): string;
    /** The run that is followed, or was last; null before the first answer. */
    get runId(): string | null;
    /** What was left of the limits of conversation and owner when the newest answer began; null where nothing is told. */
    get left(): import("./events.js").Left | null;
    /** @returns {AsyncGenerator<Event, void, void>} */
    [Symbol.asyncIterator](): AsyncGenerator<Event, void, void>;
    /**
     * Posts at once, before anybody iterates; who never does has to abort it by its `signal`.
     *
     * @returns {Promise<Event | undefined>} the first event, when the server has taken the post; it is given by the iteration, too
     * @throws {import("./errors.js").PassbackError} as the iteration then does
     */
    start(): Promise<Event | undefined>;
    /**
     * Reads to the end.
     *
     * @returns {Promise<string>} the text of the answer, without what became void
     */
    text(): Promise<string>;
    /**
     * Stops the run at the server, and what it leads to: the iteration then ends by itself, with the outcome
     * `cancelled`. Calls that are being answered are given up, and stay owed.
     *
     * @returns {Promise<boolean>} false when there was no run to be stopped
     * @throws {import("./errors.js").PassbackError}
     */
    cancel(): Promise<boolean>;
    /**
     * Drops the connection, as a cut would; the reading goes on with a new one, behind the last event.
     *
     * @returns {boolean} false when no run is read
     */
    reconnect(): boolean;
}
