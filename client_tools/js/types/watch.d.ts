/** Follow a conversation live: all its runs, whoever begins them. */
export type WatchEvent = import("./events.js").WatchEvent;
/**
 * @param {import("./sending.js").ClientParts} parts
 * @param {{conversationId: string, after: string, absent: "wait" | "refuse", include: string[],
 *   signal: AbortSignal, onConnection?:
 *   import("./client.js").WatchOptions["onConnection"]}} options
 * @returns {AsyncGenerator<WatchEvent, void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export declare function watchConversation(parts: import("./sending.js").ClientParts, { conversationId, after, absent, include, signal, onConnection }: {
    conversationId: string;
    after: string;
    absent: "wait" | "refuse";
    include: string[];
    signal: AbortSignal;
    onConnection?: import("./client.js").WatchOptions["onConnection"];
}): AsyncGenerator<WatchEvent, void, void>;
/**
 * @param {unknown} error
 * @returns {boolean} whether the server has no such conversation
 */
export declare function isMissing(error: unknown): boolean;
/**
 * Watch a conversation for a page: without a connection while the page is hidden, since a browser
 * has few for each server, and on a new one as soon as the network is back. It waits for a server
 * that cannot be reached.
 *
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {import("./client.js").WatchOptions & {signal: AbortSignal, onConnection?: (isOpen:
 *   boolean, error?: unknown) => void}} options `onConnection` is called with an error when the
 *   server could not be reached, and is waited for
 * @returns {AsyncGenerator<WatchEvent, void, void>}
 * @throws {import("./errors.js").PassbackError} or the signal's reason
 */
export declare function watchWhileVisible(client: import("./client.js").Client, conversationId: string, { signal, ...options }: import("./client.js").WatchOptions & {
    signal: AbortSignal;
    onConnection?: (isOpen: boolean, error?: unknown) => void;
}): AsyncGenerator<WatchEvent, void, void>;
