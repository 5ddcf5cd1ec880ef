/** The React hook, for any library with React's three functions. */
export type ChatOptions = import("./state.js").ChatOptions;
export type ChatState = import("./state.js").ChatState;
export type Client = import("./client.js").Client;
export type Hooks = {
    useSyncExternalStore: <T>(subscribe: (listener: () => void) => () => void, snapshot: () => T, server?: () => T) => T;
    useRef: <T>(initial: T) => {
        current: T;
    };
    useCallback: <T extends Function>(callback: T, dependencies: unknown[]) => T;
};
export type ChatView = ChatState & import("./chat.js").ChatMethods;
/** @typedef {import("./state.js").ChatOptions} ChatOptions */
/** @typedef {import("./state.js").ChatState} ChatState */
/** @typedef {import("./client.js").Client} Client */
/**
 * @typedef {object} Hooks the functions of React that the hook needs
 * @property {<T>(subscribe: (listener: () => void) => () => void, snapshot: () => T, server?: () =>
 *   T) => T} useSyncExternalStore
 * @property {<T>(initial: T) => {current: T}} useRef
 * @property {<T extends Function>(callback: T, dependencies: unknown[]) => T} useCallback
 */
/** @typedef {ChatState & import("./chat.js").ChatMethods} ChatView */
/**
 * @param {Hooks} hooks
 * @returns {(client: Client, options?: ChatOptions) => ChatView} the hook: a chat that lives as
 *   long as its component, and is replaced if the client or `conversationId` changes; with the id
 *   that a new chat has made itself, it stays
 */
export declare function createUseChat({ useSyncExternalStore, useRef, useCallback }: Hooks): (client: Client, options?: ChatOptions) => ChatView;
