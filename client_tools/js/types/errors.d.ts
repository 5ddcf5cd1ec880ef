/**
 * What can go wrong, in one family:
 *
 *     PassbackError
 *     ├── InvalidArgument   the caller asked for something that cannot be
 *     ├── ApiError          the server refused
 *     │   └── CursorExpired the place to read on from is no longer in the run's log
 *     ├── ConnectionLost    no answer, or it broke off, more often than we try again
 *     ├── RunFailed         the run itself ended with an error
 *     ├── ProtocolError     the answer is not of this protocol, or not a passback server's
 *     └── LimitExceeded     something was larger than this client accepts
 *
 * A caller's own abort is none of them: then the signal's reason is thrown. No error holds an API key.
 */
export type ErrorFacts = {
    /**
     * stable, for programs
     */
    code: string;
    /**
     * of the HTTP answer
     */
    status?: number | null;
    /**
     * whether the same may succeed later
     */
    retryable?: boolean;
    /**
     * seconds after which it may
     */
    retryAfter?: number | null;
    /**
     * by which the server's log knows the request
     */
    requestId?: string | null;
    /**
     * more, as the server tells it
     */
    details?: unknown;
    cause?: unknown;
};
/**
 * @typedef {object} ErrorFacts
 * @property {string} code stable, for programs
 * @property {number | null} [status] of the HTTP answer
 * @property {boolean} [retryable] whether the same may succeed later
 * @property {number | null} [retryAfter] seconds after which it may
 * @property {string | null} [requestId] by which the server's log knows the request
 * @property {unknown} [details] more, as the server tells it
 * @property {unknown} [cause]
 */
export declare class PassbackError extends Error {
    code: string;
    status: number | null;
    retryable: boolean;
    retryAfter: number | null;
    requestId: string | null;
    details: unknown;
    /**
     * @param {string} message for people
     * @param {ErrorFacts} facts
     */
    constructor(message: string, facts: ErrorFacts);
}
/** The caller asked for something that cannot be; nothing was sent. */
export declare class InvalidArgument extends PassbackError {
    /** @param {string} message */
    constructor(message: string);
}
/** The server refused; `code` is its own, or `http_<status>` where the answer was none of ours. */
export declare class ApiError extends PassbackError {
}
/** The log of the run has lost the place to read on from; `client.messages()` has what was said. */
export declare class CursorExpired extends ApiError {
}
/** There was no answer, or it broke off, too often in a row. The run may go on: `client.resume()`. */
export declare class ConnectionLost extends PassbackError {
    /**
     * @param {string} message
     * @param {unknown} [cause]
     */
    constructor(message: string, cause?: unknown);
}
/** The run ended with an `error` event; the conversation stays usable. */
export declare class RunFailed extends PassbackError {
    /**
     * @param {import("./events.js").ErrorEvent} event
     * @returns {RunFailed}
     */
    static of({ error, code, retryable, retryAfter }: import("./events.js").ErrorEvent): RunFailed;
}
/**
 * @param {unknown} error
 * @returns {boolean} whether it says that a call waits no more: somebody else has answered it, or it was given up
 */
export declare function isSettled(error: unknown): boolean;
/**
 * @param {unknown} error
 * @returns {error is ApiError} whether it is about what was posted: the rest of it may be taken without a part
 */
export declare function isUnfit(error: unknown): error is ApiError;
/**
 * @param {unknown} error
 * @returns {boolean} whether a person may answer the questions once more, and in another way
 */
export declare function isUnfitAnswer(error: unknown): boolean;
/** The answer is not of this protocol; where something else than a passback server gave it, `status` is its status. */
export declare class ProtocolError extends PassbackError {
    /**
     * @param {string} message
     * @param {Omit<ErrorFacts, "code">} [facts]
     */
    constructor(message: string, facts?: Omit<ErrorFacts, "code">);
}
/** Something was larger than this client accepts. */
export declare class LimitExceeded extends PassbackError {
    /** @param {string} message */
    constructor(message: string);
}
