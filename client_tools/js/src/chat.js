/** A conversation for a user interface: an immutable state, and a subscription to its changes. */

import { reword } from "./branches.js";
import { InvalidArgument, RunFailed, isSettled } from "./errors.js";
import { readResults, unansweredCalls } from "./calls.js";
import { Live } from "./live.js";
import { Aborter } from "./signals.js";
import { Thread, entryOf } from "./thread.js";
import { randomId } from "./wire.js";

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./client.js").Decision} Decision */
/** @typedef {import("./client.js").SendOptions} SendOptions */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./thread.js").Exchange} Exchange */

/**
 * @typedef {{readonly role: "user", readonly id: string, readonly text: string, readonly parts?:
 *   readonly import("./client.js").Part[]}} UserEntry `id` of the message; `parts` if it has more
 *   than text
 */
/**
 * @typedef {object} AssistantEntry
 * @property {"assistant"} role
 * @property {string} text without what was rewound
 * @property {string} reasoning
 * @property {readonly import("./calls.js").Call[]} calls
 * @property {unknown} [output] the accepted object, if an output schema was given
 * @property {string} [model] the name of the model that answered last, sub-agents aside, as soon as
 *   it is known
 */

/**
 * @typedef {object} ChatState
 * @property {string} conversationId
 * @property {readonly (UserEntry | Readonly<AssistantEntry>)[]} entries the messages and answers
 *   since this chat was created
 * @property {"idle" | "running" | "deleted"} status deleted: by another client; the next message
 *   begins the conversation anew
 * @property {readonly OwedCall[]} owed calls that a person must answer: approvals by `decide`,
 *   questions by `answer`
 * @property {Error | null} error of the last `send`, `resume`, `decide` or `answer`
 */

/**
 * @typedef {object} QueuedMessage a message that was sent during an answer
 * @property {import("./sending.js").Sending} sending
 * @property {Aborter} reading stops reading its answer
 * @property {Exchange} exchange
 * @property {boolean} isAccepted whether the server has accepted it
 * @property {() => void} shown called when its answer has ended
 */

/**
 * @typedef {object} ChatPost
 * @property {(signal: AbortSignal) => import("./sending.js").Sending} send
 * @property {Exchange["asked"]} asked
 * @property {string | null} replaces
 */

/**
 * @typedef {object} ChatOptions
 * @property {string} [conversationId] default: a new one
 * @property {SendOptions["include"]} [include]
 * @property {SendOptions["onDisconnect"]} [onDisconnect] whether runs of this chat continue when
 *   nobody follows them
 * @property {boolean} [live] whether the chat shows what other clients do in its conversation while
 *   somebody subscribes to it; default: true
 */

/**
 * @typedef {Omit<SendOptions, "conversationId" | "include" | "signal" | "after">} ChatSendOptions
 */

/** Values of `onBusy` with which a message may be sent during an answer. */
const WHILE_RUNNING = new Set(["enqueue", "interrupt"]);

export class Chat {
  #client;
  /** Options of every post. */
  #postOptions;
  /** @type {Readonly<ChatState>} */
  #state;
  /** @type {Set<() => void>} */
  #listeners = new Set();
  /** @type {import("./sending.js").Sending | null} */
  #sending = null;
  #leaving = new AbortController();
  /** Stops reading `#sending` alone. */
  #reading = new Aborter();
  /**
   * True while a run is being read; false between two runs, while tools run and results are posted.
   */
  #isInRun = false;
  /** Messages that were sent during the current answer.
   * @type {QueuedMessage[]} */
  #queued = [];
  /** Resolves when the server has accepted or refused the last message.
   * @type {Promise<void>} */
  #accepted = Promise.resolve();
  #setAccepted = () => {};
  #thread = new Thread();
  #live;
  /** Calls that a person owes after the last event read; the state has them when reading ends.
   * @type {readonly OwedCall[]} */
  #owed = [];
  /** All calls of the last `owed` event.
   * @type {ReadonlySet<string>} */
  #waiting = new Set();
  /** The last run that was read.
   * @type {string | null} */
  #runId = null;
  /** Calls whose results were searched for in the history.
   * @type {Set<string>} */
  #lookedUp = new Set();

