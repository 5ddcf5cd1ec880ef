/**
 * The conversation of a chat, beside what the chat reads itself: its history, and what other
 * clients do in it.
 */
export type Event = import("./events.js").Event;
export type WatchEvent = import("./events.js").WatchEvent;
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").WatchEvent} WatchEvent */
/**
 * Watches a conversation, except while the chat reads a run itself: so each event comes once. The
 * watch goes on until it has come to that run, and continues behind it. Where it cannot continue,
 * it begins anew: with the newest messages of the history, then the run in progress.
 */
export declare class Live {
    #private;
    /**
     * @param {import("./client.js").Client} client
     * @param {object} options
     * @param {string} options.conversationId
     * @param {string[]} options.include
     * @param {boolean} options.isNew whether the server cannot have it yet
     * @param {boolean} options.isFollowed whether more than its history is read
     * @param {import("./thread.js").Thread} thread
     * @param {object} on
     * @param {(event: Exclude<WatchEvent, {type: "posted" | "switched" | "deleted" | "watching"}>) =>
     *   void}
     *   on.onEvent called with each event of a run that the chat does not read itself
     * @param {() => void} on.onChange
     * @param {() => void} on.onStopped called when it does not watch any more, perhaps within a run
     * @param {() => void} on.onDeleted
     * @param {(view: import("./client.js").ConversationView) => void} on.onLoaded called when the
     *   history was read, with the state of the conversation
     * @param {(isOpen: boolean, error?: unknown) => void} on.onConnection called as that of
     *   `watchWhileVisible`
     * @param {(error: unknown) => void} on.onError called when nothing can be read
     */
    constructor(client: import("./client.js").Client, options: {
        conversationId: string;
        include: string[];
        isNew: boolean;
        isFollowed: boolean;
    }, thread: import("./thread.js").Thread, on: {
        onEvent: (event: Exclude<WatchEvent, {
            type: "posted" | "switched" | "deleted" | "watching";
        }>) => void;
        onChange: () => void;
        onStopped: () => void;
        onDeleted: () => void;
        onLoaded: (view: import("./client.js").ConversationView) => void;
        onConnection: (isOpen: boolean, error?: unknown) => void;
        onError: (error: unknown) => void;
    });
    /** @returns {string | null} the watched run in progress */
    get runId(): string | null;
    get isLoading(): boolean;
    /**
     * @returns {Promise<void> | null} resolves when the history is read, or cannot be read; null: it
     *   is not being read
     */
    get loading(): Promise<void> | null;
    get hasOlder(): boolean;
    /**
     * @param {string | null} runId
     * @returns {Promise<void>} resolves when this run is watched to its end, or not watched at all
     */
    ended(runId: string | null): Promise<void>;
    begin(): void;
    /** Stop; what happens meanwhile is read from the history. */
    end(): void;
    /** Read the history again, and what is in progress.
     * @returns {Promise<void>} as `loading` */
    reload(): Promise<void>;
    /**
     * Show a page of the messages before those that are shown.
     *
     * @returns {Promise<void>}
     * @throws {import("./errors.js").PassbackError}
     */
    loadOlder(): Promise<void>;
    /**
     * Note an event that the chat reads itself.
     *
     * @param {Pick<Event, "type" | "cursor" | "runId">} event
     * @param {import("./thread.js").Exchange} exchange
     * @returns {boolean} false if it is watched already
     */
    claim({ type, cursor, runId }: Pick<Event, "type" | "cursor" | "runId">, exchange: import("./thread.js").Exchange): boolean;
    /** The chat reads no run itself any more.
     * @param {boolean} isWhole whether it has read that to its end */
    release(isWhole: boolean): void;
}
