/** `Chat`: what a user interface shows of a conversation. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Chat, InvalidArgument } from "../../client_tools/js/src/index.js";
import {
  handsBack,
  json,
  scripted,
  shown,
  stream,
  text,
  withResolvers,
} from "./client-support.mjs";
import { conversation, when } from "./watch-support.mjs";

const USER = { role: "user", text: "hi" };

function said(words, more = {}) {
  return { role: "assistant", text: words, reasoning: "", calls: [], ...more };
}

test("each change is a new value, and what is void is not shown", async (t) => {
  const events = [
    text("old"),
    { type: "rewind", to: "run.1-0" },
    { type: "reasoning", delta: "hm" },
    text("new"),
  ];
  const { client } = await scripted(t, [stream({ events })]);
  const chat = new Chat(client());
  const seen = [];
  t.after(chat.subscribe(() => seen.push(chat.getSnapshot())));
  const before = chat.getSnapshot();
  await chat.send("hi");
  assert.deepEqual(before, {
    conversationId: before.conversationId,
    entries: [],
    status: "idle",
    isBusy: false,
    hasOlder: false,
    owed: [],
    error: null,
    refused: null,
  });
  assert.deepEqual(
    seen.map(({ entries, status, isBusy }) => [status, isBusy, entries.at(-1).text]),
    [
      ["idle", false, "hi"],
      ["submitted", true, "hi"],
      ["streaming", true, "old"],
      ["streaming", true, ""],
      ["streaming", true, ""],
      ["streaming", true, "new"],
      ["idle", false, "new"],
    ],
  );
  assert.deepEqual(shown(chat.getSnapshot()), [USER, said("new", { reasoning: "hm" })]);
  assert.equal(chat.getSnapshot(), chat.getSnapshot());
});

test("calls are shown with their results", async (t) => {
  const start = { type: "tool-call-start", toolCallId: "1", toolCallName: "f" };
  const pieces = ['{"a"', ":1}"].map((delta) => ({
    type: "tool-call-args",
    toolCallId: "1",
    delta,
  }));
  const end = { type: "tool-call-end", toolCallId: "1" };
  const { client } = await scripted(t, [
    stream({ events: [start, ...pieces, end, ...handsBack(["1", "f", '{"a":1}'])] }),
    stream({ events: [text("Done.")], run: "next" }),
  ]);
  const chat = new Chat(client({ tools: { f: { execute: ({ a }) => a + 1 } } }));
  await chat.send("hi");
  const call = {
    id: "1",
    name: "f",
    arguments: '{"a":1}',
    complete: true,
    result: 2,
    isError: false,
  };
  assert.deepEqual(shown(chat.getSnapshot()), [USER, said("Done.", { calls: [call] })]);
});

test("a refused message is taken back with its reason, until something else is sent", async (t) => {
  const { client, requests } = await scripted(t, [
    json({ code: "unauthenticated", message: "no" }, 401),
    stream({ events: [{ type: "run-start" }] }),
  ]);
  const chat = new Chat(client());
  const sent = chat.send("hi");
  assert.deepEqual(shown(chat.getSnapshot()), [USER]);
  await sent;
  const { status, error, entries, refused } = chat.getSnapshot();
  assert.deepEqual([status, error.code, shown({ entries })], ["idle", "unauthenticated", []]);
  const { id } = refused.message;
  const message = { role: "user", content: "hi", id };
  assert.deepEqual(refused, { text: "hi", message, replaces: null, error });
  await chat.send("hi");
  const again = chat.getSnapshot();
  assert.deepEqual([again.error, again.refused, shown(again)[0]], [null, null, USER]);
  // the server may have had the first one
  assert.deepEqual(requests.map(({ body }) => body.messages[0].id), [id, id]);
});

test("another message than the refused one is another one to the server", async (t) => {
  const refusal = json({ code: "conversation_busy", message: "no" }, 409);
  const { client, requests } = await scripted(t, [refusal, refusal, refusal]);
  const chat = new Chat(client());
  const [a, b] = ["a", "b"].map((words) => ({ type: "text", text: words }));
  const parts = [a, { type: "data", data: 1 }, b];
  await chat.send({ role: "user", content: parts });
  const { refused } = chat.getSnapshot();
  assert.deepEqual([refused.text, refused.message.content], ["a\nb", parts]);
  await chat.send("a");
  await chat.send(refused.message);
  const [first, second, third] = requests.map(({ body }) => body.messages[0]);
  assert.deepEqual(first, third);
  assert.notEqual(first.id, second.id);
});

test("one answer at a time; a stop ends it", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: [text("a")], end: "open" }),
    json({ cancelled: true }, 202),
  ]);
  const chat = new Chat(client());
  t.after(chat.subscribe(() => {}));
  const sending = chat.send("hi");
  await when(chat, ({ entries }) => entries.length === 2);
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
  assert.deepEqual([status, error, shown({ entries })], ["idle", null, [USER, said("a")]]);
});

test("resume shows what is owed being answered", async (t) => {
  const call = { id: "1", name: "f", arguments: "{}", kind: "tool_result" };
  const { client } = await scripted(t, [
    json({ running: null, owed: [call] }),
    stream({ events: [text("Done.")] }),
  ]);
  const chat = new Chat(client({ tools: { f: { execute: () => "ok" } } }), { conversationId: "c" });
  await chat.resume();
  const done = {
    id: "1",
    name: "f",
    arguments: "{}",
    complete: true,
    result: "ok",
    isError: false,
  };
  assert.deepEqual(shown(chat.getSnapshot()), [said("Done.", { calls: [done] })]);
});

// ---------------------------------------------------------------- a message during an answer
const START = { type: "run-start" };
const END = { type: "run-end", outcome: "completed" };
const CALL = { type: "tool-call-start", toolCallId: "1", toolCallName: "f" };

/** A stream that says something at once, and the rest when it is told to. */
function inTwo(run, before) {
  const { promise, resolve } = withResolvers();
  let count = 0;
  const frames = (events) =>
    events
      .map((event) => `id: ${run}.1-${(count += 1)}\ndata: ${JSON.stringify(event)}\n\n`)
      .join("");
  const answer = (response) => {
    response.writeHead(200, {
      "Content-Type": "text/event-stream",
      "X-Conversation-Id": "c",
      "X-Run-Id": run,
    });
    response.write(frames(before), () => resolve(response));
  };
  const end = async (...events) => (await promise).end(`${frames(events)}data: [DONE]\n\n`);
  return { answer, end };
}

