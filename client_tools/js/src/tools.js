/** The tools of this client: their declarations for the server, and the answer to one call. */

import { checkTool } from "./options.js";
import { InvalidArgument } from "./errors.js";
import { isDeeper, parseJson, writeJson } from "./json.js";
import { declaredParameters, validArguments } from "./schemas.js";
import { unlessAborted } from "./signals.js";

/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @typedef {import("./options.js").Limits} Limits */

/**
 * @typedef {object} CallContext
 * @property {string} conversationId
 * @property {string} toolCallId
 * @property {string} name
 * @property {AbortSignal} signal aborted when the result is no longer needed
 */

/** @typedef {import("./schemas.js").ToolParameters} ToolParameters */

/**
 * @typedef {object} ClientTool whatever its parameters; `tool` and `Client` infer the types of its
 *   functions from them
 * @property {string} [description] description for the model
 * @property {ToolParameters} [parameters] a schema of Zod, ArkType, Valibot or another library of
 *   Standard Schema, or a JSON Schema of type `object`; default: no parameters; the server knows
 *   the schema of `ask_user`
 * @property {string} [title] its name for people, at most 200 characters; the model is not shown it
 * @property {Taking<unknown, [context: CallContext], unknown> | "later"} execute returns the result
 *   or its promise: a text, parts, or any JSON. An error it throws becomes an error result with the
 *   error's message. "later": calls stay owed until somebody posts a result
 * @property {boolean | Taking<unknown, [], boolean | Promise<boolean>>} [needsApproval] whether
 *   `approve` is asked first
 */

/** @typedef {ClientTool & {name: string}} NamedTool */
/** @typedef {Record<string, ClientTool>} ClientTools by name */

/**
 * @template [P=unknown]
 * @template [R=unknown]
 * @typedef {Omit<ClientTool, "parameters" | "execute" | "needsApproval"> & {
 *   parameters?: P,
 *   execute: Taking<P, [context: CallContext], R> | "later",
 *   needsApproval?: boolean | Taking<P, [], boolean | Promise<boolean>>,
 * }} TypedTool a tool whose functions take what its parameters describe
 */
/**
 * @template P
 * @template {unknown[]} More
 * @template R
 * @typedef {unknown extends import("./schemas.js").Known<P>
 *   ? {taking(args: object, ...more: More): R}["taking"]
 *   : (args: import("./schemas.js").Known<P>, ...more: More) => R} Taking a function of the
 *   arguments; of unknown ones it may say the type itself, as a method's parameter may be narrower
 */
/**
 * @template T
 * @typedef {T extends {execute: infer E}
 *   ? Exclude<E, "later"> extends (args: infer A, ...more: never) => unknown ? A : never
 *   : never} ArgumentsOf the arguments that a tool takes
 */
/**
 * @template T
 * @typedef {T extends {execute: infer E}
 *   ? Exclude<E, "later"> extends (...args: never) => infer R ? Awaited<R> : never
 *   : never} ResultOf the result of a tool
 */

/**
 * @typedef {object} ApprovalCall
 * @property {string} id
 * @property {string} name
 * @property {unknown} arguments as the tool gets them: what a schema has made of them
 * @property {string} reason the server's reason; "" for the client's own tools
 * @property {boolean} server whether it is a tool of the server
 */

/**
 * @typedef {boolean | string | {approved: boolean, reason?: string, always?: boolean}} Approval
 *   true to run it; false, or a text with the reason for the model; `always`: it holds for all
 *   later calls of this tool in this conversation
 */

/**
 * @callback Approve called before a call of a tool that needs approval, the server's tools included
 * @param {ApprovalCall} call
 * @param {CallContext} context
 * @returns {Approval | Promise<Approval>}
 */

/**
 * @typedef {object} Resume a decision as it is posted
 * @property {string} interruptId
 * @property {{approved: boolean, reason?: string, always?: true}} payload
 */

/**
 * @typedef {object} ToolResult
 * @property {"tool"} role
 * @property {string} toolCallId
 * @property {unknown} content
 * @property {true} [isError]
 */

/**
 * @typedef {{message: ToolResult} | {resume: Resume}} CallAnswer the part of a post that answers a
 *   call
 */

/** Names that the server accepts. */
const TOOL_NAME = /^[\w-]{1,64}$/;
const NOT_ALLOWED = "The user did not allow this call.";
/** Number of permanent decisions that are kept; older ones are asked for again. */
const MAX_ALWAYS = 1000;

/**
 * Return the tool as it is, with types: its functions take what its `parameters` describe.
 *
 * @template {ToolParameters} [const P={}]
 * @template [R=unknown]
 * @param {TypedTool<P, R>} definition
 * @returns {TypedTool<P, R>}
 */
