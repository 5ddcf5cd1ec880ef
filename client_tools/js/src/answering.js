/** The answers that a chat reads itself, one after the other. */

import { readResults, unansweredCalls } from "./calls.js";
import { RunFailed, errorOf, isSettled } from "./errors.js";
import { common, isForPerson, owedAfter } from "./owed.js";
import { textOf } from "./past.js";
import { Aborter } from "./signals.js";

/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./state.js").ChatState} ChatState */
/** @typedef {import("./thread.js").Exchange} Exchange */

/**
 * @typedef {object} ChatParts
 * @property {import("./client.js").Client} client
 * @property {string} conversationId
 * @property {Pick<import("./client.js").PostOptions, "include" | "onDisconnect">} postOptions of
 *   every post
 * @property {import("./thread.js").Thread} thread
 * @property {import("./live.js").Live} live
 * @property {() => Readonly<ChatState>} state
 * @property {(change?: Partial<ChatState>) => void} change
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
 * @property {(options: {signal: AbortSignal, onConnection: (isOpen: boolean) => void}) =>
 *   import("./sending.js").Sending} send
 * @property {Exchange["asked"]} asked
 * @property {string | null} replaces
 * @property {import("./state.js").SentMessage | null} message null: an earlier one is answered
 *   again
 */

/** Events before those of the answer itself. */
const BEFORE_ANSWER = new Set(["run-queued", "run-start"]);

export class Answering {
  #chat;
  /** @type {import("./sending.js").Sending | null} */
  #sending = null;
  #leaving = new AbortController();
  /** Stops reading `#sending` alone. */
  #reading = new Aborter();
  /**
   * True while a run is being read; false between two runs, while tools run and results are posted.
   */
  #isInRun = false;
  #hasBegun = false;
  #isLost = false;
  /** @type {Promise<void> | null} */
  #resuming = null;
  /** Messages that were sent during the current answer.
   * @type {QueuedMessage[]} */
  #queued = [];
  /** Resolves when the server has accepted or refused the last message.
   * @type {Promise<void>} */
  #accepted = Promise.resolve();
  #setAccepted = () => {};
  /** The messages that this chat has sent.
   * @type {WeakMap<Exchange, import("./state.js").SentMessage>} */
  #sent = new WeakMap();
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

  /** @param {ChatParts} chat */
  constructor(chat) {
    this.#chat = chat;
  }

  /** @returns {import("./sending.js").Sending | null} what is being read */
  get sending() {
    return this.#sending;
  }

  /** @returns {Promise<void> | null} resolves when what `resume` has begun has ended */
  get resuming() {
    return this.#resuming;
  }

  /** Whether an event of the current answer has come. */
  get hasBegun() {
    return this.#hasBegun;
  }

  /** Whether the connection is lost on which it is read. */
  get isLost() {
    return this.#isLost;
  }

  /** Stop reading; the run continues on the server. */
  leave() {
    this.#leaving.abort();
  }

  /**
   * Post a message, and show the answer: at once, or when the current one has ended.
   *
   * @param {ChatPost} post
   * @param {() => void} onValid called before the message is shown
   * @returns {Promise<void>} resolves when the answer has ended
   * @throws {import("./errors.js").InvalidArgument}
   */
  post({ send, asked, replaces, message }, onValid) {
    const reading = this.#sending ? new Aborter(this.#leaving.signal) : null;
    const sending = send(reading ? this.#readingOf(reading) : this.#newReading());
    onValid();
    const exchange = this.#chat.thread.begin(asked, replaces);
    if (message) this.#sent.set(exchange, message);
    this.#chat.change({ refused: null });
    if (reading) return this.#sendWhileRunning(sending, reading, exchange);
    return this.#show(sending, exchange);
  }

  /**
   * Answer calls, and show how the answer goes on.
   *
   * @param {ChatPost["send"]} send
   * @param {Event} [ownEvent] the result that is posted, shown once the server has it
   * @returns {Promise<void>} resolves when the answer has ended
   */
  settle(send, ownEvent) {
    return this.#show(send(this.#newReading()), this.#chat.thread.last, ownEvent);
  }

  /** Nothing is owed any more. */
  forgetOwed() {
    this.#owed = [];
    this.#chat.change({ owed: [] });
  }

  /**
   * @param {{runId?: string}} next the run to follow; without it, the calls that are owed are
   *   answered if there is none
   * @param {Exchange} exchange
   * @returns {Promise<void>} resolves when the answer has ended
   */
  resume(next, exchange) {
    const options = { ...this.#chat.postOptions, ...next, ...this.#newReading() };
    this.#hasBegun = true;
    const sending = this.#chat.client.resume(this.#chat.conversationId, options);
    const resuming = this.#show(sending, exchange).finally(() => (this.#resuming = null));
    this.#resuming = resuming;
    return resuming;
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
    exchange.isReading = true;
    if (this.#queued.length === 0) {
      this.#accepted = new Promise((resolve) => (this.#setAccepted = resolve));
    }
    this.#chat.change({ error: null });
    /** @type {Error | null} */
    let failure = null;
    try {
      await this.#read(sending, exchange, ownEvent).catch((raised) =>
        this.#catchUp(raised, exchange, signal),
      );
      // the watch, which was first with this run, may be behind
      await this.#chat.live.ended(this.#sending.runId);
    } catch (raised) {
      failure = errorOf(raised);
    }
    const error = this.#reading.signal.aborted ? null : failure;
    const refusal = failure ? this.#takeBack(exchange, sending, failure) : {};
    // it was refused, and nothing has taken its place
    if (exchange.replaces !== null && exchange.runs.length === 0) {
      this.#chat.thread.remove(exchange);
    }
    this.#setAccepted();
    exchange.isWaiting = exchange.isReading = false;
    this.#isLost = false;
    this.#chat.live.release(failure === null);
    if (this.#queued.length > 0 && !signal.aborted) {
      this.#chat.change(refusal);
      return void this.#showQueued();
    }
    for (const { shown } of this.#queued.splice(0)) shown();
    this.#sending = null;
    this.#chat.change({ owed: this.#owed, ...(error && { error }), ...refusal });
    if (failure === null && !signal.aborted) await this.#fillResults(signal);
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
      this.#accepted = this.#accepted
        .then(() => sending.start())
        .then(
          (event) => this.#accept(next, event),
          (raised) => this.#refuse(next, errorOf(raised)),
        );
    });
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

  /**
   * A queued message was refused. If the server has accepted it, its error is reported in its turn.
   *
   * @param {QueuedMessage} next
   * @param {Error} error
   */
  #refuse(next, error) {
    const index = this.#queued.indexOf(next);
    if (index < 0 || next.sending.runId !== null || next.reading.signal.aborted) return;
    this.#queued.splice(index, 1);
    this.#chat.change({ error, ...this.#takeBack(next.exchange, next.sending, error) });
    next.shown();
  }

