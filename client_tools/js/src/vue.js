/** A composable for Vue. */

import { getCurrentInstance, onMounted, onScopeDispose, shallowRef, toValue, watch } from "vue";

import { keepChat, methodsOf } from "./chat.js";

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
export function useChat(client, options = {}) {
  let kept = keepChat(null, toValue(client), toValue(options));
  const state = shallowRef(kept.chat.getSnapshot());
  let isMounted = false;
  let leave = () => {};
  const follow = () => {
    const { chat } = kept;
    leave();
    const show = () => (state.value = chat.getSnapshot());
    leave = isMounted ? chat.subscribe(show) : () => {};
    show();
  };
  const mount = () => {
    isMounted = true;
    follow();
  };
  watch([() => toValue(client), () => toValue(options).conversationId], () => {
    const next = keepChat(kept, toValue(client), toValue(options));
    const isOther = next.chat !== kept.chat;
    kept = next;
    if (isOther) follow();
  });
  // a server renders without reading the conversation
  if (getCurrentInstance()) onMounted(mount);
  else mount();
  onScopeDispose(() => leave());
  return { state, ...methodsFrom(() => kept.chat) };
}

/**
 * @param {() => import("./chat.js").Chat} current
 * @returns {ChatMethods} those of the chat that is current when they are called
 */
function methodsFrom(current) {
  const names = /** @type {(keyof ChatMethods)[]} */ (Object.keys(methodsOf(current())));
  const call = (/** @type {keyof ChatMethods} */ name) => (/** @type {any[]} */ ...given) =>
    /** @type {any} */ (current()[name])(...given);
  return /** @type {any} */ (Object.fromEntries(names.map((name) => [name, call(name)])));
}
