/** A `Chat` is live: it shows what other clients do in its conversation. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Chat } from "../../client_tools/js/src/index.js";
import { json, lost, scripted, stream, text, withResolvers } from "./client-support.mjs";
import { ENDED, begins, conversation, frame, when, written } from "./watch-support.mjs";

const HI = { id: "u1", role: "user", content: "hi" };
const MORE = { id: "u2", role: "user", content: "more" };
const START = { type: "run-start" };
const CALL = [
  { type: "tool-call-start", toolCallId: "1", toolCallName: "f" },
  { type: "tool-call-args", toolCallId: "1", delta: "{}" },
  { type: "tool-call-end", toolCallId: "1" },
];
const ONE = { runId: "one", firstMessage: 0, attempt: 1 };
const HANDED_BACK = { type: "run-end", outcome: "handed-back" };

function state(messageCount, running = null, owed = []) {
  return json({ id: "c", runId: "x", running, queued: [], owed, messageCount });
}

/** What is shown, a line for each message and answer. */
function lines({ entries }) {
  return entries.map(({ role, text: words }) => `${role}: ${words}`);
}

/** The frames of a whole run, whose events count from `number` on. */
function run(name, number, first, message, ...events) {
  const rest = [...events, ENDED].map((event, index) => frame(name, number + 1 + index, event));
  return [...begins(name, number, first, message), ...rest];
}

/** A chat on a conversation that exists, with a listener, once it watches. */
async function live(t, script, options = {}) {
  const log = conversation();
  const { client, requests } = await scripted(t, [state(0), ...script], undefined, log.watched);
  const chat = new Chat(client(options.client), { conversationId: "c", ...options.chat });
  const seen = withResolvers();
  t.after(chat.subscribe(() => {}));
  t.after(() => log.cut());
  const watching = setInterval(() => requests.length > 0 && seen.resolve(), 1);
  await seen.promise;
  clearInterval(watching);
  return { chat, log, requests };
}

test("messages of others and their answers are shown as they come", async (t) => {
  const { chat, log, requests } = await live(t, [json({ cancelled: true }, 202)]);
  log.say(...begins("one", 1, 0, HI), frame("one", 2, text("a")));
  const early = await when(chat, ({ entries }) => entries[1]?.text === "a");
  assert.deepEqual([lines(early), early.status], [["user: hi", "assistant: a"], "streaming"]);
  assert.throws(() => chat.send("no"), { code: "invalid_argument" });
  assert.equal(await chat.stop(), true);
  assert.equal(requests[1].query.runId, "one");
  log.say(frame("one", 3, text("b")), frame("one", 4, ENDED), ...run("two", 5, 2, MORE, text("c")));
  const late = await when(chat, ({ status, entries }) => status === "idle" && entries.length === 4);
  assert.deepEqual(lines(late), ["user: hi", "assistant: ab", "user: more", "assistant: c"]);
});

test("a cut at any frame shows all, and nothing twice", async (t) => {
  const all = [...run("one", 1, 0, HI, text("a")), ...run("two", 4, 2, MORE, text("b"))];
  // before the first event with a place, the history would be read
  for (let at = 2; at < all.length; at += 1) {
    const { chat, log } = await live(t, []);
    log.say(...all.slice(0, at));
    await when(chat, ({ entries }) => entries.length > 0);
    log.cut();
    log.say(...all.slice(at));
    const end = await when(chat, (now) => now.status === "idle" && lines(now).length === 4);
    assert.deepEqual(lines(end), ["user: hi", "assistant: a", "user: more", "assistant: b"]);
  }
});

