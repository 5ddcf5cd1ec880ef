/**
 * A page with one chat in each of the frameworks, over the published bindings. `window.show(name,
 * url, conversationId)` shows it, or another conversation in it; `window.hide()` removes it.
 */

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createApp, h, shallowReactive } from "vue";
import { mount, unmount } from "svelte";

import { Client } from "passback";
import { useChat as useReactChat } from "passback/react";
import { useChat as useVueChat } from "passback/vue";

import Svelte4Chat from "./bindings-svelte-4.svelte";
import SvelteChat from "./bindings-svelte.svelte";
import { props as svelteProps } from "./bindings-props.svelte.js";

const tools = { "get-time-zone": { execute: () => "UTC" } };
let client;

/** What a framework has rendered is told to the test, too. */
function Page({ conversationId }) {
  const chat = useReactChat(client, { conversationId });
  window.chat = chat;
  return (
    <>
      {chat.entries.map(({ role, text }, at) => (
        <article key={at} aria-label={role}>
          {text}
        </article>
      ))}
      <output>{chat.status}</output>
      <code>{chat.conversationId}</code>
    </>
  );
}

function inReact(target, conversationId) {
  const root = createRoot(target);
  const show = (id) =>
    root.render(
      <StrictMode>
        <Page conversationId={id} />
      </StrictMode>,
    );
  show(conversationId);
  return { show, hide: () => root.unmount() };
}

function inVue(target, conversationId) {
  const props = shallowReactive({ conversationId });
  const setup = () => {
    const chat = useVueChat(client, () => ({ conversationId: props.conversationId }));
    window.chat = chat;
    return () => [
      ...chat.state.value.entries.map(({ role, text }) => h("article", { ariaLabel: role }, text)),
      h("output", chat.state.value.status),
      h("code", chat.state.value.conversationId),
    ];
  };
  const app = createApp({ setup });
  app.mount(target);
  return { show: (id) => (props.conversationId = id), hide: () => app.unmount() };
}

function inSvelte(target, conversationId) {
  Object.assign(svelteProps, { client, conversationId });
  const page = mount(SvelteChat, { target });
  return {
    show: (id) => (svelteProps.conversationId = id),
    hide: () => unmount(page),
  };
}

function inSvelte4(target, id) {
  const page = new Svelte4Chat({ target, props: { client, conversationId: id } });
  return {
    show: (conversationId) => page.$set({ conversationId }),
    hide: () => page.$destroy(),
  };
}

let shown;
window.show = (name, url, conversationId) => {
  client ??= new Client({ url, tools });
  const begin = { react: inReact, vue: inVue, svelte: inSvelte, "svelte-4": inSvelte4 }[name];
  if (shown) shown.show(conversationId);
  else shown = begin(document.getElementById("root"), conversationId);
};
window.hide = () => {
  shown.hide();
  shown = undefined;
};
