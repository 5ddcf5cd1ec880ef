/** What one run has said so far: its events go to the page, its calls are kept until they can be answered. */

import { asRecord, parseJson } from "./api.js";
import { isRewound } from "./follow.js";
import { fromEvent } from "./problems.js";

/** @typedef {import("./api.js").OwedCall} OwedCall */
/** @typedef {import("./problems.js").Problem} Problem */

/**
 * @typedef {object} RunView where a run's events are shown
 * @property {() => void} beginRun what is shown from now on is of one run
 * @property {() => void} dropRun take that back
 * @property {() => void} beginAnswer what follows belongs to another message
 * @property {(text: string) => void} addText
 * @property {(text: string) => void} addReasoning
 * @property {(id: string, name: string) => void} beginCall
 * @property {(id: string, delta: string) => void} addArguments
 * @property {(id: string, state: CallState) => void} setCallState
 * @property {(id: string, text: string, isError: boolean) => void} setResult
 * @property {(text: string) => void} addNote
 * @property {(problem: Problem) => void} addProblem
 */

/** @typedef {"writing" | "waiting" | "running" | "skipped" | "elsewhere"} CallState */

/** @type {Record<string, string>} how a run may end, where that needs a word */
const ENDINGS = {
  max_tokens: "The answer reached the model's limit and ends here.",
  max_turns: "The agent took as many steps as it may in one go. Send a message to let it continue.",
  refusal: "The model declined to answer.",
  budget: "The budget of this conversation is used up.",
  cancelled: "Stopped.",
};

export class Run {
  /** Whether an `error` event came. */
  failed = false;
  /** Whether it is in the queue, behind another run. */
  waits = false;

  #view;
  /** @type {Map<string, {name: string, arguments: string, ended: boolean, result: boolean}>} */
  #calls = new Map();

  /** @param {RunView} view */
  constructor(view) {
    this.#view = view;
    view.beginRun();
  }

  /** @returns {OwedCall[]} the complete calls that the server has not answered itself */
  get open() {
    return [...this.#calls]
      .filter(([, call]) => call.ended && !call.result)
      .map(([id, call]) => ({ id, name: call.name, arguments: call.arguments }));
  }

  /** What it has said is void; it comes again from its start. */
  anew() {
    this.#calls.clear();
    this.#view.dropRun();
  }

  /** @param {string} data an event's data; unknown events and fields are let through silently */
  feed(data) {
    const event = asRecord(parseJson(data));
    const id = String(event.toolCallId ?? "");
    switch (event.type) {
      case "message":
        return this.#view.beginAnswer();
      case "text":
        return this.#view.addText(String(event.content ?? ""));
      case "reasoning":
        return this.#view.addReasoning(String(event.delta ?? ""));
      case "tool-call-start":
        return this.#begin(id, String(event.toolCallName ?? ""));
      case "tool-call-args":
        return this.#extend(id, String(event.delta ?? ""));
      case "tool-call-end":
        return this.#end(id);
      case "tool-result":
        return this.#settle(id, String(event.result ?? ""));
      case "run-queued":
      case "run-start":
        this.waits = event.type === "run-queued";
        return;
      default:
        return isRewound(data) ? this.anew() : this.#finish(event);
    }
  }

  /** @param {Record<string, unknown>} event */
  #finish(event) {
    if (event.type === "interrupt") {
      this.#view.addNote("The agent waits for a decision that this page cannot give. Send a message to go on.");
    } else if (event.type === "error") {
      this.failed = true;
      this.#view.addProblem(fromEvent(event));
    } else if (event.type === "run-end") {
      const ending = ENDINGS[String(event.reason ?? event.outcome)];
      if (ending) this.#view.addNote(ending);
    }
  }

  /**
   * @param {string} id
   * @param {string} name
   */
  #begin(id, name) {
    this.#calls.set(id, { name, arguments: "", ended: false, result: false });
    this.#view.beginCall(id, name);
  }

  /**
   * @param {string} id
   * @param {string} delta
   */
  #extend(id, delta) {
    const call = this.#calls.get(id);
    if (!call) return;
    call.arguments += delta;
    this.#view.addArguments(id, delta);
  }

  /** @param {string} id */
  #end(id) {
    const call = this.#calls.get(id);
    if (!call) return;
    call.ended = true;
    this.#view.setCallState(id, "waiting");
  }

  /**
   * @param {string} id
   * @param {string} result
   */
  #settle(id, result) {
    const call = this.#calls.get(id);
    if (!call) return;
    call.result = true;
    this.#view.setResult(id, result, false);
  }
}
