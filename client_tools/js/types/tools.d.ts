/** The tools of this client: what the server is told of them, and the answer to one call. */
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
     * a JSON Schema of type `object`; without it, there are none, but for
     * `ask_user`, whose schema the server knows
     */
    parameters?: Record<string, unknown>;
    /**
     * gives the result, or its promise: a text,
     * parts, or any JSON. What it throws becomes a result that says so to the model, with the error's message. "later": a
     * call stays owed, until somebody posts its result
     */
    execute: ((args: any, context: CallContext) => unknown) | "later";
    /**
     * whether `approve` is asked first
     */
    needsApproval?: boolean | ((args: any) => boolean | Promise<boolean>);
};
export type NamedTool = ClientTool & {
    name: string;
};
export type ClientTools = Record<string, ClientTool>;
export type ApprovalCall = {
    id: string;
    name: string;
    arguments: any;
    /**
     * why the server asks; "" for the client's own tools
     */
    reason: string;
    /**
     * whether the tool is the server's
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
export type Answered = {
    message: ToolResult;
} | {
    resume: Resume;
};
export declare class Toolbox {
    #private;
    /**
     * @param {ClientTools | readonly NamedTool[] | undefined} tools
     * @param {Approve | undefined} approve
     * @param {Limits} limits
     * @param {boolean} [leavesOthers] whether calls of tools that this client has not are another client's to answer
     */
    constructor(tools: ClientTools | readonly NamedTool[] | undefined, approve: Approve | undefined, limits: Limits, leavesOthers?: boolean);
    /** @returns {object[] | undefined} what the server is told; undefined leaves the conversation's tools as they are */
    get declarations(): object[] | undefined;
    /** @param {OwedCall} call */
    answers({ name, kind }: OwedCall): boolean;
    /**
     * Answers one call; whatever goes wrong becomes an answer that the model can react to.
     *
     * @param {OwedCall} call
     * @param {{conversationId: string, signal: AbortSignal}} where
     * @returns {Promise<Answered>} rejects with the signal's reason as soon as it is given
     */
    answer(call: OwedCall, where: {
        conversationId: string;
        signal: AbortSignal;
    }): Promise<Answered>;
    /**
     * @param {OwedCall} call
     * @param {{conversationId: string, signal: AbortSignal}} where
     * @returns {Promise<ToolResult>} rejects with the signal's reason as soon as it is given
     */
    run(call: OwedCall, { conversationId, signal }: {
        conversationId: string;
        signal: AbortSignal;
    }): Promise<ToolResult>;
    /**
     * What is posted instead of an answer that the server refuses.
     *
     * @param {OwedCall} call
     * @param {Error} refusal
     * @returns {Answered}
     */
    refused({ id, kind }: OwedCall, refusal: Error): Answered;
}
