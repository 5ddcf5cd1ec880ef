/** The React hook, for any library with React's three functions. */

import { keepChat, methodsOf } from "./chat.js";

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
export function createUseChat({ useSyncExternalStore, useRef, useCallback }) {
  return function useChat(client, options = {}) {
    const kept = useRef(/** @type {import("./chat.js").KeptChat | null} */ (null));
    const { chat } = (kept.current = keepChat(kept.current, client, options));
    const subscribe = useCallback(
      (/** @type {() => void} */ listener) => chat.subscribe(listener),
      [chat],
    );
    const state = useSyncExternalStore(subscribe, chat.getSnapshot, chat.getSnapshot);
    return { ...state, ...methodsOf(chat) };
  };
}
