/** `Chat`: messages that are edited, and answers that are written again. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Chat } from "../../client_tools/js/src/index.js";
import { json, scripted, stream, text, withResolvers } from "./client-support.mjs";
import { ENDED, begins, conversation, frame, when } from "./watch-support.mjs";

const REFUSED = json({ code: "conversation_busy", message: "a run goes on" }, 409);
const IMAGE = { type: "image", url: "data:image/png;base64,AA==" };
const HI = { id: "u1", role: "user", content: "hi" };
const MORE = {
  id: "u2",
  role: "user",
  content: [{ type: "text", text: "more" }, IMAGE],
  intent: "to see",
};
const PAST = [HI, { id: "a1", role: "assistant", content: "a" }, MORE];
const PAGE = json({ messages: PAST, next: null, total: PAST.length });
const FOUND = [PAGE, PAGE];
const BEFORE = ["user: hi", "assistant: a", "user: more", "assistant: b"];

function answer(run, words) {
  return stream({ run, events: [{ type: "run-start" }, text(words), ENDED] });
}

/** An answer that goes on until a test ends it. */
function slow() {
  let response;
  const begin = (one) => {
    response = one;
    stream({ run: "slow", events: [{ type: "run-start" }, text("c")], end: "open" })(one);
  };
  const end = () => {
    const [ended, done] = [JSON.stringify(ENDED), "[DONE]"];
    response.end(`id: slow.1-3\ndata: ${ended}\n\nid: slow.1-3\ndata: ${done}\n\n`);
  };
  return { begin, end };
}

function lines({ entries }) {
  return entries.map(({ role, text: words }) => `${role}: ${words}`);
}

/** A chat with two messages and their answers. */
async function told(t, script) {
  const before = [answer("one", "a"), answer("two", "b")];
  const { client, requests } = await scripted(t, [...before, ...script]);
  const chat = new Chat(client(), { live: false });
  t.after(chat.subscribe(() => {}));
  await chat.send({ id: "u1", role: "user", content: "hi" });
  await chat.send({ id: "u2", role: "user", content: "more" });
  assert.deepEqual(lines(chat.getSnapshot()), BEFORE);
  const posts = () => requests.filter(({ method }) => method === "POST").map(({ body }) => body);
  return { chat, requests, posts };
}

test("a text takes the place of a message's text, and its other parts stay", async (t) => {
  const { chat, posts } = await told(t, [...FOUND, answer("three", "c")]);
  await chat.edit("u2", "better", { instructions: "be brief" });
  const expected = [...BEFORE.slice(0, 2), "user: better", "assistant: c"];
  assert.deepEqual(lines(chat.getSnapshot()), expected);
  const { id, ...entry } = chat.getSnapshot().entries[2];
  const content = [{ type: "text", text: "better" }, IMAGE];
  assert.deepEqual(entry, { role: "user", text: "better", parts: content });
  const post = posts().at(-1);
  assert.deepEqual(post.messages, [{ role: "user", id, content }]);
  assert.deepEqual(
    [post.after, post.intent, post.instructions, post.onBusy],
    ["a1", "to see", "be brief", undefined],
  );
  assert.notEqual(id, "u2");
});

test("another message takes the place of the first one, and all behind it goes", async (t) => {
  const { chat, posts } = await told(t, [...FOUND, answer("three", "c")]);
  await chat.edit("u1", { id: "u3", role: "user", content: "new" });
  assert.deepEqual(lines(chat.getSnapshot()), ["user: new", "assistant: c"]);
  assert.equal(chat.getSnapshot().entries[0].id, "u3");
  assert.deepEqual([posts().at(-1).after, "intent" in posts().at(-1)], ["", false]);
});

test("an answer is written again, behind the same message", async (t) => {
  const view = json({ id: "c", branches: [] });
  const { chat, posts } = await told(t, [answer("three", "c"), view, answer("four", "d")]);
  await chat.regenerate("u2");
  assert.deepEqual(lines(chat.getSnapshot()), [...BEFORE.slice(0, 3), "assistant: c"]);
  await chat.regenerate("u1", { onDisconnect: "cancel" });
  assert.deepEqual(lines(chat.getSnapshot()), ["user: hi", "assistant: d"]);
  assert.equal(chat.getSnapshot().entries[0].id, "u1");
  const [one, other] = posts().slice(2);
  assert.deepEqual([one.messages, one.after, one.onDisconnect], [[], "u2", undefined]);
  assert.deepEqual([other.messages, other.after, other.onDisconnect], [[], "u1", "cancel"]);
});