export function tool(definition) {
  return definition;
}

export class Toolbox {
  /** @type {Map<string, {approved: boolean, reason: string}>} */
  #always = new Map();
  #tools;
  #leavesOthers;
  #approve;
  #limits;

  /**
   * @param {ClientTools | readonly NamedTool[] | undefined} tools
   * @param {Approve | undefined} approve
   * @param {Limits} limits
   * @param {boolean} [leavesOthers] whether calls of tools that this client does not have are left
   *   to other clients
   */
  constructor(tools, approve, limits, leavesOthers = false) {
    this.#approve = approve;
    this.#limits = limits;
    this.#leavesOthers = leavesOthers;
    const named = tools && namedTools(tools);
    /** The declarations for the server; undefined leaves the conversation's tools unchanged. */
    this.declarations = named?.map(([name, tool]) => this.#declare(name, tool));
    this.#tools = named && new Map(named);
  }

  /**
   * @param {string} name
   * @param {ClientTool} tool
   * @throws {InvalidArgument} the tool cannot be used, or the server refuses it
   */
  #declare(name, tool) {
    const { execute, needsApproval, description, parameters, title } = tool ?? {};
    if (typeof execute !== "function" && execute !== "later") {
      throw new InvalidArgument(`tool ${name}: execute is neither a function nor "later"`);
    }
    checkTool(name, tool);
    if (needsApproval && !this.#approve) {
      throw new InvalidArgument(`tool ${name} needs approval: the client has no approve`);
    }
    return { name, description, parameters: declaredParameters(name, parameters), title };
  }

  /** @param {OwedCall} call */
  handles({ name, kind }) {
    if (kind === "approval") return this.#approve !== undefined;
    const tool = this.#tools?.get(name);
    if (tool) return tool.execute !== "later" && (kind === "tool_result" || kind === "question");
    // a person may answer a question later
    return kind === "tool_result" && !this.#leavesOthers;
  }

  /**
   * Answer one call; any error becomes an answer that the model can react to.
   *
   * @param {OwedCall} call
   * @param {{conversationId: string, signal: AbortSignal}} where
   * @returns {Promise<CallAnswer>} rejects with the signal's reason as soon as it aborts
   */
  async answer(call, where) {
    if (call.kind !== "approval") return { message: await this.run(call, where) };
    const payload = await this.#decide(call, where);
    return { resume: { interruptId: call.id, payload } };
  }

