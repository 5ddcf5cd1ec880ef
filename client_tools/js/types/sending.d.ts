/**
 * The runs of one `send`: a run, the calls that it leaves owed, the run that their results start,
 * and so on.
 */
import { Round } from "./round.js";
export type ErrorEvent = import("./events.js").ErrorEvent;
export type Event = import("./events.js").Event;
export type OwedCall = import("./events.js").OwedCall;
export type Place = import("./events.js").Place;
export type Post = import("./wire.js").Post;
export type ClientParts = {
    http: import("./http.js").Http;
    claims: import("./claims.js").Claims;
    toolbox: import("./tools.js").Toolbox;
    limits: import("./options.js").Limits;
    retry: import("./retry.js").Retry;
};
export type SendingOptions = {
    conversationId: string;
    first: FirstStep;
    include: string[];
    /**
     * whether the runs continue when nobody follows them
     */
    onDisconnect?: string;
    retryBusy?: boolean;
    signal?: AbortSignal;
    onConnection?: (isOpen: boolean) => void;
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
export type FirstStep = Source | "current";
/** @typedef {import("./events.js").ErrorEvent} ErrorEvent */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./events.js").Place} Place */
/** @typedef {import("./wire.js").Post} Post */
/**
 * @typedef {object} ClientParts parts of a client that its sendings share
 * @property {import("./http.js").Http} http
 * @property {import("./claims.js").Claims} claims
 * @property {import("./tools.js").Toolbox} toolbox
 * @property {import("./options.js").Limits} limits
 * @property {import("./retry.js").Retry} retry
 */
/**
 * @typedef {object} SendingOptions
 * @property {string} conversationId
 * @property {FirstStep} first
 * @property {string[]} include
 * @property {string} [onDisconnect] whether the runs continue when nobody follows them
 * @property {boolean} [retryBusy]
 * @property {AbortSignal} [signal]
 * @property {(isOpen: boolean) => void} [onConnection]
 */
/**
 * @typedef {{post: Post} | {runId: string | null, after: string}} RunSource a post to make, or a
 *   run to follow
 */
/**
 * @typedef {RunSource | {calls: OwedCall[]} | {round: Round}} Source also calls to answer, or
 *   answers to post
 */
/** @typedef {Source | "current"} FirstStep */
/**
 * The events of one `send` or `resume`, in order. Nothing is posted before `start` or the iteration
 * begins; it can be iterated once. Leaving it early closes the connection and aborts the signal of
 * running tools; the run continues on the server.
 */
export declare class Sending {
    #private;
    /**
     * @param {ClientParts} parts
     * @param {SendingOptions} options
     */
    constructor(parts: ClientParts, options: SendingOptions);
    /** The id of the conversation, known from the start. */
    get conversationId(): string;
    /** The current or last run; null before the first response. */
    get runId(): string | null;
    /** The rest of the limits of conversation and owner when the newest response began, if known. */
    get left(): import("./events.js").Left | null;
    /** @returns {AsyncGenerator<Event, void, void>} */
    [Symbol.asyncIterator](): AsyncGenerator<Event, void, void>;
    /**
     * Post at once, before the iteration; without an iteration, abort it by its `signal`.
     *
     * @returns {Promise<Event | undefined>} the first event, when the server has accepted the post;
     *   the iteration yields it, too
     * @throws {import("./errors.js").PassbackError} as the iteration does, too
     */
    start(): Promise<Event | undefined>;
    /**
     * Read to the end.
     *
     * @returns {Promise<string>} the text of the answer, without what was rewound
     */
    text(): Promise<string>;
    /**
     * Stop the run on the server: the iteration then ends by itself, with the outcome `cancelled`.
     * Calls that are being answered are abandoned and stay owed.
     *
     * @returns {Promise<boolean>} false if there was no run to stop
     * @throws {import("./errors.js").PassbackError}
     */
    cancel(): Promise<boolean>;
    /**
     * Drop the connection and continue on a new one, after the last event.
     *
     * @returns {boolean} false if no run is being read
     */
    reconnect(): boolean;
}