test("an own answer comes once, and the watch makes way for it", { timeout: 8000 }, async (t) => {
  const { promise: posted, resolve: post } = withResolvers();
  const { chat, log } = await live(t, [(response) => post(response)]);
  const sent = chat.send({ role: "user", content: "hi", id: "u1" });
  const response = await posted;
  const events = [START, text("a")];
  stream({ events, run: "one", end: "open" })(response);
  await when(chat, ({ entries }) => entries[1]?.text === "a");
  log.say(...begins("one", 1, 0, HI), frame("one", 2, text("a")));
  await new Promise((resolve) => [...log.open].forEach((watch) => watch.on("close", resolve)));
  assert.deepEqual(lines(chat.getSnapshot()), ["user: hi", "assistant: a"]);
  const end = [text("b"), ENDED].map((event, index) => frame("one", 3 + index, event));
  log.say(...end);
  response.end(`${written(end)}data: [DONE]\n\n`);
  await sent;
  log.say(...run("two", 5, 2, MORE, text("c")));
  const late = await when(chat, (now) => now.status === "idle" && lines(now).length === 4);
  assert.deepEqual(lines(late), ["user: hi", "assistant: ab", "user: more", "assistant: c"]);
  assert.deepEqual(log.places, [undefined, "one.1-4"]);
});

test("an own run that the watch sees first is shown once", { timeout: 8000 }, async (t) => {
  const { promise: posted, resolve: post } = withResolvers();
  const { chat, log } = await live(t, [(response) => post(response)]);
  const sent = chat.send({ role: "user", content: "hi", id: "u1" });
  const response = await posted;
  log.say(...begins("one", 1, 0, HI), frame("one", 2, text("a")));
  await when(chat, ({ entries }) => entries[1]?.text === "a");
  stream({ events: [START, text("a"), text("b"), ENDED], run: "one" })(response);
  await new Promise((resolve) => response.on("close", resolve));
  log.say(frame("one", 3, text("b")), frame("one", 4, ENDED));
  await sent;
  const { status } = chat.getSnapshot();
  assert.deepEqual([lines(chat.getSnapshot()), status], [["user: hi", "assistant: ab"], "idle"]);
});

test("a message behind another client's answer follows it", { timeout: 8000 }, async (t) => {
  const { promise: posted, resolve: post } = withResolvers();
  const { chat, log } = await live(t, [(response) => post(response)]);
  log.say(...begins("one", 1, 0, HI), frame("one", 2, text("a")));
  await when(chat, ({ entries }) => entries[1]?.text === "a");
  const sent = chat.send({ role: "user", content: "more", id: "u2" }, { onBusy: "enqueue" });
  const response = await posted;
  log.say(frame("one", 3, text("b")), frame("one", 4, ENDED));
  await when(chat, ({ entries }) => entries[1]?.text === "ab");
  assert.equal(chat.getSnapshot().status, "streaming");
  log.say(...run("between", 5, 2, { ...HI, id: "u3" }, text("c")));
  await when(chat, ({ entries }) => entries[3]?.text === "c");
  stream({ events: [START, text("d"), ENDED], run: "two", first: 8 })(response);
  await sent;
  assert.deepEqual(lines(chat.getSnapshot()), [
    "user: hi",
    "assistant: ab",
    "user: hi",
    "assistant: c",
    "user: more",
    "assistant: d",
  ]);
});

test("a rollback removes what it rolls back, an own answer, too", { timeout: 8000 }, async (t) => {
  const stopped = { type: "run-end", outcome: "cancelled" };
  const events = [START, text("a"), stopped];
  const { chat, log } = await live(t, [stream({ events, run: "one" })]);
  log.say(...run("zero", 1, 0, { ...HI, id: "u0" }, text("z")));
  await when(chat, (now) => now.status === "idle" && lines(now).length === 2);
  await chat.send({ role: "user", content: "hi", id: "u1" });
  log.say(...begins("one", 1, 2, HI), frame("one", 2, text("a")), frame("one", 3, stopped));
  log.say(...run("two", 7, 2, MORE, text("c")));
  const end = await when(chat, (now) => lines(now).at(-1) === "assistant: c");
  assert.deepEqual(lines(end), ["user: hi", "assistant: z", "user: more", "assistant: c"]);
});

