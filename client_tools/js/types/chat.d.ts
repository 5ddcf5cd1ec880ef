/** A conversation for a user interface: an immutable state, and a subscription to its changes. */
export type ChatPost = import("./answering.js").ChatPost;
export type Client = import("./client.js").Client;
export type Decision = import("./client.js").Decision;
export type SendOptions = import("./client.js").SendOptions;
export type UserMessage = import("./client.js").UserMessage;
export type Event = import("./events.js").Event;
export type ChatOptions = import("./state.js").ChatOptions;
export type ChatSendOptions = import("./state.js").ChatSendOptions;
export type ChatState = import("./state.js").ChatState;
export type AnswerMethod = "send" | "edit" | "regenerate" | "decide" | "answer" | "stop";
export type HistoryMethod = "switchVersion" | "loadOlder" | "reload" | "resume";
export type ChatMethods = Pick<Chat, AnswerMethod | HistoryMethod>;
export type KeptChat = {
    client: Client;
    conversationId: string | undefined;
    chat: Chat;
};
export declare class Chat {
    #private;
    /**
     * @param {Client} client
     * @param {ChatOptions} [options]
     */
    constructor(client: Client, { conversationId, include, onDisconnect, live }?: ChatOptions);
    /** @returns {Readonly<ChatState>} the same object until something changes */
    getSnapshot: () => Readonly<ChatState>;
    /**
     * @param {() => void} listener called after each change
     * @returns {() => void} unsubscribes; without listeners, reading stops and the run continues on
     *   the server
     */
    subscribe: (listener: () => void) => () => void;
    /**
     * @param {string | import("./client.js").UserMessage} message
     * @param {ChatSendOptions} [options] during an answer, `onBusy` must be "enqueue" or "interrupt"
     * @returns {Promise<void>} resolves when the answer has ended; an error is in the state
     * @throws {InvalidArgument} during an answer, without `onBusy`
     */
    send: (message: string | import("./client.js").UserMessage, options?: ChatSendOptions) => Promise<void>;
    /**
     * Put another message in the place of one of the user's: what stood behind that stays as another
     * branch.
     *
     * @param {string} id of the message
     * @param {string | import("./client.js").UserMessage} message a text takes the place of the text
     *   alone: attachments and additions stay
     * @param {ChatSendOptions} [options] as of `send`
     * @returns {Promise<void>} as `send`
     */
    edit: (id: string, message: string | import("./client.js").UserMessage, options?: ChatSendOptions) => Promise<void>;
    /**
     * Answer a message of the user again: the earlier answer, and what followed it, stay as another
     * branch.
     *
     * @param {string} id of the message
     * @param {Omit<import("./client.js").RegenerateOptions, "include" | "signal">} [options] `onBusy`
     *   as of `send`
     * @returns {Promise<void>} as `send`
     */
    regenerate: (id: string, options?: Omit<import("./client.js").RegenerateOptions, "include" | "signal">) => Promise<void>;
    /**
     * Show another version of a message or an answer, and what followed it, to all clients.
     *
     * @param {string} id one of the `ids` of an entry's `versions`
     * @returns {Promise<void>} resolves when the history is read; an error is in the state
     * @throws {InvalidArgument} during an answer
     */
    switchVersion: (id: string) => Promise<void>;
    /** Show a page of the messages before the first one of `entries`.
     * @returns {Promise<void>} resolves when it is read; an error is in the state */
    loadOlder: () => Promise<void>;
    /**
     * Read the history again, and follow the conversation, after an error.
     *
     * @returns {Promise<void>} resolves when it is read; an error is in the state
     */
    reload: () => Promise<void>;
    /**
     * Follow the current run, and answer the calls that are owed. A chat does that itself when the
     * history is read.
     *
     * @returns {Promise<void>} as `send`
     */
    resume: () => Promise<void>;
    /**
     * Decide on approvals in `owed`; the waiting answer continues.
     *
     * @param {Decision | Decision[]} decision
     * @returns {Promise<void>} as `send`
     */
    decide: (decision: Decision | Decision[]) => Promise<void>;
    /**
     * Answer a call in `owed`; the waiting answer continues.
     *
     * @param {string} id
     * @param {unknown} content for a question: `Answers`, or a text if there is one question
     * @param {{isError?: boolean}} [options] `isError`: the question was declined, and the content
     *   says why
     * @returns {Promise<void>} as `send`
     */
    answer: (id: string, content: unknown, { isError }?: {
        isError?: boolean;
    }) => Promise<void>;
    /** Stop the run on the server.
     * @returns {Promise<boolean>} whether there was a run */
    stop: () => Promise<boolean>;
}
/**
 * @param {Chat} chat
 * @returns {ChatMethods} for bindings to frameworks
 */
export declare function methodsOf(chat: Chat): ChatMethods;
/**
 * @param {KeptChat | null} kept
 * @param {Client} client
 * @param {ChatOptions} options
 * @returns {KeptChat} the same one, unless the client or the conversation is another
 */
export declare function keepChat(kept: KeptChat | null, client: Client, options: ChatOptions): KeptChat;
