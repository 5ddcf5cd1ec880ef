/** The answers that a chat reads itself, one after the other. */
import { Aborter } from "./signals.js";
export type Event = import("./events.js").Event;
export type OwedCall = import("./events.js").OwedCall;
export type ChatState = import("./state.js").ChatState;
export type Exchange = import("./thread.js").Exchange;
export type ChatParts = {
    client: import("./client.js").Client;
    conversationId: string;
    /**
     * of
     * every post
     */
    postOptions: Pick<import("./client.js").PostOptions, "include" | "onDisconnect">;
    thread: import("./thread.js").Thread;
    live: import("./live.js").Live;
    state: () => Readonly<ChatState>;
    change: (change?: Partial<ChatState>) => void;
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
    send: (options: {
        signal: AbortSignal;
        onConnection: (isOpen: boolean) => void;
    }) => import("./sending.js").Sending;
    asked: Exchange["asked"];
    replaces: string | null;
    /**
     * null: an earlier one is answered
     * again
     */
    message: import("./state.js").SentMessage | null;
};
export declare class Answering {
    #private;
    /** @param {ChatParts} chat */
    constructor(chat: ChatParts);
    /** @returns {import("./sending.js").Sending | null} what is being read */
    get sending(): import("./sending.js").Sending | null;
    /** @returns {Promise<void> | null} resolves when what `resume` has begun has ended */
    get resuming(): Promise<void> | null;
    /** Whether an event of the current answer has come. */
    get hasBegun(): boolean;
    /** Whether the connection is lost on which it is read. */
    get isLost(): boolean;
    /** Stop reading; the run continues on the server. */
    leave(): void;
    /**
     * Post a message, and show the answer: at once, or when the current one has ended.
     *
     * @param {ChatPost} post
     * @param {() => void} onValid called before the message is shown
     * @returns {Promise<void>} resolves when the answer has ended
     * @throws {import("./errors.js").InvalidArgument}
     */
    post({ send, asked, replaces, message }: ChatPost, onValid: () => void): Promise<void>;
    /**
     * Answer calls, and show how the answer goes on.
     *
     * @param {ChatPost["send"]} send
     * @param {Event} [ownEvent] the result that is posted, shown once the server has it
     * @returns {Promise<void>} resolves when the answer has ended
     */
    settle(send: ChatPost["send"], ownEvent?: Event): Promise<void>;
    /** Nothing is owed any more. */
    forgetOwed(): void;
    /**
     * @param {{runId?: string}} next the run to follow; without it, the calls that are owed are
     *   answered if there is none
     * @param {Exchange} exchange
     * @returns {Promise<void>} resolves when the answer has ended
     */
    resume(next: {
        runId?: string;
    }, exchange: Exchange): Promise<void>;
    /**
     * Show an event of a run that another client has begun.
     *
     * @param {Event | (import("./events.js").ErrorEvent & import("./events.js").Place)} event
     */
    addWatched(event: Event | (import("./events.js").ErrorEvent & import("./events.js").Place)): void;
    /** Show that no answer is in progress, unless this chat reads one. */
    rest(): void;
}
