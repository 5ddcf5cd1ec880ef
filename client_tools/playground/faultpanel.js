/** The panel of the fault switches, beside the time line. */

import { need } from "./dom.js";
import { FaultyFetch, OFF } from "./faults.js";

/** @typedef {keyof import("./faults.js").Switches} Name */

/** Switches of the panel. */
const NUMBERS = /** @type {const} */ (["cutAfter", "delayFirst", "delay", "retryAfter"]);

export class FaultPanel {
  #badge = need("#faults-count", HTMLElement);
  #form = need("#faults-form", HTMLFormElement);
  #faulty = new FaultyFetch(globalThis.fetch.bind(globalThis), () => this.#show());

  constructor() {
    this.#form.addEventListener("input", () => this.#read());
    this.#form.addEventListener("reset", (event) => {
      event.preventDefault();
      this.#faulty.set(OFF);
      this.#show();
    });
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    // a browser may have kept what was in the fields before a reload
    this.#show();
  }

  /** The `fetch` for the clients of this page. */
  get fetch() {
    return this.#faulty.fetch;
  }

  /** @param {Name} name */
  #field(name) {
    return /** @type {HTMLInputElement | HTMLSelectElement} */ (
      this.#form.elements.namedItem(name)
    );
  }

  #read() {
    for (const name of NUMBERS) {
      const field = this.#field(name);
      // what is not a number within the field's bounds counts as off
      if (field.checkValidity()) this.#faulty.set({ [name]: Number(field.value) });
      else this.#faulty.set({ [name]: OFF[name] });
    }
    this.#faulty.set({
      refuse: Number(this.#field("refuse").value),
      lose: /** @type {HTMLInputElement} */ (this.#field("lose")).checked,
    });
    this.#showCount();
  }

  #show() {
    const { switches } = this.#faulty;
    for (const name of NUMBERS) {
      const value = switches[name];
      const isShown = value > 0 || name === "retryAfter";
      this.#field(name).value = isShown ? String(value) : "";
    }
    this.#field("refuse").value = String(switches.refuse);
    /** @type {HTMLInputElement} */ (this.#field("lose")).checked = switches.lose;
    this.#showCount();
  }

  #showCount() {
    const { count } = this.#faulty;
    this.#badge.textContent = count ? `${count} on` : "";
  }
}
