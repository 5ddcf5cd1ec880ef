/** The agent's plan, above the message field. */

import { el, need } from "./dom.js";

/** @typedef {import("../js/src/index.js").PlanEntry} PlanEntry */

/** @type {Record<string, string>} labels of the statuses */
const STATUS = { pending: "to do", in_progress: "at work", completed: "done" };

export class PlanList {
  #root = need("#plan", HTMLDetailsElement);
  #count = need("#plan-count", HTMLElement);
  #list = need("#plan-list", HTMLElement);
  /** @type {readonly PlanEntry[]} */
  #entries = [];
  /** The plan before the current run.
   * @type {readonly PlanEntry[]} */
  #before = [];

  /** Mark the start of a run. */
  keep() {
    this.#before = this.#entries;
  }

  /** Restore the plan from before the run. */
  takeBack() {
    this.show(this.#before);
  }

  /** @param {readonly PlanEntry[]} entries */
  show(entries) {
    this.#entries = entries;
    this.#root.hidden = entries.length === 0;
    const done = entries.filter(({ status }) => status === "completed");
    this.#count.textContent = `${done.length} of ${entries.length} done`;
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
