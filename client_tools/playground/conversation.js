/**
 * One conversation on the page: passes messages to the client library, and its events to the view.
 *
 * Each post has an idempotency key, and is retried with it until it is answered, so it counts once.
 */

import { ApiError, CursorExpired, randomId } from "../js/src/index.js";
import { watchWhileVisible } from "../js/src/watch.js";
import { ToolRunner } from "./toolrunner.js";
import { loadHistory } from "./history.js";
import { OwedCalls, resultOf, shownResult } from "./owed.js";
import { isAbort, isHandedBack, isPost, isStream } from "./steps.js";
import { Outbox } from "./outbox.js";
import { PendingPosts } from "./pending.js";
import { Edit, Message } from "./posts.js";
import { Run } from "./run.js";

/** @typedef {import("../js/src/index.js").Client} Client */
/** @typedef {import("../js/src/index.js").ClientOptions} ClientOptions */
/** @typedef {import("../js/src/index.js").Event} Event */
/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("../js/src/index.js").Sending} Sending */
/** @typedef {import("../js/src/index.js").TraceStep} TraceStep */
/** @typedef {import("./history.js").PastMessage} PastMessage */
/** @typedef {import("./posts.js").Again} Again */
/** @typedef {import("./posts.js").MessageExtras} MessageExtras */
/** @typedef {import("./posts.js").Post} Post */
/** @typedef {import("./run.js").ConversationView} ConversationView */
/** @typedef {import("./tools.js").PageActions} PageActions */

/**
 * @typedef {"idle" | "elsewhere" | "loading" | "sending" | "waiting" | "answering" | "working" |
 *   "reconnecting"} Activity elsewhere: another client runs a tool of this page, and this one is
 *   free
 */
/**
 * @typedef {(options: Pick<ClientOptions, "tools" | "trace"> & {quiet?: boolean}) => Client}
 *   Connect creates a client with the page's current settings; a quiet one is not in the time line
 */
/**
 * @typedef {{id: string} & (import("./asks.js").Result | import("./asks.js").Decision)} Reply the
 *   user's answer to a call
 */

/** Rounds of tool calls that may follow one message. */
export const MAX_ROUNDS = 25;
/** Kinds of events that this page shows, beyond those that the library needs. */
const INCLUDE = [
  ...["agents", "context", "message-ids", "plan", "progress", "reasoning", "tools", "usage"],
];

/** Attempts that post a user's message, and others. */
const MESSAGE = { refuse: () => false, isMessage: true };
const NO_MESSAGE = { refuse: () => false, isMessage: false };

export class Conversation {
  #connect;
  #view;
  #toolRunner;
  #mayRun;
  #abort = new AbortController();
  /** @type {Activity} */
  #activity = "idle";
  #stopped = false;
  #closed = false;
  /** @type {Sending | null} */
  #sending = null;
  /** @type {(() => void) | null} */
  #onAccepted = null;
  #isPost = false;
  /** Calls that wait for an answer, as far as this page knows. */
  #owing = new Set();
  /** Answers that the user gave while something else was in progress.
   * @type {Map<string, Reply>} */
  #replies = new Map();
  /** The call whose answer is being posted. */
  #replying = "";
  /** Aborted when this conversation is left. */
  #leaving = new AbortController();
  /** True once the server has accepted a message of this page that follows the current run. */
  #isQueuedMine = false;
  /** True if the server has this conversation, as far as this page knows. */
  #isKnown = false;
  /** True until the next message if the conversation was deleted elsewhere. */
  #isDeleted = false;
  /** The newest run of the history that is shown.
   * @type {string | null} */
  #shownRun = null;
  /** The last event that is shown; "" if it is in the history. */
  #cursor = "";
  /** True if there may be versions that are not shown yet. */
  #isBranched = false;
  /** True while a refusal is shown, which must not disappear before the user has read it. */
  #isRefused = false;
  /** Aborted when this page has something to do. */
  #watching = new AbortController();

  /**
   * @param {string} id
   * @param {object} parts
   * @param {Connect} parts.connect
   * @param {ConversationView} parts.view
   * @param {PageActions} parts.actions
   * @param {() => boolean} parts.mayRun whether this browser runs the tools of this conversation
   * @param {Outbox} [parts.outbox] messages that were not sent
   */
  constructor(id, { connect, view, actions, mayRun, outbox = new Outbox() }) {
    this.id = id;
    this.#connect = connect;
    this.#view = view;
    this.#mayRun = mayRun;
    this.pending = new PendingPosts(view, outbox);
    this.#toolRunner = new ToolRunner(view, actions, () => this.#setActivity("working"));
  }