  /**
   * Remove a message that was not accepted, as far as is known.
   *
   * @param {Exchange} exchange
   * @param {import("./sending.js").Sending} sending
   * @param {Error} error
   * @returns {Partial<ChatState>} the change of the state
   */
  #takeBack(exchange, sending, error) {
    const message = this.#sent.get(exchange);
    if (!message || exchange.runs.length > 0 || sending.runId !== null) return {};
    this.#chat.thread.remove(exchange);
    const { replaces } = exchange;
    return { refused: { text: textOf(message.content), message, replaces, error } };
  }

  /** Show the next queued message, whose entry is there already. */
  async #showQueued() {
    const next = /** @type {QueuedMessage} */ (this.#queued.shift());
    this.#reading = next.reading;
    this.#hasBegun = false;
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
      this.#hasBegun ||= !BEFORE_ANSWER.has(event.type);
      if (ownEvent) this.#chat.thread.add(ownEvent, exchange);
      ownEvent = undefined;
      if (event.type === "run-start") this.#chat.thread.replace(exchange);
      if (this.#chat.live.claim(event, exchange)) this.#chat.thread.add(event, exchange);
      this.#track(event);
      this.#chat.change({ owed: common(this.#chat.state().owed, this.#owed) });
      // the queued message closes the calls that this run leaves owed
      if (event.type === "run-end" && this.#queued[0]?.isAccepted) return;
    }
  }

  /**
   * Show an event of a run that another client has begun.
   *
   * @param {Event | (import("./events.js").ErrorEvent & import("./events.js").Place)} event
   */
  addWatched(event) {
    if (event.type === "error") return this.#chat.change({ error: RunFailed.of(event) });
    this.#chat.thread.add(event);
    this.#track(event);
    this.#hasBegun = true;
    const isOver = event.type === "run-end" && !this.#sending;
    this.#chat.change({
      owed: isOver ? this.#owed : common(this.#chat.state().owed, this.#owed),
      ...(event.type === "run-start" && { error: null }),
    });
  }

  /** Show that no answer is in progress, unless this chat reads one. */
  rest() {
    if (!this.#sending) this.#chat.change({ owed: this.#owed });
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
    const { conversationId } = this.#chat;
    const view = await this.#chat.client.conversation(conversationId, { signal });
    const { running, runId, owed } = view;
    const isSame = owed.some(({ id }) => this.#waiting.has(id));
    const begun = running?.runId ?? (isSame ? null : runId);
    this.#owed = owed.filter(isForPerson);
    this.#waiting = new Set(owed.map(({ id }) => id));
    const next = begun !== null && begun !== this.#runId && { runId: begun };
    await this.#read(
      this.#chat.client.resume(conversationId, {
        ...this.#chat.postOptions,
        ...this.#readingOf({ signal }),
        ...next,
      }),
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
        : unansweredCalls(this.#chat.thread.entries).filter((id) => !this.#lookedUp.has(id));
    if (ids.length === 0) return;
    try {
      const results = await readResults(
        this.#chat.client,
        this.#chat.conversationId,
        new Set(ids),
        signal,
      );
      for (const id of ids) this.#lookedUp.add(id);
      this.#chat.thread.addResults(results);
      this.#chat.change();
    } catch {
      // they are shown without: the next reading looks again
    }
  }

  /** Options of the next sending. */
  #newReading() {
    this.#leaving = new AbortController();
    this.#reading = new Aborter(this.#leaving.signal);
    this.#hasBegun = false;
    return this.#readingOf(this.#reading);
  }

  /** @param {{signal: AbortSignal}} reading */
  #readingOf({ signal }) {
    const onConnection = (/** @type {boolean} */ isOpen) => this.#noteOwn(isOpen);
    return { signal, onConnection };
  }

  /** @param {boolean} isOpen */
  #noteOwn(isOpen) {
    if (this.#isLost === !isOpen) return;
    this.#isLost = !isOpen;
    this.#chat.change();
  }
}