test("a call is shown with the result of the client that ran it", { timeout: 8000 }, async (t) => {
  const toolCalls = [{ id: "1", name: "f", arguments: "{}", kind: "approval" }];
  const { chat, log } = await live(t, []);
  const events = [...CALL, { type: "owed", toolCalls }, HANDED_BACK];
  const frames = events.map((event, index) => frame("one", 2 + index, event));
  log.say(...begins("one", 1, 0, HI), ...frames);
  const { owed } = await when(chat, ({ status, owed: calls }) => status === "idle" && calls.length);
  assert.deepEqual(owed, toolCalls);
  const result = { id: "t1", role: "tool", toolCallId: "1", content: "no", isError: true };
  log.say(...run("two", 9, 2, { ...result, synthetic: "denied" }, text("Well.")));
  const end = await when(chat, ({ status, owed: [call] }) => status === "idle" && !call);
  assert.deepEqual(end.entries[1], {
    role: "assistant",
    text: "Well.",
    reasoning: "",
    calls: [
      {
        id: "1",
        name: "f",
        arguments: "{}",
        complete: true,
        result: "no",
        isError: true,
        synthetic: "denied",
      },
    ],
  });
  assert.equal(end.entries.length, 2);
});

test("a switch of another client is shown at once", { timeout: 8000 }, async (t) => {
  const answer = { id: "a1", role: "assistant", content: "old" };
  const branches = [{ after: null, versions: ["u1", "u2"], current: "u1" }];
  const view = { id: "c", running: null, queued: [], owed: [], messageCount: 2, branches };
  const script = [json(view), json({ messages: [HI, answer], next: null, total: 2 })];
  const { chat, log } = await live(t, script);
  log.say(...run("two", 1, 0, MORE, text("new")));
  await when(chat, ({ status, entries }) => status === "idle" && entries.length === 2);
  const statuses = new Set();
  t.after(chat.subscribe(() => statuses.add(chat.getSnapshot().status)));
  log.say(frame(null, 0, { type: "switched", message: "a1" }));
  const now = await when(chat, ({ entries }) => entries[1]?.text === "old");
  assert.deepEqual(lines(now), ["user: hi", "assistant: old"]);
  assert.deepEqual(now.entries[0].versions, [{ ids: ["u1", "u2"], current: "u1" }]);
  log.say(...run("three", 4, 2, { ...MORE, id: "u3" }, text("c")));
  const end = await when(chat, ({ status, entries }) => status === "idle" && entries.length === 4);
  assert.deepEqual(lines(end), ["user: hi", "assistant: old", "user: more", "assistant: c"]);
  assert.deepEqual([...statuses], ["idle", "streaming"]);
  assert.deepEqual(log.places, [undefined]);
});

test("an own first message is shown once, too", { timeout: 8000 }, async (t) => {
  const log = conversation();
  const none = json({ code: "conversation_not_found", message: "no" }, 404);
  const own = (response) => {
    stream({ run: "one", events: [START, text("a"), ENDED] })(response);
    log.say(...run("one", 1, 0, HI, text("a")));
  };
  const { client } = await scripted(t, [none, own], undefined, log.watched);
  const chat = new Chat(client(), { conversationId: "c" });
  t.after(chat.subscribe(() => {}));
  t.after(() => log.cut());
  await when(chat, ({ status }) => status === "idle");
  await chat.send(HI);
  log.say(...run("two", 4, 2, MORE, text("b")));
  const end = await when(chat, ({ status, entries }) => status === "idle" && entries.length === 4);
  assert.deepEqual(lines(end), ["user: hi", "assistant: a", "user: more", "assistant: b"]);
});

test("a failed run of others is an error until the next one", { timeout: 8000 }, async (t) => {
  const { chat, log } = await live(t, []);
  const error = { type: "error", error: "no", code: "model_rejected", retryable: false };
  log.say(...run("one", 1, 0, HI, error));
  const failed = await when(chat, ({ status, error: is }) => status === "idle" && is);
  assert.equal(failed.error.code, "model_rejected");
  log.say(...run("two", 5, 1, MORE, text("a")));
  await when(chat, (now) => now.status === "idle" && now.error === null);
});

test("a deletion is a status, and the next message begins anew", { timeout: 8000 }, async (t) => {
  const { chat, log } = await live(t, [stream({ events: [START, text("b"), ENDED], run: "two" })]);
  log.say(...run("one", 1, 0, HI, text("a")), frame(null, 0, { type: "deleted" }));
  const gone = await when(chat, ({ status }) => status === "deleted");
  assert.deepEqual(lines(gone), ["user: hi", "assistant: a"]);
  await chat.send("more");
  assert.deepEqual(lines(chat.getSnapshot()), ["user: more", "assistant: b"]);
});