/** Fulfilled when the client has read an event of this type. */
function heard() {
  const waiting = new Map();
  const of = (type) => {
    if (!waiting.has(type)) waiting.set(type, withResolvers());
    return waiting.get(type);
  };
  const trace = (step) => {
    if (step.kind === "frame" && step.data !== "[DONE]") of(JSON.parse(step.data).type).resolve();
  };
  return { trace, wait: (type) => of(type).promise };
}

for (const onBusy of ["enqueue", "interrupt"]) {
  test(
    `a message may ${onBusy} during an answer: its own follows, and owed calls are left`,
    { timeout: 8000 },
    async (t) => {
      const [one, two] = [
        inTwo("one", [START, text("a")]),
        inTwo("two", [{ type: "run-queued", runId: "two" }]),
      ];
      const { client, requests } = await scripted(t, [
        one.answer,
        two.answer,
        json({ messages: [], next: null, total: 0 }),
      ]);
      const { trace, wait } = heard();
      const chat = new Chat(
        client({ trace, tools: { f: { execute: () => assert.fail("nobody waits for it") } } }),
      );
      const first = chat.send("hi");
      await wait("text");
      const second = chat.send("and?", { onBusy });
      await wait("run-queued");
      assert.deepEqual(shown(chat.getSnapshot()), [
        USER,
        said("a"),
        { role: "user", text: "and?" },
      ]);
      await one.end(text("b"), CALL, ...handsBack(["1", "f", "{}"]));
      await first;
      assert.equal(chat.getSnapshot().status, "submitted");
      await two.end(START, text("c"), END);
      await second;
      const { entries, status, error, owed } = chat.getSnapshot();
      const call = { id: "1", name: "f", arguments: "", complete: false };
      assert.deepEqual(shown({ entries }), [
        USER,
        said("ab", { calls: [call] }),
        { role: "user", text: "and?" },
        said("c"),
      ]);
      assert.deepEqual([status, error, owed], ["idle", null, []]);
      const posts = requests
        .filter(({ method }) => method === "POST")
        .map(({ body }) => [body.messages[0].content, body.onBusy]);
      assert.deepEqual(posts, [
        ["hi", undefined],
        ["and?", onBusy],
      ]);
    },
  );
}

