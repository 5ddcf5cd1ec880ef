/** The card of a tool call: its name, arguments, state, and result or a form for it. */

import { escapeInvisible, escapeProse, formatArguments, readQuestions } from "../js/src/index.js";
import {
  approvalForm,
  questionForm,
  readDraft,
  restoreDraft,
  resultForm,
  runForm,
} from "./asks.js";
import { el, icon, isolateStrings } from "./dom.js";
import { Prose } from "./prose.js";
import { mediaList } from "./media.js";
import { readResult } from "./parts.js";
import { isOurs } from "./tools.js";

/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("./asks.js").Draft} Draft */
/** @typedef {import("./asks.js").OnReply} OnReply */
/** @typedef {import("./run.js").CallState} CallState */

export class ToolCard {
  element;

  #ours;
  /** The tool's name, or its name for people. */
  #name;
  #state = el("span", { class: "state" });
  /** The arguments as the model wrote them. */
  #arguments = "";
  /** The text node that shows the arguments while they arrive. */
  #writing = document.createTextNode("");
  #written = el("pre", {}, this.#writing);
  /** The arguments that are shown formatted. */
  #laidOut = "";
  #warning = el("p", { class: "warning" });
  #duration = el("span", { class: "duration" });
  #body;
  /** Text and calls of the sub-agent that works on it. */
  #within = el("div", { class: "within" });
  /** @type {Prose | null} text of the sub-agent, to which more is appended */
  #words = null;
  #progress = el("p", { class: "progress" });
  #onReply;
  #onRun;
  /** Label for the place of a result. */
  #place;
  #denied = false;
  /** @type {HTMLFormElement | null} the form for an answer */
  #form = null;
  /** @type {Draft | null} what a person has written, while there is no form */
  #draft;

  /**
   * @param {string} name
   * @param {OnReply} onReply called with the user's answer in a form
   * @param {() => void} onRun called when the user lets this page run the tools of the conversation
   * @param {Draft | null} [draft] of an earlier card of the same call
   */
  constructor(name, onReply, onRun, draft = null) {
    this.#onReply = onReply;
    this.#draft = draft;
    this.#onRun = onRun;
    this.#ours = isOurs({ name });
    const shown = escapeInvisible(name);
    this.#name = el("code", { class: "tool-name", title: shown }, shown);
    const head = el("header", {}, icon("tool"), this.#name, this.#state, this.#duration);
    this.#body = el("div", { class: "tool-body" }, block("Arguments", this.#written));
    this.element = el("section", { class: "tool", label: `Tool call ${shown}` }, head, this.#body);
    // it may change many times a second
    this.#progress.setAttribute("aria-live", "off");
    this.#place = this.#ours ? "ran in this page" : "ran on the server";
    this.setState("writing");
  }

  /** @param {string} title shown in place of the tool's name */
  setTitle(title) {
    this.#name.textContent = escapeInvisible(title);
  }

  /** @param {number} milliseconds that the tool worked */
  setDuration(milliseconds) {
    const seconds = (milliseconds / 1000).toFixed(1);
    this.#duration.textContent = milliseconds < 1000 ? `${milliseconds} ms` : `${seconds} s`;
  }

  /** @param {string} delta */
  addArguments(delta) {
    this.#arguments += delta;
    this.#writing.appendData(escapeProse(delta));
  }

  /** @param {string} text complete arguments, from the server */
  setArguments(text) {
    this.#arguments = text;
    this.#layOutArguments();
  }

  /**
   * @param {string} text of a sub-agent
   * @returns {HTMLElement} the element that shows it
   */
  addWords(text) {
    if (!this.#words?.element.isConnected) {
      this.#words = new Prose();
      this.#add(this.#words.element);
    }
    this.#words.add(text);
    return this.#words.element;
  }

  /** Start a new paragraph for the sub-agent's next text. */
  endWords() {
    this.#words?.end();
    this.#words = null;
  }

  /** @param {ToolCard} card of a sub-agent's call */
  nest(card) {
    this.endWords();
    this.#add(card.element);
  }

  /** @param {HTMLElement} element */
  #add(element) {
    if (!this.#within.isConnected) {
      this.#body.insertBefore(
        this.#within,
        this.#body.querySelector(":scope > .block")?.nextSibling ?? null,
      );
    }
    this.#within.append(element);
  }