  get isIdle() {
    return this.#activity === "idle" || this.#activity === "elsewhere";
  }

  /**
   * Send a message. Errors are shown, not thrown.
   *
   * @param {string} text
   * @param {MessageExtras} [extras]
   */
  async send(text, extras) {
    const message = new Message(text, extras);
    if (this.#isDeleted) this.#view.clear();
    this.#isDeleted = false;
    this.pending.begin(message);
    await this.#attempt(
      (signal) => this.#post(message, signal),
      () => void this.#repeat(message),
      message,
    );
  }

  /**
   * Post a message that was not sent; during an answer, as a post during one. Errors are shown, not
   * thrown.
   *
   * @param {string} id
   */
  async retry(id) {
    const unsent = this.pending.find(id);
    if (!unsent) return;
    if (!this.isIdle) return this.postMeanwhile(unsent.message, unsent.onBusy);
    this.pending.wait(unsent.message);
    await this.#repeat(unsent.message);
  }

  /**
   * Post an edit, or ask for another answer: what stood there becomes another version. Errors are
   * shown, not thrown.
   *
   * @param {Edit | Again} post
   */
  async postAnew(post) {
    await this.#attempt(
      (signal) => this.#postAnew(post, signal),
      () => void this.#repeat(post),
      post,
    );
  }

  /**
   * Post during an answer. Errors are shown, not thrown.
   *
   * @param {Post} post
   * @param {"enqueue" | "interrupt"} onBusy effect on that answer
   */
  async postMeanwhile(post, onBusy) {
    this.pending.wait(post, onBusy);
    const tools = this.#mayRun() ? this.#toolRunner.tools : this.#toolRunner.declared;
    const options = { include: INCLUDE, onBusy, signal: this.#leaving.signal };
    let isQueued = false;
    try {
      const sending = await post.send(this.#connect({ tools }), this.id, options);
      // acceptance is enough: its answer is read after the current one
      for await (const event of sending) {
        isQueued = event.type === "run-queued";
        this.pending.accept(post, sending.runId);
        break;
      }
    } catch (error) {
      if (this.pending.refuse(post, error) || this.#closed) return;
      return this.#view.addError(error, () => void this.#repeat(post), post.isMessage);
    }
    if (post instanceof Edit) post.accept();
    if (this.#closed) return;
    this.#view.accepted(this.id, true);
    this.#isQueuedMine = true;
    if (!isQueued || this.isIdle) await this.load();
  }

  /**
   * Read another version from now on: that of this message. Errors are shown, not thrown.
   *
   * @param {string} messageId
   */
  async switchTo(messageId) {
    const work = async (/** @type {AbortSignal} */ signal) => {
      this.#setActivity("loading");
      await this.#client(false).switchBranch(this.id, messageId, { signal });
      await this.#resume(signal);
    };
    const workLater = async (/** @type {AbortSignal} */ signal) => {
      // the answer that is in its way is shown first
      await this.#resume(signal, { answers: false });
      await work(signal);
    };
    const again = () => void this.#attempt(workLater, again, NO_MESSAGE);
    await this.#attempt(work, again, NO_MESSAGE);
  }

  /** Show the history, and follow the current run. */
  async load() {
    await this.#attempt(
      (signal) => this.#resume(signal, { mayBeMissing: this.pending.isNew }),
      () => void this.load(),
    );
  }

  /**
   * Show the history, and follow the current run, but leave its calls to the tab that started it.
   */
  async watch() {
    await this.#attempt(
      (signal) => this.#resume(signal, { answers: false }),
      () => void this.load(),
    );
  }

  /**
   * Answer a call by hand, or decide on it. The first answer of a call counts. It is posted when no
   * tool of this page runs.
   *
   * @param {Reply} reply
   */
  async answer(reply) {
    if (reply.id === this.#replying || this.#replies.has(reply.id)) return;
    this.#replies.set(reply.id, reply);
    if (this.isIdle) await this.#reply(reply);
  }

  /** @param {Reply} reply */
  async #reply(reply) {
    const key = randomId();
    const post = async (/** @type {AbortSignal} */ signal) => {
      this.#replies.delete(reply.id);
      this.#replying = reply.id;
      this.#onAccepted = () => this.#accepted(reply);
      const options = { conversationId: this.id, include: INCLUDE, idempotencyKey: key, signal };
      try {
        await this.#follow(
          "approved" in reply
            ? this.#client().decide(this.id, reply, options)
            : this.#client().send([resultOf(reply)], options),
        );
      } finally {
        this.#replying = "";
      }
    };
    const again = () => void this.#attempt(post, again);
    await this.#attempt(post, again);
  }

  /** @param {Reply} reply */
  #accepted(reply) {
    this.#view.settle(reply.id);
    if ("approved" in reply) this.#view.setDecision(reply.id, reply.approved);
    else this.#view.setResult(reply.id, shownResult(reply.content), reply.isError);
  }

  /** Check whether calls that are owed here were answered elsewhere; if so, show the rest. */
  async checkOwed() {
    if (this.#activity !== "idle" || this.#owing.size === 0) return;
    const abort = this.#abort;
    const state = await this.#connect({ quiet: true })
      .conversation(this.id, { signal: abort.signal })
      .catch(() => null);
    if (!state || this.#closed || abort !== this.#abort || this.#activity !== "idle") return;
    const open = new Set(state.owed.map(({ id }) => id));
    if (state.running || [...this.#owing].some((id) => !open.has(id))) await this.watch();
  }

  /**
   * Stop the answer: on the server if it runs there, here if it waits for a tool of this page. A
   * post without a response is stopped when the response begins, or abandoned at the second call.
   */
  async stop() {
    const isOnItsWay = this.#activity === "sending" || this.#activity === "reconnecting";
    const givesUp = !this.#sending || (this.#stopped && isOnItsWay);
    this.#stopped = true;
    this.#replies.clear();
    if (givesUp) return this.#abort.abort();
    try {
      await this.#sending?.cancel();
    } catch (error) {
      if (error instanceof ApiError && (error.status ?? 0) < 500) return; // it has ended
      this.#view.addError(error, () => void this.load());
      this.#abort.abort();
    }
  }

  /** Drop the connection, as a bad network would; the client reconnects. */
  cut() {
    return this.#sending?.reconnect() ?? false;
  }

  /** Leave the conversation; its run continues on the server. */
  close() {
    this.#closed = true;
    this.pending.leave();
    this.#watching.abort();
    this.#leaving.abort();
    this.#abort.abort();
  }

  /**
   * Try again after an error, unless the message has arrived.
   *
   * @param {Post} post
   */
  async #repeat(post) {
    await this.#attempt(
      async (signal) => {
        const past = await this.#resume(signal, { mayBeMissing: true });
        if (past.some(({ id }) => id === post.id)) return;
        if (!(post instanceof Message)) return this.#postAnew(post, signal);
        this.pending.begin(post);
        await this.#post(post, signal);
      },
      () => void this.#repeat(post),
      post,
    );
  }

  /**
   * @param {(signal: AbortSignal) => Promise<unknown>} work
   * @param {() => void} again
   * @param {Pick<Post, "refuse" | "isMessage">} [post] what it posts
   */
  async #attempt(work, again, post = MESSAGE) {
    this.#abort.abort();
    const abort = (this.#abort = new AbortController());
    this.#stopped = false;
    this.#isRefused = false;
    try {
      await work(abort.signal);
    } catch (error) {
      const isShown = this.pending.refuse(post, isAbort(error) ? null : error);
      if (this.#closed || abort !== this.#abort) return;
      this.#isRefused = error instanceof ApiError && !isShown;
      if (!isAbort(error) && !isShown) this.#view.addError(error, again, post.isMessage);
      else if (this.#stopped) this.#view.addNote("Stopped.");
    } finally {
      if (!this.#closed && abort === this.#abort) this.#finish();
    }
  }

  /** Become idle; post an answer that the user gave meanwhile. */
  #finish() {
    this.#setActivity("idle");
    this.pending.show();
    if (this.#isQueuedMine) return void this.load();
    if (this.#isBranched) void this.#readVersions();
    const [reply] = this.#replies.values();
    if (reply) void this.#reply(reply);
    else if (this.#isKnown && !this.#isRefused) void this.#watchOthers();
  }

  /** Show the versions that there are after an answer. */
  async #readVersions() {
    const abort = this.#abort;
    const state = await this.#connect({ quiet: true })
      .conversation(this.id, { signal: abort.signal })
      .catch(() => null);
    if (!state || this.#closed || abort !== this.#abort) return;
    this.#isBranched = false;
    this.#view.setVersions(state.branches ?? []);
    this.#view.setPlan(state.plan ?? []);
  }

  /** Wait for what other clients do in this conversation, and show it. */
  async #watchOthers() {
    const { signal } = (this.#watching = new AbortController());
    const client = this.#connect({ quiet: true });
    try {
      const options = { after: this.#cursor, signal };
      for await (const event of watchWhileVisible(client, this.id, options)) {
        if (event.type === "deleted") return this.#showDeletion();
        const isOther = event.cursor || event.type === "switched";
        if (isOther || (await this.#isOutdated(event, signal))) return void this.watch();
      }
    } catch (error) {
      // without it, the page is as a reload shows it
      if (!signal.aborted && error instanceof CursorExpired) void this.watch();
    }
  }

  /**
   * @param {import("../js/src/index.js").WatchEvent} event
   * @param {AbortSignal} signal
   * @returns {Promise<boolean>} whether there were other runs before the watch began
   */
  async #isOutdated(event, signal) {
    if (event.type !== "watching") return false;
    const { runId } = await this.#connect({ quiet: true }).conversation(this.id, { signal });
    return runId !== this.#shownRun;
  }

  #showDeletion() {
    this.#isKnown = false;
    this.#isDeleted = true;
    this.#owing = new Set();
    const facts = { code: "conversation_deleted", status: 404 };
    this.#view.addError(new ApiError("another client has deleted it", facts), () => {});
  }

  /**
   * @param {AbortSignal} signal
   * @param {{mayBeMissing?: boolean, answers?: boolean}} [options]
   * @returns {Promise<PastMessage[]>} the messages of the history
   */
  async #resume(signal, { mayBeMissing = false, answers = true } = {}) {
    this.#setActivity("loading");
    this.#owing = new Set();
    this.#isQueuedMine = false;
    const client = this.#client(answers);
    const state = await client.conversation(this.id, { signal }).catch((error) => {
      if (mayBeMissing && error instanceof ApiError && error.status === 404) return null;
      throw error;
    });
    const past = state ? await loadHistory(client, this.id, state, signal) : [];
    this.#view.clear();
    past.forEach((message) => this.#view.addPast(message));
    const runs = this.#isQueuedMine ? null : (state?.queued ?? []);
    this.pending.update(past, { isKnown: state !== null, runs });
    if (!state) return past;
    this.#isKnown = true;
    [this.#shownRun, this.#cursor] = [state.runId, ""];
    if (state.plan?.length) this.#view.setPlan(state.plan);
    this.#view.accepted(this.id, false);
    this.#view.setVersions(state.branches ?? []);
    this.#view.showCosts((state.cost ?? 0) > 0);
    const { running, owed } = state;
    // the version that is being written has no message yet
    this.#isBranched = Boolean(running && state.branches);
    const next = state.queued?.[0];
    const resume = (/** @type {string} */ runId) =>
      client.resume(this.id, { runId, include: INCLUDE, signal });
    // the queued post closes the owed calls of the run before it
    if (running) {
      await this.#follow(resume(running.runId), {
        answers,
        until: next ? isHandedBack : undefined,
      });
    }
    if (next) {
      await this.#follow(resume(next), { until: ({ type }) => type === "run-start" });
      // the history has the messages of a run from its start
      return this.#resume(signal, { answers });
    }
    if (!running && owed?.length > 0) {
      await this.#follow(client.resume(this.id, { include: INCLUDE, signal }), { answers, owed });
    }
    return past;
  }

  /**
   * @param {Message} message
   * @param {AbortSignal} signal
   */
  async #post(message, signal) {
    const sending = await message.send(this.#client(), this.id, { include: INCLUDE, signal });
    this.#onAccepted = () => this.pending.accept(message);
    await this.#follow(sending, { superseded: this.#owing });
  }

  /**
   * @param {Post} post an edit, or the wish for another answer
   * @param {AbortSignal} signal
   */
  async #postAnew(post, signal) {
    this.#setActivity("sending");
    const sending = await post.send(this.#client(), this.id, { include: INCLUDE, signal });
    let isShown = false;
    let isBegun = false;
    this.#onAccepted = () => (isShown = post.show(this.#view));
    const until = (/** @type {Event} */ { type }) => {
      isBegun ||= type === "run-start";
      return isBegun && !isShown;
    };
    await this.#follow(sending, { superseded: this.#owing, until });
    this.#isBranched = true;
    // its place is on another branch, or it was removed from the queue
    if (!isBegun || !isShown) await this.#resume(signal);
  }

  /**
   * @param {Sending} sending
   * @param {object} [options]
   * @param {boolean} [options.answers] whether this page runs calls
   * @param {OwedCall[]} [options.owed] calls that are owed, as the history says
   * @param {ReadonlySet<string>} [options.superseded] calls that are closed when the run begins
   * @param {((event: Event) => boolean) | undefined} [options.until] the event to leave after
   */
  async #follow(
    sending,
    { answers = true, owed = [], superseded = new Set(), until = () => false } = {},
  ) {
    const mayRun = this.#mayRun();
    const run = new Run(this.#view, { answers, mayRun });
    const calls = new OwedCalls(owed);
    this.#sending = sending;
    try {
      for await (const event of sending) {
        calls.feed(event);
        this.#cursor = event.cursor || this.#cursor;
        // answers of another client, and their effects, are in the history
        if (calls.isOutdated || (calls.wentOnElsewhere && event.cursor)) break;
        run.feed(event);
        if (event.type === "run-start") this.#supersede(superseded);
        this.#trackActivity(event, answers && mayRun && calls.mine.size > 0);
        if (until(event)) return;
        // the queued post closes the owed calls of this run
        if (this.#isQueuedMine && event.type === "run-end") break;
      }
      calls.end();
      if (this.#stopped && run.outcome === "handed-back") this.#view.addNote("Stopped.");
    } finally {
      this.#sending = null;
      this.#onAccepted = null;
      this.#owing = calls.open;
    }
    if (this.#isQueuedMine) {
      // only the previous answer was stopped
      this.#stopped = false;
      await this.#resume(this.#abort.signal);
    } else if ((calls.isOutdated || calls.wentOnElsewhere) && !this.#stopped) {
      await this.#resume(this.#abort.signal, { answers });
    }
  }

  /** @param {ReadonlySet<string>} ids of calls that a message has closed */
  #supersede(ids) {
    for (const id of ids) {
      this.#replies.delete(id);
      this.#view.supersede(id);
    }
  }

  /**
   * @param {Event} event
   * @param {boolean} works whether this page has calls to run
   */
  #trackActivity(event, works) {
    if (event.type === "run-queued") this.#setActivity("waiting");
    else if (event.type === "run-start") this.#setActivity("answering");
    else if (event.type === "owed" && works) this.#setActivity("working");
    else if (event.type === "call-elsewhere" && !works) this.#setActivity("elsewhere");
    else if (event.type === "call-elsewhere") this.#setActivity("working");
  }

  /** @param {boolean} [answers] whether it has the page's tools */
  #client(answers = true) {
    const tools = this.#mayRun() ? this.#toolRunner.tools : this.#toolRunner.declared;
    return this.#connect({ tools: answers ? tools : {}, trace: (step) => this.#trace(step) });
  }

  /** @param {TraceStep} step */
  #trace(step) {
    if (this.#closed) return;
    if (step.kind === "lost") this.#setActivity("reconnecting");
    else if (step.kind === "request") {
      // a claim may be renewed during a post
      if (step.path.endsWith("/claim") || step.method === "DELETE") return;
      this.#isPost = isPost(step.path);
      if (this.#isPost && this.#activity !== "reconnecting") this.#setActivity("sending");
    } else if (step.kind === "response" && isStream(step.headers)) {
      this.#onAccepted?.();
      this.#onAccepted = null;
      this.#isKnown = true;
      this.#view.accepted(this.id, this.#isPost);
      this.#setActivity("answering");
    }
  }

  /** @param {Activity} activity */
  #setActivity(activity) {
    if (activity === this.#activity) return;
    this.#activity = activity;
    this.#watching.abort();
    this.#view.setActivity(activity);
  }
}
