/**
 * The runs of one `send`: a run, the calls that it leaves owed, the run that their results start,
 * and so on.
 */

import {
  InvalidArgument,
  isBusy,
  isSettled,
  isContentError,
  isInvalidAnswer,
  LimitExceeded,
  RunFailed,
} from "./errors.js";
import { readOwed } from "./events.js";
import { follow } from "./follow.js";
import { asRecord, textOrNull } from "./json.js";
import { Backoff, withRetry } from "./retry.js";
import { Round } from "./round.js";
import { SaidText } from "./said.js";
import { Aborter } from "./signals.js";
import {
  conversationPath,
  included,
  readBudgetLeft,
  openStream,
  postMessages,
  randomId,
} from "./wire.js";

/** @typedef {import("./events.js").ErrorEvent} ErrorEvent */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./events.js").Place} Place */
/** @typedef {import("./wire.js").Post} Post */

/**
 * @typedef {object} ClientParts parts of a client that its sendings share
 * @property {import("./http.js").Http} http
 * @property {import("./claims.js").Claims} claims
 * @property {import("./tools.js").Toolbox} toolbox
 * @property {import("./options.js").Limits} limits
 * @property {import("./retry.js").Retry} retry
 */

/**
 * @typedef {object} SendingOptions
 * @property {string} conversationId
 * @property {FirstStep} first
 * @property {string[]} include
 * @property {string} [onDisconnect] whether the runs continue when nobody follows them
 * @property {boolean} [retryBusy]
 * @property {AbortSignal} [signal]
 * @property {(isOpen: boolean) => void} [onConnection]
 */

/**
 * @typedef {{post: Post} | {runId: string | null, after: string}} RunSource a post to make, or a
 *   run to follow
 */
/**
 * @typedef {RunSource | {calls: OwedCall[]} | {round: Round}} Source also calls to answer, or
 *   answers to post
 */
/** @typedef {Source | "current"} FirstStep */

/**
 * The events of one `send` or `resume`, in order. Nothing is posted before `start` or the iteration
 * begins; it can be iterated once. Leaving it early closes the connection and aborts the signal of
 * running tools; the run continues on the server.
 */
export class Sending {
  #parts;
  #options;
  #include;
  #aborter;
  #tools = new Aborter();
  #begun = false;
  /**
   * The request that `start` made before the iteration.
   *
   * @type {{events: AsyncGenerator<Event, void, void>, first: Promise<IteratorResult<Event, void>>}
   *   | null}
   */
  #ahead = null;
  #cancelled = false;
  /** @type {string | null} */
  #runId = null;
  /** @type {import("./events.js").Left | null} */
  #left = null;
  /** The newest known run; a later one was started by another client.
   * @type {string | null} */
  #newest = null;
  /** @type {Round | null} whose answers are being posted */
  #round = null;
  /** @type {string[]} the calls whose answers are being posted */
  #posting = [];
  /** @type {import("./http.js").Connection | null} that is being read */
  #connection = null;
  /** True while the run `runId` is in progress, as far as is known. */
  #following = false;
  /** @type {((cancelled: boolean) => void)[]} callers of `cancel` that wait until it can be sent */
  #cancelWaiters = [];

  /**
   * @param {ClientParts} parts
   * @param {SendingOptions} options
   */
  constructor(parts, options) {
    conversationPath(options.conversationId);
    this.#parts = parts;
    this.#options = options;
    this.#include = included(options.include);
    this.#aborter = new Aborter();
  }

  /** The id of the conversation, known from the start. */
  get conversationId() {
    return this.#options.conversationId;
  }

  /** The current or last run; null before the first response. */
  get runId() {
    return this.#runId;
  }

  /** The rest of the limits of conversation and owner when the newest response began, if known. */
  get left() {
    return this.#left;
  }

