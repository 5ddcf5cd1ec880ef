/** A store for Svelte, by the contract of its stores: nothing of Svelte is imported. */

import { Chat, methodsOf } from "./chat.js";

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
export function createChat(client, options) {
  const chat = new Chat(client, options);
  /** @type {ChatReadable["subscribe"]} */
  const subscribe = (run) => {
    run(chat.getSnapshot());
    return chat.subscribe(() => run(chat.getSnapshot()));
  };
  return { subscribe, ...methodsOf(chat) };
}
