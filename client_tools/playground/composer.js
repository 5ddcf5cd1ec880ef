/** The message field and its two buttons. */

import { need } from "./dom.js";

export class Composer {
  #form = need("#composer", HTMLFormElement);
  #field = need("#message", HTMLTextAreaElement);
  #send = need("#send", HTMLButtonElement);
  #stop = need("#stop", HTMLButtonElement);
  #busy = false;

  /**
   * @param {object} handlers
   * @param {(text: string) => void} handlers.onSend
   * @param {() => void} handlers.onStop
   */
  constructor({ onSend, onStop }) {
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = this.#field.value.trim();
      if (text === "" || this.#busy) return;
      this.text = "";
      onSend(text);
    });
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

  /** @param {boolean} busy shows the stop button; the field stays open for the next message */
  set busy(busy) {
    if (busy === this.#busy) return;
    this.#busy = busy;
    const stopHadFocus = document.activeElement === this.#stop;
    this.#send.hidden = busy;
    this.#stop.hidden = !busy;
    this.#fit();
    if (stopHadFocus) this.focus();
  }

  focus() {
    this.#field.focus();
  }

  /** As high as its text, up to the limit of the style sheet. */
  #fit() {
    this.#send.disabled = this.#field.value.trim() === "";
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }
}
