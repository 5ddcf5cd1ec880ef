/** A client of one server. */
import { Sending } from "./sending.js";
export type TextPart = {
    type: "text";
    text: string;
};
export type LinkedPart = {
    type: "image" | "audio" | "file";
    url: string;
    mediaType?: string;
    name?: string;
};
export type InlinePart = {
    type: "image" | "audio" | "file";
    data: string;
    mediaType: string;
    name?: string;
};
export type DataPart = {
    type: "data";
    data: unknown;
};
export type Part = TextPart | LinkedPart | InlinePart | DataPart | {
    type: string & {};
    [key: string]: unknown;
};
export type UserMessage = {
    role: "user" | "system";
    content: string | Part[];
    id?: string;
};
export type ToolMessage = {
    role: "tool";
    toolCallId: string;
    content: unknown;
    isError?: boolean;
};
export type ClientOptions = {
    /**
     * of the server, default: where the page came from
     */
    url?: string | URL;
    apiKey?: string;
    /**
     * by their names, or a list of tools
     * with a `name`; declared with each user's message; without it the tools of a conversation stay as they are
     */
    tools?: import("./tools.js").ClientTools | readonly import("./tools.js").NamedTool[];
    /**
     * asked before calls of tools that need it, the server's included; without
     * it, an approval of a tool of the server stays owed: `decide`
     */
    approve?: import("./tools.js").Approve;
    /**
     * whether a call is claimed before it is run, so that no other client runs it too; default: true
     */
    claims?: boolean;
    /**
     * what becomes of a call of a tool that this client has not: it is answered
     * with an error (the default), or left to another client
     */
    unknownTools?: "refuse" | "leave";
    /**
     * is told what crosses the wire
     */
    trace?: import("./trace.js").Trace;
    fetch?: typeof globalThis.fetch;
    limits?: Partial<import("./limits.js").Limits>;
    retry?: Partial<import("./limits.js").Retry>;
};
export type Brief = {
    /**
     * data to work on, any JSON
     */
    structuredData?: unknown;
    /**
     * what the user wants, in the program's words
     */
    intent?: string;
    /**
     * what the agent has to keep to
     */
    constraints?: readonly string[];
    /**
     * the program's own, for the answer to this message
     */
    instructions?: string;
    /**
     * the JSON Schema, of type object, that the answer has to fit, also when calls
     * of tools come first: `Answer` has its `output`
     */
    outputSchema?: Record<string, unknown> | string;
    /**
     * who answers this message, where the server lets clients choose
     */
    model?: string;
};
export type PostOptions = {
    /**
     * default: a new one
     */
    conversationId?: string;
    /**
     * who is asked, where the server has several agents
     */
    agentId?: string;
    /**
     * stops reading, and running tools, at once; the run goes on at the server
     */
    signal?: AbortSignal;
    /**
     * more kinds
     * of events; `output` comes in any case
     */
    include?: ("agents" | "context" | "plan" | "progress" | "reasoning" | "usage" | "message-ids" | "output" | (string & {}))[];
    /**
     * what the message means while a run goes on
     */
    onBusy?: "reject" | "enqueue" | "interrupt" | "rollback";
    /**
     * what becomes of the run when nobody follows it
     */
    onDisconnect?: "continue" | "cancel";
    /**
     * names the post, so that a later `send` with the same key and content joins its
     * run; default: a random one
     */
    idempotencyKey?: string;
    /**
     * whether a post is repeated that was refused because a run goes on
     */
    retryBusy?: boolean;
};
export type Decision = {
    /**
     * of the interrupt, which is the call's
     */
    id: string;
    approved: boolean;
    /**
     * what the model is told, when it is not
     */
    reason?: string;
    /**
     * whether it decides on all later calls of this tool in this conversation; `retract` takes that back
     */
    always?: boolean;
};
export type SendOptions = Brief & PostOptions;
export type DecideOptions = Omit<PostOptions, "conversationId" | "agentId" | "onBusy">;
export type ResumeOptions = {
    /**
     * the cursor behind which to read on
     */
    lastEventId?: string;
    /**
     * the run to follow, from its start
     */
    runId?: string;
    signal?: AbortSignal;
    /**
     * what becomes of the runs that this client's answers begin
     */
    onDisconnect?: SendOptions["onDisconnect"];
    include?: SendOptions["include"];
};
export type RequestOptions = {
    signal?: AbortSignal;
};
export type ConversationView = {
    id: string;
    status: "idle" | "running";
    /**
     * the newest run
     */
    runId: string | null;
    running: {
        runId: string;
        firstMessage: number;
        attempt: number;
    } | null;
    queued: string[];
    owed: import("./events.js").OwedCall[];
    messageCount: number;
    /**
     * of all messages together, where the server tells it
     */
    usage?: import("./events.js").Usage;
    /**
     * what the agent means to do, where the server tells it
     */
    plan?: import("./events.js").PlanEntry[];
    /**
     * of all its model calls, in the currency of the server's prices
     */
    cost?: number;
    /**
     * for how long runs have worked on it
     */
    seconds?: number;
    /**
     * the newest calls that were denied; `reason` is what
     * the model was told
     */
    refusals?: {
        toolCallId: string;
        name: string;
        reason: string;
    }[];
    /**
     * what was decided for good about tools of
     * the server
     */
    permissions?: {
        name: string;
        decision: "allow" | "deny";
        reason?: string;
    }[];
};
export type MessagePage = {
    messages: import("./messages.js").Message[];
    next: number | null;
    total: number;
};
/** @typedef {{type: "text", text: string}} TextPart */
/**
 * @typedef {{type: "image" | "audio" | "file", url: string, mediaType?: string, name?: string}} LinkedPart media by an `http:`,
 *   `https:` or `data:` URL
 */
