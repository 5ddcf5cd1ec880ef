/**
 * One conversation: posts only what is new, follows the answer, runs the calls that the client owes and posts their
 * results together, until nothing is owed.
 *
 * Each post has a key of its own, and is sent again under it until it is answered: so it counts once.
 */

import { Answers } from "./answers.js";
import { ApiError, isAbort } from "./api.js";
import { follow, pause } from "./follow.js";
import { loadHistory } from "./history.js";
import { Run } from "./run.js";
import { randomId } from "./session.js";
import { declarations, isOurs } from "./tools.js";

/** @typedef {import("./api.js").Api} Api */
/** @typedef {import("./api.js").OwedCall} OwedCall */
/** @typedef {import("./api.js").Post} Post */
/** @typedef {import("./history.js").PastMessage} PastMessage */
/** @typedef {import("./sse.js").SseEvent} SseEvent */
/** @typedef {import("./tools.js").Hands} Hands */

/** @typedef {"idle" | "loading" | "sending" | "waiting" | "answering" | "working" | "reconnecting"} Activity */

/**
 * @typedef {object} ChatView
 * @property {() => void} clear
 * @property {(text: string) => void} addUser
 * @property {(message: PastMessage) => void} addPast
 * @property {(activity: Activity) => void} setActivity
 * @property {(error: unknown, again: () => void) => void} addError
 * @property {(conversationId: string) => void} accepted the server has this conversation now
 * @property {(event: SseEvent) => void} seen every event of the wire, as it came
 */

/** Times that the agent may ask for tools before the user has to speak again. */
export const MAX_ROUNDS = 25;

export class Conversation {
  #api;
  #view;
  #answers;
  #wait;
  #abort = new AbortController();
  /** @type {Activity} */
  #activity = "idle";
  #stopped = false;
  #closed = false;
  #declared = false;
  /** @type {string | null} the run that is followed, once the server has named it */
  #runId = null;

  /**
   * @param {string} id
   * @param {object} parts
   * @param {Api} parts.api
   * @param {ChatView & import("./run.js").RunView} parts.view
   * @param {Hands} parts.hands
   * @param {typeof pause} [parts.wait]
   */
  constructor(id, { api, view, hands, wait = pause }) {
    this.id = id;
    this.#api = api;
    this.#view = view;
    this.#answers = new Answers(view, hands);
    this.#wait = wait;
  }

