/**
 * The conversation of a chat, beside what the chat reads itself: its history, and what other
 * clients do in it.
 */

import { CursorExpired } from "./errors.js";
import { readCursor } from "./events.js";
import { readBefore, readNewest } from "./past.js";
import { Aborter } from "./signals.js";
import { isMissing, watchWhileVisible } from "./watch.js";

/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").WatchEvent} WatchEvent */

/**
 * Watches a conversation, except while the chat reads a run itself: so each event comes once. The
 * watch goes on until it has come to that run, and continues behind it. Where it cannot continue,
 * it begins anew: with the newest messages of the history, then the run in progress.
 */
export class Live {
  #client;
  #options;
  #thread;
  #on;
  /** The place to continue after; "": the history is read first. */
  #cursor = "";
  /** The message that is shown first.
   * @type {{position: number, id: string | undefined} | null} */
  #oldest = null;
  /** The run that was in progress when the history was read, and the end of what was read.
   * @type {{id: string, first: number} | null} */
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
  /** Whether the server has the conversation, as far as is known. */
  #isKnown;
  #isWanted = false;
  /** Whether nothing is read until somebody asks for it: it was refused, or all is read. */
  #isDone = false;
  /** Whether the history is still to be read for the first time. */
  #isUnread = false;
  #isLoading = false;
  #onLoaded = () => {};
  #loaded = Promise.resolve();
  /** @type {Promise<void> | null} */
  #loadingOlder = null;
  /** @type {Aborter | null} */
  #watching = null;

  /**
   * @param {import("./client.js").Client} client
   * @param {object} options
   * @param {string} options.conversationId
   * @param {string[]} options.include
   * @param {boolean} options.isNew whether the server cannot have it yet
   * @param {boolean} options.isFollowed whether more than its history is read
   * @param {import("./thread.js").Thread} thread
   * @param {object} on
   * @param {(event: Exclude<WatchEvent, {type: "posted" | "switched" | "deleted" | "watching"}>) =>
   *   void}
   *   on.onEvent called with each event of a run that the chat does not read itself
   * @param {() => void} on.onChange
   * @param {() => void} on.onStopped called when it does not watch any more, perhaps within a run
   * @param {() => void} on.onDeleted
   * @param {(view: import("./client.js").ConversationView) => void} on.onLoaded called when the
   *   history was read, with the state of the conversation
   * @param {(isOpen: boolean, error?: unknown) => void} on.onConnection called as that of
   *   `watchWhileVisible`
   * @param {(error: unknown) => void} on.onError called when nothing can be read
   */
  constructor(client, options, thread, on) {
    this.#client = client;
    this.#options = options;
    this.#thread = thread;
    this.#on = on;
    this.#isKnown = !options.isNew;
    this.#isUnread = !options.isNew;
  }

  /** @returns {string | null} the watched run in progress */
  get runId() {
    return this.#runId;
  }

  get isLoading() {
    return this.#isLoading || this.#isUnread;
  }

  /**
   * @returns {Promise<void> | null} resolves when the history is read, or cannot be read; null: it
   *   is not being read
   */
  get loading() {
    return this.#isLoading ? this.#loaded : null;
  }

