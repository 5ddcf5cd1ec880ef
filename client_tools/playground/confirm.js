/** A dialog that asks for a confirmation, one question after the other. */

import { escapeProse } from "../js/src/index.js";
import { need } from "./dom.js";

export class ConfirmDialog {
  #dialog;
  #question;
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();

  /**
   * @param {string} dialog a selector
   * @param {string} question the selector of the element that shows the text
   */
  constructor(dialog, question) {
    this.#dialog = need(dialog, HTMLDialogElement);
    this.#question = need(question, HTMLElement);
  }

  /**
   * A question waits until the one before has been closed: the browser says so later than it hides
   * the dialog.
   * @param {string} question
   * @param {AbortSignal} [signal]
   * @returns {Promise<boolean>} false also if the dialog is dismissed
   * @throws the signal's reason, if the question is withdrawn
   */
  ask(question, signal) {
    const answer = this.#turn.then(() => this.#show(question, signal));
    this.#turn = answer.catch(() => {});
    return answer;
  }

  /**
   * @param {string} question
   * @param {AbortSignal} [signal]
   * @returns {Promise<boolean>}
   */
  #show(question, signal) {
    signal?.throwIfAborted();
    this.#question.textContent = escapeProse(question);
    this.#dialog.returnValue = "";
    this.#dialog.showModal();
    return new Promise((resolve, reject) => {
      const withdraw = () => this.#dialog.close("withdrawn");
      signal?.addEventListener("abort", withdraw, { once: true });
      const onClose = () => {
        signal?.removeEventListener("abort", withdraw);
        if (signal?.aborted) reject(signal.reason);
        else resolve(this.#dialog.returnValue === "confirmed");
      };
      this.#dialog.addEventListener("close", onClose, { once: true });
    });
  }
}
