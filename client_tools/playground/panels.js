/** The views beside the chat: the time line, the waterfall, and the wires. */

import { need } from "./dom.js";
import { Waterfall } from "./waterfall.js";
import { Wires } from "./wires.js";

/** @typedef {import("./recorder.js").RecordedStep} RecordedStep */

export class Panels {
  #root = need(".events", HTMLElement);
  #waterfall = new Waterfall();
  #wires;

  /** @param {() => import("./wires.js").Place} readPlace */
  constructor(readPlace) {
    this.#wires = new Wires(this.#waterfall.log, readPlace);
    for (const button of this.#buttons) {
      button.addEventListener("click", () => this.#show(String(button.dataset.panel)));
    }
  }

  get #buttons() {
    return [...this.#root.querySelectorAll("button")].filter(({ dataset }) => dataset.panel);
  }

  /** @param {RecordedStep} kept */
  add(kept) {
    this.#waterfall.add(kept);
  }

  clear() {
    this.#waterfall.clear();
    this.#wires.clear();
  }

  /** @param {string} name */
  #show(name) {
    this.#root.dataset.shown = name;
    for (const button of this.#buttons) {
      button.setAttribute("aria-pressed", String(button.dataset.panel === name));
    }
    this.#waterfall.show(name === "waterfall");
    if (name === "wires") void this.#wires.show();
    else this.#wires.leave();
  }
}
