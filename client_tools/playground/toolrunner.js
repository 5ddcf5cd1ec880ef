/** Runs the calls of this page's tools: each call once, even if it is requested again. */

import { toolsFor } from "./tools.js";

/** @typedef {import("../js/src/index.js").CallContext} CallContext */
/** @typedef {import("../js/src/index.js").ClientTools} ClientTools */
/** @typedef {import("./run.js").RunView} RunView */
/** @typedef {import("./tools.js").PageActions} PageActions */

export class ToolRunner {
  /** The page's tools, for the client library.
   * @type {ClientTools} */
  tools;
  /**
   * The same tools for a conversation in which they may not run: declared, and their calls stay
   * owed.
   *
   * @type {ClientTools}
   */
  declared;

  #view;
  #onRun;
  /** @type {Map<string, Promise<unknown>>} */
  #results = new Map();

  /**
   * @param {Pick<RunView, "setCallState">} view
   * @param {PageActions} actions
   * @param {() => void} onRun called when a call starts to run
   */
  constructor(view, actions, onRun) {
    this.#view = view;
    this.#onRun = onRun;
    this.tools = Object.fromEntries(
      Object.entries(toolsFor(actions)).map(([name, tool]) => {
        return [
          name,
          {
            ...tool,
            execute: (args, context) => this.#runOnce(() => tool.execute(args, context), context),
          },
        ];
      }),
    );
    // answered in a form, perhaps after a reload or in another tab
    this.tools.ask_user = { execute: "later" };
    this.declared = Object.fromEntries(
      Object.entries(this.tools).map(([name, tool]) => [name, { ...tool, execute: "later" }]),
    );
  }

  /**
   * @param {() => unknown} execute
   * @param {CallContext} context
   */
  async #runOnce(execute, { toolCallId, signal }) {
    const giveUp = () => {
      this.#results.delete(toolCallId);
      this.#view.setCallState(toolCallId, "skipped");
    };
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      return await (this.#results.get(toolCallId) ?? this.#start(execute, toolCallId));
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  /**
   * @param {() => unknown} execute
   * @param {string} id
   */
  #start(execute, id) {
    this.#view.setCallState(id, "running");
    this.#onRun();
    const result = Promise.resolve(execute());
    this.#results.set(id, result);
    return result;
  }
}
