/** One round of answers: the calls that a run has handed back, each claimed, run, or left to whoever holds it. */

import { readOwed } from "./events.js";
import { Backoff, pause, persist } from "./retry.js";
import { Aborter } from "./signals.js";
import { conversationPath } from "./wire.js";

/** @typedef {import("./claims.js").Claim} Claim */
/** @typedef {import("./events.js").ClientEvent} ClientEvent */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./tools.js").Answered} Answered */

/** Milliseconds between two looks at a call that another client holds. */
const LONGEST_LOOK = 5000;

export class Round {
  #parts;
  #conversationId;
  #calls;
  #aborter;
  /** Of those calls that other clients hold.
   * @type {Aborter} */
  #waiting;
  /** How many calls are claimed or run now. */
  #busy;
  /** @type {Set<string>} calls that other clients hold */
  #elsewhere = new Set();
  /** @type {Map<string, Answered>} */
  #answers = new Map();
  /** @type {Map<string, Claim>} of calls whose answer the server has not yet */
  #claims = new Map();
  /** @type {(ClientEvent | {type: "broken", error: unknown})[]} */
  #news = [];
  #wake = () => {};
  /** @type {Promise<OwedCall[]> | null} */
  #looking = null;

  /**
   * @param {import("./sending.js").Parts} parts
   * @param {{conversationId: string, signal: AbortSignal}} where the signal gives the round up
   * @param {OwedCall[]} calls that this client answers
   */
  constructor(parts, { conversationId, signal }, calls) {
    this.#parts = parts;
    this.#conversationId = conversationId;
    this.#calls = calls;
    this.#aborter = new Aborter(signal);
    this.#waiting = new Aborter(this.#aborter.signal);
    this.#busy = calls.length;
  }