test(
  "a message that goes past a tool of this client ends it, and messages keep their order",
  { timeout: 8000 },
  async (t) => {
    const { client, requests } = await scripted(t, [
      stream({ events: [START, ...handsBack(["1", "f", "{}"])], run: "one" }),
      stream({ events: [START, text("b"), END], run: "two" }),
      stream({ events: [START, text("c"), END], run: "three" }),
    ]);
    const { promise: begun, resolve: begin } = withResolvers();
    const { promise: ended, resolve: end } = withResolvers();
    const execute = (_args, { signal }) =>
      new Promise(() => {
        begin();
        signal.addEventListener("abort", end);
      });
    const chat = new Chat(client({ tools: { f: { execute } } }));
    const all = [chat.send("one")];
    await begun;
    all.push(chat.send("two", { onBusy: "enqueue" }), chat.send("three", { onBusy: "enqueue" }));
    assert.deepEqual(
      chat
        .getSnapshot()
        .entries.slice(-2)
        .map(({ text: words }) => words),
      ["two", "three"],
    );
    await Promise.all([...all, ended]);
    const { entries, error } = chat.getSnapshot();
    assert.deepEqual(
      entries.map(({ role, text: words }) => `${role}: ${words}`),
      ["user: one", "assistant: ", "user: two", "assistant: b", "user: three", "assistant: c"],
    );
    assert.equal(error, null);
    assert.deepEqual(
      requests
        .filter(({ method }) => method === "POST")
        .map(({ body }) => body.messages[0].content),
      ["one", "two", "three"],
    );
  },
);

test(
  "a message behind an answer that is refused is taken back at once",
  { timeout: 8000 },
  async (t) => {
    const one = inTwo("one", [START]);
    const { client } = await scripted(t, [
      one.answer,
      json({ code: "data_too_large", message: "no" }, 413),
    ]);
    const { trace, wait } = heard();
    const chat = new Chat(client({ trace }));
    const first = chat.send("hi");
    await wait("run-start");
    const second = chat.send("and?", { onBusy: "enqueue" });
    assert.deepEqual(shown(chat.getSnapshot()).at(-1), { role: "user", text: "and?" });
    await second;
    const { entries, error, status, refused } = chat.getSnapshot();
    assert.deepEqual(
      [shown({ entries }).length, error.code, status, refused.text],
      [2, "data_too_large", "submitted", "and?"],
    );
    await one.end(text("a"), END);
    await first;
    const end = chat.getSnapshot();
    assert.deepEqual([shown(end), end.refused], [[USER, said("a")], refused]);
  },
);

test("who leaves a chat leaves what waits behind its answer, too", { timeout: 8000 }, async (t) => {
  const one = inTwo("one", [START]);
  const script = [one.answer, inTwo("two", [{ type: "run-queued", runId: "two" }]).answer];
  const { client } = await scripted(t, script, undefined, conversation().watched);
  const { trace, wait } = heard();
  const chat = new Chat(client({ trace }));
  const leave = chat.subscribe(() => {});
  const all = [chat.send("hi")];
  await wait("run-start");
  all.push(chat.send("and?", { onBusy: "interrupt" }));
  await wait("run-queued");
  assert.throws(() => chat.send("and?", { onBusy: "rollback" }), InvalidArgument);
  leave();
  await Promise.all(all);
  assert.deepEqual([chat.getSnapshot().status, chat.getSnapshot().error], ["idle", null]);
});

test("an answer in a chat names its model when that is told", { timeout: 8000 }, async (t) => {
  const { client } = await scripted(t, [
    stream({ events: [text("a"), { ...END, model: "demo" }] }),
  ]);
  const chat = new Chat(client());
  await chat.send("hi");
  assert.deepEqual(chat.getSnapshot().entries[1], said("a", { model: "demo" }));
});

test("a post may be made before its events are asked for", { timeout: 8000 }, async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: [START, text("a")] }),
    json({ code: "no", message: "no" }, 422),
    stream({ events: [] }),
  ]);
  const one = client();
  const sending = one.send("hi");
  assert.deepEqual(
    [(await sending.start()).type, (await sending.start()).type, requests.length],
    ["run-start", "run-start", 1],
  );
  assert.equal(await sending.text(), "a");
  await assert.rejects(sending.start(), InvalidArgument);
  const refused = one.send("hi");
  await assert.rejects(refused.start(), { code: "no" });
  await assert.rejects(refused.text(), { code: "no" });
  const empty = one.resume("c", { lastEventId: "run.1-2" });
  assert.deepEqual([await empty.start(), await empty.text()], [undefined, ""]);
});
