/** The tools of this client: what the server is told of them, and the running of one call. */

import { InvalidArgument } from "./errors.js";
import { parseJson } from "./json.js";
import { unlessAborted } from "./signals.js";

/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./limits.js").Limits} Limits */

/**
 * @typedef {object} CallContext
 * @property {string} conversationId
 * @property {string} toolCallId
 * @property {string} name
 * @property {AbortSignal} signal is given when nobody wants the result any more
 */

/**
 * @typedef {object} ClientTool
 * @property {string} [description] what the model is told
 * @property {Record<string, unknown>} [parameters] a JSON Schema of type `object`; without it, there are none
 * @property {(args: any, context: CallContext) => unknown} execute gives the result, or its promise: a text, parts,
 *   or any JSON. What it throws becomes a result that says so to the model, with the error's message
 * @property {boolean | ((args: any) => boolean | Promise<boolean>)} [needsApproval] whether `approve` is asked first
 */

/** @typedef {Record<string, ClientTool>} ClientTools by their names */

/**
 * @callback Approve asked before a call of a tool that needs it
 * @param {{id: string, name: string, arguments: any}} call
 * @param {CallContext} context
 * @returns {boolean | string | Promise<boolean | string>} true to run it; false, or a text that says why not
 */

/**
 * @typedef {object} ToolResult
 * @property {"tool"} role
 * @property {string} toolCallId
 * @property {unknown} content
 * @property {true} [isError]
 */

export class Toolbox {
  #tools;
  #leavesOthers;
  #approve;
  #limits;

  /**
   * @param {ClientTools | undefined} tools
   * @param {Approve | undefined} approve
   * @param {Limits} limits
   * @param {boolean} [leavesOthers] whether calls of tools that this client has not are another client's to answer
   */
  constructor(tools, approve, limits, leavesOthers = false) {
    this.#tools = tools && new Map(Object.entries(tools));
    this.#approve = approve;
    this.#limits = limits;
    this.#leavesOthers = leavesOthers;
    for (const [name, { execute, needsApproval }] of this.#tools ?? []) {
      if (typeof execute !== "function") throw new InvalidArgument(`tool ${name}: execute is not a function`);
      if (needsApproval && !approve) throw new InvalidArgument(`tool ${name} needs approval: the client has no approve`);
    }
  }

  /** @returns {object[] | undefined} what the server is told; undefined leaves the conversation's tools as they are */
  get declarations() {
    if (!this.#tools) return undefined;
    return [...this.#tools].map(([name, { description, parameters }]) => ({ name, description, parameters }));
  }

  /** @param {OwedCall} call */
  answers({ name }) {
    return !this.#leavesOthers || this.#tools?.has(name) === true;
  }

  /**
   * Runs one call; whatever goes wrong becomes a result that the model can react to.
   *
   * @param {OwedCall} call
   * @param {{conversationId: string, signal: AbortSignal}} where
   * @returns {Promise<ToolResult>} rejects with the signal's reason as soon as it is given
   */
  async run(call, { conversationId, signal }) {
    try {
      signal.throwIfAborted();
      const context = { conversationId, toolCallId: call.id, name: call.name, signal };
      const content = await unlessAborted(this.#execute(call, context), signal);
      return { role: "tool", toolCallId: call.id, content: this.#postable(content) };
    } catch (error) {
      signal.throwIfAborted();
      const text = messageOf(error).slice(0, this.#limits.errorTextChars);
      return { role: "tool", toolCallId: call.id, content: text, isError: true };
    }
  }

  /**
   * @param {OwedCall} call
   * @param {CallContext} context
   */
  async #execute({ id, name, arguments: text }, context) {
    const tool = this.#tools?.get(name);
    if (!tool) throw new Error(`This client has no tool named ${name}.`);
    if (text.length > this.#limits.argumentChars) throw new Error("The arguments are too large for this client.");
    const args = parseJson(text || "{}");
    if (args === undefined) throw new Error("The arguments are not valid JSON.");
    await this.#ask(tool, { id, name, arguments: args }, context);
    return await tool.execute(args, context);
  }

  /**
   * @param {ClientTool} tool
   * @param {{id: string, name: string, arguments: any}} call
   * @param {CallContext} context
   */
  async #ask({ needsApproval }, call, context) {
    const asks = typeof needsApproval === "function" ? await needsApproval(call.arguments) : needsApproval;
    if (!asks) return;
    const answer = await this.#approve?.(call, context);
    if (answer === true) return;
    throw new Error(typeof answer === "string" && answer ? answer : "The user did not allow this call.");
  }

  /** @param {unknown} content */
  #postable(content) {
    const text = JSON.stringify(content);
    if (text === undefined) return "";
    if (text.length > this.#limits.resultChars) throw new Error("The result is too large to be sent.");
    // what is posted is what was measured, whatever the tool does with its object meanwhile
    return typeof content === "string" ? content : JSON.parse(text);
  }
}

/** @param {unknown} error */
function messageOf(error) {
  const text = error instanceof Error ? error.message || error.name : error;
  return typeof text === "string" && text ? text : "The tool failed.";
}
