/** `Chat`: its history, where reading fails or something changes meanwhile. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Chat } from "../../client_tools/js/src/index.js";
import { json, scripted, stream, text, withResolvers } from "./client-support.mjs";
import { ENDED, begins, conversation, frame, when, written } from "./watch-support.mjs";

const START = { type: "run-start" };
const HI = { id: "u1", role: "user", content: "hi" };
const A = { id: "a1", role: "assistant", content: "a", runId: "one" };
const MORE = { id: "u2", role: "user", content: "more" };
const B = { id: "a2", role: "assistant", content: "b", runId: "two" };
const PAST = [HI, A, MORE, B];

function view(messageCount, more = {}) {
  return json({ id: "c", runId: "x", running: null, queued: [], owed: [], messageCount, ...more });
}

function page(...messages) {
  return json({ messages, next: null, total: messages.length });
}

function lines({ entries }) {
  return entries.map(({ role, text: words }) => `${role}: ${words}`);
}

/** A chat of a conversation with a history, once it is read. */
async function open(t, script, watched) {
  const log = conversation();
  const server = await scripted(t, script, undefined, watched ?? log.watched);
  const chat = new Chat(server.client(), { conversationId: "c" });
  t.after(chat.subscribe(() => {}));
  t.after(() => log.cut());
  await when(chat, ({ status }) => status === "idle");
  return { chat, log, ...server };
}

test("a refused history is an error, and posts and another attempt are not", async (t) => {
  const log = conversation();
  const answers = [json({ code: "unauthenticated", message: "no" }, 401), log.watched];
  const watched = (...http) => (answers.shift() ?? log.watched)(...http);
  const events = [START, text("c"), ENDED];
  const script = [stream({ events, run: "three" }), view(4), page(...PAST)];
  const { chat, watches } = await open(t, script, watched);
  assert.equal(chat.getSnapshot().error.code, "unauthenticated");
  await chat.send("more");
  const sent = chat.getSnapshot();
  assert.deepEqual([lines(sent), sent.error], [["user: more", "assistant: c"], null]);
  assert.equal(watches.length, 1);
  const reading = chat.reload();
  assert.equal(chat.getSnapshot().status, "loading");
  await reading;
  const { status, error } = chat.getSnapshot();
  assert.deepEqual([status, error, lines(chat.getSnapshot()).length], ["idle", null, 4]);
});

test("a page of messages that cannot be read is an error, and can be read again", async (t) => {
  const many = Array.from({ length: 120 }, (_, at) => ({
    ...(at % 2 ? A : HI),
    id: `m${at}`,
    content: `${at}`,
  }));
  const refusal = json({ code: "store_error", message: "no" }, 500);
  const script = [view(120), page(...many.slice(20)), refusal, page(...many.slice(0, 21))];
  const { chat, requests } = await open(t, script);
  assert.deepEqual([chat.getSnapshot().hasOlder, lines(chat.getSnapshot())[0]], [true, "user: 20"]);
  const before = chat.getSnapshot().entries;
  await chat.loadOlder();
  assert.equal(chat.getSnapshot().error.code, "store_error");
  await chat.loadOlder();
  const { hasOlder, entries } = chat.getSnapshot();
  assert.deepEqual([hasOlder, entries.length, entries[0].text], [false, 120, "0"]);
  assert.deepEqual(entries.slice(20), before);
  assert.equal(entries.at(-1), before.at(-1));
  assert.deepEqual(requests.at(-1).query, { after: "0", limit: "21" });
});

test("a page begins with a message of a user, however long the answers are", async (t) => {
  const long = Array.from({ length: 130 }, (_, at) => ({ ...A, id: `a${at}`, content: `${at}` }));
  const all = [HI, B, MORE, ...long];
  const script = [view(133), page(...all.slice(33)), page(...all.slice(0, 33))];
  const { chat } = await open(t, script);
  const { entries, hasOlder } = chat.getSnapshot();
  assert.deepEqual([entries.length, entries[0].text, hasOlder], [4, "hi", false]);
  // the texts of one run follow each other as they do in its stream
  assert.equal(entries[3].text, long.map(({ content }) => content).join(""));
});

