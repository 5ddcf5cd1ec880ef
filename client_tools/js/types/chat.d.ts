/** A conversation for a user interface: an immutable state, and a subscription to its changes. */
import { Aborter } from "./signals.js";
export type Client = import("./client.js").Client;
export type Decision = import("./client.js").Decision;
export type SendOptions = import("./client.js").SendOptions;
export type Event = import("./events.js").Event;
export type OwedCall = import("./events.js").OwedCall;
export type Exchange = import("./thread.js").Exchange;
export type UserEntry = {
    readonly role: "user";
    readonly id: string;
    readonly text: string;
    readonly parts?: readonly import("./client.js").Part[];
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
};
export type ChatState = {
    conversationId: string;
    /**
     * the messages and answers
     * since this chat was created
     */
    entries: readonly (UserEntry | Readonly<AssistantEntry>)[];
    /**
     * deleted: by another client; the next message
     * begins the conversation anew
     */
    status: "idle" | "running" | "deleted";
    /**
     * calls that a person must answer: approvals by `decide`,
     * questions by `answer`
     */
    owed: readonly OwedCall[];
    /**
     * of the last `send`, `resume`, `decide` or `answer`
     */
    error: Error | null;
};
export type QueuedMessage = {
    sending: import("./sending.js").Sending;
    /**
     * stops reading its answer
     */
    reading: Aborter;
    exchange: Exchange;
    /**
     * whether the server has accepted it
     */
    isAccepted: boolean;
    /**
     * called when its answer has ended
     */
    shown: () => void;
};
export type ChatPost = {
    send: (signal: AbortSignal) => import("./sending.js").Sending;
    asked: Exchange["asked"];
    replaces: string | null;
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
export type ChatSendOptions = Omit<SendOptions, "conversationId" | "include" | "signal" | "after">;
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
    /** Continue after a reload: follow the current run, and answer the calls that are owed.
     * @returns {Promise<void>} as `send` */
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
