/** A conversation as a user interface shows it: a value that changes, and a way to be told. */
export type Client = import("./client.js").Client;
export type SendOptions = import("./client.js").SendOptions;
export type UserEntry = {
    readonly role: "user";
    readonly text: string;
};
export type AssistantEntry = {
    role: "assistant";
    /**
     * without what became void
     */
    text: string;
    reasoning: string;
    calls: readonly import("./answer.js").Call[];
};
export type ChatState = {
    conversationId: string;
    /**
     * what was said since this chat was made
     */
    entries: readonly (UserEntry | Readonly<AssistantEntry>)[];
    status: "idle" | "running";
    /**
     * that ended the last `send` or `resume`
     */
    error: Error | null;
};
export type ChatOptions = {
    /**
     * default: a new one
     */
    conversationId?: string;
    include?: SendOptions["include"];
};
/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./client.js").SendOptions} SendOptions */
/** @typedef {{readonly role: "user", readonly text: string}} UserEntry */
/**
 * @typedef {object} AssistantEntry
 * @property {"assistant"} role
 * @property {string} text without what became void
 * @property {string} reasoning
 * @property {readonly import("./answer.js").Call[]} calls
 */
/**
 * @typedef {object} ChatState
 * @property {string} conversationId
 * @property {readonly (UserEntry | Readonly<AssistantEntry>)[]} entries what was said since this chat was made
 * @property {"idle" | "running"} status
 * @property {Error | null} error that ended the last `send` or `resume`
 */
/**
 * @typedef {object} ChatOptions
 * @property {string} [conversationId] default: a new one
 * @property {SendOptions["include"]} [include]
 */
export declare class Chat {
    #private;
    /**
     * @param {Client} client
     * @param {ChatOptions} [options]
     */
    constructor(client: Client, { conversationId, include }?: ChatOptions);
    /** @returns {Readonly<ChatState>} the same value as long as nothing has changed */
    getSnapshot: () => Readonly<ChatState>;
    /**
     * @param {() => void} listener is called after each change
     * @returns {() => void} ends that; when the last one has gone, the reading ends, too, and the run goes on at the server
     */
    subscribe: (listener: () => void) => () => void;
    /**
     * @param {string} text
     * @param {Pick<SendOptions, "onBusy" | "retryBusy">} [options]
     * @returns {Promise<void>} when all is said; what went wrong is in the state
     * @throws {InvalidArgument} while an answer comes
     */
    send: (text: string, options?: Pick<SendOptions, "onBusy" | "retryBusy">) => Promise<void>;
    /** Goes on after a reload: shows the run that goes on, and answers the calls that are owed.
     * @returns {Promise<void>} as `send` */
    resume: () => Promise<void>;
    /** Stops the run at the server.
     * @returns {Promise<boolean>} whether there was one */
    stop: () => Promise<boolean>;
}