/** @typedef {{type: "image" | "audio" | "file", data: string, mediaType: string, name?: string}} InlinePart media in base64 */
/** @typedef {{type: "data", data: unknown}} DataPart any JSON */
/**
 * @typedef {TextPart | LinkedPart | InlinePart | DataPart | {type: string & {}, [key: string]: unknown}} Part also the forms of
 *   chat completions, and those of a later server
 */
/** @typedef {{role: "user" | "system", content: string | Part[], id?: string}} UserMessage */
/**
 * @typedef {{role: "tool", toolCallId: string, content: unknown, isError?: boolean}} ToolMessage a result that was
 *   made without this library
 */
/**
 * @typedef {object} ClientOptions
 * @property {string | URL} [url] of the server, default: where the page came from
 * @property {string} [apiKey]
 * @property {import("./tools.js").ClientTools | readonly import("./tools.js").NamedTool[]} [tools] by their names, or a list of tools
 *   with a `name`; declared with each user's message; without it the tools of a conversation stay as they are
 * @property {import("./tools.js").Approve} [approve] asked before calls of tools that need it, the server's included; without
 *   it, an approval of a tool of the server stays owed: `decide`
 * @property {boolean} [claims] whether a call is claimed before it is run, so that no other client runs it too; default: true
 * @property {"refuse" | "leave"} [unknownTools] what becomes of a call of a tool that this client has not: it is answered
 *   with an error (the default), or left to another client
 * @property {import("./trace.js").Trace} [trace] is told what crosses the wire
 * @property {typeof globalThis.fetch} [fetch]
 * @property {Partial<import("./limits.js").Limits>} [limits]
 * @property {Partial<import("./limits.js").Retry>} [retry]
 */
/**
 * @typedef {object} Brief what is said beside the words of a user's message; results alone can have none of it
 * @property {unknown} [structuredData] data to work on, any JSON
 * @property {string} [intent] what the user wants, in the program's words
 * @property {readonly string[]} [constraints] what the agent has to keep to
 * @property {string} [instructions] the program's own, for the answer to this message
 * @property {Record<string, unknown> | string} [outputSchema] the JSON Schema, of type object, that the answer has to fit, also when calls
 *   of tools come first: `Answer` has its `output`
 * @property {string} [model] who answers this message, where the server lets clients choose
 */
/**
 * @typedef {object} PostOptions
 * @property {string} [conversationId] default: a new one
 * @property {string} [agentId] who is asked, where the server has several agents
 * @property {AbortSignal} [signal] stops reading, and running tools, at once; the run goes on at the server
 * @property {("agents" | "context" | "plan" | "progress" | "reasoning" | "usage" | "message-ids" | "output" | (string & {}))[]} [include] more kinds
 *   of events; `output` comes in any case
 * @property {"reject" | "enqueue" | "interrupt" | "rollback"} [onBusy] what the message means while a run goes on
 * @property {"continue" | "cancel"} [onDisconnect] what becomes of the run when nobody follows it
 * @property {string} [idempotencyKey] names the post, so that a later `send` with the same key and content joins its
 *   run; default: a random one
 * @property {boolean} [retryBusy] whether a post is repeated that was refused because a run goes on
 */
/**
 * @typedef {object} Decision
 * @property {string} id of the interrupt, which is the call's
 * @property {boolean} approved
 * @property {string} [reason] what the model is told, when it is not
 * @property {boolean} [always] whether it decides on all later calls of this tool in this conversation; `retract` takes that back
 */
