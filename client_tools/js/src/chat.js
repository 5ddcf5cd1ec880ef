/** A conversation as a user interface shows it: a value that changes, and a way to be told. */

import { Answer } from "./answer.js";
import { InvalidArgument } from "./errors.js";
import { randomId } from "./wire.js";

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./client.js").SendOptions} SendOptions */

/** @typedef {{readonly role: "user", readonly text: string}} UserEntry */
/**
 * @typedef {object} AssistantEntry
 * @property {"assistant"} role
 * @property {string} text without what became void
 * @property {string} reasoning
 * @property {readonly import("./answer.js").Call[]} calls
 */

/**
 * @typedef {object} ChatState
 * @property {string} conversationId
 * @property {readonly (UserEntry | Readonly<AssistantEntry>)[]} entries what was said since this chat was made
 * @property {"idle" | "running"} status
 * @property {Error | null} error that ended the last `send` or `resume`
 */

/**
 * @typedef {object} ChatOptions
 * @property {string} [conversationId] default: a new one
 * @property {SendOptions["include"]} [include]
 */

export class Chat {
  #client;
  #include;
  /** @type {Readonly<ChatState>} */
  #state;
  /** @type {Set<() => void>} */
  #listeners = new Set();
  /** @type {import("./sending.js").Sending | null} */
  #sending = null;
  #leaving = new AbortController();

  /**
   * @param {Client} client
   * @param {ChatOptions} [options]
   */
  constructor(client, { conversationId = randomId(), include = [] } = {}) {
    this.#client = client;
    this.#include = include;
    this.#state = { conversationId, entries: [], status: "idle", error: null };
  }

  /** @returns {Readonly<ChatState>} the same value as long as nothing has changed */
  getSnapshot = () => this.#state;

  /**
   * @param {() => void} listener is called after each change
   * @returns {() => void} ends that; when the last one has gone, the reading ends, too, and the run goes on at the server
   */
  subscribe = (listener) => {
    // a listener that is given twice counts twice
    const own = () => listener();
    this.#listeners.add(own);
    return () => {
      this.#listeners.delete(own);
      // React's strict mode leaves and comes back at once
      queueMicrotask(() => {
        if (this.#listeners.size === 0) this.#leaving.abort();
      });
    };
  };

  /**
   * @param {string} text
   * @param {Pick<SendOptions, "onBusy" | "retryBusy">} [options]
   * @returns {Promise<void>} when all is said; what went wrong is in the state
   * @throws {InvalidArgument} while an answer comes
   */
  send = (text, options) => {
    this.#refuseWhileRunning();
    const { conversationId } = this.#state;
    const signal = this.#newSignal();
    const sending = this.#client.send(text, { ...options, conversationId, include: this.#include, signal });
    return this.#show(sending, [{ role: "user", text }]);
  };

  /** Goes on after a reload: shows the run that goes on, and answers the calls that are owed.
   * @returns {Promise<void>} as `send` */
  resume = () => {
    this.#refuseWhileRunning();
    const signal = this.#newSignal();
    return this.#show(this.#client.resume(this.#state.conversationId, { include: this.#include, signal }), []);
  };

  /** Stops the run at the server.
   * @returns {Promise<boolean>} whether there was one */
  stop = async () => (await this.#sending?.cancel()) ?? false;

  #refuseWhileRunning() {
    if (this.#sending) throw new InvalidArgument("an answer comes: wait for it, or stop it");
  }

  #newSignal() {
    this.#leaving = new AbortController();
    return this.#leaving.signal;
  }

  /**
   * @param {import("./sending.js").Sending} sending
   * @param {UserEntry[]} asked
   */
  async #show(sending, asked) {
    const answer = new Answer();
    const before = [...this.#state.entries, ...asked];
    const { signal } = this.#leaving;
    this.#sending = sending;
    this.#change({ entries: before, status: "running", error: null });
    /** @type {Error | null} */
    let error = null;
    try {
      for await (const event of sending) {
        answer.add(event);
        const { text, reasoning, calls } = answer;
        this.#change({ entries: [...before, { role: "assistant", text, reasoning, calls }] });
      }
    } catch (raised) {
      if (!signal.aborted) error = raised instanceof Error ? raised : new Error(String(raised));
    }
    this.#sending = null;
    this.#change({ status: "idle", error });
  }

  /** @param {Partial<ChatState>} change */
  #change(change) {
    this.#state = { ...this.#state, ...change };
    for (const listener of [...this.#listeners]) listener();
  }
}
