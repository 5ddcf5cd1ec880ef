/** The hook in a real React, from the installed package. Usage: node client-react.mjs URL */

import { StrictMode, createElement } from "react";
import { act, create } from "react-test-renderer";

import { Client } from "passback";
import { useChat } from "passback/react";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
const warn = console.error;
console.error = (text, ...more) =>
  String(text).includes("react-test-renderer is deprecated") || warn(text, ...more);

const tools = { "get-time-zone": { execute: () => "UTC" }, ask_user: { execute: "later" } };
const { promise: begun, resolve: begin } = withResolvers();
const client = new Client({ url: process.argv[2], tools, fetch: noticing });
let chat;

/** Says when the long answer has begun. */
async function noticing(url, init) {
  const response = await fetch(url, init);
  if (init.body?.includes("count to 1000")) begin();
  return response;
}

function Page() {
  chat = useChat(client);
  return chat.status;
}

let page;
await act(async () => {
  page = create(createElement(StrictMode, null, createElement(Page)));
});
await act(() => chat.send("count to 3"));
const said = chat.entries.map(({ id, ...entry }) => entry);
await act(() => chat.send("use get-time-zone"));
const { calls, text } = chat.entries.at(-1);

// a question is in the state until a person has answered it
await act(() => chat.send("use ask_user"));
const { owed } = chat;
await act(() => chat.answer(owed[0].id, "Rather not.", { isError: true }));
const asked = {
  owed: owed.map(({ kind }) => kind),
  left: chat.owed.length,
  text: chat.entries.at(-1).text,
};

// the page goes as soon as the answer begins, and the run does not
let leaving;
await act(async () => {
  leaving = chat.send("count to 1000");
});
await begun;
await act(async () => page.unmount());
await leaving;
const { status: left } = await client.conversation(chat.conversationId);
console.log(
  JSON.stringify({ entries: said, text, results: calls.map(({ result }) => result), asked, left }),
);

function withResolvers() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
