/**
 * `Chat` where other clients answer, or nobody does: what is owed, and what becomes of the calls.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Chat } from "../../client_tools/js/src/index.js";
import { json, scripted, stream, text } from "./client-support.mjs";

const APPROVAL = {
  id: "1",
  name: "delete_file",
  arguments: "{}",
  kind: "approval",
  reason: "Sure?",
};
const QUESTION = { id: "2", name: "ask_user", arguments: "{}", kind: "question" };
const RESULT = { id: "3", name: "f", arguments: "{}", kind: "tool_result" };
const CONFLICT = json({ code: "tool_result_conflict", message: "it is answered" }, 409);

function asks(...owed) {
  const begun = owed.map(({ id, name }) => ({
    type: "tool-call-start",
    toolCallId: id,
    toolCallName: name,
  }));
  const ends = owed.map(({ id }) => ({ type: "tool-call-end", toolCallId: id }));
  return stream({
    events: [{ type: "run-start" }, ...begun, ...ends, { type: "owed", toolCalls: owed }],
    run: "mine",
  });
}

function goesOn(said, run = "theirs", ...before) {
  return stream({
    events: [
      { type: "run-start" },
      ...before,
      text(said),
      { type: "run-end", outcome: "completed" },
    ],
    run,
  });
}

function stands(owed, runId, running = null) {
  return json({ running: running && { runId: running }, runId, owed });
}

/** The last page of a history, and before it how much there is. */
function history(...messages) {
  return [
    json({ messages: [], next: 1, total: messages.length }),
    json({ messages, next: null, total: messages.length }),
  ];
}

function tool(toolCallId, content, more = {}) {
  return { id: `m${toolCallId}`, role: "tool", toolCallId, content, ...more };
}

/** A chat in which these calls are owed. */
async function chatOwing(t, owed, ...script) {
  const server = await scripted(t, [asks(...owed), ...script]);
  const chat = new Chat(server.client({ unknownTools: "leave" }), { conversationId: "c" });
  await chat.send("hi");
  return { ...server, chat };
}

function callsOf(chat, at = 1) {
  return chat
    .getSnapshot()
    .entries[at].calls.map(({ id, complete, result, isError }) => [id, complete, result, isError]);
}

const paths = ({ method, path, query }) =>
  `${method} ${path}${query.runId ? ` ${query.runId}` : ""}`;

for (const [how, act] of [
  ["a decision", (chat) => chat.decide({ id: "1", approved: true })],
  ["an answer", (chat) => chat.answer("2", { answers: [{}] })],
]) {
  test(`${how} that comes too late shows what the first one led to`, async (t) => {
    const gone = { type: "tool-result", toolCallId: "1", result: "gone" };
    const { chat, requests } = await chatOwing(
      t,
      [APPROVAL, QUESTION],
      CONFLICT,
      stands([], "theirs"),
      goesOn("Done.", "theirs", gone),
      ...history(tool("2", "Ada")),
    );
    await act(chat);
    const { owed, error, status, entries } = chat.getSnapshot();
    assert.deepEqual([owed, error, status, entries[1].text], [[], null, "idle", "Done."]);
    assert.deepEqual(callsOf(chat), [
      ["1", true, "gone", undefined],
      ["2", true, "Ada", false],
    ]);
    assert.deepEqual(requests.slice(2).map(paths), [
      "GET /conversations/c",
      "GET /conversations/c/stream theirs",
      "GET /conversations/c/messages",
      "GET /conversations/c/messages",
    ]);
  });
}

test("calls that another client leaves owed stay owed, and no run is read twice", async (t) => {
  const left = [stands([QUESTION], "mine"), stands([QUESTION], "mine")];
  const { chat, requests } = await chatOwing(
    t,
    [APPROVAL, QUESTION, RESULT],
    CONFLICT,
    ...left,
    goesOn("Done."),
  );
  await chat.decide({ id: "1", approved: true });
  assert.deepEqual([chat.getSnapshot().owed, chat.getSnapshot().error], [[QUESTION], null]);
  assert.deepEqual(requests.slice(2).map(paths), ["GET /conversations/c", "GET /conversations/c"]);
  await chat.answer("2", { answers: [{}] });
  assert.deepEqual([chat.getSnapshot().owed, chat.getSnapshot().entries[1].text], [[], "Done."]);
});

test("a run that goes on is followed, and one that was given up leaves nothing owed", async (t) => {
  const running = await chatOwing(
    t,
    [APPROVAL],
    CONFLICT,
    stands([], "old", "theirs"),
    goesOn("Theirs."),
  );
  await running.chat.decide({ id: "1", approved: true });
  assert.equal(running.chat.getSnapshot().entries[1].text, "Theirs.");
  const over = await chatOwing(t, [APPROVAL], CONFLICT, stands([], "mine"), stands([], "mine"));
  await over.chat.decide({ id: "1", approved: true });
  assert.deepEqual([over.chat.getSnapshot().owed, over.chat.getSnapshot().error], [[], null]);
});

