/** Follows one run to its end, over as many connections as that takes. */

import { ApiError, ConnectionLost, ProtocolError } from "./errors.js";
import { readCursor } from "./cursors.js";
import { readEvent } from "./events.js";
import { SseDecoder } from "./sse.js";

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
export async function* follow({ open, after, backoff, signal, silence, eventChars, tell }) {
  const begin = after;
  let place = after;
  // behind a cursor there may be nothing left to say; from its start, each run says something
  let isBegun = after !== "";
  for (;;) {
    const decoder = new SseDecoder(eventChars);
    /** @type {unknown} */
    let failure = new ConnectionLost("the stream broke off");
    /** @type {Connection | undefined} */
    let connection;
    try {
      connection = await open(after);
      backoff.answered();
      const runId = connection.response.headers.get("X-Run-Id");
      for await (const { id, data } of frames(connection, { decoder, signal, silence })) {
        // a server that says the same again, or events without a place, gets nobody on
        if (id !== place) backoff.succeeded();
        place = id;
        tell({ kind: "frame", id, data });
        const run = readCursor(id)?.run;
        if (runId !== null && run === undefined)
          throw new ProtocolError("an event of the stream has no id of a passback server");
        if (data === "[DONE]") {
          if (!isBegun) throw new ProtocolError("the stream ends before its first event");
          connection.finish();
          connection = undefined;
          return;
        }
        isBegun = true;
        yield readEvent(data, { cursor: id, runId: run ?? runId });
        signal.throwIfAborted();
      }
    } catch (error) {
      if (connection) throw error;
      failure = error;
    } finally {
      connection?.close();
    }
    after = decoder.lastEventId || after;
    const lost = after === begin ? null : lostRun(failure, after);
    if (lost) {
      yield { type: "rewind", to: `${lost}.0-0`, cursor: "", runId: lost };
      failure = new ConnectionLost("the server has lost what was read", failure);
      after = "";
    }
    backoff.asked = decoder.retry ?? backoff.asked;
    await backoff.failed(failure);
  }
}

/**
 * @param {unknown} failure
 * @param {string} after a place that the server itself has named
 * @returns {string | null} the run whose log does not have it any more
 */
function lostRun(failure, after) {
  return failure instanceof ApiError && failure.code === "invalid_cursor"
    ? (readCursor(after)?.run ?? null)
    : null;
}

/**
 * @param {Connection} connection
 * @param {{decoder: SseDecoder, signal: AbortSignal, silence: number}} options
 * @returns {AsyncGenerator<import("./sse.js").SseEvent, void, void>} ends where the connection ends, whatever ended it
 */
async function* frames(connection, { decoder, signal, silence }) {
  for (;;) {
    const bytes = await connection.read(silence);
    signal.throwIfAborted();
    if (!bytes) return;
    yield* decoder.feed(bytes);
  }
}
