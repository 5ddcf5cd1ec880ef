/** One tool call: its name, its arguments as they are written, where it runs, its result, or a form for it. */

import { asRecord, parseJson } from "../js/src/json.js";
import { el, icon } from "./dom.js";
import { isOurs } from "./tools.js";

/** @typedef {import("./run.js").CallState} CallState */

/** @typedef {(content: string, isError: boolean) => void} OnAnswer */

/** Characters of arguments that are left in one line. */
const MAX_ONE_LINE = 80;

export class ToolCard {
  element;

  #ours;
  #state = el("span", { class: "state" });
  #arguments = document.createTextNode("");
  #body;
  #onAnswer;

  /**
   * @param {string} name
   * @param {OnAnswer} onAnswer the user has written a result
   */
  constructor(name, onAnswer) {
    this.#onAnswer = onAnswer;
    this.#ours = isOurs(name);
    const head = el("header", {}, icon("tool"), el("code", { class: "tool-name" }, name), this.#state);
    this.#body = el("div", { class: "tool-body" }, block("Arguments", this.#arguments));
    this.element = el("section", { class: "tool", label: `Tool call ${name}` }, head, this.#body);
    this.setState("writing");
  }

  /** @param {string} delta */
  addArguments(delta) {
    this.#arguments.appendData(delta);
  }

  /** @param {string} text as the server has them, whole */
  setArguments(text) {
    this.#arguments.data = text;
    this.#tidy();
  }

  /** Nobody waits for a result by hand any more. */
  withdraw() {
    this.#body.querySelector("form")?.remove();
  }

  /** @param {CallState} state */
  setState(state) {
    // what the user is writing stays
    if (this.element.dataset.state === state) return;
    /** @type {Record<CallState, string>} */
    const labels = {
      writing: "writing the arguments",
      waiting: this.#ours ? "for this page" : "on its way",
      running: "running in this page",
      skipped: "not answered",
      elsewhere: "waits for another client",
    };
    if (state !== "writing") this.#tidy();
    this.withdraw();
    if (state === "elsewhere" || state === "skipped") this.#body.append(this.#form());
    this.#show(state, labels[state]);
  }

  /**
   * @param {string} text
   * @param {boolean} isError
   */
  setResult(text, isError) {
    this.#tidy();
    this.withdraw();
    this.#body.querySelector(".result")?.remove();
    const result = block(isError ? "Error" : "Result", document.createTextNode(text));
    result.classList.add("result");
    this.#body.append(result);
    const place = this.#ours ? "ran in this page" : "ran on the server";
    this.#show(isError ? "failed" : "done", isError ? "failed" : place);
  }

  #form() {
    const words = el("textarea", { label: "Result of the call" });
    words.rows = 2;
    const failed = el("input", { type: "checkbox" });
    const form = el(
      "form",
      { class: "answer-form" },
      words,
      el("label", {}, failed, "The tool failed"),
      el("button", { class: "button small", type: "submit" }, "Answer"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#onAnswer(words.value, failed.checked);
    });
    return form;
  }

  /** @param {string} reason */
  explain(reason) {
    this.#show("skipped", reason);
  }

  /** Complete arguments are laid out for reading. */
  #tidy() {
    const value = asRecord(parseJson(this.#arguments.data));
    const isShort = this.#arguments.length <= MAX_ONE_LINE;
    if (Object.keys(value).length > 0 && !isShort) this.#arguments.data = JSON.stringify(value, null, 2);
  }

  /**
   * @param {CallState | "done" | "failed"} state
   * @param {string} label
   */
  #show(state, label) {
    this.element.dataset.state = state;
    this.#state.textContent = label;
  }
}

/**
 * @param {string} title
 * @param {Text} text
 */
function block(title, text) {
  return el("div", { class: "block" }, el("span", { class: "block-title" }, title), el("pre", {}, text));
}
