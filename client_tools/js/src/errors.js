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

/** The caller asked for something that cannot be; nothing was sent. */
export class InvalidArgument extends PassbackError {
  /** @param {string} message */
  constructor(message) {
    super(message, { code: "invalid_argument" });
  }
}

/** The server refused; `code` is its own, or `http_<status>` where the answer was none of ours. */
export class ApiError extends PassbackError {}

/** The log of the run has lost the place to read on from; `client.messages()` has what was said. */
export class CursorExpired extends ApiError {}

/** There was no answer, or it broke off, too often in a row. The run may go on: `client.resume()`. */
export class ConnectionLost extends PassbackError {
  /**
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(message, cause) {
    super(message, { code: "connection_lost", retryable: true, cause });
  }
}

/** The run ended with an `error` event; the conversation stays usable. */
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

/** The call has an answer, or was never one that waits. */
const SETTLED = new Set(["tool_result_conflict", "tool_call_not_found"]);
/** Statuses that say something of what was posted, and not of who posts it, or when. */
const UNFIT = new Set([400, 413, 422]);

/**
 * @param {unknown} error
 * @returns {boolean} whether it says that a call waits no more: somebody else has answered it, or it was given up
 */
export function isSettled(error) {
  return error instanceof ApiError && SETTLED.has(error.code);
}

/**
 * @param {unknown} error
 * @returns {error is ApiError} whether it is about what was posted: the rest of it may be taken without a part
 */
export function isUnfit(error) {
  return error instanceof ApiError && UNFIT.has(error.status ?? 0);
}

/**
 * @param {unknown} error
 * @returns {boolean} whether a person may answer the questions once more, and in another way
 */
export function isUnfitAnswer(error) {
  return error instanceof ApiError && error.code === "invalid_answer";
}

/** The answer is not of this protocol; where something else than a passback server gave it, `status` is its status. */
export class ProtocolError extends PassbackError {
  /**
   * @param {string} message
   * @param {Omit<ErrorFacts, "code">} [facts]
   */
  constructor(message, facts) {
    super(message, { ...facts, code: "protocol_error" });
  }
}

/** Something was larger than this client accepts. */
export class LimitExceeded extends PassbackError {
  /** @param {string} message */
  constructor(message) {
    super(message, { code: "limit_exceeded" });
  }
}