/** @typedef {Brief & PostOptions} SendOptions */
/** @typedef {Omit<PostOptions, "conversationId" | "agentId" | "onBusy">} DecideOptions */
/**
 * @typedef {object} ResumeOptions
 * @property {string} [lastEventId] the cursor behind which to read on
 * @property {string} [runId] the run to follow, from its start
 * @property {AbortSignal} [signal]
 * @property {SendOptions["onDisconnect"]} [onDisconnect] what becomes of the runs that this client's answers begin
 * @property {SendOptions["include"]} [include]
 */
/** @typedef {{signal?: AbortSignal}} RequestOptions */
/**
 * @typedef {object} ConversationView
 * @property {string} id
 * @property {"idle" | "running"} status
 * @property {string | null} runId the newest run
 * @property {{runId: string, firstMessage: number, attempt: number} | null} running
 * @property {string[]} queued
 * @property {import("./events.js").OwedCall[]} owed
 * @property {number} messageCount
 * @property {import("./events.js").Usage} [usage] of all messages together, where the server tells it
 * @property {import("./events.js").PlanEntry[]} [plan] what the agent means to do, where the server tells it
 * @property {number} [cost] of all its model calls, in the currency of the server's prices
 * @property {number} [seconds] for how long runs have worked on it
 * @property {{toolCallId: string, name: string, reason: string}[]} [refusals] the newest calls that were denied; `reason` is what
 *   the model was told
 * @property {{name: string, decision: "allow" | "deny", reason?: string}[]} [permissions] what was decided for good about tools of
 *   the server
 */
/** @typedef {{messages: import("./messages.js").Message[], next: number | null, total: number}} MessagePage */
export declare class Client {
    #private;
    /**
     * @param {ClientOptions} [options]
     * @throws {InvalidArgument}
     */
    constructor(options?: ClientOptions);
    /**
     * Posts what is new, and gives the events of all that it leads to: calls of this client's tools are run, their
     * results posted, and the next run's events follow, until nothing is owed.
     *
     * @param {string | UserMessage | (UserMessage | ToolMessage)[]} message
     * @param {SendOptions} [options]
     * @returns {Sending}
     */
    send(message: string | UserMessage | (UserMessage | ToolMessage)[], { conversationId, ...options }?: SendOptions): Sending;
    /**
     * Decides on calls of the server's tools that wait for it, and gives what comes of that, as `send`. The first decision
     * on a call counts. While other things are owed, nothing more comes of it than an `owed` event.
     *
     * @param {string} conversationId
     * @param {Decision | Decision[]} decision
     * @param {DecideOptions} [options]
     * @returns {Sending}
     */
    decide(conversationId: string, decision: Decision | Decision[], options?: DecideOptions): Sending;
    /**
     * Goes on with a conversation after a reload, or where another device left it: with the run that goes on, from its start
     * or behind `lastEventId`, and with the calls that are owed. Gives nothing when there is nothing to go on with.
     *
     * @param {string} conversationId
     * @param {ResumeOptions} [options]
     * @returns {Sending}
     */
    resume(conversationId: string, { lastEventId, runId, signal, onDisconnect, include }?: ResumeOptions): Sending;
    /**
     * How a conversation stands.
     *
     * @param {string} conversationId
     * @param {RequestOptions} [options]
     * @returns {Promise<ConversationView>}
     */
    conversation(conversationId: string, options?: RequestOptions): Promise<ConversationView>;
    /**
     * A page of its messages, oldest first.
     *
     * @param {string} conversationId
     * @param {RequestOptions & {after?: number, limit?: number}} [options] how many to pass over, how many to give
     * @returns {Promise<MessagePage>}
     */
    messages(conversationId: string, { after, limit, ...options }?: RequestOptions & {
        after?: number;
        limit?: number;
    }): Promise<MessagePage>;
    /**
     * Stops a run: the named one, else the one that goes on, else the first that waits.
     *
     * @param {string} conversationId
     * @param {RequestOptions & {runId?: string}} [options]
     * @returns {Promise<boolean>} false when no run was named, and there is none
     */
    cancel(conversationId: string, { runId, ...options }?: RequestOptions & {
        runId?: string;
    }): Promise<boolean>;
    /**
     * Takes back what was decided for good (`always`) about a tool of the server: it is asked for again.
     *
     * @param {string} conversationId
     * @param {string} tool its name
     * @param {RequestOptions} [options]
     */
    retract(conversationId: string, tool: string, options?: RequestOptions): Promise<void>;
    /**
     * Removes a conversation.
     *
     * @param {string} conversationId
     * @param {RequestOptions} [options]
     */
    delete(conversationId: string, options?: RequestOptions): Promise<void>;
}
