/** One tool call: its name, its arguments as they are written, where it runs, its result, or a form for it. */

import { escapeInvisible, escapeProse, formatArguments, readQuestions } from "../js/src/index.js";
import { approvalForm, questionForm, resultForm, runForm } from "./asks.js";
import { el, icon, isolateStrings } from "./dom.js";
import { isOurs } from "./tools.js";

/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("./asks.js").OnReply} OnReply */
/** @typedef {import("./run.js").CallState} CallState */

export class ToolCard {
  element;

  #ours;
  #state = el("span", { class: "state" });
  /** As the model wrote them. */
  #arguments = "";
  /** What of them is shown while they are written. */
  #writing = document.createTextNode("");
  #written = el("pre", {}, this.#writing);
  /** The arguments that are laid out. */
  #laidOut = "";
  #warning = el("p", { class: "warning" });
  #body;
  /** What a sub-agent says and does that works on it. */
  #within = el("div", { class: "within" });
  /** @type {Text | null} what it says now */
  #words = null;
  #progress = el("p", { class: "progress" });
  #onReply;
  #onRun;
  /** Where a result comes from. */
  #place;
  #denied = false;

  /**
   * @param {string} name
   * @param {OnReply} onReply the user has answered in a form
   * @param {() => void} onRun the user lets this page run the tools of the conversation
   */
  constructor(name, onReply, onRun) {
    this.#onReply = onReply;
    this.#onRun = onRun;
    this.#ours = isOurs({ name });
    const shown = escapeInvisible(name);
    const head = el(
      "header",
      {},
      icon("tool"),
      el("code", { class: "tool-name" }, shown),
      this.#state,
    );
    this.#body = el("div", { class: "tool-body" }, block("Arguments", this.#written));
    this.element = el("section", { class: "tool", label: `Tool call ${shown}` }, head, this.#body);
    // it may change many times a second
    this.#progress.setAttribute("aria-live", "off");
    this.#place = this.#ours ? "ran in this page" : "ran on the server";
    this.setState("writing");
  }

  /** @param {string} delta */
  addArguments(delta) {
    this.#arguments += delta;
    this.#writing.appendData(escapeProse(delta));
  }

  /** @param {string} text as the server has them, whole */
  setArguments(text) {
    this.#arguments = text;
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
    if (!this.#within.isConnected)
      this.#body.insertBefore(
        this.#within,
        this.#body.querySelector(":scope > .block")?.nextSibling ?? null,
      );
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
      unrun: "waits for you",
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
   * This page runs it when a person says so.
   *
   * @param {string} text of its arguments
   */
  askToRun(text) {
    this.setArguments(text);
    this.#ask("unrun", () => runForm(this.#onRun));
  }

  /**
   * @param {"approval" | "question" | "unrun"} state
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
    const result = block(isError ? "Error" : "Result", el("pre", {}, text));
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

  /** Complete arguments are written anew: what is read is what the tool gets. */
  #tidy() {
    if (this.#laidOut === this.#arguments) return;
    this.#laidOut = this.#arguments;
    const { text, repeated } = formatArguments(this.#arguments);
    this.#writing = document.createTextNode("");
    this.#written.replaceChildren(...isolateStrings(text), this.#writing);
    this.#warning.remove();
    if (repeated.length === 0) return;
    const keys = repeated.map((key) => JSON.stringify(key)).join(", ");
    this.#warning.textContent = escapeInvisible(
      `Given more than once: ${keys}. The tool gets the last value.`,
    );
    this.#written.parentElement?.before(this.#warning);
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
 * @param {HTMLElement} content
 */
function block(title, content) {
  return el("div", { class: "block" }, el("span", { class: "block-title" }, title), content);
}
