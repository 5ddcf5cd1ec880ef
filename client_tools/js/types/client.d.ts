/** The client of one server. */
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
export type ClientOptions<T extends Record<string, unknown> = {}> = {
    /**
     * of the server; default: the origin of the page
     */
    url?: string | URL;
    apiKey?: string;
    /**
     * by name, or a list of tools with a `name`; declared
     * with each user message; without it the tools of a conversation stay unchanged
     */
    tools?: { [K in keyof T]: import("./tools.js").TypedTool<T[K]>; } | readonly import("./tools.js").NamedTool[];
    /**
     * asked before calls of tools that need
     * approval, the server's included; without it, an approval of a server's tool stays owed until
     * `decide`
     */
    approve?: import("./tools.js").Approve;
    /**
     * whether a call is claimed before it runs, so that no other client
     * runs it; default: true
     */
    claims?: boolean;
    /**
     * whether a call of a tool that this client does not
     * have is answered with an error (the default) or left to another client
     */
    unknownTools?: "refuse" | "leave";
    /**
     * called with each request, response and frame
     */
    trace?: import("./trace.js").Trace;
    fetch?: typeof globalThis.fetch;
    limits?: Partial<import("./options.js").Limits>;
    retry?: Partial<import("./options.js").Retry>;
};
export type MessageContext = {
    /**
     * data to work on, any JSON
     */
    structuredData?: unknown;
    /**
     * what the user wants, in the program's words
     */
    intent?: string;
    /**
     * rules for the agent
     */
    constraints?: readonly string[];
    /**
     * instructions of the program for the answer to this message
     */
    instructions?: string;
    /**
     * the JSON Schema, of type object, of
     * the answer, also if tool calls come first; `Answer` has the `output`
     */
    outputSchema?: Record<string, unknown> | string;
    /**
     * the model that answers this message, if the server lets clients choose
     */
    model?: string;
};
export type PostOptions = {
    /**
     * default: a new one
     */
    conversationId?: string;
    /**
     * the agent to ask, if the server has several
     */
    agentId?: string;
    /**
     * stops reading, and running tools, at once; the run continues on
     * the server
     */
    signal?: AbortSignal;
    /**
     * more kinds of events; `output`
     * is always included
     */
    include?: ("agents" | "context" | "plan" | "progress" | "reasoning" | "state" | "usage" | "message-ids" | "output" | "tools" | (string & {}))[];
    /**
     * what a message does during a
     * run
     */
    onBusy?: "reject" | "enqueue" | "interrupt" | "rollback";
    /**
     * whether the run continues when nobody follows it
     */
    onDisconnect?: "continue" | "cancel";
    /**
     * names the post, so that a later `send` with the same key and
     * content joins its run; default: a random one
     */
    idempotencyKey?: string;
    /**
     * whether a post is retried that was refused because of another run
     */
    retryBusy?: boolean;
    /**
     * called with false when the connection broke,
     * or could not be made, and is tried again, and with true each time it is there
     */
    onConnection?: (isOpen: boolean) => void;
};
export type Decision = {
    /**
     * of the interrupt, which is the call's
     */
    id: string;
    approved: boolean;
    /**
     * for the model, if it is not approved
     */
    reason?: string;
    /**
     * whether it holds for all later calls of this tool in this
     * conversation, until `retract`
     */
    always?: boolean;
};
export type SendOptions = MessageContext & PostOptions & {
    after?: string;
};
export type RegenerateOptions = Omit<PostOptions, "conversationId" | "agentId">;
export type DecideOptions = Omit<PostOptions, "conversationId" | "agentId" | "onBusy">;
export type ResumeOptions = {
    /**
     * the cursor to continue after
     */
    lastEventId?: string;
    /**
     * the run to follow, from its start
     */
    runId?: string;
    signal?: AbortSignal;
    /**
     * whether runs that this client's answers
     * start continue when nobody follows them
     */
    onDisconnect?: SendOptions["onDisconnect"];
    include?: SendOptions["include"];
    onConnection?: PostOptions["onConnection"];
};
export type WatchOptions = {
    /**
     * the cursor of the last event that was seen, of any run
     */
    after?: string;
    /**
     * whether a conversation that does not exist is waited for,
     * or an `ApiError` (the default)
     */
    absent?: "wait" | "refuse";
    include?: SendOptions["include"];
    /**
     * closes the connection; the iteration throws its reason
     */
    signal?: AbortSignal;
    onConnection?: PostOptions["onConnection"];
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
     * of all messages together, if the server sends it
     */
    usage?: import("./events.js").Usage;
    /**
     * the agent's plan, if the server sends it
     */
    plan?: import("./events.js").PlanEntry[];
    /**
     * of all its model calls, in the currency of the server's prices
     */
    cost?: number;
    /**
     * total working time of its runs
     */
    seconds?: number;
    /**
     * the latest denied
     * calls; `reason` is the text that the model got
     */
    refusals?: {
        toolCallId: string;
        name: string;
        reason: string;
    }[];
    /**
     * permanent
     * decisions about tools of the server
     */
    permissions?: {
        name: string;
        decision: "allow" | "deny";
        reason?: string;
    }[];
    /**
     * for people, empty if it has none; it and the times are missing if the
     * server does not send them
     */
    title?: string;
    /**
     * when its first message came, RFC 3339 in UTC
     */
    createdAt?: string;
    /**
     * when a client last posted something
     */
    updatedAt?: string;
    /**
     * the places with several versions,
     * from the beginning on, if there are any
     */
    branches?: import("./branches.js").BranchPoint[];
};
export type ListedConversation = {
    id: string;
    /**
     * for people, empty if it has none; it may be a stranger's text
     */
    title: string;
    /**
     * when its first message came, RFC 3339 in UTC
     */
    createdAt: string;
    /**
     * when a client last posted something
     */
    updatedAt: string;
    /**
     * `waiting` if the client must answer calls
     */
    status: "idle" | "running" | "waiting";
    /**
     * the newest run
     */
    runId: string | null;
    /**
     * number of calls that the client must answer
     */
    owed: number;
    /**
     * of the last stored event of that run
     */
    cursor: string | null;
};
export type ConversationPage = {
    conversations: ListedConversation[];
    next: string | null;
};
export type MessagePage = {
    messages: import("./messages.js").Message[];
    next: number | null;
    total: number;
};
export type AgentView = {
    /**
     * the `agentId`, empty for an agent without a name
     */
    id: string;
    /**
     * its own first; where
     * others follow, a message may choose one; `media` are the kinds of attachments that it takes
     */
    models: {
        id: string;
        media: ("image" | "audio" | "file")[];
    }[];
    commands: {
        name: string;
        description: string;
    }[];
};
export type ServerAgents = {
    /**
     * the one first that is asked by default
     */
    agents: AgentView[];
    /**
     * of a post, and of the inline
     * media of a message together
     */
    limits: {
        bodyBytes: number;
        attachmentBytes: number;
    };
};
export type RunView = {
    conversationId: string;
    runId: string;
    /**
     * null: it goes on
     */
    outcome: "completed" | "handed-back" | "cancelled" | "failed" | null;
    reason: string | null;
    /**
     * RFC 3339 in UTC
     */
    beganAt: string | null;
    endedAt: string | null;
    /**
     * number of messages that it has stored
     */
    messages: number;
    model: string | null;
    /**
     * of its messages
     */
    usage: import("./events.js").Usage;
    /**
     * of all its model calls, as are the next two
     */
    tokens: number;
    seconds: number;
    /**
     * in the currency of the server's prices; 0 without a price
     */
    cost: number;
};
/** @typedef {{type: "text", text: string}} TextPart */
/**
 * @typedef {{type: "image" | "audio" | "file", url: string, mediaType?: string, name?: string}}
 *   LinkedPart media by an `http:`, `https:` or `data:` URL
 */
