/** What the agent means to do, above the field for messages. */

import { el, need } from "./dom.js";

/** @typedef {import("../js/src/index.js").PlanEntry} PlanEntry */

/** @type {Record<string, string>} how a status reads */
const STATUS = { pending: "to do", in_progress: "at work", completed: "done" };

export class PlanList {
  #root = need("#plan", HTMLDetailsElement);
  #count = need("#plan-count", HTMLElement);
  #list = need("#plan-list", HTMLElement);
  /** @type {readonly PlanEntry[]} */
  #entries = [];
  /** As it was before the run that goes on.
   * @type {readonly PlanEntry[]} */
  #before = [];

  /** What is shown from now on is of one run. */
  keep() {
    this.#before = this.#entries;
  }

  /** What the run said of it is void. */
  takeBack() {
    this.show(this.#before);
  }

  /** @param {readonly PlanEntry[]} entries */
  show(entries) {
    this.#entries = entries;
    this.#root.hidden = entries.length === 0;
    this.#count.textContent = `${entries.filter(({ status }) => status === "completed").length} of ${entries.length} done`;
    this.#list.replaceChildren(...entries.map(line));
  }
}

/** @param {PlanEntry} entry */
function line({ content, priority, status }) {
  const notes = [STATUS[status] ?? status, priority === "high" ? "important" : ""]
    .filter(Boolean)
    .join(", ");
  const item = el(
    "li",
    {},
    el("bdi", { class: "plan-content" }, content),
    el("bdi", { class: "about" }, notes),
  );
  item.dataset.status = status;
  return item;
}