  /**
   * @param {Client} client
   * @param {ChatOptions} [options]
   */
  constructor(client, { conversationId, include = [], onDisconnect, live = true } = {}) {
    const id = conversationId ?? randomId();
    this.#client = client;
    this.#postOptions = { include, ...(onDisconnect && { onDisconnect }) };
    this.#state = { conversationId: id, entries: [], status: "idle", owed: [], error: null };
    this.#live = new Live(client, { conversationId: id, include }, this.#thread, {
      onEvent: (event) => this.#addWatched(event),
      onChange: () => this.#change({}),
      onStopped: () => this.#state.status === "running" && !this.#sending && this.#rest(),
      onDeleted: () => this.#change({ status: "deleted", owed: [] }),
    });
    this.#live.isOn = live;
    this.#live.isKnown = conversationId !== undefined;
  }

  /** @returns {Readonly<ChatState>} the same object until something changes */
  getSnapshot = () => this.#state;

  /**
   * @param {() => void} listener called after each change
   * @returns {() => void} unsubscribes; without listeners, reading stops and the run continues on
   *   the server
   */
  subscribe = (listener) => {
    // a function that subscribes twice is two listeners
    const own = () => listener();
    this.#listeners.add(own);
    this.#live.begin();
    return () => {
      this.#listeners.delete(own);
      // React's strict mode unsubscribes and subscribes again at once
      queueMicrotask(() => {
        if (this.#listeners.size > 0) return;
        this.#leaving.abort();
        this.#live.end();
      });
    };
  };

  /**
   * @param {string | import("./client.js").UserMessage} message
   * @param {ChatSendOptions} [options] during an answer, `onBusy` must be "enqueue" or "interrupt"
   * @returns {Promise<void>} resolves when the answer has ended; an error is in the state
   * @throws {InvalidArgument} during an answer, without `onBusy`
   */
  send = (message, options) => this.#dispatch(this.#postOf(message, options), options);

  /**
   * Put another message in the place of one of the user's: what stood behind that stays as another
   * branch.
   *
   * @param {string} id of the message
   * @param {string | import("./client.js").UserMessage} message a text takes the place of the text
   *   alone: attachments and additions stay
   * @param {ChatSendOptions} [options] as of `send`
   * @returns {Promise<void>} as `send`
   */
  edit = async (id, message, options = {}) => {
    this.#refuseUnless(options);
    const { conversationId } = this.#state;
    let found;
    try {
      found = await this.#client.findMessage(conversationId, id);
    } catch (raised) {
      return this.#change({ error: errorOf(raised) });
    }
    const { after } = found;
    if (typeof message === "string") {
      const { content, ...additions } = reword(found.message, message);
      const post = this.#postOf({ role: "user", content }, { ...additions, ...options, after }, id);
      return this.#dispatch(post, options);
    }
    return this.#dispatch(this.#postOf(message, { ...options, after }, id), options);
  };

  /**
   * Answer a message of the user again: the earlier answer, and what followed it, stay as another
   * branch.
   *
   * @param {string} id of the message
   * @param {Omit<import("./client.js").RegenerateOptions, "include" | "signal">} [options] `onBusy`
   *   as of `send`
   * @returns {Promise<void>} as `send`
   */
  regenerate = (id, options) => {
    const { conversationId } = this.#state;
    const send = (/** @type {AbortSignal} */ signal) =>
      this.#client.regenerate(conversationId, id, { ...this.#postOptions, ...options, signal });
    return this.#dispatch({ send, asked: this.#thread.find(id), replaces: id }, options);
  };

  /** Continue after a reload: follow the current run, and answer the calls that are owed.
   * @returns {Promise<void>} as `send` */
  resume = () => {
    this.#refuseWhileRunning();
    const signal = this.#newSignal();
    return this.#show(
      this.#client.resume(this.#state.conversationId, { ...this.#postOptions, signal }),
      this.#thread.begin([]),
    );
  };

  /**
   * Decide on approvals in `owed`; the waiting answer continues.
   *
   * @param {Decision | Decision[]} decision
   * @returns {Promise<void>} as `send`
   */
  decide = (decision) => {
    this.#refuseWhileRunning();
    const options = { ...this.#postOptions, signal: this.#newSignal() };
    const sending = this.#client.decide(this.#state.conversationId, decision, options);
    return this.#show(sending, this.#thread.last);
  };

  /**
   * Answer a call in `owed`; the waiting answer continues.
   *
   * @param {string} id
   * @param {unknown} content for a question: `Answers`, or a text if there is one question
   * @param {{isError?: boolean}} [options] `isError`: the question was declined, and the content
   *   says why
   * @returns {Promise<void>} as `send`
   */
  answer = (id, content, { isError = false } = {}) => {
    this.#refuseWhileRunning();
    const { conversationId, owed } = this.#state;
    const options = { conversationId, ...this.#postOptions, signal: this.#newSignal() };
    /** @type {import("./client.js").ToolMessage} */
    const message = { role: "tool", toolCallId: id, content, ...(isError && { isError }) };
    const toolCallName = owed.find((call) => call.id === id)?.name ?? "";
    /** @type {Event} */
    const ownEvent = {
      type: "client-tool-result",
      toolCallId: id,
      toolCallName,
      content,
      isError,
      cursor: "",
      runId: null,
    };
    return this.#show(this.#client.send([message], options), this.#thread.last, ownEvent);
  };

  /** Stop the run on the server.
   * @returns {Promise<boolean>} whether there was a run */
  stop = async () => {
    if (this.#sending) return this.#sending.cancel();
    const { runId } = this.#live;
    return runId !== null && this.#client.cancel(this.#state.conversationId, { runId });
  };

  #refuseWhileRunning() {
    if (this.#state.status === "running") {
      throw new InvalidArgument(
        'an answer is in progress: wait for it, stop it, or send with onBusy "enqueue" or ' +
          '"interrupt"',
      );
    }
  }

  /**
   * @param {{onBusy?: SendOptions["onBusy"]}} [options] `onBusy`: behind or instead of an answer,
   *   perhaps to another client's message
   */
  #refuseUnless({ onBusy = "reject" } = {}) {
    if (!WHILE_RUNNING.has(onBusy)) this.#refuseWhileRunning();
  }

  /**
   * Post, and show the answer.
   *
   * @param {ChatPost} post
   * @param {{onBusy?: SendOptions["onBusy"]}} [options]
   * @returns {Promise<void>}
   */
  #dispatch({ send, asked, replaces }, options) {
    this.#refuseUnless(options);
    if (this.#sending) {
      const reading = new Aborter(this.#leaving.signal);
      const sending = send(reading.signal);
      return this.#sendWhileRunning(sending, reading, this.#thread.begin(asked, replaces));
    }
    if (this.#state.status === "deleted") this.#thread.clear();
    const sending = send(this.#newSignal());
    return this.#show(sending, this.#thread.begin(asked, replaces));
  }

  /**
   * Post at once; show the answer when the current one has ended.
   *
   * @param {import("./sending.js").Sending} sending
   * @param {Aborter} reading
   * @param {Exchange} exchange
   * @returns {Promise<void>}
   */
  #sendWhileRunning(sending, reading, exchange) {
    return new Promise((shown) => {
      const next = { sending, reading, exchange, isAccepted: false, shown: () => shown() };
      this.#queued.push(next);
      this.#change({});
      // the error is reported when this message's turn comes
      this.#accepted = this.#accepted
        .then(() => sending.start())
        .then(
          (event) => this.#accept(next, event),
          () => {},
        );
    });
  }

  /**
   * @param {string | import("./client.js").UserMessage} message
   * @param {Omit<SendOptions, "conversationId" | "include" | "signal">} [options]
   * @param {string | null} [replaces]
   * @returns {ChatPost}
   */
  #postOf(message, options, replaces = null) {
    const { conversationId } = this.#state;
    /** @type {import("./client.js").UserMessage} */
    const said = typeof message === "string" ? { role: "user", content: message } : message;
    // the same message comes to those who watch
    const { id = randomId(), content } = said;
    const send = (/** @type {AbortSignal} */ signal) =>
      this.#client.send(
        { ...said, id },
        { ...this.#postOptions, ...options, conversationId, signal },
      );
    return { send, asked: [{ id, entry: entryOf({ id, content }) }], replaces };
  }

  /**
   * @param {QueuedMessage} next
   * @param {Event | undefined} event the first of its answer
   */
  #accept(next, event) {
    next.isAccepted = true;
    // no run was in progress, so nothing more comes of the previous answer
    if (next === this.#queued[0] && event?.type !== "run-queued" && !this.#isInRun) {
      this.#reading.close();
    }
  }

  /** Create the signal of the next sending. */
  #newSignal() {
    this.#leaving = new AbortController();
    this.#reading = new Aborter(this.#leaving.signal);
    return this.#reading.signal;
  }

  /**
   * Append the events to an answer.
   *
   * @param {import("./sending.js").Sending} sending
   * @param {Exchange} exchange
   * @param {Event} [ownEvent] the result that this chat posts, shown once the server has it
   */
  async #show(sending, exchange, ownEvent) {
    const { signal } = this.#leaving;
    this.#sending = sending;
    this.#isInRun = false;
    if (this.#queued.length === 0) {
      this.#accepted = new Promise((resolve) => (this.#setAccepted = resolve));
    }
    this.#change({ status: "running", error: null });
    /** @type {Error | null} */
    let error = null;
    let isWhole = false;
    try {
      await this.#read(sending, exchange, ownEvent).catch((raised) =>
        this.#catchUp(raised, exchange, signal),
      );
      isWhole = true;
      // the watch, which was first with this run, may be behind
      await this.#live.ended(this.#sending.runId);
    } catch (raised) {
      if (!this.#reading.signal.aborted) error = errorOf(raised);
    }
    // it was refused, and nothing has taken its place
    if (exchange.replaces !== null && exchange.runs.length === 0) this.#thread.remove(exchange);
    this.#setAccepted();
    exchange.isWaiting = false;
    this.#live.release(isWhole);
    if (this.#queued.length > 0 && !signal.aborted) return void this.#showQueued();
    for (const { shown } of this.#queued.splice(0)) shown();
    this.#sending = null;
    this.#change({ status: this.#live.runId ? "running" : "idle", owed: this.#owed, error });
    if (error === null && !signal.aborted) await this.#fillResults(signal);
  }

  /** Show the next queued message, whose entry is there already. */
  async #showQueued() {
    const next = /** @type {QueuedMessage} */ (this.#queued.shift());
    this.#reading = next.reading;
    await this.#show(next.sending, next.exchange);
    next.shown();
  }

  /**
   * @param {import("./sending.js").Sending} sending
   * @param {Exchange} exchange
   * @param {Event} [ownEvent]
   */
  async #read(sending, exchange, ownEvent) {
    this.#sending = sending;
    for await (const event of sending) {
      this.#setAccepted();
      if (ownEvent) this.#thread.add(ownEvent, exchange);
      ownEvent = undefined;
      if (event.type === "run-start") this.#thread.replace(exchange);
      if (this.#live.claim(event, exchange)) this.#thread.add(event, exchange);
      this.#track(event);
      this.#change({ owed: common(this.#state.owed, this.#owed) });
      // the queued message closes the calls that this run leaves owed
      if (event.type === "run-end" && this.#queued[0]?.isAccepted) return;
    }
  }

  /**
   * Show an event of a run that another client has begun.
   *
   * @param {Event | (import("./events.js").ErrorEvent & import("./events.js").Place)} event
   */
  #addWatched(event) {
    if (event.type === "error") return this.#change({ error: RunFailed.of(event) });
    this.#thread.add(event);
    this.#track(event);
    const isOver = event.type === "run-end" && !this.#sending;
    this.#change({
      status: isOver ? "idle" : "running",
      owed: isOver ? this.#owed : common(this.#state.owed, this.#owed),
      ...(event.type === "run-start" && { error: null }),
    });
  }

  /** Show that no answer is in progress. */
  #rest() {
    this.#change({ status: "idle", owed: this.#owed });
  }

  /** @param {Event} event */
  #track(event) {
    this.#owed = owedAfter(this.#owed, event);
    this.#runId = event.runId ?? this.#runId;
    this.#isInRun = event.cursor !== "" && event.type !== "run-end";
    if (event.type === "run-start") this.#waiting = new Set();
    if (event.type === "owed") this.#waiting = new Set(event.toolCalls.map(({ id }) => id));
  }

  /**
   * Follow the run that another client's answer has started.
   *
   * @param {unknown} raised
   * @param {Exchange} exchange
   * @param {AbortSignal} signal
   */
  async #catchUp(raised, exchange, signal) {
    if (!isSettled(raised)) throw raised;
    if (this.#queued.length > 0) await this.#accepted;
    // the queued message has closed what was owed
    if (this.#queued[0]?.isAccepted) return;
    const { conversationId } = this.#state;
    const { running, runId, owed } = await this.#client.conversation(conversationId, { signal });
    const isSame = owed.some(({ id }) => this.#waiting.has(id));
    const begun = running?.runId ?? (isSame ? null : runId);
    this.#owed = owed.filter(isForPerson);
    this.#waiting = new Set(owed.map(({ id }) => id));
    const next = begun !== null && begun !== this.#runId && { runId: begun };
    await this.#read(
      this.#client.resume(conversationId, { ...this.#postOptions, signal, ...next }),
      exchange,
    );
  }

  /**
   * Read from the history the results of calls that other clients answered or the server closed.
   *
   * @param {AbortSignal} signal
   */
  async #fillResults(signal) {
    // results are stored only when nothing is owed
    const ids =
      this.#waiting.size > 0
        ? []
        : unansweredCalls(this.#state.entries).filter((id) => !this.#lookedUp.has(id));
    if (ids.length === 0) return;
    try {
      const results = await readResults(
        this.#client,
        this.#state.conversationId,
        new Set(ids),
        signal,
      );
      for (const id of ids) this.#lookedUp.add(id);
      this.#thread.addResults(results);
      this.#change({});
    } catch {
      // they are shown without: the next reading looks again
    }
  }

  /** @param {Partial<ChatState>} change */
  #change(change) {
    this.#state = { ...this.#state, entries: this.#thread.entries, ...change };
    for (const listener of [...this.#listeners]) listener();
  }
}

/** @param {unknown} raised */
function errorOf(raised) {
  return raised instanceof Error ? raised : new Error(String(raised));
}

/** @param {OwedCall} call */
function isForPerson({ kind }) {
  return kind === "approval" || kind === "question";
}

/**
 * @param {readonly OwedCall[]} owed to people
 * @param {Event} event
 */
function owedAfter(owed, event) {
  if (event.type === "run-start") return [];
  if (event.type === "owed") return event.toolCalls.filter(isForPerson);
  if (event.type !== "client-tool-result" && event.type !== "client-decision") return owed;
  return owed.filter(({ id }) => id !== event.toolCallId);
}

/**
 * @param {readonly OwedCall[]} calls
 * @param {readonly OwedCall[]} others
 * @returns {readonly OwedCall[]} the calls that are in both lists; `calls` itself if all are
 */
function common(calls, others) {
  const left = calls.filter(({ id }) => others.some((other) => other.id === id));
  return left.length === calls.length ? calls : left;
}
