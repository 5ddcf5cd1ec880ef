/** The view of a run's frames as a chosen protocol sends them. */

import { findDialects, readRun, subscriptionOf } from "./dialects.js";
import { download, need } from "./dom.js";
import { Inspector } from "./inspector.js";
import { runsOf } from "./runs.js";

/** @typedef {import("./answers.js").AnswerLog} AnswerLog */
/** @typedef {import("./dialects.js").Access} Access */
/** @typedef {import("./dialects.js").Dialect} Dialect */
/** @typedef {import("./dialects.js").Wanted} Wanted */
/** @typedef {import("./recorder.js").RecordedStep} RecordedStep */

/**
 * @typedef {object} Place
 * @property {Omit<Access, "signal">} access
 * @property {string} conversation the one that is shown
 * @property {(signal: AbortSignal) => Promise<string | null>} readNewest returns its newest run
 */

/** Time until an exported file is released. */
const SAVED = 60_000; // milliseconds
/** Most frames that are kept. */
const MAX_FRAMES = 20_000;
const FORMAT = "passback-frames";

export class Wires {
  #runChoice = need("#wire-run", HTMLSelectElement);
  #wireChoice = need("#wire", HTMLSelectElement);
  #note = need("#wire-note", HTMLElement);
  #export = need("#export-frames", HTMLButtonElement);
  #frames;
  #log;
  #readPlace;
  #abort = new AbortController();
  /** @type {RecordedStep[]} */
  #steps = [];
  /** @type {Dialect[]} */
  #dialects = [];
  /** @type {Map<string, Wanted>} */
  #runs = new Map();
  #address = "";

  /**
   * @param {AnswerLog} log
   * @param {() => Place} readPlace
   */
  constructor(log, readPlace) {
    this.#log = log;
    this.#readPlace = readPlace;
    const counter = need("#wire-count", HTMLElement);
    this.#frames = new Inspector(need("#frames", HTMLElement), [counter], () => this.#steps);
    this.#runChoice.addEventListener("change", () => void this.#read());
    this.#wireChoice.addEventListener("change", () => void this.#read());
    need("#read-frames", HTMLElement).addEventListener("click", () => void this.show());
    this.#export.addEventListener("click", () => this.#save());
  }

  /** Offer what there is, and read the chosen run. */
  async show() {
    this.leave();
    const { signal } = this.#abort;
    const { access, conversation, readNewest } = this.#readPlace();
    this.#note.textContent = "Loading";
    try {
      const [dialects, newest] = await Promise.all([
        findDialects({ ...access, signal }),
        readNewest(signal).catch(() => null),
      ]);
      if (signal.aborted) return;
      this.#dialects = dialects;
      this.#offer(conversation, newest);
    } catch (error) {
      if (signal.aborted) return;
      this.#note.textContent = error instanceof Error ? error.message : String(error);
      return;
    }
    await this.#read();
  }

  /** Stop reading. */
  leave() {
    this.#abort.abort();
    this.#abort = new AbortController();
  }

  clear() {
    this.leave();
    this.#begin();
    this.#runs.clear();
    this.#runChoice.replaceChildren();
  }

  #begin() {
    this.#steps = [];
    this.#frames.clear();
    this.#export.disabled = true;
    this.#note.textContent = "";
  }

  /**
   * @param {string} conversation
   * @param {string | null} newest the newest run of the conversation
   */
  #offer(conversation, newest) {
    const [run, wire] = [this.#runChoice.value, this.#wireChoice.value];
    this.#runs = runsOf(this.#log, { conversation, newest });
    const runs = [...this.#runs].map(([name, { run: id }]) => new Option(name, id));
    this.#runChoice.replaceChildren(...runs);
    if ([...this.#runs.values()].some((each) => each.run === run)) this.#runChoice.value = run;
    const wires = this.#dialects.map(({ label, name }) => new Option(label, name));
    this.#wireChoice.replaceChildren(...wires);
    if (this.#dialects.some(({ name }) => name === wire)) this.#wireChoice.value = wire;
  }

  async #read() {
    this.leave();
    this.#begin();
    const { signal } = this.#abort;
    const wanted = [...this.#runs.values()].find(({ run }) => run === this.#runChoice.value);
    const dialect = this.#dialects.find(({ name }) => name === this.#wireChoice.value);
    if (!wanted || !dialect) {
      this.#note.textContent = "There is no run yet: send a message first.";
      return;
    }
    const isPart = dialect.name === "chat" && !subscriptionOf(wanted).isWhole;
    this.#note.textContent = isPart ? "The socket cannot send this run's chat:start again." : "";
    try {
      const { access } = this.#readPlace();
      const began = performance.timeOrigin + performance.now();
      for await (const step of readRun(dialect, wanted, { ...access, signal })) {
        this.#add(step, began);
        if (this.#steps.length >= MAX_FRAMES) {
          this.#note.textContent = `Only the first ${MAX_FRAMES} frames are shown.`;
          break;
        }
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /**
   * @param {import("./dialects.js").Reading} reading
   * @param {number} began
   */
  #add(reading, began) {
    if (reading.kind === "request") this.#address = reading.path;
    const time = performance.timeOrigin + performance.now();
    const request = reading.kind === "request" && { method: "GET", headers: {}, body: null };
    const step = { ...reading, ...request, time, exchange: 1 };
    const kept = /** @type {RecordedStep} */ ({ step, exchange: "1", at: time - began });
    this.#steps.push(kept);
    this.#frames.add(kept);
    this.#export.disabled = false;
  }

  #save() {
    const { value } = this.#wireChoice;
    const frames = this.#steps.flatMap(({ step, at }) =>
      step.kind === "frame" ? [{ at: Math.round(at * 10) / 10, id: step.id, data: step.data }] : [],
    );
    const file = { format: FORMAT, wire: value, request: this.#address, frames };
    download(JSON.stringify(file, null, 1), `passback-frames-${value}.json`, SAVED);
  }
}
