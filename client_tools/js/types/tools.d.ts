/** The tools of this client: their declarations for the server, and the answer to one call. */
export type OwedCall = import("./events.js").OwedCall;
export type Limits = import("./options.js").Limits;
export type CallContext = {
    conversationId: string;
    toolCallId: string;
    name: string;
    /**
     * aborted when the result is no longer needed
     */
    signal: AbortSignal;
};
export type ToolParameters = import("./schemas.js").ToolParameters;
export type ClientTool = {
    /**
     * description for the model
     */
    description?: string;
    /**
     * a schema of Zod, ArkType, Valibot or another library of
     * Standard Schema, or a JSON Schema of type `object`; default: no parameters; the server knows
     * the schema of `ask_user`
     */
    parameters?: ToolParameters;
    /**
     * its name for people, at most 200 characters; the model is not shown it
     */
    title?: string;
    /**
     * returns the result
     * or its promise: a text, parts, or any JSON. An error it throws becomes an error result with the
     * error's message. "later": calls stay owed until somebody posts a result
     */
    execute: Taking<unknown, [context: CallContext], unknown> | "later";
    /**
     * whether
     * `approve` is asked first
     */
    needsApproval?: boolean | Taking<unknown, [], boolean | Promise<boolean>>;
};
export type NamedTool = ClientTool & {
    name: string;
};
export type ClientTools = Record<string, ClientTool>;
export type TypedTool<P = unknown, R = unknown> = Omit<ClientTool, "parameters" | "execute" | "needsApproval"> & {
    parameters?: P;
    execute: Taking<P, [context: CallContext], R> | "later";
    needsApproval?: boolean | Taking<P, [], boolean | Promise<boolean>>;
};
export type Taking<P, More extends unknown[], R> = unknown extends import("./schemas.js").Known<P> ? {
    taking(args: object, ...more: More): R;
}["taking"] : (args: import("./schemas.js").Known<P>, ...more: More) => R;
export type ArgumentsOf<T> = T extends {
    execute: infer E;
} ? Exclude<E, "later"> extends (args: infer A, ...more: never) => unknown ? A : never : never;
export type ResultOf<T> = T extends {
    execute: infer E;
} ? Exclude<E, "later"> extends (...args: never) => infer R ? Awaited<R> : never : never;
export type ApprovalCall = {
    id: string;
    name: string;
    /**
     * as the tool gets them: what a schema has made of them
     */
    arguments: unknown;
    /**
     * the server's reason; "" for the client's own tools
     */
    reason: string;
    /**
     * whether it is a tool of the server
     */
    server: boolean;
};
export type Approval = boolean | string | {
    approved: boolean;
    reason?: string;
    always?: boolean;
};
export type Approve = (call: ApprovalCall, context: CallContext) => Approval | Promise<Approval>;
export type Resume = {
    interruptId: string;
    payload: {
        approved: boolean;
        reason?: string;
        always?: true;
    };
};
export type ToolResult = {
    role: "tool";
    toolCallId: string;
    content: unknown;
    isError?: true;
};
export type CallAnswer = {
    message: ToolResult;
} | {
    resume: Resume;
};
/**
 * Return the tool as it is, with types: its functions take what its `parameters` describe.
 *
 * @template {ToolParameters} [const P={}]
 * @template [R=unknown]
 * @param {TypedTool<P, R>} definition
 * @returns {TypedTool<P, R>}
 */
export declare function tool<const P extends ToolParameters = {}, R = unknown>(definition: TypedTool<P, R>): TypedTool<P, R>;
export declare class Toolbox {
    #private;
    /** The declarations for the server; undefined leaves the conversation's tools unchanged. */
    declarations: {
        name: string;
        description: string | undefined;
        parameters: import("./schemas.js").JsonSchema | undefined;
        title: string | undefined;
    }[] | undefined;
    /**
     * @param {ClientTools | readonly NamedTool[] | undefined} tools
     * @param {Approve | undefined} approve
     * @param {Limits} limits
     * @param {boolean} [leavesOthers] whether calls of tools that this client does not have are left
     *   to other clients
     */
    constructor(tools: ClientTools | readonly NamedTool[] | undefined, approve: Approve | undefined, limits: Limits, leavesOthers?: boolean);
    /** @param {OwedCall} call */
    handles({ name, kind }: OwedCall): boolean;
    /**
     * Answer one call; any error becomes an answer that the model can react to.
     *
     * @param {OwedCall} call
     * @param {{conversationId: string, signal: AbortSignal}} where
     * @returns {Promise<CallAnswer>} rejects with the signal's reason as soon as it aborts
     */
    answer(call: OwedCall, where: {
        conversationId: string;
        signal: AbortSignal;
    }): Promise<CallAnswer>;
    /**
     * @param {OwedCall} call
     * @param {{conversationId: string, signal: AbortSignal}} where
     * @returns {Promise<ToolResult>} rejects with the signal's reason as soon as it aborts
     */
    run(call: OwedCall, { conversationId, signal }: {
        conversationId: string;
        signal: AbortSignal;
    }): Promise<ToolResult>;
    /**
     * Return the answer to post instead of one that the server has refused.
     *
     * @param {OwedCall} call
     * @param {Error} refusal
     * @returns {CallAnswer}
     */
    refusalAnswer({ id, kind }: OwedCall, refusal: Error): CallAnswer;
}