test("after a reload, too, the run that another client's answer began is shown", async (t) => {
  const script = [
    stands([QUESTION], "asked"),
    CONFLICT,
    stands([], "theirs"),
    goesOn("Hi Ada."),
    ...history(tool("2", "Ada")),
  ];
  const { client } = await scripted(t, script);
  const chat = new Chat(client(), { conversationId: "c" });
  await chat.resume();
  await chat.answer("2", { answers: [{}] });
  assert.deepEqual([chat.getSnapshot().owed, chat.getSnapshot().entries[0].text], [[], "Hi Ada."]);
  assert.deepEqual(callsOf(chat, 0), [["2", true, "Ada", false]]);
});

test("another refusal is an error, and what is owed stays", async (t) => {
  const refused = json({ code: "refused", message: "no" }, 403);
  const { chat } = await chatOwing(t, [APPROVAL], refused, CONFLICT, refused);
  for (let time = 0; time < 2; time += 1) {
    await chat.decide({ id: "1", approved: true });
    assert.deepEqual(
      [chat.getSnapshot().owed, chat.getSnapshot().error.code],
      [[APPROVAL], "refused"],
    );
  }
});

test("a call closed by the next message says so in any entry, as a sub-agent's does", async (t) => {
  const superseded = { content: "The user went on.", isError: true, synthetic: "superseded" };
  const inner = {
    id: "x",
    role: "child",
    toolCallId: "1",
    message: { id: "y", role: "child", toolCallId: "1", message: tool("9", "in") },
  };
  const many = Array.from({ length: 100 }, (_, at) => ({
    id: `u${at}`,
    role: "user",
    content: "hm",
  }));
  const total = 103;
  const pages = [
    json({ messages: [], next: 1, total }),
    json({ messages: many, next: null, total }),
    json({
      messages: [tool("1", superseded.content, superseded), tool("0", "other"), inner],
      next: 3,
      total,
    }),
  ];
  const nested = {
    type: "tool-call-start",
    toolCallId: "9",
    toolCallName: "g",
    parentToolCallId: "1",
  };
  const start = { type: "tool-call-start", toolCallId: "1", toolCallName: "f" };
  const ends = ["1", "9"].map((toolCallId) => ({ type: "tool-call-end", toolCallId }));
  const first = stream({
    events: [
      { type: "run-start" },
      start,
      nested,
      ...ends,
      { type: "owed", toolCalls: [APPROVAL] },
    ],
  });
  const { client, requests } = await scripted(t, [
    first,
    goesOn("New."),
    ...pages,
    goesOn("Newer.", "third"),
  ]);
  const chat = new Chat(client(), { conversationId: "c" });
  await chat.send("one");
  const before = chat.getSnapshot().entries[1];
  await chat.send("two");
  assert.deepEqual(callsOf(chat), [["1", true, "The user went on.", true]]);
  const [
    {
      synthetic,
      calls: [{ id, result, isError }],
    },
  ] = chat.getSnapshot().entries[1].calls;
  assert.equal(synthetic, "superseded");
  assert.deepEqual([id, result, isError, "result" in before.calls[0]], ["9", "in", false, false]);
  assert.deepEqual(
    requests.slice(2).map(({ query }) => [query.after, query.limit]),
    [
      ["0", "1"],
      ["3", "100"],
      ["0", "3"],
    ],
  );
  await chat.send("three");
  assert.equal(requests.length, 6);
});

test("a page that is shorter than asked for is read on", async (t) => {
  const total = 2;
  const pages = [
    json({ messages: [], next: 1, total }),
    json({ messages: [{ id: "u", role: "user", content: "hm" }], next: 1, total }),
    json({ messages: [tool("3", "late")], next: null, total }),
  ];
  const { chat, requests } = await chatOwing(t, [RESULT], goesOn("New."), ...pages);
  await chat.send("two");
  assert.deepEqual(callsOf(chat), [["3", true, "late", false]]);
  assert.deepEqual(
    requests.slice(2).map(({ query }) => [query.after, query.limit]),
    [
      ["0", "1"],
      ["0", "2"],
      ["1", "1"],
    ],
  );
});

test("a history that cannot be read is no error, and is looked at again", async (t) => {
  const refused = json({ code: "refused", message: "no" }, 403);
  const { chat } = await chatOwing(
    t,
    [RESULT],
    goesOn("New."),
    refused,
    goesOn("Newer.", "third"),
    ...history(tool("3", "late")),
  );
  await chat.send("two");
  assert.deepEqual(
    [chat.getSnapshot().error, callsOf(chat)],
    [null, [["3", true, undefined, undefined]]],
  );
  await chat.send("three");
  assert.deepEqual(callsOf(chat), [["3", true, "late", false]]);
});
