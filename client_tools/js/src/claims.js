/** Claims: of the clients that see an owed call, one runs it. The server keeps them; a result counts with or without one. */

import { ApiError, isSettled } from "./errors.js";
import { Backoff, pause, persist } from "./retry.js";
import { Aborter } from "./signals.js";
import { conversationPath, randomId } from "./wire.js";

/** @typedef {import("./http.js").Http} Http */
/** @typedef {import("./retry.js").Retry} Retry */

/** @typedef {Claim | {left: number} | "settled"} Claimed ours; another client's, for so many seconds; nobody's any more */

/** A server that is older than claims, or plays a recording, has no such address. */
const WITHOUT_CLAIMS = new Set(["not_found", "http_404", "method_not_allowed", "http_405"]);

export class Claims {
  #claimant = randomId();
  #http;
  #retry;
  #seconds;

  /**
   * @param {Http} http
   * @param {Retry} retry
   * @param {number} seconds that a claim lasts without being renewed; 0: no call is claimed
   */
  constructor(http, retry, seconds) {
    this.#http = http;
    this.#retry = retry;
    this.#seconds = seconds;
  }

  /**
   * @param {string} conversationId
   * @param {string} callId
   * @param {AbortSignal} signal gives up; what was claimed by then is given back
   * @returns {Promise<Claimed>}
   * @throws {import("./errors.js").PassbackError} or the signal's reason
   */
  async take(conversationId, callId, signal) {
    if (this.#seconds === 0) return new Claim();
    const path = `${conversationPath(conversationId)}/tool-calls/${encodeURIComponent(callId)}/claim`;
    try {
      await this.#post(path, signal);
    } catch (error) {
      // the request may have arrived
      if (signal.aborted) this.#drop(path);
      return this.#refused(error);
    }
    const claim = new Claim(() => this.#drop(path));
    void this.#renew(path, claim);
    return claim;
  }

  /** @param {unknown} error */
  #refused(error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.code === "call_claimed") return { left: error.retryAfter ?? this.#seconds };
    if (isSettled(error)) return "settled";
    if (WITHOUT_CLAIMS.has(error.code)) return new Claim();
    throw error;
  }

  /**
   * @param {string} path
   * @param {AbortSignal} signal
   */
  #post(path, signal) {
    const body = { claimant: this.#claimant, seconds: this.#seconds };
    return persist(
      () => this.#http.json(path, { method: "POST", body, signal }),
      new Backoff(this.#retry, signal, true),
    );
  }

  /**
   * Until it is given back or has ended. A claim that is lost to another client says so to nobody: the tool runs, and
   * the first result counts.
   *
   * @param {string} path
   * @param {Claim} claim
   */
  async #renew(path, claim) {
    const { signal } = claim.renewing;
    try {
      for (;;) {
        await pause((1000 * this.#seconds) / 3, signal);
        await this.#post(path, signal);
      }
    } catch (error) {
      if (isSettled(error)) claim.settle();
    }
  }

  /** @param {string} path */
  #drop(path) {
    const { signal } = new AbortController();
    const query = `claimant=${encodeURIComponent(this.#claimant)}`;
    // a claim that cannot be given back lapses; a page that goes away must not take the request with itself
    this.#http
      .json(`${path}?${query}`, { method: "DELETE", signal, keepalive: true })
      .catch(() => {});
  }
}

/** The right to run one call. */
export class Claim {
  /** Ends with the claim. */
  renewing = new Aborter();
  /** Whether somebody else has answered the call. */
  isSettled = false;
  /** Is called when somebody else has. */
  onSettled = () => {};

  #drop;

  /** @param {() => void} [drop] tells the server; without it, there is nothing to tell */
  constructor(drop = () => {}) {
    this.#drop = drop;
  }

  settle() {
    this.isSettled = true;
    this.end();
    this.onSettled();
  }

  /** Nobody runs the call: another client may. */
  giveBack() {
    const isHeld = !this.renewing.signal.aborted;
    this.end();
    if (isHeld) this.#drop();
  }

  /** The call is answered. */
  end() {
    this.renewing.close();
  }
}