  /**
   * Say something. Errors are shown, not thrown.
   *
   * @param {string} text
   */
  async send(text) {
    const id = randomId();
    const tools = this.#declared ? {} : { tools: declarations };
    /** @type {Post} */
    const post = { key: randomId(), messages: [{ role: "user", content: text, id }], ...tools };
    this.#view.addUser(text);
    await this.#attempt(
      (signal) => this.#converse(post, signal),
      () => void this.#sendUnlessKnown(id, text, post),
    );
  }

  /** Show what the server has, and go on with what is going on there. */
  async load() {
    await this.#attempt(
      (signal) => this.#resume(signal),
      () => void this.load(),
    );
  }

  /**
   * Stop the answer: on the server when it runs there, here when it waits for a tool of this page. A post without an
   * answer is stopped when its answer comes, or given up when this is asked twice.
   */
  async stop() {
    const again = this.#stopped;
    this.#stopped = true;
    const isOnItsWay = this.#activity === "sending" || this.#activity === "reconnecting";
    if (this.#runId !== null) await this.#cancel(this.#runId);
    else if (!isOnItsWay || again) this.#abort.abort();
  }

  /** Leave the conversation; what runs on the server runs on. */
  close() {
    this.#closed = true;
    this.#abort.abort();
  }

  /**
   * Try again after an error that leaves open whether the message arrived.
   *
   * @param {string} id the message's
   * @param {string} text
   * @param {Post} post
   */
  async #sendUnlessKnown(id, text, post) {
    await this.#attempt(
      async (signal) => {
        const past = await this.#resume(signal, { mayBeMissing: true });
        if (past.some((message) => message.id === id)) return;
        this.#view.addUser(text);
        await this.#converse(post, signal);
      },
      () => void this.#sendUnlessKnown(id, text, post),
    );
  }

  /**
   * @param {(signal: AbortSignal) => Promise<unknown>} work
   * @param {() => void} again
   */
  async #attempt(work, again) {
    this.#abort.abort();
    const abort = (this.#abort = new AbortController());
    this.#stopped = false;
    try {
      await work(abort.signal);
    } catch (error) {
      if (this.#closed || abort !== this.#abort) return;
      if (!isAbort(error)) this.#view.addError(error, again);
      else if (this.#stopped) this.#view.addNote("Stopped.");
    } finally {
      if (!this.#closed && abort === this.#abort) this.#become("idle");
    }
  }

  /**
   * @param {AbortSignal} signal
   * @param {{mayBeMissing?: boolean}} [options]
   * @returns {Promise<PastMessage[]>} what is in the history
   */
  async #resume(signal, { mayBeMissing = false } = {}) {
    this.#become("loading");
    const info = await this.#api.conversation(this.id, signal).catch((error) => {
      if (mayBeMissing && error instanceof ApiError && error.status === 404) return null;
      throw error;
    });
    const past = info ? await loadHistory(this.#api, this.id, info, signal) : [];
    this.#view.clear();
    past.forEach((message) => this.#view.addPast(message));
    if (!info) return past;
    this.#view.accepted(this.id);
    const { running, queued } = info;
    const owed = running ? await this.#watch(this.#streamOf(running.runId, signal), signal) : info.owed;
    if (queued[0]) {
      await this.#watch(this.#streamOf(queued[0], signal), signal, { untilBegun: true });
      return this.#resume(signal); // what was posted for it is in the history since it began
    }
    await this.#converse(await this.#answer(owed, signal), signal);
    return past;
  }

  /**
   * @param {Post | null} post
   * @param {AbortSignal} signal
   */
  async #converse(post, signal) {
    let next = post;
    for (let round = 0; next; round += 1) {
      if (round > MAX_ROUNDS) {
        this.#view.addNote("The agent asked for tools many times in a row. Send a message to let it go on.");
        return;
      }
      this.#become("sending");
      const owed = await this.#watch(this.#answerTo(next, signal), signal);
      next = await this.#answer(owed, signal);
    }
  }

  /**
   * @param {Post} post
   * @param {AbortSignal} signal
   */
  #answerTo(post, signal) {
    return async () => {
      const response = await this.#api.sendMessage(this.id, post, signal);
      this.#declared ||= post.tools !== undefined;
      this.#view.accepted(this.id);
      return response;
    };
  }

  /**
   * @param {string} runId
   * @param {AbortSignal} signal
   */
  #streamOf(runId, signal) {
    return () => this.#api.stream(this.id, { runId, signal });
  }

  /**
   * Follow a run to its end, over as many connections as that takes.
   *
   * @param {() => Promise<Response>} begin opens it from its start, also for a second time
   * @param {AbortSignal} signal
   * @param {{untilBegun?: boolean}} [options] whether to follow it only as long as it is in the queue
   * @returns {Promise<OwedCall[]>} what the client has to answer now
   */
  async #watch(begin, signal, { untilBegun = false } = {}) {
    const run = new Run(this.#view);
    let isParked = false;
    /** @param {string | null} after */
    const open = async (after) => {
      const response = await (after ? this.#reopen(run, begin, after, signal) : begin());
      isParked = response.headers.has("X-Owed-Tool-Calls");
      await this.#opened(response.headers.get("X-Run-Id"));
      return response;
    };
    const onCut = () => this.#become("reconnecting");
    try {
      for await (const event of follow({ open, signal, onCut, wait: this.#wait })) {
        this.#view.seen(event);
        run.feed(event.data);
        if (run.waits !== (this.#activity === "waiting")) this.#become(run.waits ? "waiting" : "answering");
        if (untilBegun && !run.waits) return [];
      }
    } finally {
      this.#runId = null;
    }
    if (isParked) return (await this.#api.conversation(this.id, signal)).owed;
    return run.failed ? [] : run.open;
  }

  /**
   * @param {Run} run
   * @param {() => Promise<Response>} begin
   * @param {string} after
   * @param {AbortSignal} signal
   */
  async #reopen(run, begin, after, signal) {
    try {
      return await this.#api.stream(this.id, { after, signal });
    } catch (error) {
      if (!(error instanceof ApiError && error.code === "invalid_cursor")) throw error;
      run.anew(); // the run's log lost its end, and has another one since
      return begin();
    }
  }

  /** @param {string | null} runId */
  async #opened(runId) {
    this.#runId = runId;
    this.#become("answering");
    if (this.#stopped && runId !== null) await this.#cancel(runId);
  }

  /**
   * @param {OwedCall[]} owed
   * @param {AbortSignal} signal
   * @returns {Promise<Post | null>} the results of this page's tools
   */
  async #answer(owed, signal) {
    if (owed.some(({ name }) => isOurs(name))) this.#become("working");
    const messages = await this.#answers.to(owed, signal);
    return messages.length > 0 ? { key: randomId(), messages } : null;
  }

  /** @param {string} runId */
  async #cancel(runId) {
    try {
      await this.#api.cancel(this.id, runId);
    } catch (error) {
      if (error instanceof ApiError && error.status < 500) return; // it has just ended by itself
      this.#view.addError(error, () => void this.load());
      this.#abort.abort();
    }
  }

  /** @param {Activity} activity */
  #become(activity) {
    this.#activity = activity;
    this.#view.setActivity(activity);
  }
}