  /** @returns {AsyncGenerator<Event, void, void>} */
  [Symbol.asyncIterator]() {
    if (this.#begun) throw new InvalidArgument("the events of one send can be iterated once");
    this.#begun = true;
    return this.#ahead ? this.#continueAhead(this.#ahead) : this.#events();
  }

  /**
   * Post at once, before the iteration; without an iteration, abort it by its `signal`.
   *
   * @returns {Promise<Event | undefined>} the first event, when the server has accepted the post;
   *   the iteration yields it, too
   * @throws {import("./errors.js").PassbackError} as the iteration does, too
   */
  async start() {
    if (this.#begun) throw new InvalidArgument("the events of one send can be iterated once");
    if (!this.#ahead) {
      const events = this.#events();
      this.#ahead = { events, first: events.next() };
    }
    const { value } = await this.#ahead.first;
    return value ?? undefined;
  }

  /**
   * @param {{events: AsyncGenerator<Event, void, void>, first: Promise<IteratorResult<Event,
   *   void>>}} ahead
   */
  async *#continueAhead({ events, first }) {
    try {
      const { done, value } = await first;
      if (done) return;
      yield value;
      yield* events;
    } finally {
      await events.return();
    }
  }

  /**
   * Read to the end.
   *
   * @returns {Promise<string>} the text of the answer, without what was rewound
   */
  async text() {
    const said = new SaidText();
    for await (const event of this) said.add(event);
    return said.text;
  }

  /**
   * Stop the run on the server: the iteration then ends by itself, with the outcome `cancelled`.
   * Calls that are being answered are abandoned and stay owed.
   *
   * @returns {Promise<boolean>} false if there was no run to stop
   * @throws {import("./errors.js").PassbackError}
   */
  async cancel() {
    this.#cancelled = true;
    this.#tools.close();
    if (this.#following && this.#runId) return this.#cancelRun(this.#runId);
    if (!(this.#begun || this.#ahead) || !this.#following) return false;
    return new Promise((resolve) => this.#cancelWaiters.push(resolve));
  }

  /**
   * Drop the connection and continue on a new one, after the last event.
   *
   * @returns {boolean} false if no run is being read
   */
  reconnect() {
    this.#connection?.close();
    return this.#connection !== null;
  }

  async *#events() {
    const { signal } = this.#options;
    this.#aborter = new Aborter(signal);
    this.#tools = new Aborter(this.#aborter.signal);
    try {
      let source = await this.#firstSource();
      for (let round = 0; source && !this.#cancelled; round += 1) {
        if (round > this.#parts.limits.rounds) {
          throw new LimitExceeded("the agent calls tools without end: `limits.rounds` is reached");
        }
        source = yield* this.#answer(yield* this.#eventsOf(source));
      }
    } finally {
      this.#endRound();
      this.#tools.close();
      this.#aborter.close();
      // a run that was left can still be stopped, but only if its id is known
      this.#following &&= this.#runId !== null;
      this.#resolveCancels(false);
    }
  }

  /**
   * @param {Source} source
   * @returns {AsyncGenerator<Event, OwedCall[], void>} the calls that are owed after it
   */
  async *#eventsOf(source) {
    if ("calls" in source) return yield* this.#resumeOwed(source.calls);
    if (!("round" in source)) return yield* this.#run(source);
    const owed = yield* this.#postAnswers(source.round, source.round.answered);
    this.#endRound();
    return owed;
  }

  /** @returns {Promise<Source | null>} */
  async #firstSource() {
    const { first } = this.#options;
    if (first !== "current") return first;
    const { running, newest, owed } = await this.#readConversation();
    if (running) return { runId: running, after: "" };
    this.#newest = newest;
    return { calls: owed };
  }

  /** Read the state of the conversation. */
  async #readConversation() {
    const { signal } = this.#aborter;
    const path = conversationPath(this.conversationId);
    const view = await withRetry(() => this.#parts.http.json(path, { signal }), this.#backoff());
    this.#options.onConnection?.(true);
    const { runId: running } = asRecord(view.running);
    return {
      running: textOrNull(running),
      newest: textOrNull(view.runId),
      owed: readOwed(view.owed),
    };
  }

  /**
   * @param {OwedCall[]} toolCalls that an earlier run left owed
   * @returns {AsyncGenerator<Event, OwedCall[], void>}
   */
  async *#resumeOwed(toolCalls) {
    if (toolCalls.length > 0) yield { type: "owed", toolCalls, cursor: "", runId: null };
    return this.#checkOwed(toolCalls);
  }

  /**
   * Post the answers to these calls together; if the server refuses them, one by one, so that one
   * refused answer does not block the others, and the model gets the reason.
   *
   * @param {Round} round
   * @param {string[]} ids
   * @returns {AsyncGenerator<Event, OwedCall[], void>} the calls that are still owed
   */
  async *#postAnswers(round, ids) {
    try {
      return yield* this.#post(round, ids);
    } catch (error) {
      if (!round.areUnposted(ids)) throw error;
      if (ids.length > 1 && (isContentError(error) || isSettled(error))) {
        return yield* this.#postOneByOne(round, ids);
      }
      if (!isContentError(error) || isInvalidAnswer(error)) throw error;
      for (const each of ids.flatMap((id) => round.refuse(id, error))) {
        yield { ...each, cursor: "", runId: this.#newest };
      }
    }
    return yield* this.#post(round, ids);
  }

  /**
   * @param {Round} round
   * @param {string[]} ids
   * @returns {AsyncGenerator<Event, OwedCall[], void>}
   */
  async *#postOneByOne(round, ids) {
    /** @type {OwedCall[]} */
    let owed = [];
    /** @type {unknown} */
    let left = null;
    for (const id of ids) {
      if (this.#cancelled) return owed;
      try {
        owed = yield* this.#postAnswers(round, [id]);
      } catch (error) {
        if (!round.areUnposted([id]) || !(isSettled(error) || isInvalidAnswer(error))) throw error;
        left ??= error;
      }
      // the next run has started: no other answer is needed
      if (this.#runId !== null) return owed;
    }
    if (left !== null) throw left;
    return owed;
  }

  /**
   * @param {Round} round
   * @param {string[]} ids
   */
  #post(round, ids) {
    this.#posting = ids;
    const { conversationId, onDisconnect } = this.#options;
    const body = { conversationId, ...round.bodyOf(ids), onDisconnect, include: this.#include };
    return this.#run({ post: { key: randomId(), body } });
  }

  #endRound() {
    this.#round?.release();
    this.#round = null;
  }

  /**
   * @param {RunSource} source
   * @returns {AsyncGenerator<Event, OwedCall[], void>} the calls that the run leaves owed
   */
  async *#run(source) {
    const { http, retry, limits } = this.#parts;
    const { signal } = this.#aborter;
    const exchange = http.newExchange();
    this.#runId = "post" in source ? null : source.runId;
    this.#following = true;
    /** @type {OwedCall[]} */
    let owed = [];
    /** @type {(ErrorEvent & Place) | null} */
    let error = null;
    const following = follow({
      open: (after) => this.#open(source, after, exchange),
      after: "post" in source ? "" : source.after,
      backoff: this.#backoff((reason) =>
        http.trace(exchange, { kind: "lost", message: errorText(reason) }),
      ),
      signal,
      silence: retry.silence,
      eventChars: limits.eventChars,
      trace: (step) => http.trace(exchange, step),
      opening: () => {
        this.#options.onConnection?.(true);
        return [];
      },
    });
    // a run's stream has no events of its conversation
    const events = /** @type {AsyncGenerator<Event | (ErrorEvent & Place)>} */ (following);
    for await (const event of events) {
      if (event.type === "error") {
        error = event;
        continue;
      }
      if (event.type === "owed") owed = event.toolCalls;
      yield event;
    }
    this.#connection = null;
    this.#following = false;
    this.#newest = this.#runId ?? this.#newest;
    if (error) throw RunFailed.of(error);
    return this.#checkOwed(owed);
  }

  /** @param {OwedCall[]} calls */
  #checkOwed(calls) {
    if (calls.length > this.#parts.limits.owedCalls) {
      throw new LimitExceeded("too many calls are owed");
    }
    return calls;
  }

  /**
   * @param {RunSource} source
   * @param {string} after
   * @param {number} exchange
   */
  async #open(source, after, exchange) {
    const { signal } = this.#aborter;
    const { http } = this.#parts;
    const runId = this.#runId;
    const again = after !== "" || runId !== null;
    this.#connection = null;
    const connection =
      "post" in source && !again
        ? await postMessages(http, source.post, { after, signal, exchange })
        : await openStream(http, this.conversationId, {
            runId,
            after,
            include: this.#include,
            signal,
            exchange,
          });
    this.#connection = connection;
    this.#round?.markPosted(this.#posting);
    const { headers } = connection.response;
    this.#runId = headers.get("X-Run-Id") ?? this.#runId;
    this.#left = readBudgetLeft(headers) ?? this.#left;
    // results that the server only stores start no run
    this.#following = this.#runId !== null;
    if (this.#cancelWaiters.length > 0) this.#cancelLate();
    return connection;
  }

  /**
   * @param {OwedCall[]} owed
   * @returns {AsyncGenerator<Event, Source | null, void>} the next source: the answers to post, or
   *   the run that another client's answers have started; null if there is nothing to do
   */
  async *#answer(owed) {
    const calls = owed.filter((call) => this.#parts.toolbox.handles(call));
    if (calls.length === 0 || this.#cancelled) return null;
    const round = new Round(
      this.#parts,
      { conversationId: this.conversationId, signal: this.#tools.signal },
      calls,
    );
    this.#round = round;
    try {
      for await (const event of round.events()) yield { ...event, cursor: "", runId: this.#runId };
    } catch (error) {
      if (this.#cancelled) return null;
      throw error;
    }
    if (this.#cancelled) return null;
    if (round.answered.length > 0) return { round };
    this.#endRound();
    return this.#runOfOthers();
  }

  /** @returns {Promise<Source | null>} the run that other clients' answers have started, if any */
  async #runOfOthers() {
    const { running, newest } = await this.#readConversation();
    const runId = running ?? newest;
    return runId === null || runId === this.#newest ? null : { runId, after: "" };
  }

  /** @param {(error: unknown) => void} [onPause] */
  #backoff(onPause) {
    const { retryBusy, onConnection } = this.#options;
    return new Backoff(this.#parts.retry, this.#aborter.signal, retryBusy, (error) => {
      if (!isBusy(error)) onConnection?.(false);
      onPause?.(error);
    });
  }

  #cancelLate() {
    if (!this.#runId) return this.#resolveCancels(false);
    this.#cancelRun(this.#runId).then(
      (done) => this.#resolveCancels(done),
      () => this.#resolveCancels(false),
    );
  }

  /** @param {boolean} cancelled */
  #resolveCancels(cancelled) {
    for (const resolve of this.#cancelWaiters.splice(0)) resolve(cancelled);
  }

  /** @param {string} runId */
  async #cancelRun(runId) {
    const { signal } = new AbortController();
    const query = `runId=${encodeURIComponent(runId)}`;
    const path = `${conversationPath(this.conversationId)}/cancel?${query}`;
    const request = () => this.#parts.http.json(path, { method: "POST", signal });
    return withRetry(request, new Backoff(this.#parts.retry, signal)).then(
      (body) => body.cancelled === true,
      (error) => {
        // the run has ended already
        if (error.code === "conflict") return false;
        throw error;
      },
    );
  }
}

/** @param {unknown} error */
function errorText(error) {
  return error instanceof Error ? error.message : String(error);
}
