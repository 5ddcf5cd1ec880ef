/** The dialog with the server's history, message by message, as raw JSON. */

import { escapeProse } from "../js/src/index.js";
import { el, need } from "./dom.js";
import { loadBetween } from "./history.js";
import { fromError } from "./problems.js";

/** @typedef {import("../js/src/index.js").Client} Client */

/** Number of messages that are shown of a long conversation. */
const NEWEST = 400;
const PREVIEW_CHARS = 200;
const MAX_CHARS = 100_000;

export class ServerRecord {
  #dialog = need("#record", HTMLDialogElement);
  #list = need("#record-list", HTMLElement);
  #count = need("#record-count", HTMLElement);
  #note = need("#record-note", HTMLElement);
  #read;
  #abort = new AbortController();

  /**
   * @param {() => {client: Client, id: string}} read returns the client and the conversation to
   *   show
   */
  constructor(read) {
    this.#read = read;
    need("#refresh-record", HTMLElement).addEventListener("click", () => void this.#load());
    need("#close-record", HTMLElement).addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("close", () => this.#abort.abort());
  }

  show() {
    this.#dialog.showModal();
    void this.#load();
  }

  async #load() {
    this.#abort.abort();
    const { signal } = (this.#abort = new AbortController());
    this.#note.textContent = "Loading";
    try {
      const { client, id } = this.#read();
      const state = await client.conversation(id, { signal });
      const first = Math.max(0, state.messageCount - NEWEST);
      const messages = await loadBetween(client, id, [first, state.messageCount], signal);
      this.#count.textContent =
        first > 0 ? `last ${messages.length} of ${state.messageCount}` : String(messages.length);
      const lines = messages.map((message, index) =>
        line(`${first + index + 1} ${String(message.role)}`, message),
      );
      this.#list.replaceChildren(line("the conversation", state), ...lines);
      this.#note.textContent = "";
    } catch (error) {
      if (signal.aborted) return;
      this.#list.replaceChildren();
      this.#count.textContent = "";
      this.#note.textContent = [fromError(error).title, fromError(error).message].join(". ");
    }
  }
}

/**
 * @param {string} label
 * @param {unknown} value
 */
function line(label, value) {
  const head = el("span", { class: "line-head" }, el("span", { class: "kind" }, label));
  const preview = el(
    "code",
    { class: "preview" },
    escapeProse(JSON.stringify(value).slice(0, PREVIEW_CHARS)),
  );
  const details = el("details", {}, el("summary", {}, head, preview));
  const body = () => escapeProse(JSON.stringify(value, null, 2).slice(0, MAX_CHARS));
  details.addEventListener("toggle", () => details.append(el("pre", {}, body())), { once: true });
  return el("li", { class: "line" }, details);
}
