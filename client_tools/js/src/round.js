/**
 * One round of answers: each call that a run leaves owed is claimed and run, or left to its
 * claimant.
 */

import { readOwed } from "./events.js";
import { Backoff, pause, withRetry } from "./retry.js";
import { Aborter } from "./signals.js";
import { conversationPath } from "./wire.js";

/** @typedef {import("./claims.js").CallClaim} CallClaim */
/** @typedef {import("./events.js").ClientEvent} ClientEvent */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./tools.js").CallAnswer} CallAnswer */

/** Longest pause between two polls of a call that another client has claimed. */
const LONGEST_POLL = 5000; // milliseconds

export class Round {
  #parts;
  #conversationId;
  #calls;
  #aborter;
  /** Aborts the wait for calls that other clients have claimed.
   * @type {Aborter} */
  #waiting;
  /** Number of calls that are being claimed or run. */
  #busy;
  /** @type {Set<string>} calls that other clients have claimed */
  #elsewhere = new Set();
  /** @type {Map<string, CallAnswer>} */
  #answers = new Map();
  /** @type {Map<string, CallClaim>} of calls whose answers are not posted yet */
  #claims = new Map();
  /** @type {(ClientEvent | {type: "failed", error: unknown})[]} */
  #queue = [];
  #wake = () => {};
  /** @type {Promise<OwedCall[]> | null} */
  #polling = null;

  /**
   * @param {import("./sending.js").ClientParts} parts
   * @param {{conversationId: string, signal: AbortSignal}} where the signal ends the round
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
   * Run the calls; may be iterated once. It ends when each call has an answer, here or elsewhere;
   * as soon as there are answers to post, it does not wait for calls of other clients.
   *
   * @returns {AsyncGenerator<ClientEvent, void, void>}
   */
  async *events() {
    for (const call of this.#calls) {
      this.#claimAndAnswer(call).catch((error) => this.#emit({ type: "failed", error }));
    }
    while (this.#queue.length > 0 || this.#isOpen) {
      const one = this.#queue.shift();
      if (one?.type === "failed") throw one.error;
      if (one) yield one;
      else await new Promise((resolve) => (this.#wake = () => resolve(undefined)));
    }
    // no call starts from now on
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
   * @returns {Record<string, unknown>} the body of the post with their answers
   */
  bodyOf(ids) {
    const answers = ids.flatMap((id) => this.#answers.get(id) ?? []);
    const messages = answers.flatMap((answer) => ("message" in answer ? [answer.message] : []));
    const resume = answers.flatMap((answer) => ("resume" in answer ? [answer.resume] : []));
    return { ...(messages.length > 0 && { messages }), ...(resume.length > 0 && { resume }) };
  }

  /**
   * Replace an answer that the server refused by an error for the model.
   *
   * @param {string} id
   * @param {Error} refusal
   * @returns {ClientEvent[]} the events of the new answer
   */
  refuse(id, refusal) {
    return this.#calls
      .filter((call) => call.id === id)
      .map((call) => {
        const answer = this.#parts.toolbox.refusalAnswer(call, refusal);
        this.#answers.set(id, answer);
        return eventOf(call, answer);
      });
  }

  /**
   * End the claims of answers that the server has.
   *
   * @param {string[]} ids
   */
  markPosted(ids) {
    for (const id of ids) {
      this.#claims.get(id)?.end();
      this.#claims.delete(id);
    }
  }

  /**
   * @param {string[]} ids
   * @returns {boolean} whether none of these answers has been posted
   */
  areUnposted(ids) {
    return ids.every((id) => this.#claims.has(id));
  }

  /** Release the calls that are left: other clients may run them. */
  release() {
    for (const claim of this.#claims.values()) claim.release();
    this.#claims.clear();
    this.#aborter.close();
  }

  /** @param {OwedCall} call */
  async #claimAndAnswer(call) {
    const { signal } = this.#waiting;
    for (;;) {
      const claimed = await this.#parts.claims.claimCall(this.#conversationId, call.id, signal);
      if (claimed === "settled") return this.#noteSettled(call);
      if (!("left" in claimed)) {
        return signal.aborted ? claimed.release() : this.#answer(call, claimed);
      }
      this.#noteHeld(call);
      if (!(await this.#waitUntilFree(call.id, 1000 * claimed.left))) {
        return this.#noteSettled(call);
      }
    }
  }

  /**
   * @param {OwedCall} call
   * @param {CallClaim} claim
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
      this.#emit(eventOf(call, answer));
    } catch (error) {
      if (!claim.isSettled) throw error;
      this.#noteSettled(call);
    } finally {
      own.close();
    }
  }

  /** @param {OwedCall} call */
  #noteHeld(call) {
    if (this.#elsewhere.has(call.id)) return;
    this.#busy -= 1;
    this.#elsewhere.add(call.id);
    this.#emit({
      type: "call-elsewhere",
      toolCallId: call.id,
      toolCallName: call.name,
      state: "claimed",
    });
  }

  /** @param {OwedCall} call */
  #noteSettled(call) {
    if (!this.#elsewhere.delete(call.id)) this.#busy -= 1;
    this.#emit({
      type: "call-elsewhere",
      toolCallId: call.id,
      toolCallName: call.name,
      state: "answered",
    });
  }

  /**
   * Wait while another client has claimed a call, at most until its claim expires.
   *
   * @param {string} id
   * @param {number} left milliseconds
   * @returns {Promise<boolean>} true if it may be claimed, false if it is answered
   */
  async #waitUntilFree(id, left) {
    const { firstDelay } = this.#parts.retry;
    const end = performance.now() + Math.max(left, firstDelay);
    for (let delay = firstDelay; ; delay = Math.min(2 * delay, LONGEST_POLL)) {
      const rest = end - performance.now();
      await pause(Math.min(delay, rest), this.#waiting.signal);
      if (rest <= delay) return true;
      const call = (await this.#pollOwed()).find((owed) => owed.id === id);
      if (!call?.claimedUntil) return call !== undefined;
    }
  }

  /**
   * @returns {Promise<OwedCall[]>} the calls that are owed now; one request serves all waiting
   *   calls
   */
  #pollOwed() {
    this.#polling ??= this.#readOwed().finally(() => (this.#polling = null));
    return this.#polling;
  }

  async #readOwed() {
    const { http, retry } = this.#parts;
    const { signal } = this.#waiting;
    const request = () => http.json(conversationPath(this.#conversationId), { signal });
    return readOwed((await withRetry(request, new Backoff(retry, signal))).owed);
  }

  /** @param {ClientEvent | {type: "failed", error: unknown}} one */
  #emit(one) {
    this.#queue.push(one);
    this.#wake();
  }
}

/**
 * @param {OwedCall} call
 * @param {CallAnswer} answer
 * @returns {ClientEvent}
 */
function eventOf({ id, name }, answer) {
  const call = { toolCallId: id, toolCallName: name };
  if ("message" in answer) {
    const { content, isError = false } = answer.message;
    return { type: "client-tool-result", ...call, content, isError };
  }
  const { approved, reason = "" } = answer.resume.payload;
  return { type: "client-decision", ...call, approved, reason };
}
