/** What one `send` leads to: a run, the calls that it hands back, the run that their results start, and so on. */

import { Answer } from "./answer.js";
import {
  InvalidArgument,
  isSettled,
  isUnfit,
  isUnfitAnswer,
  LimitExceeded,
  RunFailed,
} from "./errors.js";
import { readOwed } from "./events.js";
import { follow } from "./follow.js";
import { asRecord, textOrNull } from "./json.js";
import { Backoff, persist } from "./retry.js";
import { Round } from "./round.js";
import { Aborter } from "./signals.js";
import { conversationPath, included, leftOf, openStream, postMessages, randomId } from "./wire.js";

/** @typedef {import("./events.js").ErrorEvent} ErrorEvent */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./events.js").Place} Place */
/** @typedef {import("./wire.js").Post} Post */

/**
 * @typedef {object} Parts what a client lends to each of its sendings
 * @property {import("./http.js").Http} http
 * @property {import("./claims.js").Claims} claims
 * @property {import("./tools.js").Toolbox} toolbox
 * @property {import("./limits.js").Limits} limits
 * @property {import("./retry.js").Retry} retry
 */

/**
 * @typedef {object} Order
 * @property {string} conversationId
 * @property {Step} first
 * @property {string[]} include
 * @property {string} [onDisconnect] what becomes of the runs when nobody follows them
 * @property {boolean} [retryBusy]
 * @property {AbortSignal} [signal]
 */

/** @typedef {{post: Post} | {runId: string | null, after: string}} RunSource a post to make, or a run to follow */
/** @typedef {RunSource | {calls: OwedCall[]} | {round: Round}} Source also calls to answer, or answers to post */
/** @typedef {Source | "where it stands"} Step */

/**
 * The events of one `send` or `resume`, in order. Nothing is posted before `start`, or the iteration, begins; it can be iterated
 * once. Leaving it early closes the connection and aborts the signal of running tools; the run goes on at the server.
 */
export class Sending {
  #parts;
  #order;
  #include;
  #aborter;
  #tools = new Aborter();
  #begun = false;
  /** What was asked for before anybody iterates.
   * @type {{events: AsyncGenerator<Event, void, void>, first: Promise<IteratorResult<Event, void>>} | null} */
  #ahead = null;
  #cancelled = false;
  /** @type {string | null} */
  #runId = null;
  /** @type {import("./events.js").Left | null} */
  #left = null;
  /** The newest run that is known here, which a run of another client's making would follow.
   * @type {string | null} */
  #newest = null;
  /** @type {Round | null} whose answers are on their way */
  #round = null;
  /** @type {string[]} the calls that these are for */
  #posting = [];
  /** @type {import("./http.js").Connection | null} that is read */
  #connection = null;
  /** Whether the run of `runId` goes on, as far as we know. */
  #following = false;
  /** @type {((cancelled: boolean) => void)[]} who waits for a cancel that could not be sent yet */
  #waiting = [];

  /**
   * @param {Parts} parts
   * @param {Order} order
   */
  constructor(parts, order) {
    conversationPath(order.conversationId);
    this.#parts = parts;
    this.#order = order;
    this.#include = included(order.include);
    this.#aborter = new Aborter();
  }

  /** Known from the start, also where the caller named none. */
  get conversationId() {
    return this.#order.conversationId;
  }

  /** The run that is followed, or was last; null before the first answer. */
  get runId() {
    return this.#runId;
  }

  /** What was left of the limits of conversation and owner when the newest answer began; null where nothing is told. */
  get left() {
    return this.#left;
  }