test("what a sleeping chat has lost is read from the history", { timeout: 8000 }, async (t) => {
  const log = conversation();
  const expired = json({ code: "cursor_expired", message: "gone" }, 410);
  const opens = [log.watched, expired, log.watched];
  const calls = [{ id: "1", function: { name: "f", arguments: "{}" }, client: true }];
  const messages = [
    HI,
    { id: "a1", role: "assistant", content: "A", model: "demo", toolCalls: calls },
    { id: "t1", role: "tool", toolCallId: "1", content: "ok" },
    { id: "a2", role: "assistant", content: "B" },
    { id: "s", role: "summary", content: "of it" },
    MORE,
  ];
  const pages = [messages.slice(0, 4), messages.slice(4)].map((list) => json({ messages: list }));
  const script = [state(0), state(6), ...pages];
  const { client, requests } = await scripted(t, script, undefined, (...http) =>
    opens.shift()(...http),
  );
  const chat = new Chat(client(), { conversationId: "c" });
  t.after(chat.subscribe(() => {}));
  const begun = when(chat, ({ entries }) => entries.length === 2);
  const told = setInterval(() => {
    if (requests.length === 0) return;
    clearInterval(told);
    log.say(...run("one", 1, 0, HI, text("old")));
  }, 1);
  await begun;
  log.cut();
  const end = await when(chat, ({ entries }) => entries.length === 3);
  assert.deepEqual(lines(end), ["user: hi", "assistant: A\n\nB", "user: more"]);
  assert.deepEqual(
    [end.entries[1].model, end.entries[1].calls],
    [
      "demo",
      [{ id: "1", name: "f", arguments: "{}", complete: true, result: "ok", isError: false }],
    ],
  );
  assert.deepEqual(
    requests.map(({ query: { after, limit } }) => [after, limit]),
    [[], [], ["0", "6"], ["4", "2"]].map(([after, limit]) => [after, limit]),
  );
});

for (const isReached of [false, true]) {
  test(
    `an own answer that broke off is resumed, ${isReached ? "" : "not "}seen by the watch before`,
    { timeout: 8000 },
    async (t) => {
      const { promise: posted, resolve: post } = withResolvers();
      const events = [START, text("a"), text("b"), ENDED];
      const script = [
        ...[(response) => post(response), lost, lost],
        ...[state(1, ONE), json({ messages: [HI] }), stream({ events, run: "one" })],
      ];
      const { chat, log } = await live(t, script, { client: { retry: { attempts: 2 } } });
      const sent = chat.send({ role: "user", content: "hi", id: "u1" });
      const response = await posted;
      stream({ events: events.slice(0, 2), run: "one", end: "open" })(response);
      await when(chat, ({ entries }) => entries[1]?.text === "a");
      if (isReached) {
        const closed = Promise.all(
          [...log.open].map((watch) => new Promise((resolve) => watch.on("close", resolve))),
        );
        log.say(...begins("one", 1, 0, HI), frame("one", 2, text("a")));
        await closed;
      }
      const lostIt = when(chat, ({ status }) => status === "reconnecting");
      response.destroy();
      await lostIt;
      await sent;
      assert.equal(chat.getSnapshot().error.code, "connection_lost");
      const end = await when(chat, (now) => !now.isBusy && lines(now)[1] === "assistant: ab");
      assert.deepEqual([lines(end), end.error], [["user: hi", "assistant: ab"], null]);
    },
  );
}

