/** The React hook, for any library with React's three functions. */
import { Chat } from "./chat.js";
export type ChatOptions = import("./chat.js").ChatOptions;
export type ChatState = import("./chat.js").ChatState;
export type Client = import("./client.js").Client;
export type Hooks = {
    useSyncExternalStore: <T>(subscribe: (listener: () => void) => () => void, snapshot: () => T, server?: () => T) => T;
    useRef: <T>(initial: T) => {
        current: T;
    };
    useCallback: <T extends Function>(callback: T, dependencies: unknown[]) => T;
};
export type Methods = "send" | "edit" | "regenerate" | "resume" | "decide" | "answer" | "stop";
export type ChatView = ChatState & Pick<Chat, Methods>;
/** @typedef {import("./chat.js").ChatOptions} ChatOptions */
/** @typedef {import("./chat.js").ChatState} ChatState */
/** @typedef {import("./client.js").Client} Client */
/**
 * @typedef {object} Hooks the functions of React that the hook needs
 * @property {<T>(subscribe: (listener: () => void) => () => void, snapshot: () => T, server?: () =>
 *   T) => T} useSyncExternalStore
 * @property {<T>(initial: T) => {current: T}} useRef
 * @property {<T extends Function>(callback: T, dependencies: unknown[]) => T} useCallback
 */
/** @typedef {"send" | "edit" | "regenerate" | "resume" | "decide" | "answer" | "stop"} Methods */
/** @typedef {ChatState & Pick<Chat, Methods>} ChatView */
/**
 * @param {Hooks} hooks
 * @returns {(client: Client, options?: ChatOptions) => ChatView} the hook: a chat that lives as
 *   long as its component, and is replaced if the client or `conversationId` changes
 */
export declare function createUseChat({ useSyncExternalStore, useRef, useCallback }: Hooks): (client: Client, options?: ChatOptions) => ChatView;