/**
 * @typedef {{type: "image" | "audio" | "file", data: string, mediaType: string, name?: string}}
 *   InlinePart media in base64
 */
/** @typedef {{type: "data", data: unknown}} DataPart any JSON */
/**
 * @typedef {TextPart | LinkedPart | InlinePart | DataPart | {type: string & {}, [key: string]:
 *   unknown}} Part also the parts of chat completions, and of newer servers
 */
/** @typedef {{role: "user" | "system", content: string | Part[], id?: string}} UserMessage */
/**
 * @typedef {{role: "tool", toolCallId: string, content: unknown, isError?: boolean}} ToolMessage a
 *   result that your own code has produced
 */
/**
 * @template {Record<string, unknown>} [T={}]
 * @typedef {object} ClientOptions
 * @property {string | URL} [url] of the server; default: the origin of the page
 * @property {string} [apiKey]
 * @property {{[K in keyof T]: import("./tools.js").TypedTool<T[K]>} | readonly
 *   import("./tools.js").NamedTool[]} [tools] by name, or a list of tools with a `name`; declared
 *   with each user message; without it the tools of a conversation stay unchanged
 * @property {import("./tools.js").Approve} [approve] asked before calls of tools that need
 *   approval, the server's included; without it, an approval of a server's tool stays owed until
 *   `decide`
 * @property {boolean} [claims] whether a call is claimed before it runs, so that no other client
 *   runs it; default: true
 * @property {"refuse" | "leave"} [unknownTools] whether a call of a tool that this client does not
 *   have is answered with an error (the default) or left to another client
 * @property {import("./trace.js").Trace} [trace] called with each request, response and frame
 * @property {typeof globalThis.fetch} [fetch]
 * @property {Partial<import("./options.js").Limits>} [limits]
 * @property {Partial<import("./options.js").Retry>} [retry]
 */
