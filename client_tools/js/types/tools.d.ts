/** The tools of this client: what the server is told of them, and the running of one call. */
export type OwedCall = import("./events.js").OwedCall;
export type Limits = import("./limits.js").Limits;
export type CallContext = {
    conversationId: string;
    toolCallId: string;
    name: string;
    /**
     * is given when nobody wants the result any more
     */
    signal: AbortSignal;
};
export type ClientTool = {
    /**
     * what the model is told
     */
    description?: string;
    /**
     * a JSON Schema of type `object`; without it, there are none
     */
    parameters?: Record<string, unknown>;
    /**
     * gives the result, or its promise: a text, parts,
     * or any JSON. What it throws becomes a result that says so to the model, with the error's message
     */
    execute: (args: any, context: CallContext) => unknown;
    /**
     * whether `approve` is asked first
     */
    needsApproval?: boolean | ((args: any) => boolean | Promise<boolean>);
};
export type ClientTools = Record<string, ClientTool>;
export type Approve = (call: {
    id: string;
    name: string;
    arguments: any;
}, context: CallContext) => boolean | string | Promise<boolean | string>;
export type ToolResult = {
    role: "tool";
    toolCallId: string;
    content: unknown;
    isError?: true;
};
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
export declare class Toolbox {
    #private;
    /**
     * @param {ClientTools | undefined} tools
     * @param {Approve | undefined} approve
     * @param {Limits} limits
     * @param {boolean} [leavesOthers] whether calls of tools that this client has not are another client's to answer
     */
    constructor(tools: ClientTools | undefined, approve: Approve | undefined, limits: Limits, leavesOthers?: boolean);
    /** @returns {object[] | undefined} what the server is told; undefined leaves the conversation's tools as they are */
    get declarations(): object[] | undefined;
    /** @param {OwedCall} call */
    answers({ name }: OwedCall): boolean;
    /**
     * Runs one call; whatever goes wrong becomes a result that the model can react to.
     *
     * @param {OwedCall} call
     * @param {{conversationId: string, signal: AbortSignal}} where
     * @returns {Promise<ToolResult>} rejects with the signal's reason as soon as it is given
     */
    run(call: OwedCall, { conversationId, signal }: {
        conversationId: string;
        signal: AbortSignal;
    }): Promise<ToolResult>;
}
