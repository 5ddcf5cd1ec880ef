/**
 * Claims of owed calls: only one client runs a call. A result is accepted with or without a claim.
 */

import { ApiError, isSettled } from "./errors.js";
import { Backoff, pause, withRetry } from "./retry.js";
import { Aborter } from "./signals.js";
import { conversationPath, randomId } from "./wire.js";

/** @typedef {import("./http.js").Http} Http */
/** @typedef {import("./retry.js").Retry} Retry */

/**
 * @typedef {CallClaim | {left: number} | "settled"} Claimed ours; another client's, for `left`
 *   seconds; or the call is closed
 */

/** Errors of a server without claims, such as one that replays a recording. */
const WITHOUT_CLAIMS = new Set(["not_found", "http_404", "method_not_allowed", "http_405"]);

export class Claims {
  #claimant = randomId();
  #http;
  #retry;
  #seconds;

  /**
   * @param {Http} http
   * @param {Retry} retry
   * @param {number} seconds until a claim expires unless it is renewed; 0: claim nothing
   */
  constructor(http, retry, seconds) {
    this.#http = http;
    this.#retry = retry;
    this.#seconds = seconds;
  }

  /**
   * @param {string} conversationId
   * @param {string} callId
   * @param {AbortSignal} signal aborts; a claim made by then is released
   * @returns {Promise<Claimed>}
   * @throws {import("./errors.js").PassbackError} or the signal's reason
   */
  async claimCall(conversationId, callId, signal) {
    if (this.#seconds === 0) return new CallClaim();
    const call = `tool-calls/${encodeURIComponent(callId)}`;
    const path = `${conversationPath(conversationId)}/${call}/claim`;
    try {
      await this.#post(path, signal);
    } catch (error) {
      // the request may have arrived
      if (signal.aborted) this.#release(path);
      return this.#refused(error);
    }
    const claim = new CallClaim(() => this.#release(path));
    void this.#renew(path, claim);
    return claim;
  }

  /** @param {unknown} error */
  #refused(error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.code === "call_claimed") return { left: error.retryAfter ?? this.#seconds };
    if (isSettled(error)) return "settled";
    if (WITHOUT_CLAIMS.has(error.code)) return new CallClaim();
    throw error;
  }

  /**
   * @param {string} path
   * @param {AbortSignal} signal
   */
  #post(path, signal) {
    const body = { claimant: this.#claimant, seconds: this.#seconds };
    return withRetry(
      () => this.#http.json(path, { method: "POST", body, signal }),
      new Backoff(this.#retry, signal, true),
    );
  }

  /**
   * Renew the claim until it is released or has ended. A claim that another client took over is
   * ignored: the tool runs, and the first result counts.
   *
   * @param {string} path
   * @param {CallClaim} claim
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
  #release(path) {
    const { signal } = new AbortController();
    const query = `claimant=${encodeURIComponent(this.#claimant)}`;
    // a claim that cannot be released expires; the request must outlive the page
    this.#http
      .json(`${path}?${query}`, { method: "DELETE", signal, keepalive: true })
      .catch(() => {});
  }
}

/** The right to run one call. */
export class CallClaim {
  /** Aborted when the claim ends. */
  renewing = new Aborter();
  /** True once another client has answered the call. */
  isSettled = false;
  /** Called when another client has answered the call. */
  onSettled = () => {};

  #release;

  /** @param {() => void} [release] releases it on the server, if it was claimed there */
  constructor(release = () => {}) {
    this.#release = release;
  }

  settle() {
    this.isSettled = true;
    this.end();
    this.onSettled();
  }

  /** Let another client run the call. */
  release() {
    const isHeld = !this.renewing.signal.aborted;
    this.end();
    if (isHeld) this.#release();
  }

  /** Stop renewing: the call is answered. */
  end() {
    this.renewing.close();
  }
}
