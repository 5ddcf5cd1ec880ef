/** A store for Svelte, by the contract of its stores: nothing of Svelte is imported. */
export type ChatState = import("./state.js").ChatState;
export type ChatReadable = {
    /**
     * calls `run` at
     * once and after each change; the function that it returns unsubscribes
     */
    subscribe: (run: (state: Readonly<ChatState>) => void) => () => void;
};
/** @typedef {import("./state.js").ChatState} ChatState */
/**
 * @typedef {object} ChatReadable
 * @property {(run: (state: Readonly<ChatState>) => void) => () => void} subscribe calls `run` at
 *   once and after each change; the function that it returns unsubscribes
 */
/**
 * A chat as a store: `const chat = createChat(client, { conversationId })`, then `$chat.entries`
 * and `chat.send("hi")`. It reads and follows its conversation while somebody subscribes. For
 * another conversation, create another one.
 *
 * @param {import("./client.js").Client} client
 * @param {import("./state.js").ChatOptions} [options]
 * @returns {ChatReadable & import("./chat.js").ChatMethods}
 */
export declare function createChat(client: import("./client.js").Client, options?: import("./state.js").ChatOptions): ChatReadable & import("./chat.js").ChatMethods;