test("an idle connection that breaks is a status until there is another", async (t) => {
  const { chat, log } = await open(t, [view(4), page(...PAST), view(4), page(...PAST)]);
  const broken = when(chat, ({ status }) => status === "reconnecting");
  log.cut();
  assert.equal((await broken).isBusy, false);
  const entries = await when(chat, ({ status }) => status === "idle");
  assert.deepEqual(lines(entries).length, 4);
});

test("what follows a switch of another client is read from the history", async (t) => {
  const other = { id: "u3", role: "user", content: "other" };
  const answer = { id: "a3", role: "assistant", content: "c" };
  const last = { id: "u4", role: "user", content: "last" };
  const running = { runId: "four", firstMessage: 4, attempt: 1 };
  const script = [
    ...[view(4), page(...PAST)],
    ...[view(5, { running }), page(HI, A, other, answer), page(last)],
    stream({ run: "four", events: [START, text("d"), ENDED] }),
  ];
  const { chat, log } = await open(t, script);
  log.say(...begins("four", 1, 2, other, answer, last), frame("four", 2, text("d")));
  const end = await when(chat, (now) => !now.isBusy && lines(now).length === 6);
  assert.deepEqual(lines(end).slice(1), [
    "assistant: a",
    "user: other",
    "assistant: c",
    "user: last",
    "assistant: d",
  ]);
});

test("a watch that is late does not bring back what was written anew", async (t) => {
  const log = conversation();
  const versions = ["a1", "a2"];
  const branches = [{ after: "u1", versions, current: "a2" }];
  const { promise: posted, resolve: post } = withResolvers();
  const first = stream({ run: "one", events: [START, text("a"), ENDED] });
  const script = [first, (response) => post(response), view(2, { branches })];
  const { client } = await scripted(t, script, undefined, log.watched);
  const chat = new Chat(client());
  t.after(chat.subscribe(() => {}));
  t.after(() => log.cut());
  await chat.send(HI);
  const again = chat.regenerate("u1");
  const response = await posted;
  stream({ run: "two", events: [START, text("b")], end: "open" })(response);
  await when(chat, ({ entries }) => entries[1]?.text === "b");
  const closed = Promise.all(
    [...log.open].map((watch) => new Promise((resolve) => watch.on("close", resolve))),
  );
  log.say(...begins("one", 1, 0, HI), frame("one", 2, text("a")), frame("one", 3, ENDED));
  log.say(...begins("two", 1, 0, HI));
  await closed;
  const rest = [text("c"), ENDED].map((event, at) => frame("two", 3 + at, event));
  response.end(`${written(rest)}data: [DONE]\n\n`);
  await again;
  const end = await when(chat, ({ entries }) => entries[1].versions !== undefined);
  assert.deepEqual(lines(end), ["user: hi", "assistant: bc"]);
  assert.deepEqual(end.entries[1].versions, [{ ids: versions, current: "a2" }]);
});

test("a run that cannot be resumed is not tried for ever", { timeout: 8000 }, async (t) => {
  const running = { runId: "two", firstMessage: 2, attempt: 1 };
  const gone = json({ code: "run_not_found", message: "no" }, 404);
  const states = [view(3, { running }), page(HI, A), page(MORE)];
  const log = conversation();
  const second = withResolvers();
  const watched = (...http) => {
    log.watched(...http);
    if (log.places.length === 2) second.resolve();
  };
  const { chat, requests } = await open(t, [...states, gone, ...states], watched);
  await second.promise;
  const { error } = await when(chat, (now) => now.status === "idle");
  assert.deepEqual([error?.code, requests.length <= 7], ["run_not_found", true]);
});