/**
 * @typedef {object} MessageContext additions to a user message; a post of results alone has none
 * @property {unknown} [structuredData] data to work on, any JSON
 * @property {string} [intent] what the user wants, in the program's words
 * @property {readonly string[]} [constraints] rules for the agent
 * @property {string} [instructions] instructions of the program for the answer to this message
 * @property {Record<string, unknown> | string} [outputSchema] the JSON Schema, of type object, of
 *   the answer, also if tool calls come first; `Answer` has the `output`
 * @property {string} [model] the model that answers this message, if the server lets clients choose
 */
/**
 * @typedef {object} PostOptions
 * @property {string} [conversationId] default: a new one
 * @property {string} [agentId] the agent to ask, if the server has several
 * @property {AbortSignal} [signal] stops reading, and running tools, at once; the run continues on
 *   the server
 * @property {("agents" | "context" | "plan" | "progress" | "reasoning" | "state" | "usage" |
 *   "message-ids" | "output" | "tools" | (string & {}))[]} [include] more kinds of events; `output`
 *   is always included
 * @property {"reject" | "enqueue" | "interrupt" | "rollback"} [onBusy] what a message does during a
 *   run
 * @property {"continue" | "cancel"} [onDisconnect] whether the run continues when nobody follows it
 * @property {string} [idempotencyKey] names the post, so that a later `send` with the same key and
 *   content joins its run; default: a random one
 * @property {boolean} [retryBusy] whether a post is retried that was refused because of another run
 * @property {(isOpen: boolean) => void} [onConnection] called with false when the connection broke,
 *   or could not be made, and is tried again, and with true each time it is there
 */
/**
 * @typedef {object} Decision
 * @property {string} id of the interrupt, which is the call's
 * @property {boolean} approved
 * @property {string} [reason] for the model, if it is not approved
 * @property {boolean} [always] whether it holds for all later calls of this tool in this
 *   conversation, until `retract`
 */
/**
 * @typedef {MessageContext & PostOptions & {after?: string}} SendOptions `after`: the id of the
 *   message that the new ones follow, "" for the beginning; what stood behind it stays as another
 *   branch. Default: the last message
 */
/** @typedef {Omit<PostOptions, "conversationId" | "agentId">} RegenerateOptions */
/** @typedef {Omit<PostOptions, "conversationId" | "agentId" | "onBusy">} DecideOptions */
/**
 * @typedef {object} ResumeOptions
 * @property {string} [lastEventId] the cursor to continue after
 * @property {string} [runId] the run to follow, from its start
 * @property {AbortSignal} [signal]
 * @property {SendOptions["onDisconnect"]} [onDisconnect] whether runs that this client's answers
 *   start continue when nobody follows them
 * @property {SendOptions["include"]} [include]
 * @property {PostOptions["onConnection"]} [onConnection]
 */
/**
 * @typedef {object} WatchOptions
 * @property {string} [after] the cursor of the last event that was seen, of any run
 * @property {"wait" | "refuse"} [absent] whether a conversation that does not exist is waited for,
 *   or an `ApiError` (the default)
 * @property {SendOptions["include"]} [include]
 * @property {AbortSignal} [signal] closes the connection; the iteration throws its reason
 * @property {PostOptions["onConnection"]} [onConnection]
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
 * @property {import("./events.js").Usage} [usage] of all messages together, if the server sends it
 * @property {import("./events.js").PlanEntry[]} [plan] the agent's plan, if the server sends it
 * @property {number} [cost] of all its model calls, in the currency of the server's prices
 * @property {number} [seconds] total working time of its runs
 * @property {{toolCallId: string, name: string, reason: string}[]} [refusals] the latest denied
 *   calls; `reason` is the text that the model got
 * @property {{name: string, decision: "allow" | "deny", reason?: string}[]} [permissions] permanent
 *   decisions about tools of the server
 * @property {string} [title] for people, empty if it has none; it and the times are missing if the
 *   server does not send them
 * @property {string} [createdAt] when its first message came, RFC 3339 in UTC
 * @property {string} [updatedAt] when a client last posted something
 * @property {import("./branches.js").BranchPoint[]} [branches] the places with several versions,
 *   from the beginning on, if there are any
 */
