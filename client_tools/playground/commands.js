/** Offers the slash commands of the agent while the first word of a message is written. */

import { escapeInvisible } from "../js/src/index.js";
import { el, need } from "./dom.js";

/** @typedef {{name: string, description: string}} Command */

/** @type {Record<string, 1 | -1>} */
const STEPS = { ArrowDown: 1, ArrowUp: -1 };

/**
 * @param {string} text as written so far
 * @param {readonly Command[]} commands
 * @returns {readonly Command[]} those that it may become
 */
export function matching(text, commands) {
  const start = /^\/([a-z0-9_-]*)$/.exec(text)?.[1];
  return start === undefined ? [] : commands.filter(({ name }) => name.startsWith(start));
}

export class CommandMenu {
  #field = need("#message", HTMLTextAreaElement);
  #list = need("#commands", HTMLElement);
  #count = need("#commands-count", HTMLElement);
  /** @type {readonly Command[]} */
  #offered = [];
  #active = 0;
  #commands;
  #onChosen;

  /**
   * @param {() => readonly Command[]} commands of the agent that will answer
   * @param {(text: string) => void} onChosen called with the text for the field
   */
  constructor(commands, onChosen) {
    this.#commands = commands;
    this.#onChosen = onChosen;
    this.#field.addEventListener("input", () => this.#offer());
    this.#field.addEventListener("blur", () => this.#close());
    // before Enter sends the message
    this.#field.addEventListener("keydown", (event) => this.#onKey(event), { capture: true });
    // the field keeps the focus
    this.#list.addEventListener("mousedown", (event) => event.preventDefault());
  }

  #offer() {
    const offered = matching(this.#field.value, this.#commands());
    const isWritten = offered.length === 1 && this.#field.value === `/${offered[0]?.name}`;
    this.#offered = isWritten ? [] : offered;
    this.#active = 0;
    this.#show();
  }

  #close() {
    this.#offered = [];
    this.#show();
  }

  #show() {
    const options = this.#offered.map(({ name, description }, index) => {
      const option = el(
        "li",
        { onClick: () => this.#choose(index) },
        el("strong", {}, `/${escapeInvisible(name)}`),
        el("span", { class: "about" }, escapeInvisible(description)),
      );
      option.id = `command-${index}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", String(index === this.#active));
      return option;
    });
    this.#list.replaceChildren(...options);
    this.#list.hidden = options.length === 0;
    const count = options.length === 1 ? "1 command" : `${options.length} commands`;
    this.#count.textContent = options.length === 0 ? "" : `${count}: arrows choose, Enter takes it`;
    if (options.length === 0) this.#field.removeAttribute("aria-activedescendant");
    else this.#field.setAttribute("aria-activedescendant", `command-${this.#active}`);
    options[this.#active]?.scrollIntoView({ block: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (this.#offered.length === 0 || event.isComposing || event.shiftKey) return;
    const step = STEPS[event.key];
    if (step !== undefined) {
      this.#active = (this.#active + step + this.#offered.length) % this.#offered.length;
      this.#show();
    } else if (event.key === "Enter" || event.key === "Tab") this.#choose(this.#active);
    else if (event.key === "Escape") this.#close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  /** @param {number} index */
  #choose(index) {
    const command = this.#offered[index];
    this.#close();
    if (command) this.#onChosen(`/${command.name} `);
  }
}
