/** The message field, its buttons, and the choice to queue a message or to interrupt an answer. */

import { Attachments } from "./attachments.js";
import { need } from "./dom.js";

/** @typedef {import("./editor.js").OnBusy} OnBusy */
/** @typedef {import("./parts.js").Medium} Medium */
/** @typedef {{text: string, attached: readonly Medium[]}} Draft */

const OFFER = "An answer is coming. Queue the message behind it, or interrupt it?";
const EMPTY = "Nothing to send: write a message, or attach a file.";
const READING = "The attachments are still being read.";

export class Composer {
  #form = need("#composer", HTMLFormElement);
  #field = need("#message", HTMLTextAreaElement);
  #send = need("#send", HTMLButtonElement);
  #stop = need("#stop", HTMLButtonElement);
  #unready = need("#unready", HTMLElement);
  #why = need("#offer-why", HTMLElement);
  #choices = need("#offer-choices", HTMLElement);
  #queue = need("#queue", HTMLButtonElement);
  #interrupt = need("#interrupt", HTMLButtonElement);
  #busy = false;
  attachments = new Attachments({
    onChange: () => this.#fit(),
    onFocusLost: () => this.focus(),
  });

  /**
   * @param {object} handlers
   * @param {(draft: Draft) => void} handlers.onSend
   * @param {(draft: Draft, onBusy: OnBusy) => void} handlers.onMeanwhile a message during an answer
   * @param {() => void} handlers.onStop
   */
  constructor({ onSend, onMeanwhile, onStop }) {
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.#isReady) return this.#explain();
      if (this.#busy) this.#offer(true);
      else onSend(this.#take());
    });
    const choose = (/** @type {OnBusy} */ onBusy) => {
      if (!this.#isReady) return;
      onMeanwhile(this.#take(), onBusy);
      this.focus();
    };
    this.#queue.addEventListener("click", () => choose("enqueue"));
    this.#interrupt.addEventListener("click", () => choose("interrupt"));
    for (const element of [this.#field, this.#choices]) {
      element.addEventListener("keydown", (event) => {
        if (event.key === "Escape") this.#offer(false);
      });
    }
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#form.requestSubmit();
    });
    this.#field.addEventListener("input", () => this.#fit());
    this.#stop.addEventListener("click", onStop);
    this.#fit();
  }

  /** @param {string} text */
  set text(text) {
    this.#field.value = text;
    this.#fit();
  }

  /**
   * Put a message that was refused back, in front of what was written meanwhile.
   *
   * @param {Draft} draft
   */
  restore({ text, attached }) {
    const written = this.#words === text ? "" : this.#words;
    this.text = [text, written].filter(Boolean).join("\n");
    this.attachments.restore(attached);
    this.focus();
  }

  /** @param {string} text to follow what is written */
  add(text) {
    this.text = [this.#words, text].filter(Boolean).join("\n");
    this.focus();
  }

  /** @param {boolean} busy shows the stop button; the field stays open for the next message */
  set busy(busy) {
    if (busy === this.#busy) return;
    this.#busy = busy;
    const stopHadFocus = document.activeElement === this.#stop;
    this.#send.hidden = busy;
    this.#stop.hidden = !busy;
    if (!busy) this.#offer(false);
    this.#fit();
    if (stopHadFocus) this.focus();
  }

  /**
   * @param {boolean} taken whether the server has accepted the previous message, so that another
   *   may follow
   */
  set taken(taken) {
    this.#queue.disabled = !taken;
    this.#interrupt.disabled = !taken;
  }

  focus() {
    this.#field.focus();
  }

  get #words() {
    return this.#field.value.trim();
  }

  /** Whether there is a message, and it can be sent. */
  get #isReady() {
    return this.attachments.isReady && !this.#isEmpty;
  }

  get #isEmpty() {
    return this.#words === "" && this.attachments.isEmpty;
  }

  /** Say why nothing is sent; that the model takes no such files is said beside them. */
  #explain() {
    if (this.#isEmpty) this.#unready.textContent = EMPTY;
    else if (this.attachments.areBeingRead) this.#unready.textContent = READING;
    this.focus();
  }

  /** @returns {Draft} */
  #take() {
    const draft = { text: this.#words, attached: this.attachments.take() };
    this.text = "";
    return draft;
  }

  /** @param {boolean} isOpen whether the choices are shown; the message stays in the field */
  #offer(isOpen) {
    if (isOpen !== this.#choices.hidden) return;
    const hadFocus = this.#choices.contains(document.activeElement);
    this.#why.textContent = isOpen ? OFFER : "";
    this.#choices.hidden = !isOpen;
    if (hadFocus) this.focus();
  }

  /** Make the field as high as its text, up to the limit of the style sheet. */
  #fit() {
    this.#send.disabled = !this.#isReady;
    this.#unready.textContent = "";
    if (this.#send.disabled) this.#offer(false);
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }
}
