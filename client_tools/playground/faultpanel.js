/** The panel of the fault switches, beside the time line. */

import { need } from "./dom.js";
import { FaultyFetch, OFF } from "./faults.js";

/** @typedef {keyof import("./faults.js").Switches} Name */

/** Switches of the panel, as they are named where one has a number that it cannot have. */
const NUMBERS = /** @type {const} */ ({
  cutAfter: "Breaks off after",
  delayFirst: "Begins later",
  delay: "Waits before each event",
  retryAfter: "Retry-After",
});
const NAMES = /** @type {(keyof typeof NUMBERS)[]} */ (Object.keys(NUMBERS));

export class FaultPanel {
  #why = need("#faults-why", HTMLElement);
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

  /** @param {keyof typeof NUMBERS} name */
  #number(name) {
    return /** @type {HTMLInputElement} */ (this.#field(name));
  }

  #read() {
    for (const name of NAMES) this.#faulty.set({ [name]: valueOf(this.#number(name), OFF[name]) });
    this.#faulty.set({
      refuse: Number(this.#field("refuse").value),
      lose: /** @type {HTMLInputElement} */ (this.#field("lose")).checked,
    });
    this.#showCount();
  }

  #show() {
    const { switches } = this.#faulty;
    for (const name of NAMES) {
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
    this.#showReasons();
  }

  /** Mark the fields with numbers that they cannot have, and say what holds instead. */
  #showReasons() {
    const reasons = NAMES.flatMap((name) => {
      const field = this.#number(name);
      const isValid = field.checkValidity();
      field.setAttribute("aria-invalid", String(!isValid));
      if (isValid) return [];
      const { min, max } = field;
      const value = valueOf(field, OFF[name]);
      const instead = value === 0 ? "it is off" : `${value} is used`;
      return `${NUMBERS[name]}: a whole number from ${min} to ${max}; until then, ${instead}.`;
    });
    const why = reasons.join(" ");
    if (this.#why.textContent !== why) this.#why.textContent = why;
  }
}

/**
 * @param {HTMLInputElement} field
 * @param {number} otherwise
 * @returns {number} its number; one that is too large is the largest, another one that the field
 *   cannot have is `otherwise`
 */
function valueOf(field, otherwise) {
  if (field.checkValidity()) return Number(field.value);
  return field.validity.rangeOverflow && otherwise > 0 ? Number(field.max) : otherwise;
}