  /** @returns {AsyncGenerator<Event, void, void>} */
  [Symbol.asyncIterator]() {
    if (this.#begun) throw new InvalidArgument("the events of one send can be iterated once");
    this.#begun = true;
    return this.#ahead ? this.#behind(this.#ahead) : this.#events();
  }

  /**
   * Posts at once, before anybody iterates; who never does has to abort it by its `signal`.
   *
   * @returns {Promise<Event | undefined>} the first event, when the server has taken the post; it is given by the iteration, too
   * @throws {import("./errors.js").PassbackError} as the iteration then does
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

  /** @param {{events: AsyncGenerator<Event, void, void>, first: Promise<IteratorResult<Event, void>>}} ahead */
  async *#behind({ events, first }) {
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
   * Reads to the end.
   *
   * @returns {Promise<string>} the text of the answer, without what became void
   */
  async text() {
    const answer = new Answer();
    for await (const event of this) answer.add(event);
    return answer.text;
  }

  /**
   * Stops the run at the server, and what it leads to: the iteration then ends by itself, with the outcome
   * `cancelled`. Calls that are being answered are given up, and stay owed.
   *
   * @returns {Promise<boolean>} false when there was no run to be stopped
   * @throws {import("./errors.js").PassbackError}
   */
  async cancel() {
    this.#cancelled = true;
    this.#tools.close();
    if (this.#following && this.#runId) return this.#cancelRun(this.#runId);
    if (!(this.#begun || this.#ahead) || !this.#following) return false;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /**
   * Drops the connection, as a cut would; the reading goes on with a new one, behind the last event.
   *
   * @returns {boolean} false when no run is read
   */
  reconnect() {
    this.#connection?.close();
    return this.#connection !== null;
  }

  async *#events() {
    const { signal } = this.#order;
    this.#aborter = new Aborter(signal);
    this.#tools = new Aborter(this.#aborter.signal);
    try {
      let source = await this.#begin();
      for (let round = 0; source && !this.#cancelled; round += 1) {
        if (round > this.#parts.limits.rounds)
          throw new LimitExceeded("the agent calls tools without an end");
        source = yield* this.#answer(yield* this.#owed(source));
      }
    } finally {
      this.#endRound();
      this.#tools.close();
      this.#aborter.close();
      // a run that was left can still be stopped; one that was never heard of cannot
      this.#following &&= this.#runId !== null;
      this.#settle(false);
    }
  }

  /**
   * @param {Source} source
   * @returns {AsyncGenerator<Event, OwedCall[], void>} what is owed behind it
   */
  async *#owed(source) {
    if ("calls" in source) return yield* this.#leftOpen(source.calls);
    if (!("round" in source)) return yield* this.#run(source);
    const owed = yield* this.#handIn(source.round, source.round.answered);
    this.#endRound();
    return owed;
  }

  /** @returns {Promise<Source | null>} */
  async #begin() {
    const { first } = this.#order;
    if (first !== "where it stands") return first;
    const { running, newest, owed } = await this.#standing();
    if (running) return { runId: running, after: "" };
    this.#newest = newest;
    return { calls: owed };
  }

  /** How the conversation stands. */
  async #standing() {
    const { signal } = this.#aborter;
    const path = conversationPath(this.conversationId);
    const view = await persist(() => this.#parts.http.json(path, { signal }), this.#backoff());
    const { runId: running } = asRecord(view.running);
    return {
      running: textOrNull(running),
      newest: textOrNull(view.runId),
      owed: readOwed(view.owed),
    };
  }

  /**
   * @param {OwedCall[]} toolCalls that an earlier run has left open
   * @returns {AsyncGenerator<Event, OwedCall[], void>}
   */
  async *#leftOpen(toolCalls) {
    if (toolCalls.length > 0) yield { type: "owed", toolCalls, cursor: "", runId: null };
    return this.#bounded(toolCalls);
  }

  /**
   * Posts the answers to these calls together, or else one by one: what the server refuses blocks nothing, and the model is
   * told why.
   *
   * @param {Round} round
   * @param {string[]} ids
   * @returns {AsyncGenerator<Event, OwedCall[], void>} what is left to answer
   */
  async *#handIn(round, ids) {
    try {
      return yield* this.#post(round, ids);
    } catch (error) {
      if (!round.waitsWith(ids)) throw error;
      if (ids.length > 1 && (isUnfit(error) || isSettled(error)))
        return yield* this.#oneByOne(round, ids);
      if (!isUnfit(error) || isUnfitAnswer(error)) throw error;
      for (const each of ids.flatMap((id) => round.refuse(id, error)))
        yield { ...each, cursor: "", runId: this.#newest };
    }
    return yield* this.#post(round, ids);
  }

  /**
   * @param {Round} round
   * @param {string[]} ids
   * @returns {AsyncGenerator<Event, OwedCall[], void>}
   */
  async *#oneByOne(round, ids) {
    /** @type {OwedCall[]} */
    let owed = [];
    /** @type {unknown} */
    let left = null;
    for (const id of ids) {
      if (this.#cancelled) return owed;
      try {
        owed = yield* this.#handIn(round, [id]);
      } catch (error) {
        if (!round.waitsWith([id]) || !(isSettled(error) || isUnfitAnswer(error))) throw error;
        left ??= error;
      }
      // it has begun, and nothing else is waited for
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
    const { conversationId, onDisconnect } = this.#order;
    const body = { conversationId, ...round.bodyOf(ids), onDisconnect, include: this.#include };
    return this.#run({ post: { key: randomId(), body } });
  }

  #endRound() {
    this.#round?.giveBack();
    this.#round = null;
  }

  /**
   * @param {RunSource} source
   * @returns {AsyncGenerator<Event, OwedCall[], void>} what the run leaves open
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
    const events = follow({
      open: (after) => this.#open(source, after, exchange),
      after: "post" in source ? "" : source.after,
      backoff: this.#backoff((reason) =>
        http.tell(exchange, { kind: "lost", message: textOf(reason) }),
      ),
      signal,
      silence: retry.silence,
      eventChars: limits.eventChars,
      tell: (step) => http.tell(exchange, step),
    });
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
    return this.#bounded(owed);
  }

  /** @param {OwedCall[]} calls */
  #bounded(calls) {
    if (calls.length > this.#parts.limits.owedCalls)
      throw new LimitExceeded("too many calls are owed");
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
    this.#round?.end(this.#posting);
    const { headers } = connection.response;
    this.#runId = headers.get("X-Run-Id") ?? this.#runId;
    this.#left = leftOf(headers) ?? this.#left;
    // results that were only kept begin none
    this.#following = this.#runId !== null;
    if (this.#waiting.length > 0) this.#cancelLate();
    return connection;
  }

  /**
   * @param {OwedCall[]} owed
   * @returns {AsyncGenerator<Event, Source | null, void>} what comes next: the post of the answers, or the run that another
   *   client's answers have begun; null when this client has nothing to do
   */
  async *#answer(owed) {
    const calls = owed.filter((call) => this.#parts.toolbox.answers(call));
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
    return this.#begunElsewhere();
  }

  /** @returns {Promise<Source | null>} the run that other clients' answers have begun, if they have */
  async #begunElsewhere() {
    const { running, newest } = await this.#standing();
    const runId = running ?? newest;
    return runId === null || runId === this.#newest ? null : { runId, after: "" };
  }

  /** @param {(error: unknown) => void} [onPause] */
  #backoff(onPause) {
    return new Backoff(this.#parts.retry, this.#aborter.signal, this.#order.retryBusy, onPause);
  }

  #cancelLate() {
    if (!this.#runId) return this.#settle(false);
    this.#cancelRun(this.#runId).then(
      (done) => this.#settle(done),
      () => this.#settle(false),
    );
  }

  /** @param {boolean} cancelled */
  #settle(cancelled) {
    for (const resolve of this.#waiting.splice(0)) resolve(cancelled);
  }

  /** @param {string} runId */
  async #cancelRun(runId) {
    const { signal } = new AbortController();
    const path = `${conversationPath(this.conversationId)}/cancel?runId=${encodeURIComponent(runId)}`;
    const request = () => this.#parts.http.json(path, { method: "POST", signal });
    return persist(request, new Backoff(this.#parts.retry, signal)).then(
      (body) => body.cancelled === true,
      (error) => {
        // the run ended before it could be stopped
        if (error.code === "conflict") return false;
        throw error;
      },
    );
  }
}

/** @param {unknown} error */
function textOf(error) {
  return error instanceof Error ? error.message : String(error);
}
