/**
 * A bounded record of requests and frames, for the time line and as a file that can be replayed.
 */

import { asRecord, parseJson } from "../js/src/json.js";

/** @typedef {import("../js/src/index.js").TraceStep} TraceStep */

/**
 * @typedef {object} RecordedStep a step, and its place in the record
 * @property {TraceStep} step
 * @property {string} exchange one post or followed run, with its reconnects
 * @property {number} at milliseconds since the exchange began
 */

/**
 * @typedef {{start: number, kept: number}} Exchange its start, in milliseconds since 1970, and the
 *   number of its steps that are kept
 */

/** Most steps, and characters in them, that are kept; a tenth of the steps is dropped at once. */
export const MAX_STEPS = 20_000;
export const MAX_CHARS = 16 * 1024 * 1024;
const FORMAT = "passback-run";
const VERSION = 1;

export class Recorder {
  /** @type {RecordedStep[]} */
  steps = [];

  #onStep;
  #clients = 0;
  #chars = 0;
  /** @type {Map<string, Exchange>} */
  #exchanges = new Map();

  /** @param {(kept: RecordedStep) => void} onStep */
  constructor(onStep) {
    this.#onStep = onStep;
  }

  clear() {
    this.steps = [];
    this.#chars = 0;
    this.#exchanges.clear();
  }

  /** @returns {(step: TraceStep) => void} for the `trace` of one more client */
  tracer() {
    this.#clients += 1;
    const client = this.#clients;
    return (step) => this.#add(step, `${client}.${step.exchange}`);
  }

  /**
   * @param {TraceStep} step
   * @param {string} name
   */
  #add(step, name) {
    const exchange = this.#exchanges.get(name) ?? { start: step.time, kept: 0 };
    this.#exchanges.set(name, exchange);
    exchange.kept += 1;
    const kept = { step, exchange: name, at: Math.max(0, step.time - exchange.start) };
    this.steps.push(kept);
    this.#chars += charsOf(step);
    if (this.steps.length > MAX_STEPS || this.#chars > MAX_CHARS) this.#forget();
    this.#onStep(kept);
  }

  #forget() {
    const least = Math.ceil(this.steps.length / 10);
    let count = 0;
    while (count < this.steps.length - 1 && (count < least || this.#chars > MAX_CHARS)) {
      const old = /** @type {RecordedStep} */ (this.steps[count]);
      this.#chars -= charsOf(old.step);
      this.#leave(old);
      count += 1;
    }
    this.steps = this.steps.slice(count);
  }

  /** @param {RecordedStep} old */
  #leave({ exchange: name }) {
    const exchange = this.#exchanges.get(name);
    if (!exchange) return;
    exchange.kept -= 1;
    if (exchange.kept === 0) this.#exchanges.delete(name);
  }

  /**
   * Return the posts and runs whose beginning is still kept, as the file that
   * docs/how-to/playground.md describes.
   *
   * @returns {object | null} null when there is none
   */
  export() {
    const begun = new Map(
      this.steps.flatMap((kept) =>
        kept.at === 0 && isOfRun(kept.step) ? [[kept.exchange, [kept]]] : [],
      ),
    );
    if (begun.size === 0) return null;
    for (const kept of this.steps) {
      if (kept.at > 0 || kept.step.kind !== "request") begun.get(kept.exchange)?.push(kept);
    }
    const starts = [...begun.keys()].map((name) => this.#exchanges.get(name)?.start ?? 0);
    const first = Math.min(...starts);
    const exchanges = [...begun.values()].map((steps, index) =>
      exportOf(steps, (starts[index] ?? 0) - first),
    );
    return {
      format: FORMAT,
      version: VERSION,
      startedAt: new Date(first).toISOString(),
      exchanges,
    };
  }
}

/** @typedef {{status: number, headers: object, body: unknown}} ExportedResponse */

/**
 * @param {RecordedStep[]} steps of one exchange, which begins with its request
 * @param {number} at
 */
function exportOf(steps, at) {
  /** @type {{at: number, id: string, data: string}[]} */
  const frames = [];
  /** @type {{at: number, after: number, message: string, response: ExportedResponse | null}[]} */
  const cuts = [];
  /** @type {object | null} */
  let request = null;
  /** @type {ExportedResponse | null} */
  let response = null;
  /** @type {ExportedResponse | null} of the current attempt */
  let latest = null;
  for (const { step, at: time } of steps) {
    if (step.kind === "frame") {
      frames.push({ at: rounded(time), id: step.id, data: step.data });
    } else if (step.kind === "lost") {
      const { message } = step;
      cuts.push({ at: rounded(time), after: frames.length, message, response: latest });
      latest = null;
    } else if (step.kind === "request") {
      request ??= requestOf(step);
    } else {
      latest = responseOf(step);
      // of several attempts, keep the one with a stream
      if (response?.status !== 200) response = latest;
    }
  }
  return { at: rounded(at), request, response, frames, cuts };
}

/** @param {Extract<TraceStep, {kind: "request"}>} step */
function requestOf({ method, path, headers, body }) {
  const named = Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
  return { method, path, headers: named, body: body === null ? null : parseJson(body) };
}

/** @param {Extract<TraceStep, {kind: "response"}>} step */
function responseOf({ status, headers, body }) {
  return { status, headers, body: body === null ? null : (parseJson(body) ?? body) };
}

/** @param {TraceStep} step */
function isOfRun(step) {
  return (
    step.kind === "request" &&
    (step.path.endsWith("/send-message") || /^\/conversations\/[^/]+\/stream(\?|$)/.test(step.path))
  );
}

/** @param {TraceStep} step */
function charsOf(step) {
  if (step.kind === "frame") return step.data.length + step.id.length;
  return step.kind === "lost" ? step.message.length : (step.body?.length ?? 0);
}

/** @param {number} milliseconds to the tenth */
function rounded(milliseconds) {
  return Math.round(10 * milliseconds) / 10;
}

/**
 * @param {string} data of a frame
 * @returns {Record<string, unknown>} the event, empty if it is not one
 */
export function eventOf(data) {
  return asRecord(parseJson(data));
}