test("what is refused leaves everything as it was, with the error", async (t) => {
  const { chat, requests } = await told(t, [...FOUND, REFUSED, REFUSED, ...FOUND]);
  for (const attempt of [
    () => chat.edit("u2", "better"),
    () => chat.regenerate("u1"),
    () => chat.edit("gone", "better"),
  ]) {
    await attempt();
    const { error, status } = chat.getSnapshot();
    const code = requests.length < 7 ? "conversation_busy" : "message_not_found";
    assert.deepEqual([lines(chat.getSnapshot()), error.code, status], [BEFORE, code, "idle"]);
  }
  assert.equal(requests.length, 8);
});

test("during an answer they say what becomes of it, and wait for their turn", async (t) => {
  const { begin, end } = slow();
  const script = [begin, ...FOUND, answer("three", "d"), answer("four", "e")];
  const { chat, posts } = await told(t, script);
  const first = chat.send({ id: "u4", role: "user", content: "last" });
  await when(chat, ({ entries }) => entries.at(-1).text === "c");
  assert.throws(() => chat.regenerate("u1"), { code: "invalid_argument" });
  await assert.rejects(chat.edit("u1", "no"), { code: "invalid_argument" });
  const edit = chat.edit("u2", "better", { onBusy: "enqueue" });
  await when(chat, ({ entries }) => entries.at(-1).text === "better");
  const again = chat.regenerate("u1", { onBusy: "interrupt" });
  assert.deepEqual(lines(chat.getSnapshot()), [
    ...BEFORE,
    "user: last",
    "assistant: c",
    "user: better",
    "user: hi",
  ]);
  const seen = [];
  chat.subscribe(() => seen.push(lines(chat.getSnapshot()).join()));
  end();
  await Promise.all([first, edit, again]);
  assert.deepEqual(lines(chat.getSnapshot()), ["user: hi", "assistant: e"]);
  assert.ok(seen.includes("user: hi,assistant: a,user: better,assistant: d,user: hi"));
  assert.deepEqual(
    posts().slice(3).map(({ after, onBusy }) => [after, onBusy]),
    [
      ["a1", "enqueue"],
      ["u1", "interrupt"],
    ],
  );
});

/** A live chat that has seen a message of another client, and its answer. */
async function watching(t, script) {
  const log = conversation();
  const state = json({ id: "c", runId: "x", running: null, queued: [], owed: [], messageCount: 0 });
  const seen = withResolvers();
  const first = (...one) => seen.resolve(state(...one));
  const { client } = await scripted(t, [first, ...script(log)], undefined, log.watched);
  const chat = new Chat(client(), { conversationId: "c" });
  t.after(chat.subscribe(() => {}));
  t.after(() => log.cut());
  await seen.promise;
  log.say(...begins("one", 1, 0, HI), frame("one", 2, text("a")), frame("one", 3, ENDED));
  await when(chat, ({ entries, status }) => entries[1]?.text === "a" && status === "idle");
  return { chat, log };
}

test("what another client edits, or has answered again, takes its place, too", async (t) => {
  const { chat, log } = await watching(t, () => []);
  log.say(...begins("two", 4, 2, MORE), frame("two", 5, text("b")), frame("two", 6, ENDED));
  const better = { id: "u5", role: "user", content: "better" };
  log.say(...begins("three", 7, 2, better), frame("three", 8, text("c")), frame("three", 9, ENDED));
  const edited = await when(chat, ({ entries }) => entries[3]?.text === "c");
  assert.deepEqual(lines(edited), [...BEFORE.slice(0, 2), "user: better", "assistant: c"]);
  log.say(...begins("four", 10, 0, HI), frame("four", 11, text("d")), frame("four", 12, ENDED));
  const again = await when(chat, ({ entries }) => entries[1]?.text === "d");
  assert.deepEqual(lines(again), ["user: hi", "assistant: d"]);
});

for (const [name, isFirst] of [
  ["watched before it is read", true],
  ["read before it is watched", false],
]) {
  test(`an own answer that is ${name} is shown once`, async (t) => {
    const { chat, log } = await watching(t, (said) => [
      (response) => {
        const begun = begins("two", 4, 0, HI);
        const frames = [...begun, frame("two", 5, text("c")), frame("two", 6, ENDED)];
        if (isFirst) said.say(...frames);
        const events = [{ type: "run-start" }, text("c"), ENDED];
        stream({ run: "two", first: 4, events })(response);
        if (!isFirst) said.say(...frames);
      },
    ]);
    await chat.regenerate("u1");
    assert.deepEqual(lines(chat.getSnapshot()), ["user: hi", "assistant: c"]);
    log.say(...begins("three", 7, 2, MORE), frame("three", 8, text("d")), frame("three", 9, ENDED));
    const end = await when(chat, ({ entries }) => entries[3]?.text === "d");
    assert.deepEqual(lines(end), ["user: hi", "assistant: c", "user: more", "assistant: d"]);
  });
}
