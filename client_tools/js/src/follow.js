/** Follows one run to its end, over as many connections as that takes. */

import { ConnectionLost, ProtocolError } from "./errors.js";
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
 */

/**
 * Yields each event once; returns at `[DONE]`, the one sign that the run has ended.
 *
 * @param {FollowOptions} options
 * @returns {AsyncGenerator<Event | (ErrorEvent & Place), void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export async function* follow({ open, after, backoff, signal, silence, eventChars }) {
  for (;;) {
    const decoder = new SseDecoder(eventChars);
    /** @type {unknown} */
    let failure = new ConnectionLost("the stream broke off");
    /** @type {Connection | undefined} */
    let connection;
    try {
      connection = await open(after);
      const runId = connection.response.headers.get("X-Run-Id");
      for await (const { id, data } of frames(connection, { decoder, signal, silence })) {
        backoff.succeeded();
        if (data === "[DONE]") {
          connection.finish();
          connection = undefined;
          return;
        }
        yield readEvent(data, { cursor: id, runId: readCursor(id)?.run ?? runId });
        signal.throwIfAborted();
      }
    } catch (error) {
      if (connection) throw error;
      failure = error;
    } finally {
      connection?.close();
    }
    after = decoder.lastEventId || after;
    backoff.asked = decoder.retry ?? backoff.asked;
    await backoff.failed(failure);
  }
}

/**
 * @param {Connection} connection
 * @param {{decoder: SseDecoder, signal: AbortSignal, silence: number}} options
 * @returns {AsyncGenerator<import("./sse.js").SseEvent, void, void>} ends where the connection ends, whatever ended it
 */
async function* frames(connection, { decoder, signal, silence }) {
  if (!connection.response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    throw new ProtocolError("the answer is not a stream of events");
  }
  for (;;) {
    const bytes = await connection.read(silence);
    signal.throwIfAborted();
    if (!bytes) return;
    yield* decoder.feed(bytes);
  }
}
