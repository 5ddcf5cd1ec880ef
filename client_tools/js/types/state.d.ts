/** The state of a chat, as a user interface shows it. */
export type SendOptions = import("./client.js").SendOptions;
export type UserMessage = import("./client.js").UserMessage;
export type Versions = {
    readonly ids: readonly string[];
    readonly current: string;
};
export type UserEntry = {
    readonly role: "user";
    readonly id: string;
    readonly text: string;
    readonly parts?: readonly import("./client.js").Part[];
    readonly versions?: readonly Versions[];
};
export type AssistantEntry = {
    role: "assistant";
    /**
     * without what was rewound
     */
    text: string;
    reasoning: string;
    calls: readonly import("./calls.js").Call[];
    /**
     * the accepted object, if an output schema was given
     */
    output?: unknown;
    /**
     * the name of the model that answered last, sub-agents aside, as soon as
     * it is known
     */
    model?: string;
    /**
     * if there are several: of the whole answer, and of what
     * follows results of its tools
     */
    versions?: readonly Versions[];
};
export type SentMessage = UserMessage & {
    id: string;
};
export type Refused = {
    text: string;
    /**
     * sent again, it is the same message to the server
     */
    message: SentMessage;
    /**
     * the id of the message that it was to take the place of
     */
    replaces: string | null;
    error: Error;
};
export type ChatStatus = "loading" | "submitted" | "streaming" | "reconnecting" | "idle" | "deleted";
export type ChatState = {
    conversationId: string;
    /**
     * the messages and answers
     */
    entries: readonly (UserEntry | Readonly<AssistantEntry>)[];
    status: ChatStatus;
    /**
     * whether an answer is in progress: `stop` stops it, and a message needs
     * `onBusy`
     */
    isBusy: boolean;
    /**
     * whether there are messages before the first one of `entries`
     */
    hasOlder: boolean;
    /**
     * calls that a person must answer:
     * approvals by `decide`, questions by `answer`
     */
    owed: readonly import("./events.js").OwedCall[];
    /**
     * of the last thing that was done or read
     */
    error: Error | null;
    /**
     * the last message, if it was not accepted; it is not in
     * `entries`
     */
    refused: Refused | null;
};
export type ChatOptions = {
    /**
     * default: a new one
     */
    conversationId?: string;
    include?: SendOptions["include"];
    /**
     * whether runs of this chat continue when
     * nobody follows them
     */
    onDisconnect?: SendOptions["onDisconnect"];
    /**
     * whether the chat shows what other clients do in its conversation while
     * somebody subscribes to it; default: true
     */
    live?: boolean;
};
export type ChatSendOptions = Omit<SendOptions, "conversationId" | "include" | "signal" | "after" | "onConnection">;
/** @typedef {import("./client.js").SendOptions} SendOptions */
/** @typedef {import("./client.js").UserMessage} UserMessage */
/**
 * @typedef {{readonly ids: readonly string[], readonly current: string}} Versions the versions of a
 *   place, by the ids of their first messages, oldest first, and the one that is shown
 */
/**
 * @typedef {{readonly role: "user", readonly id: string, readonly text: string, readonly parts?:
 *   readonly import("./client.js").Part[], readonly versions?: readonly Versions[]}} UserEntry `id`
 *   of the message; `parts` if it has more than text; `versions` as of an answer
 */
/**
 * @typedef {object} AssistantEntry
 * @property {"assistant"} role
 * @property {string} text without what was rewound
 * @property {string} reasoning
 * @property {readonly import("./calls.js").Call[]} calls
 * @property {unknown} [output] the accepted object, if an output schema was given
 * @property {string} [model] the name of the model that answered last, sub-agents aside, as soon as
 *   it is known
 * @property {readonly Versions[]} [versions] if there are several: of the whole answer, and of what
 *   follows results of its tools
 */
/** @typedef {UserMessage & {id: string}} SentMessage */
/**
 * @typedef {object} Refused a message that the server has not accepted, as far as is known
 * @property {string} text
 * @property {SentMessage} message sent again, it is the same message to the server
 * @property {string | null} replaces the id of the message that it was to take the place of
 * @property {Error} error
 */
/**
 * @typedef {"loading" | "submitted" | "streaming" | "reconnecting" | "idle" | "deleted"} ChatStatus
 *   - `loading`: the history is being read.
 *   - `submitted`: this chat has sent something, and no event of the answer has come.
 *   - `streaming`: an answer is in progress, to this client's message or to another one's.
 *   - `reconnecting`: the connection broke, or could not be made, and is being tried again.
 *   - `idle`: nothing is in progress.
 *   - `deleted`: another client has deleted the conversation; the next message begins it anew.
 */
/**
 * @typedef {object} ChatState
 * @property {string} conversationId
 * @property {readonly (UserEntry | Readonly<AssistantEntry>)[]} entries the messages and answers
 * @property {ChatStatus} status
 * @property {boolean} isBusy whether an answer is in progress: `stop` stops it, and a message needs
 *   `onBusy`
 * @property {boolean} hasOlder whether there are messages before the first one of `entries`
 * @property {readonly import("./events.js").OwedCall[]} owed calls that a person must answer:
 *   approvals by `decide`, questions by `answer`
 * @property {Error | null} error of the last thing that was done or read
 * @property {Refused | null} refused the last message, if it was not accepted; it is not in
 *   `entries`
 */
/**
 * @typedef {object} ChatOptions
 * @property {string} [conversationId] default: a new one
 * @property {SendOptions["include"]} [include]
 * @property {SendOptions["onDisconnect"]} [onDisconnect] whether runs of this chat continue when
 *   nobody follows them
 * @property {boolean} [live] whether the chat shows what other clients do in its conversation while
 *   somebody subscribes to it; default: true
 */
/**
 * @typedef {Omit<SendOptions, "conversationId" | "include" | "signal" | "after" | "onConnection">}
 *   ChatSendOptions
 */
/**
 * @param {object} facts
 * @param {boolean} facts.isDeleted
 * @param {boolean} facts.isLost
 * @param {boolean} facts.isBusy
 * @param {boolean} facts.hasBegun whether an event of the answer has come
 * @param {boolean} facts.isLoading
 * @returns {ChatStatus}
 */
export declare function statusOf({ isDeleted, isLost, isBusy, hasBegun, isLoading }: {
    isDeleted: boolean;
    isLost: boolean;
    isBusy: boolean;
    hasBegun: boolean;
    isLoading: boolean;
}): ChatStatus;
