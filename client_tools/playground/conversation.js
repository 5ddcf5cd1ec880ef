/**
 * One conversation: posts only what is new, follows the answer, runs the calls that the client owes and posts their
 * results together, until nothing is owed.
 */

import { Answers } from "./answers.js";
import { ApiError, NetworkError, isAbort } from "./api.js";
import { follow, pause } from "./follow.js";
import { loadHistory } from "./history.js";
import { Run } from "./run.js";
import { declarations, isOurs } from "./tools.js";

/** @typedef {import("./api.js").Api} Api */
/** @typedef {import("./api.js").OutgoingMessage} OutgoingMessage */
/** @typedef {import("./api.js").OwedCall} OwedCall */
/** @typedef {import("./history.js").PastMessage} PastMessage */
/** @typedef {import("./sse.js").SseEvent} SseEvent */
/** @typedef {import("./tools.js").Hands} Hands */

/** @typedef {"idle" | "loading" | "sending" | "answering" | "working" | "reconnecting"} Activity */

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
/** Times that results are posted when the server does not answer: a repeat counts as the same post there. */
const RESULT_ATTEMPTS = 4;

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
  /** User messages that the server is known to have. */
  #heard = 0;

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
    const before = this.#heard;
    this.#view.addUser(text);
    await this.#attempt(
      (signal) => this.#converse([{ role: "user", content: text }], signal),
      () => void this.#sendUnlessHeard(text, before),
    );
  }

  /** Show what the server has, and go on with what is going on there. */
  async load() {
    await this.#attempt(
      (signal) => this.#resume(signal),
      () => void this.load(),
    );
  }

  /** Stop the answer: on the server when it runs there, here when it waits for a tool of this page. */
  async stop() {
    const again = this.#stopped;
    this.#stopped = true;
    if (this.#activity === "answering" || this.#activity === "reconnecting") await this.#cancel();
    else if (this.#activity !== "sending" || again) this.#abort.abort();
  }

  /** Leave the conversation; what runs on the server runs on. */
  close() {
    this.#closed = true;
    this.#abort.abort();
  }

  /**
   * Try again after an error that leaves open whether the message arrived.
   *
   * @param {string} text
   * @param {number} before user messages that the server had
   */
  async #sendUnlessHeard(text, before) {
    await this.#attempt(
      async (signal) => {
        await this.#resume(signal, { mayBeMissing: true });
        if (this.#heard > before) return;
        this.#view.addUser(text);
        await this.#converse([{ role: "user", content: text }], signal);
      },
      () => void this.#sendUnlessHeard(text, before),
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
   */
  async #resume(signal, { mayBeMissing = false } = {}) {
    this.#become("loading");
    const info = await this.#api.conversation(this.id, signal).catch((error) => {
      if (mayBeMissing && error instanceof ApiError && error.status === 404) return null;
      throw error;
    });
    const past = info ? await loadHistory(this.#api, this.id, info.messageCount, signal) : [];
    this.#view.clear();
    past.forEach((message) => this.#view.addPast(message));
    this.#heard = past.filter(({ role }) => role === "user").length;
    if (!info) return;
    this.#view.accepted(this.id);
    const owed = info.running
      ? await this.#watch(await this.#api.stream(this.id, { signal }), signal)
      : info.owed;
    await this.#converse(await this.#answer(owed, signal), signal);
  }

  /**
   * @param {OutgoingMessage[]} messages
   * @param {AbortSignal} signal
   */
  async #converse(messages, signal) {
    let news = messages;
    for (let round = 0; news.length > 0; round += 1) {
      if (round > MAX_ROUNDS) {
        this.#view.addNote("The agent asked for tools many times in a row. Send a message to let it go on.");
        return;
      }
      const owed = await this.#watch(await this.#post(news, signal), signal);
      news = await this.#answer(owed, signal);
    }
  }

  /**
   * @param {OutgoingMessage[]} messages
   * @param {AbortSignal} signal
   * @returns {Promise<Response>}
   */
  async #post(messages, signal) {
    const isNewWord = messages.some(({ role }) => role === "user");
    const post = { conversationId: this.id, messages };
    const withTools = isNewWord && !this.#declared ? { ...post, tools: declarations } : post;
    for (let attempt = 1; ; attempt += 1) {
      this.#become("sending");
      try {
        const response = await this.#api.sendMessage(withTools, signal);
        this.#declared ||= isNewWord;
        if (isNewWord) this.#heard += 1;
        this.#view.accepted(this.id);
        return response;
      } catch (error) {
        const repeatable = !isNewWord && error instanceof NetworkError;
        if (!repeatable || attempt === RESULT_ATTEMPTS) throw error;
      }
      this.#become("reconnecting");
      await this.#wait(250 * 2 ** attempt, signal);
    }
  }

  /**
   * @param {Response} response
   * @param {AbortSignal} signal
   * @returns {Promise<OwedCall[]>} what the client has to answer now
   */
  async #watch(response, signal) {
    const run = new Run(this.#view);
    this.#become("answering");
    if (this.#stopped) await this.#cancel();
    const events = follow(response, {
      signal,
      wait: this.#wait,
      reopen: (after) => this.#api.stream(this.id, { after, signal }),
      onCut: (failures) => this.#become(failures > 0 ? "reconnecting" : "answering"),
    });
    for await (const event of events) {
      this.#view.seen(event);
      run.feed(event.data);
    }
    if (response.headers.has("X-Owed-Tool-Calls")) {
      return (await this.#api.conversation(this.id, signal)).owed;
    }
    return run.failed ? [] : run.open;
  }

  /**
   * @param {OwedCall[]} owed
   * @param {AbortSignal} signal
   */
  #answer(owed, signal) {
    if (owed.some(({ name }) => isOurs(name))) this.#become("working");
    return this.#answers.to(owed, signal);
  }

  async #cancel() {
    try {
      await this.#api.cancel(this.id);
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
