/** Follow one run to its end, over as many connections as needed. */

import { ApiError, ConnectionLost, ProtocolError } from "./errors.js";
import { readCursor, readEvent } from "./events.js";
import { SseDecoder } from "./sse.js";

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
export async function* follow({ open, after, backoff, signal, silence, eventChars, trace }) {
  const begin = after;
  let place = after;
  // after a cursor there may be no more events; from its start, each run has some
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
        // a repeated frame, or one without an id, is no progress
        if (id !== place) backoff.succeeded();
        place = id;
        trace({ kind: "frame", id, data });
        const run = readCursor(id)?.run;
        if (runId !== null && run === undefined) {
          throw new ProtocolError("an event of the stream has no id of a passback server");
        }
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
    backoff.serverDelay = decoder.retry ?? backoff.serverDelay;
    await backoff.failed(failure);
  }
}

/**
 * @param {unknown} failure
 * @param {string} after a cursor that the server has sent
 * @returns {string | null} the run whose log has lost it, else null
 */
function lostRun(failure, after) {
  return failure instanceof ApiError && failure.code === "invalid_cursor"
    ? (readCursor(after)?.run ?? null)
    : null;
}

/**
 * @param {Connection} connection
 * @param {{decoder: SseDecoder, signal: AbortSignal, silence: number}} options
 * @returns {AsyncGenerator<import("./sse.js").SseEvent, void, void>} ends when the connection ends,
 *   for whatever reason
 */
async function* frames(connection, { decoder, signal, silence }) {
  for (;;) {
    const bytes = await connection.read(silence);
    signal.throwIfAborted();
    if (!bytes) return;
    yield* decoder.feed(bytes);
  }
}
