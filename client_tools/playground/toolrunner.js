/** The calls that a conversation's client owes, run in this page: each one once, whatever is repeated. */

import { toolsFor } from "./tools.js";

/** @typedef {import("../js/src/index.js").CallContext} CallContext */
/** @typedef {import("../js/src/index.js").ClientTools} ClientTools */
/** @typedef {import("./run.js").RunView} RunView */
/** @typedef {import("./tools.js").Hands} Hands */

export class Answers {
  /** The page's tools, for the client library.
   * @type {ClientTools} */
  tools;
  /** The same ones, where nobody has said yet that they may run: the agent knows them, and their calls stay owed.
   * @type {ClientTools} */
  declared;

  #view;
  #onRun;
  /** @type {Map<string, Promise<unknown>>} */
  #results = new Map();

  /**
   * @param {Pick<RunView, "setCallState">} view
   * @param {Hands} hands
   * @param {() => void} onRun is told when a call begins to run
   */
  constructor(view, hands, onRun) {
    this.#view = view;
    this.#onRun = onRun;
    this.tools = Object.fromEntries(
      Object.entries(toolsFor(hands)).map(([name, tool]) => {
        return [
          name,
          {
            ...tool,
            execute: (args, context) => this.#once(() => tool.execute(args, context), context),
          },
        ];
      }),
    );
    // answered in a form, perhaps after a reload, or in another tab
    this.tools.ask_user = { execute: "later" };
    this.declared = Object.fromEntries(
      Object.entries(this.tools).map(([name, tool]) => [name, { ...tool, execute: "later" }]),
    );
  }

  /**
   * @param {() => unknown} execute
   * @param {CallContext} context
   */
  async #once(execute, { toolCallId, signal }) {
    const giveUp = () => {
      this.#results.delete(toolCallId);
      this.#view.setCallState(toolCallId, "skipped");
    };
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      return await (this.#results.get(toolCallId) ?? this.#begin(execute, toolCallId));
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  /**
   * @param {() => unknown} execute
   * @param {string} id
   */
  #begin(execute, id) {
    this.#view.setCallState(id, "running");
    this.#onRun();
    const result = Promise.resolve(execute());
    this.#results.set(id, result);
    return result;
  }
}
