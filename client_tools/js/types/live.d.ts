/** What other clients do in the conversation of a chat, beside what the chat reads itself. */
export type Event = import("./events.js").Event;
export type WatchEvent = import("./events.js").WatchEvent;
/**
 * Watches a conversation, except while the chat reads a run itself: so each event comes once. The
 * watch goes on until it has come to that run, and continues behind it.
 */
export declare class Live {
    #private;
    isOn: boolean;
    /** Whether the server has the conversation, as far as is known. */
    isKnown: boolean;
    /**
     * @param {import("./client.js").Client} client
     * @param {{conversationId: string, include: string[]}} options
     * @param {import("./thread.js").Thread} thread
     * @param {object} on
     * @param {(event: Exclude<WatchEvent, {type: "posted" | "deleted" | "watching"}>) => void}
     *   on.onEvent called with each event of a run that the chat does not read itself
     * @param {() => void} on.onChange
     * @param {() => void} on.onStopped called when it does not watch any more, perhaps within a run
     * @param {() => void} on.onDeleted
     */
    constructor(client: import("./client.js").Client, options: {
        conversationId: string;
        include: string[];
    }, thread: import("./thread.js").Thread, on: {
        onEvent: (event: Exclude<WatchEvent, {
            type: "posted" | "deleted" | "watching";
        }>) => void;
        onChange: () => void;
        onStopped: () => void;
        onDeleted: () => void;
    });
    /** @returns {string | null} the watched run in progress */
    get runId(): string | null;
    /**
     * @param {string | null} runId
     * @returns {Promise<void>} resolves when this run is watched to its end, or not watched at all
     */
    ended(runId: string | null): Promise<void>;
    begin(): void;
    end(): void;
    /**
     * Note an event that the chat reads itself.
     *
     * @param {Event} event
     * @param {import("./thread.js").Exchange} exchange
     * @returns {boolean} false if it is watched already
     */
    claim({ type, cursor, runId }: Event, exchange: import("./thread.js").Exchange): boolean;
    /** The chat reads no run itself any more.
     * @param {boolean} isWhole whether it has read that to its end */
    release(isWhole: boolean): void;
}