/**
 * @typedef {object} ListedConversation
 * @property {string} id
 * @property {string} title for people, empty if it has none; it may be a stranger's text
 * @property {string} createdAt when its first message came, RFC 3339 in UTC
 * @property {string} updatedAt when a client last posted something
 * @property {"idle" | "running" | "waiting"} status `waiting` if the client must answer calls
 * @property {string | null} runId the newest run
 * @property {number} owed number of calls that the client must answer
 * @property {string | null} cursor of the last stored event of that run
 */
/**
 * @typedef {{conversations: ListedConversation[], next: string | null}} ConversationPage `next` is
 *   the `after` of the next page; a page may be short, or empty, and not the last one
 */
/**
 * @typedef {{messages: import("./messages.js").Message[], next: number | null, total: number}}
 *   MessagePage
 */
/**
 * @typedef {object} AgentView
 * @property {string} id the `agentId`, empty for an agent without a name
 * @property {{id: string, media: ("image" | "audio" | "file")[]}[]} models its own first; where
 *   others follow, a message may choose one; `media` are the kinds of attachments that it takes
 * @property {{name: string, description: string}[]} commands
 */
/**
 * @typedef {object} ServerAgents
 * @property {AgentView[]} agents the one first that is asked by default
 * @property {{bodyBytes: number, attachmentBytes: number}} limits of a post, and of the inline
 *   media of a message together
 */
/**
 * @typedef {object} RunView the record of a run
 * @property {string} conversationId
 * @property {string} runId
 * @property {"completed" | "handed-back" | "cancelled" | "failed" | null} outcome null: it goes on
 * @property {string | null} reason
 * @property {string | null} beganAt RFC 3339 in UTC
 * @property {string | null} endedAt
 * @property {number} messages number of messages that it has stored
 * @property {string | null} model
 * @property {import("./events.js").Usage} usage of its messages
 * @property {number} tokens of all its model calls, as are the next two
 * @property {number} seconds
 * @property {number} cost in the currency of the server's prices; 0 without a price
 */
