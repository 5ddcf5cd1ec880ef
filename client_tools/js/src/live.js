/** What other clients do in the conversation of a chat, beside what the chat reads itself. */

import { CursorExpired } from "./errors.js";
import { readCursor } from "./events.js";
import { Aborter } from "./signals.js";
import { isMissing, watchWhileVisible } from "./watch.js";

/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").WatchEvent} WatchEvent */

/** Messages in one page of the history. */
const PAGE = 100;

/**
 * Watches a conversation, except while the chat reads a run itself: so each event comes once. The
 * watch goes on until it has come to that run, and continues behind it.
 */
export class Live {
  isOn = true;
  /** Whether the server has the conversation, as far as is known. */
  isKnown = false;
  #client;
  #options;
  #thread;
  #on;
  /** The place to continue after. */
  #cursor = "";
  /** Number of messages before those of the chat; null: not known yet.
   * @type {number | null} */
  #before = null;
  /** The run in progress when the chat began: its messages belong to the history.
   * @type {string | null} */
  #early = null;
  /** The run that the chat reads itself.
   * @type {string | null} */
  #own = null;
  /** The last event that it has read there. */
  #ownCursor = "";
  /** The watched run in progress.
   * @type {string | null} */
  #runId = null;
  /** Resolves when that run has ended.
   * @type {() => void} */
  #onEnd = () => {};
  #ended = Promise.resolve();
  #isWanted = false;
  /** @type {Aborter | null} */
  #watching = null;

  /**
   * @param {import("./client.js").Client} client
   * @param {{conversationId: string, include: string[]}} options
   * @param {import("./thread.js").Thread} thread
   * @param {object} on
   * @param {(event: Exclude<WatchEvent, {type: "posted" | "deleted" | "watching"}>) => void}
   *   on.onEvent called with each event of a run that the chat does not read itself
   * @param {() => void} on.onChange
   * @param {() => void} on.onStopped called when it does not watch any more, perhaps within a run
   * @param {() => void} on.onDeleted
   */
  constructor(client, options, thread, on) {
    this.#client = client;
    this.#options = options;
    this.#thread = thread;
    this.#on = on;
  }

  /** @returns {string | null} the watched run in progress */
  get runId() {
    return this.#runId;
  }

  /**
   * @param {string | null} runId
   * @returns {Promise<void>} resolves when this run is watched to its end, or not watched at all
   */
  async ended(runId) {
    if (runId !== null && runId === this.#runId) await this.#ended;
  }

  begin() {
    this.#isWanted = true;
    this.#adjust();
  }

  end() {
    this.#isWanted = false;
    this.#adjust();
  }

  /**
   * Note an event that the chat reads itself.
   *
   * @param {Event} event
   * @param {import("./thread.js").Exchange} exchange
   * @returns {boolean} false if it is watched already
   */
  claim({ type, cursor, runId }, exchange) {
    this.isKnown = true;
    if (runId === null || cursor === "" || type === "run-queued") return true;
    if (!this.#thread.claim(runId, exchange)) return false;
    if (this.#cursor === "" && this.#watching === null) this.#cursor = `${runId}.0-0`;
    if (this.#thread.isReached(runId)) this.#cursor = cursor;
    this.#ownCursor = cursor;
    this.#own = type === "run-end" ? null : runId;
    this.#adjust();
    return true;
  }

  /** The chat reads no run itself any more.
   * @param {boolean} isWhole whether it has read that to its end */
  release(isWhole) {
    if (this.#own !== null && !isWhole) this.#thread.release(this.#own);
    this.#own = null;
    this.#adjust();
  }

  #adjust() {
    const isBeside = this.#own !== null && this.#thread.isReached(this.#own);
    if (!this.isOn || !this.isKnown || !this.#isWanted || isBeside) {
      if (this.#watching !== null) this.#stop();
    } else if (this.#watching === null) {
      this.#watching = new Aborter();
      void this.#watch(this.#watching);
    }
  }

  /** @param {Aborter} watching */
  async #watch(watching) {
    const { conversationId, include } = this.#options;
    const { signal } = watching;
    try {
      const options = { include, after: this.#cursor, signal };
      for await (const event of watchWhileVisible(this.#client, conversationId, options)) {
        if (event.type === "watching") await this.#load(signal);
        else this.#add(event);
        if (signal.aborted) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof CursorExpired) this.#cursor = "";
      else if (isMissing(error)) this.#beginBehindPost();
      // an old server, or one that refuses this client, which learns it when it sends
      else this.isOn = false;
    }
    this.#stop();
    this.#adjust();
  }

  /** @param {Exclude<WatchEvent, {type: "watching"}>} event */
  #add(event) {
    if (event.type === "deleted") {
      [this.isKnown, this.#before, this.#early] = [false, 0, null];
      [this.#cursor, this.#ownCursor] = ["", ""];
      this.#setRun(null);
      return this.#on.onDeleted();
    }
    if (event.type === "posted") {
      this.#thread.post(event, event.runId === this.#early);
      return this.#on.onChange();
    }
    const { runId, cursor } = event;
    this.#cursor = cursor || this.#cursor;
    if (runId === null) return;
    if (!this.#thread.claim(runId, null)) {
      if (runId === this.#own) this.#cursor = this.#ownCursor;
      return this.#adjust();
    }
    if (event.type !== "run-end") this.#setRun(runId);
    this.#on.onEvent(event);
    if (event.type === "run-end") this.#setRun(null);
  }

  /** @param {string | null} runId */
  #setRun(runId) {
    if (runId === this.#runId) return;
    this.#runId = runId;
    this.#onEnd();
    this.#ended = new Promise((resolve) => (this.#onEnd = () => resolve(undefined)));
  }

  /** Continue with the first run: the request came before the message that begins it. */
  #beginBehindPost() {
    const run = readCursor(this.#ownCursor)?.run;
    this.isKnown = run !== undefined;
    this.#cursor = run === undefined ? "" : `${run}.0-0`;
  }

  #stop() {
    this.#watching?.close();
    this.#watching = null;
    this.#setRun(null);
    this.#on.onStopped();
  }

  /**
   * Read what was said before the watch began, since the chat began.
   *
   * @param {AbortSignal} signal
   */
  async #load(signal) {
    const { conversationId } = this.#options;
    const state = await this.#client.conversation(conversationId, { signal });
    const end = state.running?.firstMessage ?? state.messageCount;
    if (this.#before === null) {
      this.#before = end;
      this.#early = state.running?.runId ?? null;
      return;
    }
    const first = this.#thread.lastFirst ?? this.#before;
    /** @type {import("./messages.js").Message[]} */
    const messages = [];
    for (let count = 1; first + messages.length < end && count > 0; ) {
      const after = first + messages.length;
      const limit = Math.min(PAGE, end - after);
      const page = await this.#client.messages(conversationId, { after, limit, signal });
      count = page.messages.length;
      messages.push(...page.messages);
    }
    this.#thread.load(first, messages);
    this.#on.onChange();
  }
}
