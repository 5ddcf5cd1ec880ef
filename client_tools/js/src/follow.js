/** Follow a stream of events to its end, over as many connections as needed. */

import { ApiError, ConnectionLost, ProtocolError } from "./errors.js";
import { readCursor, readEvent } from "./events.js";
import { SseDecoder } from "./sse.js";

/** @typedef {import("./events.js").WatchEvent} WatchEvent */
/** @typedef {import("./http.js").Connection} Connection */
/** @typedef {import("./retry.js").Backoff} Backoff */

/**
 * @typedef {object} FollowOptions
 * @property {(after: string) => Promise<Connection>} open opens the stream after the event with
 *   this id; "": from its start
 * @property {string} after the cursor to begin after
 * @property {Backoff} backoff
 * @property {AbortSignal} signal stops following
 * @property {number} silence milliseconds without a byte after which a connection counts as lost
 * @property {number} eventChars
 * @property {(step: import("./trace.js").Step) => void} trace called with each frame as it was
 *   received
 * @property {(run: string) => string} [restart] the cursor to begin after when the log of this run
 *   has lost what was read; default: the start of the stream
 * @property {(after: string) => WatchEvent[]} [opening] events to yield when a connection has
 *   opened
 * @property {boolean} [isOftenSilent] whether a ping counts as progress
 */

/**
 * Yield each event once; return at `[DONE]`, the only sign that a run has ended, or after
 * `deleted`, that of a conversation. If the run's log has lost events that were read, as a store
 * may in a crash, rewind all of them and read the run from its start.
 *
 * @param {FollowOptions} options
 * @returns {AsyncGenerator<WatchEvent, void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export async function* follow({
  open,
  after,
  backoff,
  signal,
  silence,
  eventChars,
  trace,
  restart = () => "",
  opening = () => [],
  isOftenSilent = false,
}) {
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
      yield* opening(after);
      const runId = connection.response.headers.get("X-Run-Id");
      for await (const { id, data } of frames(connection, { decoder, signal, silence })) {
        // a repeated frame, or one without an id, is no progress
        if (id !== "" && id !== place) backoff.succeeded();
        place = id || place;
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
        const event = readEvent(data, { cursor: id, runId: run ?? runId });
        yield event;
        signal.throwIfAborted();
        if (event.type === "deleted") return;
      }
    } catch (error) {
      if (connection) throw error;
      failure = error;
    } finally {
      connection?.close();
    }
    // the first comment opens the stream
    if (isOftenSilent && decoder.comments > 1) backoff.succeeded();
    after = decoder.lastEventId || after;
    const lost = after === begin ? null : lostRun(failure, after);
    if (lost) {
      yield { type: "rewind", to: `${lost}.0-0`, cursor: "", runId: lost };
      failure = new ConnectionLost("the server has lost what was read", failure);
      after = restart(lost);
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
