/**
 * Fault switches: a `fetch` that fails on purpose, so that a developer meets the hard cases with
 * any server. Only posts of messages, and the streams of their runs, are concerned.
 */

import { pause } from "../js/src/retry.js";

/** @typedef {typeof globalThis.fetch} Fetch */

/**
 * @typedef {object} Switches numbers are whole and at least 0; 0 is off
 * @property {number} cutAfter events after which each answer breaks off, once
 * @property {number} delayFirst milliseconds before each answer to a post begins
 * @property {number} delay milliseconds before each event
 * @property {number} refuse the status of the refusal of the next post, and of no more
 * @property {number} retryAfter seconds in the `Retry-After` of that refusal
 * @property {boolean} lose whether the answer to the next post is lost after the post has arrived,
 *   so that the client posts it twice
 */

/** @type {Readonly<Switches>} */
export const OFF = Object.freeze({
  cutAfter: 0,
  delayFirst: 0,
  delay: 0,
  refuse: 0,
  retryAfter: 1,
  lose: false,
});

/** Statuses of refusals, as a server means them. @type {Record<number, string>} */
export const REFUSALS = {
  409: "conversation_busy",
  429: "too_many_runs",
  503: "server_busy",
};

const STREAM = /\/conversations\/[^/]+\/stream$/;
/** Runs whose streams were cut; the oldest are forgotten. */
const MAX_RUNS = 1000;
/** A signal that is never aborted. */
const NEVER = new AbortController().signal;

export class FaultyFetch {
  /** @type {Switches} */
  #switches = { ...OFF };
  #fetch;
  #onUsed;
  /** Runs whose answer was cut. @type {Set<string>} */
  #cut = new Set();

  /**
   * @param {Fetch} fetch
   * @param {() => void} onUsed called when a switch for one post has turned itself off
   */
  constructor(fetch, onUsed) {
    this.#fetch = fetch;
    this.#onUsed = onUsed;
  }

  /** @returns {Readonly<Switches>} */
  get switches() {
    return this.#switches;
  }

  /** @returns {number} how many switches are on */
  get count() {
    const { cutAfter, delayFirst, delay, refuse, lose } = this.#switches;
    return [cutAfter, delayFirst, delay, refuse, lose].filter(Boolean).length;
  }

  /** @param {Partial<Switches>} change */
  set(change) {
    this.#switches = { ...this.#switches, ...change };
  }

  /** @type {Fetch} */
  fetch = async (input, init = {}) => {
    const path = new URL(String(input)).pathname;
    const isPost = init.method === "POST" && path.endsWith("/send-message");
    if (!isPost && !STREAM.test(path)) return this.#fetch(input, init);
    const { refuse, lose, delayFirst } = this.#switches;
    if (isPost && refuse) return this.#refuse(refuse);
    const response = await this.#fetch(input, init);
    if (isPost && lose && response.ok) {
      this.#use({ lose: false });
      response.body?.cancel().catch(() => {});
      throw new TypeError("a fault switch has lost the answer to this post");
    }
    const signal = init.signal ?? NEVER;
    if (isPost && delayFirst) await pause(delayFirst, signal);
    return this.#spoil(response, signal);
  };

  /** @param {Partial<Switches>} change of a switch for one post */
  #use(change) {
    this.set(change);
    this.#onUsed();
  }

  /** @param {number} status */
  #refuse(status) {
    const { retryAfter } = this.#switches;
    this.#use({ refuse: 0 });
    const id = `req_fault_${Date.now()}`;
    const message = `a fault switch of this page has refused the post with ${status}`;
    const body = { code: REFUSALS[status], message, request_id: id };
    const headers = { "Content-Type": "application/json", "X-Request-Id": id };
    return new Response(JSON.stringify(body), {
      status,
      headers: { ...headers, "Retry-After": String(retryAfter) },
    });
  }

  /**
   * Return the response with the faults that its stream is to have.
   *
   * @param {Response} response
   * @param {AbortSignal} signal of the request
   */
  #spoil(response, signal) {
    const { body, status, headers } = response;
    const { cutAfter, delay } = this.#switches;
    const run = headers.get("X-Run-Id") ?? "";
    const isStream = headers.get("Content-Type")?.startsWith("text/event-stream") ?? false;
    const cut = this.#cut.has(run) ? 0 : cutAfter;
    if (!isStream || !body || !(cut || delay)) return response;
    const onCut = () => this.#remember(run);
    const spoiler = new Spoiler({ cut, delay, signal, onCut });
    const spoiled = body.pipeThrough(new TransformStream(spoiler));
    return new Response(spoiled, { status, headers });
  }

  /** @param {string} run */
  #remember(run) {
    this.#cut.add(run);
    for (const oldest of this.#cut) {
      if (this.#cut.size <= MAX_RUNS) return;
      this.#cut.delete(oldest);
    }
  }
}

/**
 * Passes a stream of events on, event by event.
 *
 * @implements {Transformer<Uint8Array, Uint8Array>}
 */
class Spoiler {
  #cut;
  #delay;
  #signal;
  #onCut;
  #count = 0;
  #rest = "";
  #decoder = new TextDecoder();
  #encoder = new TextEncoder();

  /** @param {{cut: number, delay: number, signal: AbortSignal, onCut: () => void}} faults */
  constructor({ cut, delay, signal, onCut }) {
    this.#cut = cut;
    this.#delay = delay;
    this.#signal = signal;
    this.#onCut = onCut;
  }

  /**
   * @param {Uint8Array} bytes
   * @param {TransformStreamDefaultController<Uint8Array>} controller
   */
  async transform(bytes, controller) {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const blocks = this.#rest.split("\n\n");
    this.#rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const isEvent = /^data:/m.test(block);
      if (isEvent && this.#delay) await pause(this.#delay, this.#signal);
      controller.enqueue(this.#encoder.encode(`${block}\n\n`));
      if (!isEvent) continue;
      this.#count += 1;
      if (this.#count !== this.#cut) continue;
      this.#onCut();
      // an error would take back what is not read yet; an end without [DONE] is a cut, too
      return controller.terminate();
    }
  }

  /** @param {TransformStreamDefaultController<Uint8Array>} controller */
  flush(controller) {
    if (this.#rest) controller.enqueue(this.#encoder.encode(this.#rest));
  }
}