  /**
   * Runs the calls; may be iterated once. It ends when each has an answer, here or elsewhere; and, as soon as there are
   * some to be posted, it does not wait for those of other clients.
   *
   * @returns {AsyncGenerator<ClientEvent, void, void>}
   */
  async *events() {
    for (const call of this.#calls)
      this.#take(call).catch((error) => this.#tell({ type: "broken", error }));
    while (this.#news.length > 0 || this.#isOpen) {
      const one = this.#news.shift();
      if (one?.type === "broken") throw one.error;
      if (one) yield one;
      else await new Promise((resolve) => (this.#wake = () => resolve(undefined)));
    }
    // from now on none is begun
    this.#waiting.close();
  }

  get #isOpen() {
    return this.#busy > 0 || (this.#elsewhere.size > 0 && this.#answers.size === 0);
  }

  /** @returns {string[]} the calls that this client has answered, in their order */
  get answered() {
    return this.#calls.flatMap(({ id }) => (this.#answers.has(id) ? [id] : []));
  }

  /**
   * @param {string[]} ids of calls that are answered
   * @returns {Record<string, unknown>} what is to be posted for them
   */
  bodyOf(ids) {
    const answers = ids.flatMap((id) => this.#answers.get(id) ?? []);
    const messages = answers.flatMap((answer) => ("message" in answer ? [answer.message] : []));
    const resume = answers.flatMap((answer) => ("resume" in answer ? [answer.resume] : []));
    return { ...(messages.length > 0 && { messages }), ...(resume.length > 0 && { resume }) };
  }

  /**
   * The server refuses an answer: the model is told so instead.
   *
   * @param {string} id
   * @param {Error} refusal
   * @returns {ClientEvent[]} what this client says of it
   */
  refuse(id, refusal) {
    return this.#calls
      .filter((call) => call.id === id)
      .map((call) => {
        const answer = this.#parts.toolbox.refused(call, refusal);
        this.#answers.set(id, answer);
        return toldOf(call, answer);
      });
  }

  /**
   * The server has these answers.
   *
   * @param {string[]} ids
   */
  end(ids) {
    for (const id of ids) {
      this.#claims.get(id)?.end();
      this.#claims.delete(id);
    }
  }

  /**
   * @param {string[]} ids
   * @returns {boolean} whether the server has none of these answers
   */
  waitsWith(ids) {
    return ids.every((id) => this.#claims.has(id));
  }

  /** Nothing more will be posted: other clients may run the calls that are left. */
  giveBack() {
    for (const claim of this.#claims.values()) claim.giveBack();
    this.#claims.clear();
    this.#aborter.close();
  }

  /** @param {OwedCall} call */
  async #take(call) {
    const { signal } = this.#waiting;
    for (;;) {
      const claimed = await this.#parts.claims.take(this.#conversationId, call.id, signal);
      if (claimed === "settled") return this.#settled(call);
      if (!("left" in claimed))
        return signal.aborted ? claimed.giveBack() : this.#answer(call, claimed);
      this.#held(call);
      if (!(await this.#untilFree(call.id, 1000 * claimed.left))) return this.#settled(call);
    }
  }

  /**
   * @param {OwedCall} call
   * @param {Claim} claim
   */
  async #answer(call, claim) {
    if (this.#elsewhere.delete(call.id)) this.#busy += 1;
    this.#claims.set(call.id, claim);
    const own = new Aborter(this.#aborter.signal);
    claim.onSettled = () => own.close();
    try {
      const where = { conversationId: this.#conversationId, signal: own.signal };
      const answer = await this.#parts.toolbox.answer(call, where);
      this.#busy -= 1;
      this.#answers.set(call.id, answer);
      this.#tell(toldOf(call, answer));
    } catch (error) {
      if (!claim.isSettled) throw error;
      this.#settled(call);
    } finally {
      own.close();
    }
  }

  /** @param {OwedCall} call */
  #held(call) {
    if (this.#elsewhere.has(call.id)) return;
    this.#busy -= 1;
    this.#elsewhere.add(call.id);
    this.#tell({
      type: "call-elsewhere",
      toolCallId: call.id,
      toolCallName: call.name,
      state: "claimed",
    });
  }

  /** @param {OwedCall} call */
  #settled(call) {
    if (!this.#elsewhere.delete(call.id)) this.#busy -= 1;
    this.#tell({
      type: "call-elsewhere",
      toolCallId: call.id,
      toolCallName: call.name,
      state: "answered",
    });
  }

  /**
   * Waits while another client holds a call, and no longer than its claim may last.
   *
   * @param {string} id
   * @param {number} left milliseconds
   * @returns {Promise<boolean>} whether it may be claimed again; false: it is answered
   */
  async #untilFree(id, left) {
    const { firstDelay } = this.#parts.retry;
    const end = performance.now() + Math.max(left, firstDelay);
    for (let delay = firstDelay; ; delay = Math.min(2 * delay, LONGEST_LOOK)) {
      const rest = end - performance.now();
      await pause(Math.min(delay, rest), this.#waiting.signal);
      if (rest <= delay) return true;
      const call = (await this.#look()).find((owed) => owed.id === id);
      if (!call?.claimedUntil) return call !== undefined;
    }
  }

  /** @returns {Promise<OwedCall[]>} what is owed now, for all calls that wait */
  #look() {
    this.#looking ??= this.#read().finally(() => (this.#looking = null));
    return this.#looking;
  }

  async #read() {
    const { http, retry } = this.#parts;
    const { signal } = this.#waiting;
    const request = () => http.json(conversationPath(this.#conversationId), { signal });
    return readOwed((await persist(request, new Backoff(retry, signal))).owed);
  }

  /** @param {ClientEvent | {type: "broken", error: unknown}} one */
  #tell(one) {
    this.#news.push(one);
    this.#wake();
  }
}

/**
 * @param {OwedCall} call
 * @param {Answered} answer
 * @returns {ClientEvent}
 */
function toldOf({ id, name }, answer) {
  const call = { toolCallId: id, toolCallName: name };
  if ("message" in answer) {
    const { content, isError = false } = answer.message;
    return { type: "client-tool-result", ...call, content, isError };
  }
  const { approved, reason = "" } = answer.resume.payload;
  return { type: "client-decision", ...call, approved, reason };
}
