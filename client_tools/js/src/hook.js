/** The React hook, for any library with React's three functions. */

import { Chat } from "./chat.js";

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
export function createUseChat({ useSyncExternalStore, useRef, useCallback }) {
  return function useChat(client, options = {}) {
    const { conversationId } = options;
    const kept = useRef(
      /** @type {{client: Client, conversationId: string | undefined, chat: Chat} | null} */ (null),
    );
    if (kept.current?.client !== client || kept.current.conversationId !== conversationId) {
      kept.current = { client, conversationId, chat: new Chat(client, options) };
    }
    const { chat } = kept.current;
    const subscribe = useCallback(
      (/** @type {() => void} */ listener) => chat.subscribe(listener),
      [chat],
    );
    const state = useSyncExternalStore(subscribe, chat.getSnapshot, chat.getSnapshot);
    const { send, edit, regenerate, resume, decide, answer, stop } = chat;
    return { ...state, send, edit, regenerate, resume, decide, answer, stop };
  };
}
