/** A composable for Vue. */
export type ChatMethods = import("./chat.js").ChatMethods;
export type KeptChat = import("./chat.js").KeptChat;
export type ChatState = import("./state.js").ChatState;
/** @typedef {import("./chat.js").ChatMethods} ChatMethods */
/** @typedef {import("./chat.js").KeptChat} KeptChat */
/** @typedef {import("./state.js").ChatState} ChatState */
/**
 * A chat that lives as long as its component, or scope: `const { state, send } = useChat(client, {
 * conversationId })`. It is replaced if the client or `conversationId` changes; with the id that a
 * new chat has made itself, it stays.
 *
 * @param {import("vue").MaybeRefOrGetter<import("./client.js").Client>} client
 * @param {import("vue").MaybeRefOrGetter<import("./state.js").ChatOptions>} [options]
 * @returns {{readonly state: Readonly<import("vue").ShallowRef<Readonly<ChatState>>>} &
 *   ChatMethods} `state.value` is a new object after each change
 */
export declare function useChat(client: import("vue").MaybeRefOrGetter<import("./client.js").Client>, options?: import("vue").MaybeRefOrGetter<import("./state.js").ChatOptions>): {
    readonly state: Readonly<import("vue").ShallowRef<Readonly<ChatState>>>;
} & ChatMethods;