/** @template {Record<string, unknown>} [const T={}] the parameters of its tools, by their names */
export declare class Client<const T extends Record<string, unknown> = {}> {
    #private;
    /**
     * @param {ClientOptions<T>} [options]
     * @throws {InvalidArgument}
     */
    constructor(options?: ClientOptions<T>);
    /**
     * Post a message and yield the events of all runs that it leads to: calls of this client's tools
     * are run, their results posted, and the next run's events follow, until nothing is owed.
     *
     * @param {string | UserMessage | (UserMessage | ToolMessage)[]} message
     * @param {SendOptions} [options]
     * @returns {Sending}
     */
    send(message: string | UserMessage | (UserMessage | ToolMessage)[], { conversationId, after, ...options }?: SendOptions): Sending;
    /**
     * Answer a message again, and yield the events of that answer, as `send` does. The earlier
     * answer, and what followed it, stay as another branch.
     *
     * @param {string} conversationId
     * @param {string} after the id of the user's message that is to be answered, or of the last
     *   result of the tool calls
     * @param {RegenerateOptions} [options]
     * @returns {Sending}
     */
    regenerate(conversationId: string, after: string, options?: RegenerateOptions): Sending;
    /**
     * Decide on calls of the server's tools that wait for approval, and yield the events that follow,
     * as `send` does. The first decision on a call counts. While other calls are owed, only an `owed`
     * event follows.
     *
     * @param {string} conversationId
     * @param {Decision | Decision[]} decision
     * @param {DecideOptions} [options]
     * @returns {Sending}
     */
    decide(conversationId: string, decision: Decision | Decision[], options?: DecideOptions): Sending;
    /**
     * Continue a conversation after a reload or on another device: follow the current run, from its
     * start or after `lastEventId`, and answer the calls that are owed. Yield nothing if there is
     * neither.
     *
     * @param {string} conversationId
     * @param {ResumeOptions} [options]
     * @returns {Sending}
     */
    resume(conversationId: string, { lastEventId, runId, include, ...options }?: ResumeOptions): Sending;
    /**
     * Follow a conversation live: yield the events of all its runs, whoever posts, and `posted`, the
     * messages with which each begins. Without `after` it starts with `watching`, then the run in
     * progress from its start, or the next one. It ends after `deleted`. It runs no tools.
     *
     * @param {string} conversationId
     * @param {WatchOptions} [options]
     * @returns {AsyncGenerator<import("./events.js").WatchEvent, void, void>} throws `CursorExpired`
     *   if events after `after` are lost: read the messages again, and watch without it
     */
    watch(conversationId: string, { after, absent, include, signal, onConnection }?: WatchOptions): AsyncGenerator<import("./events.js").WatchEvent, void, void>;
    /**
     * Return the state of a conversation.
     *
     * @param {string} conversationId
     * @param {RequestOptions} [options]
     * @returns {Promise<ConversationView>}
     */
    conversation(conversationId: string, options?: RequestOptions): Promise<ConversationView>;
    /**
     * Return a page of all conversations of the key's owner, the one first that a client changed
     * last.
     *
     * @param {RequestOptions & {after?: string | null, limit?: number, search?: string}} [options]
     *   the `next` of the page before, how many to return, 1 to 100, and what the titles contain, in
     *   upper or lower case
     * @returns {Promise<ConversationPage>}
     */
    conversations({ after, limit, search, ...options }?: RequestOptions & {
        after?: string | null;
        limit?: number;
        search?: string;
    }): Promise<ConversationPage>;
    /**
     * Give a conversation another title.
     *
     * @param {string} conversationId
     * @param {string} title of 1 to 200 characters
     * @param {RequestOptions} [options]
     * @returns {Promise<ConversationView>} its state
     */
    rename(conversationId: string, title: string, options?: RequestOptions): Promise<ConversationView>;
    /**
     * Return a page of its messages, oldest first.
     *
     * @param {string} conversationId
     * @param {RequestOptions & {after?: number, limit?: number}} [options] how many messages to skip,
     *   and how many to return
     * @returns {Promise<MessagePage>}
     */
    messages(conversationId: string, { after, limit, ...options }?: RequestOptions & {
        after?: number;
        limit?: number;
    }): Promise<MessagePage>;
    /**
     * Return the agents of the server, with their models and commands, and the limits of a post.
     *
     * @param {RequestOptions} [options]
     * @returns {Promise<ServerAgents>}
     */
    agents(options?: RequestOptions): Promise<ServerAgents>;
    /**
     * Return the record of a run, which outlives its events.
     *
     * @param {string} conversationId
     * @param {string} runId
     * @param {RequestOptions} [options]
     * @returns {Promise<RunView>}
     * @throws {import("./errors.js").ApiError} `run_not_found`: there is none, or it waits
     */
    run(conversationId: string, runId: string, options?: RequestOptions): Promise<RunView>;
    /**
     * Find a message of the branch that is read, from its end, and what it follows.
     *
     * @param {string} conversationId
     * @param {string} messageId
     * @param {RequestOptions} [options]
     * @returns {Promise<import("./branches.js").FoundMessage>}
     * @throws {import("./errors.js").ApiError} `message_not_found`: the branch does not have it
     */
    findMessage(conversationId: string, messageId: string, options?: RequestOptions): Promise<import("./branches.js").FoundMessage>;
    /**
     * Read another branch from now on: the one that ends with the newest message behind this one.
     *
     * @param {string} conversationId
     * @param {string} messageId such as one of the `versions` of a place
     * @param {RequestOptions} [options]
     * @returns {Promise<ConversationView>} its state
     * @throws {import("./errors.js").ApiError} `conversation_busy`: there is a run, or one waits
     */
    switchBranch(conversationId: string, messageId: string, options?: RequestOptions): Promise<ConversationView>;
    /**
     * Copy the messages of a branch into a new conversation.
     *
     * @param {string} conversationId
     * @param {RequestOptions & {after?: string, conversationId?: string}} [options] the last message
     *   to copy, of any branch, default: the last one; and the id of the copy, default: a new one
     * @returns {Promise<ConversationView>} the state of the copy
     */
    fork(conversationId: string, { after, conversationId: copy, ...options }?: RequestOptions & {
        after?: string;
        conversationId?: string;
    }): Promise<ConversationView>;
    /**
     * Stop a run: the named one, else the current one, else the first that is queued.
     *
     * @param {string} conversationId
     * @param {RequestOptions & {runId?: string}} [options]
     * @returns {Promise<boolean>} false if no run was named and there is none
     */
    cancel(conversationId: string, { runId, ...options }?: RequestOptions & {
        runId?: string;
    }): Promise<boolean>;
    /**
     * Retract a permanent decision (`always`) about a tool of the server: its calls need approval
     * again.
     *
     * @param {string} conversationId
     * @param {string} tool its name
     * @param {RequestOptions} [options]
     */
    retract(conversationId: string, tool: string, options?: RequestOptions): Promise<void>;
    /**
     * Delete a conversation.
     *
     * @param {string} conversationId
     * @param {RequestOptions} [options]
     */
    delete(conversationId: string, options?: RequestOptions): Promise<void>;
}
