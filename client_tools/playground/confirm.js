/** A confirmation dialog; simultaneous questions are asked one after the other. */

import { escapeProse } from "../js/src/index.js";
import { need } from "./dom.js";

export class ConfirmDialog {
  #dialog = need("#confirm", HTMLDialogElement);
  #question = need("#confirm-question", HTMLElement);
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();

  /**
   * @param {string} question
   * @param {AbortSignal} signal
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
   * @param {AbortSignal} signal
   * @returns {Promise<boolean>}
   */
  #show(question, signal) {
    signal.throwIfAborted();
    this.#question.textContent = escapeProse(question);
    this.#dialog.returnValue = "";
    this.#dialog.showModal();
    return new Promise((resolve, reject) => {
      const withdraw = () => this.#dialog.close("withdrawn");
      signal.addEventListener("abort", withdraw, { once: true });
      const onClose = () => {
        signal.removeEventListener("abort", withdraw);
        if (signal.aborted) reject(signal.reason);
        else resolve(this.#dialog.returnValue === "confirmed");
      };
      this.#dialog.addEventListener("close", onClose, { once: true });
    });
  }
}
