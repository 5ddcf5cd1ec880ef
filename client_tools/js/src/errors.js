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

export class PassbackError extends Error {
  /**
   * @param {string} message for people
   * @param {ErrorFacts} facts
   */
  constructor(message, facts) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.code = facts.code;
    this.status = facts.status ?? null;
    this.retryable = facts.retryable ?? false;
    this.retryAfter = facts.retryAfter ?? null;
    this.requestId = facts.requestId ?? null;
    this.details = facts.details;
  }
}

/** An argument is invalid; nothing was sent. */
export class InvalidArgument extends PassbackError {
  /** @param {string} message */
  constructor(message) {
    super(message, { code: "invalid_argument" });
  }
}

/**
 * An error of the server; `code` is the server's, or `http_<status>` for an answer of a gateway.
 */
export class ApiError extends PassbackError {}

/** The run's log has lost the place to continue from; `client.messages()` has the messages. */
export class CursorExpired extends ApiError {}

/** No answer, or a broken one, after all retries. The run may continue: `client.resume()`. */
export class ConnectionLost extends PassbackError {
  /**
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(message, cause) {
    super(message, { code: "connection_lost", retryable: true, cause });
  }
}

/** A run that ended with an `error` event; the conversation stays usable. */
export class RunFailed extends PassbackError {
  /**
   * @param {import("./events.js").ErrorEvent} event
   * @returns {RunFailed}
   */
  static of({ error, code, retryable, retryAfter }) {
    return new RunFailed(error, {
      code: typeof code === "string" ? code : "error",
      retryable: retryable === true,
      retryAfter: typeof retryAfter === "number" ? retryAfter : null,
    });
  }
}

/** Codes for a call that has an answer, or never waited for one. */
const SETTLED = new Set(["tool_result_conflict", "tool_call_not_found"]);
/** Statuses caused by the content of a post, not by its sender or time. */
const CONTENT_STATUSES = new Set([400, 413, 422]);

/**
 * @param {unknown} error
 * @returns {boolean} whether a call is closed: another client has answered it, or it was given up
 */
export function isSettled(error) {
  return error instanceof ApiError && SETTLED.has(error.code);
}

/**
 * @param {unknown} error
 * @returns {error is ApiError} whether the content of the post caused it: without one part, the
 *   rest may be accepted
 */
export function isContentError(error) {
  return error instanceof ApiError && CONTENT_STATUSES.has(error.status ?? 0);
}

/**
 * @param {unknown} error
 * @returns {boolean} whether a post was refused because of another run
 */
export function isBusy(error) {
  return error instanceof ApiError && error.code === "conversation_busy";
}

/**
 * @param {unknown} error
 * @returns {boolean} whether the answers do not fit the questions: a person may answer again
 */
export function isInvalidAnswer(error) {
  return error instanceof ApiError && error.code === "invalid_answer";
}

/** @param {unknown} raised @returns {Error} */
export function errorOf(raised) {
  return raised instanceof Error ? raised : new Error(String(raised));
}

/** An answer that is not one of a passback server; `status` is that of a foreign server. */
export class ProtocolError extends PassbackError {
  /**
   * @param {string} message
   * @param {Omit<ErrorFacts, "code">} [facts]
   */
  constructor(message, facts) {
    super(message, { ...facts, code: "protocol_error" });
  }
}

/** Something exceeds a limit of this client. */
export class LimitExceeded extends PassbackError {
  /** @param {string} message */
  constructor(message) {
    super(message, { code: "limit_exceeded" });
  }
}
