/** The messages of the history, as the server stores them; the `role` is the discriminator. */

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