  /**
   * @param {OwedCall} call
   * @param {{conversationId: string, signal: AbortSignal}} where
   * @returns {Promise<ToolResult>} rejects with the signal's reason as soon as it aborts
   */
  async run(call, { conversationId, signal }) {
    try {
      signal.throwIfAborted();
      const context = { conversationId, toolCallId: call.id, name: call.name, signal };
      const content = await unlessAborted(this.#execute(call, context), signal);
      return { role: "tool", toolCallId: call.id, content: this.#checkedContent(content) };
    } catch (error) {
      signal.throwIfAborted();
      return { role: "tool", toolCallId: call.id, content: this.#errorText(error), isError: true };
    }
  }

  /**
   * Return the answer to post instead of one that the server has refused.
   *
   * @param {OwedCall} call
   * @param {Error} refusal
   * @returns {CallAnswer}
   */
  refusalAnswer({ id, kind }, refusal) {
    const text = this.#errorText(new Error(`The answer was refused: ${refusal.message}`));
    if (kind === "approval") {
      return { resume: { interruptId: id, payload: { approved: false, reason: text } } };
    }
    return { message: { role: "tool", toolCallId: id, content: text, isError: true } };
  }

  /**
   * @param {OwedCall} call
   * @param {{conversationId: string, signal: AbortSignal}} where
   * @returns {Promise<Resume["payload"]>} a call that cannot be decided on is denied
   */
  async #decide(call, { conversationId, signal }) {
    const { id, name, reason = "" } = call;
    try {
      signal.throwIfAborted();
      const context = { conversationId, toolCallId: id, name, signal };
      const asked = { id, name, arguments: this.#argumentsOf(call), reason, server: true };
      const decision = await unlessAborted(this.#ask(asked, context), signal);
      if (decision.approved) return { approved: true, ...(decision.always && { always: true }) };
      const why = decision.reason.slice(0, this.#limits.errorTextChars);
      return {
        approved: false,
        ...(why && { reason: why }),
        ...(decision.always && { always: true }),
      };
    } catch (error) {
      signal.throwIfAborted();
      return { approved: false, reason: this.#errorText(error) };
    }
  }

  /**
   * @param {OwedCall} call
   * @param {CallContext} context
   */
  async #execute(call, context) {
    const { id, name } = call;
    const tool = this.#tools?.get(name);
    if (!tool || tool.execute === "later") {
      throw new Error(`This client has no tool named ${name}.`);
    }
    const args = await validArguments(tool.parameters, this.#argumentsOf(call));
    const { approved, reason } = await this.#decideOn(
      tool,
      { id, name, arguments: args, reason: "", server: false },
      context,
    );
    if (!approved) throw new Error(reason || NOT_ALLOWED);
    return await tool.execute(args, context);
  }

  /** @param {OwedCall} call */
  #argumentsOf({ arguments: text }) {
    if (text.length > this.#limits.argumentChars) {
      throw new Error("The arguments are too large for this client.");
    }
    const args = parseJson(text || "{}");
    if (args === undefined) throw new Error("The arguments are not valid JSON.");
    return /** @type {any} */ (args);
  }

  /**
   * @param {ClientTool} tool
   * @param {ApprovalCall} call
   * @param {CallContext} context
   */
  async #decideOn({ needsApproval }, call, context) {
    const known = this.#always.get(permissionKey(context));
    if (known) return known;
    const args = /** @type {any} */ (call.arguments);
    const needed = typeof needsApproval === "function" ? await needsApproval(args) : needsApproval;
    if (!needed) return { approved: true, reason: "" };
    const decision = await this.#ask(call, context);
    if (decision.always) this.#remember(context, decision);
    return decision;
  }

  /**
   * @param {ApprovalCall} call
   * @param {CallContext} context
   */
  async #ask(call, context) {
    const answer = await this.#approve?.(call, context);
    if (typeof answer === "string") return { approved: false, reason: answer, always: false };
    if (typeof answer !== "object" || answer === null) {
      return { approved: answer === true, reason: "", always: false };
    }
    const { approved, reason, always } = answer;
    return {
      approved: approved === true,
      reason: typeof reason === "string" ? reason : "",
      always: always === true,
    };
  }

  /**
   * @param {CallContext} context
   * @param {{approved: boolean, reason: string}} decision
   */
  #remember(context, decision) {
    this.#always.set(permissionKey(context), decision);
    const [oldest = ""] = this.#always.keys();
    if (this.#always.size > MAX_ALWAYS) this.#always.delete(oldest);
  }

  /** @param {unknown} error */
  #errorText(error) {
    return errorMessage(error).slice(0, this.#limits.errorTextChars);
  }

  /** @param {unknown} content */
  #checkedContent(content) {
    const text = writeJson(content);
    if (text === undefined) return "";
    // the value that is measured is the one that is posted, even if the tool changes its object
    const read = JSON.parse(text);
    const { resultBytes, resultDepth } = this.#limits;
    if (bytesOf(typeof read === "string" ? read : text) > resultBytes) {
      throw new Error("The result is too large to be sent.");
    }
    if (isDeeper(read, resultDepth)) throw new Error("The result is nested too deep to be sent.");
    return read;
  }
}

/**
 * @param {ClientTools | readonly NamedTool[]} tools
 * @returns {[name: string, tool: ClientTool][]}
 * @throws {InvalidArgument}
 */
function namedTools(tools) {
  const named = Array.isArray(tools) ? tools.map(withName) : Object.entries(tools);
  const known = new Set();
  for (const [name] of named) {
    if (!TOOL_NAME.test(name)) {
      throw new InvalidArgument(`tool "${name}": a name is 1 to 64 letters (A-Z), digits, _ or -`);
    }
    const folded = name.toLowerCase();
    if (known.has(folded)) {
      throw new InvalidArgument(`two tools are named ${name} (case does not count)`);
    }
    known.add(folded);
  }
  return named;
}

/**
 * @param {NamedTool} tool
 * @param {number} index
 * @returns {[name: string, tool: ClientTool]}
 */
function withName(tool, index) {
  if (typeof tool?.name !== "string") {
    throw new InvalidArgument(
      `tools[${index}] has no name: give { name, description, parameters, execute }`,
    );
  }
  return [tool.name, tool];
}

/** @param {string} text */
function bytesOf(text) {
  return new TextEncoder().encode(text).length;
}

/** @param {CallContext} context */
function permissionKey({ conversationId, name }) {
  return JSON.stringify([conversationId, name]);
}

/** @param {unknown} error */
function errorMessage(error) {
  const text = error instanceof Error ? error.message || error.name : error;
  return typeof text === "string" && text ? text : "The tool failed.";
}