  /** @param {string} text */
  setProgress(text) {
    this.#progress.textContent = text;
    if (!this.#progress.isConnected) this.#body.append(this.#progress);
  }

  /** What a person has written into the form and not sent, for a new card of the same call. */
  get draft() {
    return this.#form ? readDraft(this.#form) : this.#draft;
  }

  #removeForm() {
    this.#draft = this.draft;
    this.#form?.remove();
    this.#form = null;
  }

  /** @param {HTMLFormElement} form */
  #addForm(form) {
    this.#body.append(form);
    this.#form = form;
    if (this.#draft) restoreDraft(form, this.#draft);
    this.#draft = null;
  }

  /** Remove the form: no answer by hand is needed any more. What was written stays to be read. */
  withdraw() {
    this.#removeForm();
    if (!this.#draft?.words || this.#body.querySelector(":scope > .unsent")) return;
    const unsent = block("Not sent", el("pre", {}, escapeProse(this.#draft.words)));
    unsent.classList.add("unsent");
    this.#body.append(unsent);
  }

  /** Remove the form, and forget what was written: it was sent. */
  settle() {
    this.#removeForm();
    this.#draft = null;
  }

  /** @param {CallState} state */
  setState(state) {
    // keep the text that the user is writing
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
    if (state !== "writing") this.#layOutArguments();
    this.#removeForm();
    this.#show(state, labels[state]);
    if (state === "elsewhere" || state === "skipped") this.#addForm(resultForm(this.#onReply));
  }

  /**
   * Show that the call is owed, with a form if a person may answer it.
   *
   * @param {OwedCall} call
   */
  owe({ kind, arguments: text, reason = "" }) {
    this.setArguments(text);
    // a person decides on the tool itself, whatever it is called for people
    if (kind === "approval") this.setTitle(this.#name.title);
    else this.setClients();
    const questions = kind === "question" ? readQuestions(text) : null;
    if (kind === "approval") this.#ask("approval", () => approvalForm(reason, this.#onReply));
    else if (questions) this.#ask("question", () => questionForm(questions, this.#onReply));
    else this.setState("elsewhere");
  }

  /**
   * Ask a person to let this page run the call.
   *
   * @param {string} text of its arguments
   */
  askToRun(text) {
    this.setArguments(text);
    this.#ask("unrun", () => runForm(this.#onRun));
  }

  /**
   * @param {"approval" | "question" | "unrun"} state
   * @param {() => HTMLFormElement} form
   */
  #ask(state, form) {
    if (this.element.dataset.state === state) return;
    this.setState(state);
    this.#addForm(form());
  }

  /**
   * Show a person's decision on the call.
   *
   * @param {boolean} approved
   */
  setDecision(approved) {
    this.#layOutArguments();
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
    this.#layOutArguments();
    this.withdraw();
    this.#progress.remove();
    this.#body.querySelector(":scope > .result")?.remove();
    const { text: words, media } = readResult(text);
    const shown = el("div", {}, el("pre", {}, words), ...mediaList(media));
    const result = block(isError ? "Error" : "Result", shown);
    result.classList.add("result");
    this.#body.append(result);
    if (this.#denied) return this.#show("skipped", "denied");
    this.#show(isError ? "failed" : "done", isError ? "failed" : this.#place);
  }

  /** Mark the call as one that a client answers. */
  setClients() {
    if (!this.#ours) this.#place = "answered";
  }

  /** @param {string} reason */
  explain(reason) {
    this.#show("skipped", reason);
  }

  /** Show complete arguments formatted, exactly as the tool gets them. */
  #layOutArguments() {
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
