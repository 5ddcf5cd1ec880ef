/** `Chat`: what a user interface shows of a conversation. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Chat, InvalidArgument } from "../../client_tools/js/src/index.js";
import { handsBack, json, scripted, stream, text } from "./client-support.mjs";

const USER = { role: "user", text: "hi" };

function said(words, more = {}) {
  return { role: "assistant", text: words, reasoning: "", calls: [], ...more };
}

test("each change is a new value, and what is void is not shown", async (t) => {
  const events = [text("old"), { type: "rewind", to: "run.1-0" }, { type: "reasoning", delta: "hm" }, text("new")];
  const { client } = await scripted(t, [stream({ events })]);
  const chat = new Chat(client(), { conversationId: "c" });
  const seen = [];
  chat.subscribe(() => seen.push(chat.getSnapshot()));
  const before = chat.getSnapshot();
  await chat.send("hi");
  assert.deepEqual(before, { conversationId: "c", entries: [], status: "idle", owed: [], error: null });
  assert.deepEqual(seen.map(({ entries, status }) => [status, entries.at(-1).text]), [
    ["running", "hi"], ["running", "old"], ["running", ""], ["running", ""], ["running", "new"], ["idle", "new"],
  ]);
  assert.deepEqual(chat.getSnapshot().entries, [USER, said("new", { reasoning: "hm" })]);
  assert.equal(chat.getSnapshot(), chat.getSnapshot());
});

test("calls are shown with their results", async (t) => {
  const start = { type: "tool-call-start", toolCallId: "1", toolCallName: "f" };
  const pieces = ['{"a"', ":1}"].map((delta) => ({ type: "tool-call-args", toolCallId: "1", delta }));
  const end = { type: "tool-call-end", toolCallId: "1" };
  const { client } = await scripted(t, [
    stream({ events: [start, ...pieces, end, ...handsBack(["1", "f", '{"a":1}'])] }),
    stream({ events: [text("Done.")], run: "next" }),
  ]);
  const chat = new Chat(client({ tools: { f: { execute: ({ a }) => a + 1 } } }));
  await chat.send("hi");
  const call = { id: "1", name: "f", arguments: '{"a":1}', complete: true, result: 2, isError: false };
  assert.deepEqual(chat.getSnapshot().entries, [USER, said("Done.", { calls: [call] })]);
});

test("what went wrong is in the state, until something else is sent", async (t) => {
  const { client } = await scripted(t, [json({ code: "unauthenticated", message: "no" }, 401), stream({ events: [] })]);
  const chat = new Chat(client());
  await chat.send("hi");
  const { status, error, entries } = chat.getSnapshot();
  assert.deepEqual([status, error.code, entries], ["idle", "unauthenticated", [USER]]);
  await chat.send("hi");
  assert.equal(chat.getSnapshot().error, null);
});

test("one answer at a time; a stop ends it", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: [text("a")], end: "open" }),
    json({ cancelled: true }, 202),
  ]);
  const chat = new Chat(client());
  const shown = new Promise((resolve) => chat.subscribe(() => chat.getSnapshot().entries.length === 2 && resolve()));
  const sending = chat.send("hi");
  await shown;
  assert.throws(() => chat.send("again"), InvalidArgument);
  assert.equal(await chat.stop(), true);
  assert.equal(requests[1].query.runId, "run");
  void sending;
});

test("the reading ends when the last listener has gone, and that is no error", async (t) => {
  const { client } = await scripted(t, [stream({ events: [text("a")], end: "open" })]);
  const chat = new Chat(client());
  const leave = chat.subscribe(() => chat.getSnapshot().entries.length === 2 && leave());
  await chat.send("hi");
  const { status, error, entries } = chat.getSnapshot();
  assert.deepEqual([status, error, entries], ["idle", null, [USER, said("a")]]);
});

test("resume shows what is owed being answered", async (t) => {
  const call = { id: "1", name: "f", arguments: "{}", kind: "tool_result" };
  const { client } = await scripted(t, [json({ running: null, owed: [call] }), stream({ events: [text("Done.")] })]);
  const chat = new Chat(client({ tools: { f: { execute: () => "ok" } } }), { conversationId: "c" });
  await chat.resume();
  const done = { id: "1", name: "f", arguments: "{}", complete: true, result: "ok", isError: false };
  assert.deepEqual(chat.getSnapshot().entries, [said("Done.", { calls: [done] })]);
});
