/** A conversation as a user interface shows it: a value that changes, and a way to be told. */
import { Aborter } from "./signals.js";
export type Client = import("./client.js").Client;
export type Decision = import("./client.js").Decision;
export type SendOptions = import("./client.js").SendOptions;
export type Event = import("./events.js").Event;
export type OwedCall = import("./events.js").OwedCall;
export type UserEntry = {
    readonly role: "user";
    readonly text: string;
    readonly parts?: readonly import("./client.js").Part[];
};
export type AssistantEntry = {
    role: "assistant";
    /**
     * without what became void
     */
    text: string;
    reasoning: string;
    calls: readonly import("./calls.js").Call[];
    /**
     * the accepted value, where the answer had to fit an output schema
     */
    output?: unknown;
    /**
     * the name of the model that spoke last, sub-agents aside, as soon as it is told
     */
    model?: string;
};
export type ChatState = {
    conversationId: string;
    /**
     * what was said since this chat was made
     */
    entries: readonly (UserEntry | Readonly<AssistantEntry>)[];
    status: "idle" | "running";
    /**
     * what people have to answer: approvals by `decide`, questions by `answer`
     */
    owed: readonly OwedCall[];
    /**
     * that ended the last `send`, `resume`, `decide` or `answer`
     */
    error: Error | null;
};
export type Next = {
    sending: import("./sending.js").Sending;
    /**
     * ends the reading of its answer
     */
    reading: Aborter;
    entry: UserEntry;
    /**
     * whether the server has it
     */
    isTaken: boolean;
    /**
     * is called when all is said
     */
    shown: () => void;
};
export type ChatOptions = {
    /**
     * default: a new one
     */
    conversationId?: string;
    include?: SendOptions["include"];
    /**
     * what becomes of the runs of this chat when nobody follows them
     */
    onDisconnect?: SendOptions["onDisconnect"];
};
export declare class Chat {
    #private;
    /**
     * @param {Client} client
     * @param {ChatOptions} [options]
     */
    constructor(client: Client, { conversationId, include, onDisconnect }?: ChatOptions);
    /** @returns {Readonly<ChatState>} the same value as long as nothing has changed */
    getSnapshot: () => Readonly<ChatState>;
    /**
     * @param {() => void} listener is called after each change
     * @returns {() => void} ends that; when the last one has gone, the reading ends, too, and the run goes on at the server
     */
    subscribe: (listener: () => void) => () => void;
    /**
     * @param {string | import("./client.js").UserMessage} message
     * @param {Omit<SendOptions, "conversationId" | "include" | "signal">} [options] while an answer comes, `onBusy` has to say
     *   what becomes of it: "enqueue" or "interrupt"
     * @returns {Promise<void>} when all is said; what went wrong is in the state
     * @throws {InvalidArgument} while an answer comes, without that
     */
    send: (message: string | import("./client.js").UserMessage, options?: Omit<SendOptions, "conversationId" | "include" | "signal">) => Promise<void>;
    /** Goes on after a reload: shows the run that goes on, and answers the calls that are owed.
     * @returns {Promise<void>} as `send` */
    resume: () => Promise<void>;
    /**
     * Decides on approvals of `owed`; the answer that waited goes on.
     *
     * @param {Decision | Decision[]} decision
     * @returns {Promise<void>} as `send`
     */
    decide: (decision: Decision | Decision[]) => Promise<void>;
    /**
     * Answers a call of `owed`; the answer that waited goes on.
     *
     * @param {string} id
     * @param {unknown} content of a question: `Answers`, or just a text where there is one question
     * @param {{isError?: boolean}} [options] `isError`: the question is not answered, and the content says why
     * @returns {Promise<void>} as `send`
     */
    answer: (id: string, content: unknown, { isError }?: {
        isError?: boolean;
    }) => Promise<void>;
    /** Stops the run at the server.
     * @returns {Promise<boolean>} whether there was one */
    stop: () => Promise<boolean>;
}
