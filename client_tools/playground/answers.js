/** The calls that a conversation's client owes, run in this page: each one once, whatever is repeated. */

import { isOurs, runTool } from "./tools.js";

/** @typedef {import("./api.js").OutgoingMessage} OutgoingMessage */
/** @typedef {import("./api.js").OwedCall} OwedCall */
/** @typedef {import("./run.js").RunView} RunView */
/** @typedef {import("./tools.js").Hands} Hands */
/** @typedef {import("./tools.js").ToolResult} ToolResult */

export class Answers {
  #view;
  #hands;
  /** @type {Map<string, Promise<ToolResult>>} */
  #results = new Map();

  /**
   * @param {Pick<RunView, "setCallState" | "setResult">} view
   * @param {Hands} hands
   */
  constructor(view, hands) {
    this.#view = view;
    this.#hands = hands;
  }

  /**
   * @param {OwedCall[]} owed
   * @param {AbortSignal} signal
   * @returns {Promise<OutgoingMessage[]>} the results of those calls that are this page's to answer
   * @throws the signal's reason, when the page gave the calls up
   */
  async to(owed, signal) {
    for (const { id, name } of owed) {
      if (!isOurs(name)) this.#view.setCallState(id, "elsewhere");
    }
    const ours = owed.filter(({ name }) => isOurs(name));
    return Promise.all(ours.map((call) => this.#answer(call, signal)));
  }

  /**
   * @param {OwedCall} call
   * @param {AbortSignal} signal
   * @returns {Promise<OutgoingMessage>}
   */
  async #answer(call, signal) {
    try {
      const { content, isError } = await this.#result(call, signal);
      this.#view.setResult(call.id, content, isError);
      return { role: "tool", content, toolCallId: call.id, ...(isError && { isError }) };
    } catch (error) {
      this.#results.delete(call.id);
      this.#view.setCallState(call.id, "skipped");
      throw error;
    }
  }

  /**
   * @param {OwedCall} call
   * @param {AbortSignal} signal
   * @returns {Promise<ToolResult>}
   */
  #result(call, signal) {
    const known = this.#results.get(call.id);
    if (known) return known;
    this.#view.setCallState(call.id, "running");
    const result = runTool(call, this.#hands, signal);
    this.#results.set(call.id, result);
    return result;
  }
}
