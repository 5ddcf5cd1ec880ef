/** The messages of the history, as the server stores them; the `role` is the discriminator. */
export type Recorded = {
    /**
     * when a message was written, RFC 3339 in UTC, if known
     */
    createdAt?: string;
    /**
     * the run that wrote it, or that it began
     */
    runId?: string;
};
export type PastInput = {
    id: string;
    role: "user" | "system";
    content: string | import("./client.js").Part[];
    /**
     * the agent that was asked, if the server has several
     */
    agentId?: string;
    /**
     * additions to the message, as are the next five
     */
    structuredData?: unknown;
    intent?: string;
    constraints?: string[];
    instructions?: string;
    outputSchema?: Record<string, unknown>;
    model?: string;
    /**
     * the time of its arrival, RFC 3339, if the agent gets the time
     */
    at?: string;
    /**
     * keys of its post that the protocol does not define
     */
    extras?: Record<string, unknown>;
    /**
     * why the server wrote it itself: the model's
     * answer did not fit the schema
     */
    synthetic?: "invalid" | (string & {});
    /**
     * whether a client imported it with a history, here and below
     */
    imported?: boolean;
};
export type PastCall = {
    id: string;
    type: "function";
    function: {
        name: string;
        arguments: string;
    };
    /**
     * whether the client executes it
     */
    client: boolean;
    /**
     * the tool's name for people, if it has one
     */
    title?: string;
    /**
     * what the tool does, if it says
     */
    kind?: import("./events.js").ToolKind;
};
export type PastAnswer = {
    id: string;
    role: "assistant";
    content: string | import("./client.js").Part[];
    toolCalls?: PastCall[];
    /**
     * whether it was stopped early
     */
    partial?: boolean;
    usage?: import("./events.js").Usage;
    imported?: boolean;
    /**
     * the model that gave it
     */
    model?: string;
    /**
     * how long the model took, if known
     */
    durationMs?: number;
};
export type PastResult = {
    id: string;
    role: "tool";
    toolCallId: string;
    content: unknown;
    isError?: boolean;
    /**
     * why the server wrote it itself
     */
    synthetic?: import("./events.js").Synthetic;
    imported?: boolean;
    /**
     * how long a tool of the server worked, if known
     */
    durationMs?: number;
};
export type PastApproval = {
    id: string;
    role: "approval";
    toolCallId: string;
    approved: boolean;
    reason?: string;
    always?: boolean;
};
export type PastSummary = {
    id: string;
    role: "summary";
    content: string;
};
export type PastChild = {
    id: string;
    role: "child";
    /**
     * the call that it works on
     */
    toolCallId: string;
    message: Message;
};
export type Message = ((PastInput | PastAnswer | PastResult | PastApproval | PastSummary) & Recorded) | PastChild;
/**
 * @typedef {object} Recorded
 * @property {string} [createdAt] when a message was written, RFC 3339 in UTC, if known
 * @property {string} [runId] the run that wrote it, or that it began
 */
/**
 * @typedef {object} PastInput
 * @property {string} id
 * @property {"user" | "system"} role
 * @property {string | import("./client.js").Part[]} content
 * @property {string} [agentId] the agent that was asked, if the server has several
 * @property {unknown} [structuredData] additions to the message, as are the next five
 * @property {string} [intent]
 * @property {string[]} [constraints]
 * @property {string} [instructions]
 * @property {Record<string, unknown>} [outputSchema]
 * @property {string} [model]
 * @property {string} [at] the time of its arrival, RFC 3339, if the agent gets the time
 * @property {Record<string, unknown>} [extras] keys of its post that the protocol does not define
 * @property {"invalid" | (string & {})} [synthetic] why the server wrote it itself: the model's
 *   answer did not fit the schema
 * @property {boolean} [imported] whether a client imported it with a history, here and below
 */
/**
 * @typedef {object} PastCall
 * @property {string} id
 * @property {"function"} type
 * @property {{name: string, arguments: string}} function
 * @property {boolean} client whether the client executes it
 * @property {string} [title] the tool's name for people, if it has one
 * @property {import("./events.js").ToolKind} [kind] what the tool does, if it says
 */
/**
 * @typedef {object} PastAnswer one answer of the model
 * @property {string} id
 * @property {"assistant"} role
 * @property {string | import("./client.js").Part[]} content
 * @property {PastCall[]} [toolCalls]
 * @property {boolean} [partial] whether it was stopped early
 * @property {import("./events.js").Usage} [usage]
 * @property {boolean} [imported]
 * @property {string} [model] the model that gave it
 * @property {number} [durationMs] how long the model took, if known
 */
/**
 * @typedef {object} PastResult the answer to a call
 * @property {string} id
 * @property {"tool"} role
 * @property {string} toolCallId
 * @property {unknown} content
 * @property {boolean} [isError]
 * @property {import("./events.js").Synthetic} [synthetic] why the server wrote it itself
 * @property {boolean} [imported]
 * @property {number} [durationMs] how long a tool of the server worked, if known
 */
/**
 * @typedef {object} PastApproval a person's decision on a call
 * @property {string} id
 * @property {"approval"} role
 * @property {string} toolCallId
 * @property {boolean} approved
 * @property {string} [reason]
 * @property {boolean} [always]
 */
/**
 * @typedef {object} PastSummary the summary that replaces the earlier messages in the prompt
 * @property {string} id
 * @property {"summary"} role
 * @property {string} content
 */
/**
 * @typedef {object} PastChild a message of a sub-agent's conversation
 * @property {string} id
 * @property {"child"} role
 * @property {string} toolCallId the call that it works on
 * @property {Message} message
 */
/**
 * @typedef {((PastInput | PastAnswer | PastResult | PastApproval | PastSummary) & Recorded) |
 *   PastChild} Message
 */
export {};
