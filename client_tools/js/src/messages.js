/** The messages of the history, as the server has them; told apart by their `role`. */

/**
 * @typedef {object} PastInput
 * @property {string} id
 * @property {"user" | "system"} role
 * @property {string | import("./client.js").Part[]} content
 * @property {string} [agentId] the agent that was asked, where the server has several
 * @property {unknown} [structuredData] what its post said beside the words, as are the next five
 * @property {string} [intent]
 * @property {string[]} [constraints]
 * @property {string} [instructions]
 * @property {Record<string, unknown>} [outputSchema]
 * @property {string} [model]
 * @property {string} [at] when it came, RFC 3339, where the agent is told the time
 * @property {Record<string, unknown>} [extras] keys of its post that the protocol does not have
 * @property {"invalid" | (string & {})} [synthetic] why the server wrote it itself: the model's answer did not fit
 * @property {boolean} [imported] whether it is of a history that a client brought along, here and below
 */

/**
 * @typedef {object} PastCall
 * @property {string} id
 * @property {"function"} type
 * @property {{name: string, arguments: string}} function
 * @property {boolean} client whether the client executes it
 */

/**
 * @typedef {object} PastAnswer one answer of the model
 * @property {string} id
 * @property {"assistant"} role
 * @property {string | import("./client.js").Part[]} content
 * @property {PastCall[]} [toolCalls]
 * @property {boolean} [partial] whether it was cut short
 * @property {import("./events.js").Usage} [usage]
 * @property {boolean} [imported]
 * @property {string} [model] which one said it
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
 */

/**
 * @typedef {object} PastApproval what a person said of a call that needed it
 * @property {string} id
 * @property {"approval"} role
 * @property {string} toolCallId
 * @property {boolean} approved
 * @property {string} [reason]
 * @property {boolean} [always]
 */

/**
 * @typedef {object} PastSummary what the model is shown from here on, in place of what came before
 * @property {string} id
 * @property {"summary"} role
 * @property {string} content
 */

/**
 * @typedef {object} PastChild what a sub-agent was told or has said
 * @property {string} id
 * @property {"child"} role
 * @property {string} toolCallId the call that it works on
 * @property {Message} message
 */

/** @typedef {PastInput | PastAnswer | PastResult | PastApproval | PastSummary | PastChild} Message */

export {};