  get hasOlder() {
    return (this.#oldest?.position ?? 0) > 0;
  }

  /**
   * @param {string | null} runId
   * @returns {Promise<void>} resolves when this run is watched to its end, or not watched at all
   */
  async ended(runId) {
    if (runId !== null && runId === this.#runId) await this.#ended;
  }

  begin() {
    if (this.#isWanted) return;
    this.#isWanted = true;
    this.#isDone = false;
    this.#adjust();
  }

  /** Stop; what happens meanwhile is read from the history. */
  end() {
    this.#isWanted = false;
    this.#cursor = "";
    this.#adjust();
  }

  /** Read the history again, and what is in progress.
   * @returns {Promise<void>} as `loading` */
  reload() {
    if (this.#own !== null) return Promise.resolve();
    this.#isDone = false;
    // another client may have begun it
    this.#isKnown = true;
    this.#restart();
    return this.#loaded;
  }

  /**
   * Show a page of the messages before those that are shown.
   *
   * @returns {Promise<void>}
   * @throws {import("./errors.js").PassbackError}
   */
  loadOlder() {
    this.#loadingOlder ??= this.#loadOlder().finally(() => (this.#loadingOlder = null));
    return this.#loadingOlder;
  }

  /**
   * Note an event that the chat reads itself.
   *
   * @param {Pick<Event, "type" | "cursor" | "runId">} event
   * @param {import("./thread.js").Exchange} exchange
   * @returns {boolean} false if it is watched already
   */
  claim({ type, cursor, runId }, exchange) {
    this.#isKnown = true;
    this.#isUnread &&= this.#isWanted;
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
    const left = isWhole ? null : this.#own;
    this.#own = null;
    if (left !== null) {
      this.#thread.release(left);
      this.#restart();
    } else this.#adjust();
    this.#readVersions();
  }

  #adjust() {
    const isBeside = this.#own !== null && this.#thread.isReached(this.#own);
    const isRead = !this.#options.isFollowed && this.#cursor !== "";
    if (this.#isDone || isRead || !this.#isKnown || !this.#isWanted || isBeside) {
      if (this.#watching !== null) this.#stop();
    } else if (this.#watching === null) {
      this.#watching = new Aborter();
      void this.#watch(this.#watching);
    }
  }

  #restart() {
    if (this.#watching !== null) this.#stop();
    this.#cursor = "";
    this.#adjust();
  }

  /** @param {Aborter} watching */
  async #watch(watching) {
    const { signal } = watching;
    this.#setLoading(this.#cursor === "");
    try {
      if (this.#options.isFollowed) await this.#follow(signal);
      else {
        await this.#load(signal);
        this.#isDone = true;
      }
      if (signal.aborted) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof CursorExpired) this.#cursor = "";
      else if (isMissing(error)) this.#beginBehindPost();
      else {
        this.#isDone = true;
        this.#on.onError(error);
      }
    }
    this.#stop();
    this.#adjust();
  }

  /** @param {AbortSignal} signal */
  async #follow(signal) {
    const { conversationId, include } = this.#options;
    const { onConnection } = this.#on;
    const options = { include, after: this.#cursor, signal, onConnection };
    for await (const event of watchWhileVisible(this.#client, conversationId, options)) {
      if (event.type === "watching" || event.type === "switched") await this.#load(signal);
      else this.#add(event);
      if (signal.aborted) return;
    }
  }

  /** @param {Exclude<WatchEvent, {type: "watching" | "switched"}>} event */
  #add(event) {
    if (event.type === "deleted") {
      this.#forget();
      return this.#on.onDeleted();
    }
    if (event.type === "posted") return this.#post(event);
    const { runId, cursor } = event;
    this.#cursor = cursor || this.#cursor;
    if (runId === null) return;
    if (!this.#thread.claim(runId, null)) {
      if (runId === this.#own) this.#cursor = this.#ownCursor;
      return this.#adjust();
    }
    this.#setRun(event.type === "run-end" ? null : runId);
    this.#on.onEvent(event);
    if (event.type === "run-end") this.#readVersions();
  }

  /** @param {import("./events.js").PostedEvent} event */
  #post(event) {
    let { first, messages } = event;
    if (event.runId === this.#early?.id) {
      const read = Math.max(0, this.#early.first - first);
      [first, messages] = [first + read, messages.slice(read)];
      if (messages.length === 0) return;
    } else if (this.#thread.isOfOtherBranch(messages)) return this.#restart();
    if (this.#oldest !== null && first < this.#oldest.position) {
      this.#oldest = { position: first, id: messages[0]?.id };
    }
    this.#thread.post({ ...event, first, messages });
    this.#on.onChange();
  }

  #forget() {
    [this.#isKnown, this.#oldest, this.#early] = [false, null, null];
    [this.#cursor, this.#ownCursor] = ["", ""];
    this.#setRun(null);
  }

  /** @param {string | null} runId */
  #setRun(runId) {
    if (runId === this.#runId) return;
    this.#runId = runId;
    this.#onEnd();
    this.#ended = new Promise((resolve) => (this.#onEnd = () => resolve(undefined)));
  }

  /** @param {boolean} isLoading */
  #setLoading(isLoading) {
    this.#isUnread = false;
    if (isLoading === this.#isLoading) return;
    this.#isLoading = isLoading;
    this.#onLoaded();
    if (isLoading) this.#loaded = new Promise((resolve) => (this.#onLoaded = () => resolve()));
    this.#on.onChange();
  }

  /** Continue with the first run: the request came before the message that begins it. */
  #beginBehindPost() {
    const run = readCursor(this.#ownCursor)?.run;
    const isGone = run === undefined && this.#oldest !== null;
    this.#isKnown = run !== undefined;
    this.#cursor = run === undefined ? "" : `${run}.0-0`;
    if (!isGone) return;
    this.#forget();
    this.#on.onDeleted();
  }

  #stop() {
    this.#watching?.close();
    this.#watching = null;
    this.#setRun(null);
    this.#setLoading(false);
    this.#on.onStopped();
  }

  /**
   * Read the newest messages, up to the run in progress.
   *
   * @param {AbortSignal} signal
   */
  async #load(signal) {
    const { conversationId } = this.#options;
    const view = await this.#client.conversation(conversationId, { signal });
    const read = await readNewest(this.#client, conversationId, view, { signal });
    const { first, messages, end, posted } = read;
    const hasOlder = this.#thread.load(first, messages);
    if (!hasOlder) this.#oldest = { position: first, id: messages[0]?.id };
    this.#early = null;
    if (view.running) {
      const { runId } = view.running;
      this.#early = { id: runId, first: end + posted.length };
      this.#thread.post({ type: "posted", runId, first: end, messages: posted, cursor: "" });
    }
    this.#thread.branches = view.branches ?? [];
    this.#isKnown = true;
    this.#on.onLoaded(view);
    this.#setLoading(false);
  }

  async #loadOlder() {
    const { conversationId } = this.#options;
    const oldest = this.#oldest;
    if (oldest === null || oldest.position === 0) return;
    const { position, id } = oldest;
    const options = { withNext: true };
    const { first, messages, next } = await readBefore(
      this.#client,
      conversationId,
      position,
      options,
    );
    if (this.#oldest !== oldest) return;
    // the message behind them tells whether they are of the same branch
    if (id !== undefined && next?.id !== id) return this.reload();
    this.#thread.prepend(first, messages);
    this.#oldest = { position: first, id: messages[0]?.id };
    this.#on.onChange();
  }

  /** Read the versions of what is shown, if there are new ones. */
  #readVersions() {
    if (!this.#thread.isRewritten) return;
    this.#thread.isRewritten = false;
    this.#client.conversation(this.#options.conversationId).then(
      ({ branches = [] }) => {
        this.#thread.branches = branches;
        this.#on.onChange();
      },
      // they are shown without: the next reading has them
      () => {},
    );
  }
}
