/**
 * The errors of this library:
 *
 *     PassbackError
 *     ├── InvalidArgument   an argument is invalid; nothing was sent
 *     ├── ApiError          the server answered with an error
 *     │   └── CursorExpired the run's log has lost the place to continue from
 *     ├── ConnectionLost    no answer, or it broke off, after all retries
 *     ├── RunFailed         the run ended with an error
 *     ├── ProtocolError     the answer is not one of a passback server
 *     └── LimitExceeded     something exceeds a limit of this client
 *
 * If the caller aborts, the signal's reason is thrown instead. No error contains an API key.
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
     * whether the same request may succeed later
     */
    retryable?: boolean;
    /**
     * seconds to wait before a retry
     */
    retryAfter?: number | null;
    /**
     * the request's id in the server's log
     */
    requestId?: string | null;
    /**
     * more facts from the server
     */
    details?: unknown;
    cause?: unknown;
};
/**
 * @typedef {object} ErrorFacts
 * @property {string} code stable, for programs
 * @property {number | null} [status] of the HTTP answer
 * @property {boolean} [retryable] whether the same request may succeed later
 * @property {number | null} [retryAfter] seconds to wait before a retry
 * @property {string | null} [requestId] the request's id in the server's log
 * @property {unknown} [details] more facts from the server
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
/** An argument is invalid; nothing was sent. */
export declare class InvalidArgument extends PassbackError {
    /** @param {string} message */
    constructor(message: string);
}
/**
 * An error of the server; `code` is the server's, or `http_<status>` for an answer of a gateway.
 */
export declare class ApiError extends PassbackError {
}
/** The run's log has lost the place to continue from; `client.messages()` has the messages. */
export declare class CursorExpired extends ApiError {
}
/** No answer, or a broken one, after all retries. The run may continue: `client.resume()`. */
export declare class ConnectionLost extends PassbackError {
    /**
     * @param {string} message
     * @param {unknown} [cause]
     */
    constructor(message: string, cause?: unknown);
}
/** A run that ended with an `error` event; the conversation stays usable. */
export declare class RunFailed extends PassbackError {
    /**
     * @param {import("./events.js").ErrorEvent} event
     * @returns {RunFailed}
     */
    static of({ error, code, retryable, retryAfter }: import("./events.js").ErrorEvent): RunFailed;
}
/**
 * @param {unknown} error
 * @returns {boolean} whether a call is closed: another client has answered it, or it was given up
 */
export declare function isSettled(error: unknown): boolean;
/**
 * @param {unknown} error
 * @returns {error is ApiError} whether the content of the post caused it: without one part, the
 *   rest may be accepted
 */
export declare function isContentError(error: unknown): error is ApiError;
/**
 * @param {unknown} error
 * @returns {boolean} whether a post was refused because of another run
 */
export declare function isBusy(error: unknown): boolean;
/**
 * @param {unknown} error
 * @returns {boolean} whether the answers do not fit the questions: a person may answer again
 */
export declare function isInvalidAnswer(error: unknown): boolean;
/** @param {unknown} raised @returns {Error} */
export declare function errorOf(raised: unknown): Error;
/** An answer that is not one of a passback server; `status` is that of a foreign server. */
export declare class ProtocolError extends PassbackError {
    /**
     * @param {string} message
     * @param {Omit<ErrorFacts, "code">} [facts]
     */
    constructor(message: string, facts?: Omit<ErrorFacts, "code">);
}
/** Something exceeds a limit of this client. */
export declare class LimitExceeded extends PassbackError {
    /** @param {string} message */
    constructor(message: string);
}
