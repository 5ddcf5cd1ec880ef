/** One tool call: its name, its arguments as they are written, where it runs, its result, or a form for it. */

import { readQuestions } from "../js/src/index.js";
import { asRecord, parseJson } from "../js/src/json.js";
import { approvalForm, questionForm, resultForm } from "./asks.js";
import { el, icon } from "./dom.js";
import { isOurs } from "./tools.js";

/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("./asks.js").OnReply} OnReply */
/** @typedef {import("./run.js").CallState} CallState */

/** Characters of arguments that are left in one line. */
const MAX_ONE_LINE = 80;

export class ToolCard {
  element;

  #ours;
  #state = el("span", { class: "state" });
  #arguments = document.createTextNode("");
  #body;
  /** What a sub-agent says and does that works on it. */
  #within = el("div", { class: "within" });
  /** @type {Text | null} what it says now */
  #words = null;
  #progress = el("p", { class: "progress" });
  #onReply;
  /** Where a result comes from. */
  #place;
  #denied = false;

  /**
   * @param {string} name
   * @param {OnReply} onReply the user has answered in a form
   */
  constructor(name, onReply) {
    this.#onReply = onReply;
    this.#ours = isOurs({ name });
    const head = el("header", {}, icon("tool"), el("code", { class: "tool-name" }, name), this.#state);
    this.#body = el("div", { class: "tool-body" }, block("Arguments", this.#arguments));
    this.element = el("section", { class: "tool", label: `Tool call ${name}` }, head, this.#body);
    // it may change many times a second
    this.#progress.setAttribute("aria-live", "off");
    this.#place = this.#ours ? "ran in this page" : "ran on the server";
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

  /**
   * @param {string} text that a sub-agent says
   * @returns {HTMLElement} where it is shown
   */
  addWords(text) {
    if (!this.#words?.isConnected) {
      this.#words = document.createTextNode("");
      this.#add(el("div", { class: "text" }, this.#words));
    }
    this.#words.appendData(text);
    return /** @type {HTMLElement} */ (this.#words.parentElement);
  }

  /** What the sub-agent says next stands for itself. */
  endWords() {
    this.#words = null;
  }

  /** @param {ToolCard} card of a call that a sub-agent makes */
  nest(card) {
    this.endWords();
    this.#add(card.element);
  }

  /** @param {HTMLElement} element */
  #add(element) {
    if (!this.#within.isConnected) this.#body.insertBefore(this.#within, this.#body.children[1] ?? null);
    this.#within.append(element);
  }

  /** @param {string} text */
  setProgress(text) {
    this.#progress.textContent = text;
    if (!this.#progress.isConnected) this.#body.append(this.#progress);
  }

  /** Nobody waits for a result by hand any more. */
  withdraw() {
    this.#body.querySelector(":scope > form")?.remove();
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
      approval: "waits for your decision",
      question: "waits for your answer",
      answered: "answered elsewhere",
    };
    if (state !== "writing") this.#tidy();
    this.withdraw();
    if (state === "elsewhere" || state === "skipped") this.#body.append(resultForm(this.#onReply));
    this.#show(state, labels[state]);
  }

  /**
   * Somebody has to answer it: a person at this page may.
   *
   * @param {OwedCall} call
   */
  owe({ kind, arguments: text, reason = "" }) {
    this.setArguments(text);
    if (kind !== "approval") this.setClients();
    const questions = kind === "question" ? readQuestions(text) : null;
    if (kind === "approval") this.#ask("approval", () => approvalForm(reason, this.#onReply));
    else if (questions) this.#ask("question", () => questionForm(questions, this.#onReply));
    else this.setState("elsewhere");
  }

  /**
   * @param {"approval" | "question"} state
   * @param {() => HTMLElement} form
   */
  #ask(state, form) {
    if (this.element.dataset.state === state) return;
    this.setState(state);
    this.#body.append(form());
  }

  /**
   * A person has decided whether it may be made.
   *
   * @param {boolean} approved
   */
  setDecision(approved) {
    this.#tidy();
    this.withdraw();
    if (approved) this.#place = "allowed, ran on the server";
    this.#denied = !approved;
    this.#show(approved ? "waiting" : "skipped", approved ? "allowed" : "denied");
  }

  /**
   * @param {string} text
   * @param {boolean} isError
   */
  setResult(text, isError) {
    this.#tidy();
    this.withdraw();
    this.#progress.remove();
    this.#body.querySelector(":scope > .result")?.remove();
    const result = block(isError ? "Error" : "Result", document.createTextNode(text));
    result.classList.add("result");
    this.#body.append(result);
    if (this.#denied) return this.#show("skipped", "denied");
    this.#show(isError ? "failed" : "done", isError ? "failed" : this.#place);
  }

  /** It is a client's to answer, and perhaps a person's. */
  setClients() {
    if (!this.#ours) this.#place = "answered";
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
