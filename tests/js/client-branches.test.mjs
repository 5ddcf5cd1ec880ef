/** Edit, regenerate, versions, forks. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidArgument, reword } from "../../client_tools/js/src/index.js";
import { collect, json, lost, scripted, stream, text } from "./client-support.mjs";

const TOOLS = { add: { description: "Add", execute: () => 3 } };
const DECLARED = [{ name: "add", description: "Add" }];
const ANSWER = stream({
  events: [{ type: "run-start" }, text("hi"), { type: "run-end", outcome: "completed" }],
});
const LATER = json({ code: "store_unavailable", message: "later" }, 503);

/** A page of a history of so many messages, as the server sends it; `most` are in one page. */
function history(total, most = 100) {
  return (response, { query }) => {
    const [after, limit] = [Number(query.after), Math.min(Number(query.limit), most)];
    const messages = [];
    for (let at = after; at < Math.min(total, after + limit); at += 1) {
      messages.push({ id: `m${at}`, role: at % 2 ? "assistant" : "user", content: `${at}` });
    }
    const end = after + messages.length;
    json({ messages, next: end < total ? end : null, total })(response);
  };
}

test("a post says what it follows, and each repeat says the same", async (t) => {
  const { client, requests } = await scripted(t, [LATER, lost, ANSWER, ANSWER, ANSWER]);
  const one = client({ tools: TOOLS });
  assert.equal(await one.send("other", { conversationId: "c", after: "m1" }).text(), "hi");
  await one.send("first", { conversationId: "c", after: "" }).text();
  await one.send("last", { conversationId: "c" }).text();
  assert.deepEqual(
    requests.map(({ body: { messages, after, tools } }) => [messages[0].content, after, tools]),
    [
      ...Array(3).fill(["other", "m1", DECLARED]),
      ["first", "", DECLARED],
      ["last", undefined, DECLARED],
    ],
  );
  const keys = requests.map(({ headers }) => headers["idempotency-key"]);
  assert.equal(new Set(keys.slice(0, 3)).size, 1);
});

test("an answer is asked for again without a message, under one key", async (t) => {
  const { client, requests } = await scripted(t, [lost, ANSWER]);
  const one = client({ tools: TOOLS });
  const options = { onBusy: "interrupt", include: ["usage"], idempotencyKey: "mine" };
  const { events, error } = await collect(one.regenerate("c", "m4", options));
  assert.equal(error, null);
  assert.deepEqual(
    events.map(({ type }) => type),
    ["run-start", "text", "run-end"],
  );
  for (const { path, body, headers } of requests) {
    assert.deepEqual([path, headers["idempotency-key"]], ["/send-message", '"mine"']);
    assert.deepEqual(body, {
      conversationId: "c",
      messages: [],
      tools: DECLARED,
      after: "m4",
      onBusy: "interrupt",
      include: ["owed", "rewind", "run", "output", "usage"],
    });
  }
  assert.equal(requests.length, 2);
});

for (const [total, id, after, most] of [
  [5, "m4", "m3", 100],
  [5, "m0", "", 100],
  [250, "m240", "m239", 100],
  [250, "m150", "m149", 100], // the first of a page that is read
  [250, "m20", "m19", 7], // pages are shorter than asked for
  [250, "m0", "", 100],
]) {
  test(`${id} of ${total} messages is found, ${most} in a page`, async (t) => {
    const { client, requests } = await scripted(t, Array(60).fill(history(total, most)));
    const found = await client().findMessage("a/b", id);
    assert.deepEqual([found.message.id, found.after], [id, after]);
    assert.ok(requests.every(({ path }) => path === "/conversations/a%2Fb/messages"));
  });
}

test("a message that is not there is an error, and an abort stops the search", async (t) => {
  const { client, requests } = await scripted(t, Array(4).fill(history(150)));
  const one = client();
  await assert.rejects(one.findMessage("c", "m150"), { code: "message_not_found", status: 404 });
  assert.equal(requests.length, 3);
  const signal = AbortSignal.abort();
  await assert.rejects(one.findMessage("c", "m1", { signal }), { name: "AbortError" });
  assert.equal(requests.length, 3);
});

test("another branch is read, and a lost answer is no failure", async (t) => {
  const state = { id: "a/b", branches: [{ after: null, versions: ["m1", "m5"], current: "m1" }] };
  const { client, requests } = await scripted(t, [lost, LATER, json(state)]);
  assert.deepEqual(await client().switchBranch("a/b", "m1"), state);
  for (const { method, path, body } of requests) {
    assert.deepEqual(
      [method, path, body],
      ["POST", "/conversations/a%2Fb/leaf", { message: "m1" }],
    );
  }
  assert.equal(requests.length, 3);
});

test("a switch that is refused is not tried again", async (t) => {
  const busy = json({ code: "conversation_busy", message: "a run goes on" }, 409);
  const { client, requests } = await scripted(t, [busy]);
  const one = client();
  await assert.rejects(one.switchBranch("c", "m1"), { code: "conversation_busy", status: 409 });
  await assert.rejects(one.switchBranch("..", "m1"), InvalidArgument);
  assert.equal(requests.length, 1);
});

test("each try of a fork names the same copy", async (t) => {
  const copy = json({ id: "copy" }, 201);
  const { client, requests } = await scripted(t, [lost, copy, copy, copy]);
  const one = client();
  assert.deepEqual(await one.fork("a/b"), { id: "copy" });
  await one.fork("a/b", { after: "", conversationId: "copy" });
  await one.fork("a/b");
  const [first, again, named, other] = requests.map(({ body }) => body);
  assert.deepEqual(again, first);
  assert.deepEqual(named, { after: "", conversationId: "copy" });
  assert.notEqual(other.conversationId, first.conversationId);
  assert.deepEqual(Object.keys(first), ["conversationId"]);
  assert.ok(requests.every(({ path }) => path === "/conversations/a%2Fb/fork"));
});

const IMAGE = { type: "image", url: "data:image/png;base64,AA==", name: "a.png" };
const DATA = { type: "data", data: { a: 1 } };
const said = (...texts) => texts.map((one) => ({ type: "text", text: one }));

for (const [name, content, words, expected] of [
  ["a text", "old", "new", "new"],
  ["texts without other parts", said("a", "b"), "new", "new"],
  ["a text before an attachment", [...said("a"), IMAGE], "new", [...said("new"), IMAGE]],
  [
    "texts around attachments",
    [IMAGE, ...said("a", "b"), DATA, ...said("c")],
    "new",
    [IMAGE, ...said("new"), DATA],
  ],
  ["attachments alone", [IMAGE, DATA], "new", [IMAGE, DATA, ...said("new")]],
  ["a text that is removed", [...said("a"), IMAGE], "", [IMAGE]],
]) {
  test(`${name}: the words are others, the rest stays`, () => {
    assert.deepEqual(reword({ id: "m", role: "user", content }, words), { content: expected });
  });
}

test("the additions to a message, and its agent, stay", () => {
  const additions = {
    structuredData: null,
    intent: "to pay",
    constraints: ["soon"],
    instructions: "be brief",
    outputSchema: { type: "object" },
    model: "small",
    agentId: "bank",
  };
  const more = { id: "m", role: "user", createdAt: "2026-01-31T11:58:00.000Z", runId: "r" };
  assert.deepEqual(reword({ ...more, content: "old", ...additions }, "new"), {
    content: "new",
    ...additions,
  });
});