test("another client's message goes past a call of this one", { timeout: 8000 }, async (t) => {
  const toolCalls = [{ id: "1", name: "f", arguments: "{}", kind: "tool_result" }];
  const handed = [START, ...CALL, { type: "owed", toolCalls }, HANDED_BACK];
  const theirs = { runId: "two", firstMessage: 3, attempt: 1 };
  const { promise: begun, resolve: begin } = withResolvers();
  const execute = () => begun;
  const { chat, log } = await live(
    t,
    [
      stream({ events: handed, run: "one" }),
      json({ code: "tool_result_conflict", message: "no" }, 409),
      state(4, theirs),
      stream({ events: [START, text("b"), ENDED], run: "two", first: 10 }),
    ],
    { client: { tools: { f: { execute } } } },
  );
  const sent = chat.send({ role: "user", content: "hi", id: "u1" });
  await when(chat, ({ entries }) => entries[1]?.calls[0]?.complete);
  log.say(...begins("one", 1, 0, HI));
  begin("late");
  await sent;
  const closed = { id: "t1", role: "tool", toolCallId: "1", content: "closed", isError: true };
  log.say(...handed.slice(1).map((event, index) => frame("one", 2 + index, event)));
  log.say(frame(null, 0, { type: "posted", runId: "two", first: 2, messages: [closed, MORE] }));
  log.say(...[START, text("b"), ENDED].map((event, index) => frame("two", 10 + index, event)));
  const end = await when(chat, (now) => lines(now)[3] === "assistant: b");
  assert.deepEqual(lines(end), ["user: hi", "assistant: ", "user: more", "assistant: b"]);
});

test("many messages of one post come in several events", { timeout: 8000 }, async (t) => {
  const { chat, log } = await live(t, []);
  log.say(frame(null, 0, { type: "posted", runId: "one", first: 0, messages: [HI] }));
  log.say(...run("one", 1, 1, MORE, text("a")));
  const end = await when(chat, ({ status, entries }) => status === "idle" && entries.length === 3);
  assert.deepEqual(lines(end), ["user: hi", "user: more", "assistant: a"]);
});

test("a chat watches only while somebody listens, if it may", { timeout: 8000 }, async (t) => {
  const log = conversation();
  const { client, watches } = await scripted(t, [state(0)], undefined, log.watched);
  const quiet = new Chat(client(), { conversationId: "c", live: false });
  t.after(quiet.subscribe(() => {}));
  const chat = new Chat(client(), { conversationId: "c" });
  const leave = chat.subscribe(() => {});
  log.say();
  await new Promise((resolve) => {
    const look = setInterval(() => {
      if (log.open.size === 0) return;
      clearInterval(look);
      for (const response of log.open) response.on("close", resolve);
      leave();
    }, 1);
  });
  assert.equal(watches.length, 1);
});

test("a post that overtakes the watch is followed, too", { timeout: 8000 }, async (t) => {
  const log = conversation();
  const { promise: asked, resolve: ask } = withResolvers();
  const opens = [(response) => ask(response), log.watched];
  const answer = stream({ events: [START, text("a"), ENDED], run: "one" });
  const { client } = await scripted(t, [answer], undefined, (...http) => opens.shift()(...http));
  const chat = new Chat(client(), { conversationId: "c" });
  t.after(chat.subscribe(() => {}));
  const early = await asked;
  await chat.send({ role: "user", content: "hi", id: "u1" });
  log.say(...run("one", 1, 0, HI, text("a")), ...run("two", 4, 2, MORE, text("b")));
  json({ code: "conversation_not_found", message: "no" }, 404)(early);
  const end = await when(chat, (now) => now.status === "idle" && lines(now).length === 4);
  assert.deepEqual(lines(end), ["user: hi", "assistant: a", "user: more", "assistant: b"]);
  assert.deepEqual(log.places, ["one.0-0"]);
});

test("a run in progress is resumed, behind its message", { timeout: 8000 }, async (t) => {
  const log = conversation();
  const events = [START, text("a"), ENDED];
  const script = [state(1, ONE), json({ messages: [HI] }), stream({ events, run: "one" })];
  const { client, requests } = await scripted(t, script, undefined, log.watched);
  const chat = new Chat(client(), { conversationId: "c" });
  assert.equal(chat.getSnapshot().status, "loading");
  t.after(chat.subscribe(() => {}));
  t.after(() => log.cut());
  const shown = await when(chat, (now) => now.status === "idle" && lines(now).length === 2);
  assert.deepEqual(lines(shown), ["user: hi", "assistant: a"]);
  assert.deepEqual(requests.at(-1).query.runId, "one");
  log.say(...run("one", 1, 0, HI, text("a")), ...run("two", 4, 2, MORE, text("b")));
  const end = await when(chat, (now) => now.status === "idle" && lines(now).length === 4);
  assert.deepEqual(lines(end).slice(2), ["user: more", "assistant: b"]);
  assert.deepEqual(log.places, [undefined, "one.1-3"]);
});
