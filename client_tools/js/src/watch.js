/** Follow a conversation live: all its runs, whoever begins them. */

import { ApiError, ConnectionLost, CursorExpired, RunFailed } from "./errors.js";
import { follow } from "./follow.js";
import { Backoff, pause } from "./retry.js";
import { Aborter } from "./signals.js";
import { openConversation } from "./wire.js";

/** @typedef {import("./events.js").WatchEvent} WatchEvent */

/** Time until a lost server is tried again, unless the network or the page is back earlier. */
const LOST = 30_000; // milliseconds
const DAY = 86_400_000; // milliseconds

/**
 * @param {import("./sending.js").ClientParts} parts
 * @param {{conversationId: string, after: string, absent: "wait" | "refuse", include: string[],
 *   signal: AbortSignal, onConnection?:
 *   import("./client.js").WatchOptions["onConnection"]}} options
 * @returns {AsyncGenerator<WatchEvent, void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export async function* watchConversation(
  parts,
  { conversationId, after, absent, include, signal, onConnection },
) {
  const { http, retry, limits } = parts;
  const exchange = http.newExchange();
  let isKnown = after !== "";
  let last = after;
  const onPause = (/** @type {unknown} */ error) => {
    onConnection?.(false);
    http.trace(exchange, { kind: "lost", message: String(error) });
  };
  const events = follow({
    open: (from) =>
      openConversation(http, conversationId, { after: from, absent, include, signal, exchange }),
    after,
    backoff: new Backoff(retry, signal, false, onPause),
    signal,
    silence: retry.silence,
    eventChars: limits.eventChars,
    trace: (step) => http.trace(exchange, step),
    restart: (run) => `${run}.0-0`,
    opening: (from) => {
      isKnown = true;
      onConnection?.(true);
      return from === "" ? [{ type: "watching", cursor: "", runId: null }] : [];
    },
    isOftenSilent: true,
  });
  try {
    for await (const event of events) {
      // the error of a run has an id of its own, that of the stream has none
      const { type, cursor } = event;
      if (type === "error" && (cursor === "" || cursor === last)) throw streamError(event);
      last = cursor || last;
      yield event;
    }
  } catch (error) {
    if (!isKnown || !isMissing(error)) throw error;
    yield { type: "deleted", cursor: "", runId: null };
  }
}

/**
 * @param {unknown} error
 * @returns {boolean} whether the server has no such conversation
 */
export function isMissing(error) {
  return error instanceof ApiError && error.code === "conversation_not_found";
}

/** @param {import("./events.js").ErrorEvent} event with which the server ends the stream */
function streamError(event) {
  const { error, code } = event;
  return code === "cursor_expired" ? new CursorExpired(error, { code }) : RunFailed.of(event);
}

/**
 * Watch a conversation for a page: without a connection while the page is hidden, since a browser
 * has few for each server, and on a new one as soon as the network is back. It waits for a server
 * that cannot be reached.
 *
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {import("./client.js").WatchOptions & {signal: AbortSignal, onConnection?: (isOpen:
 *   boolean, error?: unknown) => void}} options `onConnection` is called with an error when the
 *   server could not be reached, and is waited for
 * @returns {AsyncGenerator<WatchEvent, void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export async function* watchWhileVisible(client, conversationId, { signal, ...options }) {
  let after = options.after ?? "";
  let isKnown = false;
  for (;;) {
    while (isHidden()) await nextChange(DAY, signal);
    const reading = new Aborter(signal);
    const forget = onChange(() => reading.close());
    try {
      const read = { ...options, after, signal: reading.signal };
      for await (const event of client.watch(conversationId, read)) {
        after = event.cursor || after;
        isKnown = true;
        yield event;
      }
      return;
    } catch (error) {
      signal.throwIfAborted();
      if (isKnown && isMissing(error)) return yield { type: "deleted", cursor: "", runId: null };
      if (!reading.signal.aborted) {
        if (!(error instanceof ConnectionLost)) throw error;
        options.onConnection?.(false, error);
        await nextChange(LOST, signal);
      }
    } finally {
      forget();
      reading.close();
    }
  }
}

function isHidden() {
  return globalThis.document?.hidden === true;
}

/**
 * @param {() => void} listener called when the page is hidden or shown, or the network is back
 * @returns {() => void} forgets the listener
 */
function onChange(listener) {
  const { document } = globalThis;
  document?.addEventListener("visibilitychange", listener);
  globalThis.addEventListener?.("online", listener);
  return () => {
    document?.removeEventListener("visibilitychange", listener);
    globalThis.removeEventListener?.("online", listener);
  };
}

/**
 * @param {number} milliseconds to wait at most
 * @param {AbortSignal} signal
 */
async function nextChange(milliseconds, signal) {
  const waiting = new Aborter(signal);
  const forget = onChange(() => waiting.close());
  try {
    await pause(milliseconds, waiting.signal);
  } catch {
    signal.throwIfAborted();
  } finally {
    forget();
    waiting.close();
  }
}
