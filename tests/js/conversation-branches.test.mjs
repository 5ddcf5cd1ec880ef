/** The page's conversation: edits, answers that are written again, and other versions. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../client_tools/js/src/index.js";
import { Conversation } from "../../client_tools/playground/conversation.js";
import { Again, Edit } from "../../client_tools/playground/posts.js";
import { ended, json, recordingView, scriptedFetch, text, told } from "./playground-support.mjs";

const POST = "POST /send-message";
const LEAF = "POST /conversations/c/leaf";
const INFO = "GET /conversations/c";
const MESSAGES = `${INFO}/messages`;
const STREAM = `${INFO}/stream`;
const START = { type: "run-start" };
const END = { type: "run-end", outcome: "completed" };
const ANSWER = ended([START, text("new"), END]);
const PAST = [
  { id: "u1", role: "user", content: "hi" },
  { id: "a1", role: "assistant", content: "hello" },
  { id: "u2", role: "user", content: "more" },
];
const PAGE = json({ messages: PAST, next: null, total: PAST.length });
const PLACE = { after: "a1", versions: ["u2", "u3"], current: "u3" };
const BUSY = json({ code: "conversation_busy", message: "a run goes on" }, 409);
const GONE = json({ code: "conflict", message: "1000 branches" }, 409);

function state(more = {}) {
  const idle = { id: "c", status: "idle", runId: "run", running: null, queued: [], owed: [] };
  return json({ ...idle, messageCount: PAST.length, ...more });
}

function open(script, view = {}) {
  const watches = [];
  const watched = () => watches.push("watch") && json({ code: "not_found", message: "no" }, 404)();
  const { fetch, requests } = scriptedFetch(script, undefined, watched);
  const page = recordingView();
  const connect = ({ quiet, ...options }) =>
    new Client({ url: "http://x", fetch, retry: { firstDelay: 1, unanswered: 2 }, ...options });
  const parts = { connect, view: { ...page.view, ...view }, actions: {}, mayRun: () => true };
  const conversation = new Conversation("c", parts);
  const posts = () => requests.filter(({ name }) => name === POST);
  return { ...page, conversation, requests, posts, watches };
}

/** An edit, and what becomes of it. */
function editOf(id, words) {
  const told = [];
  const on = {
    onAccepted: () => told.push("accepted"),
    onRefused: (error) => told.push(error?.code ?? null),
  };
  return { edit: new Edit(id, words, on), told };
}

/** Wait for a request, as the page makes it by itself. */
async function until(isSo) {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
}

test("an edit takes the place of its message, and its versions are read at the end", async (t) => {
  const { conversation, log, posts, requests } = open({
    [MESSAGES]: [PAGE, PAGE],
    [POST]: [ANSWER],
    [INFO]: [state({ branches: [PLACE], plan: [] })],
  });
  t.after(() => conversation.close());
  const { edit, told: became } = editOf("u2", "better");
  await conversation.postAnew(edit);
  await until(() => told(log, "setVersions").length > 0);
  assert.deepEqual(became, ["accepted"]);
  assert.deepEqual(told(log, "cutFrom", "addUser", "addText", "setVersions", "clear", "addError"), [
    ["cutFrom", "u2"],
    ["addUser", "better"],
    ["addText", "new"],
    ["setVersions", [PLACE]],
  ]);
  const [{ body }] = posts();
  assert.deepEqual(body.messages, [{ role: "user", content: "better", id: edit.id }]);
  assert.equal(body.after, "a1");
  assert.equal(requests.at(-1).name, INFO);
});

test("an edit that was refused is sent again as it was, without a new search", async (t) => {
  const { conversation, log, posts, requests } = open({
    [MESSAGES]: [PAGE, PAGE],
    [POST]: [BUSY, ANSWER],
    [INFO]: [state()],
  });
  t.after(() => conversation.close());
  const { edit, told: became } = editOf("u1", "better");
  await conversation.postAnew(edit);
  assert.deepEqual(became, ["conversation_busy"]);
  assert.deepEqual(told(log, "cutFrom", "addUser", "addError"), []);
  assert.equal(conversation.isIdle, true);
  await conversation.postAnew(edit);
  assert.deepEqual(became, ["conversation_busy", "accepted"]);
  const [one, other] = posts();
  assert.deepEqual(one.body, other.body);
  assert.equal(one.body.after, "");
  assert.equal(one.headers.get("Idempotency-Key"), other.headers.get("Idempotency-Key"));
  assert.equal(requests.filter(({ name }) => name === MESSAGES).length, 2);
});

test("a refused edit, whose form is open, does not hide what others say; others do", async (t) => {
  const { conversation, watches } = open({
    [INFO]: [state()],
    [MESSAGES]: [PAGE, PAGE, PAGE],
    [POST]: [BUSY, BUSY],
  });
  t.after(() => conversation.close());
  await conversation.load();
  await conversation.postAnew(editOf("u1", "better").edit);
  assert.equal(watches.length, 2);
  await conversation.postAnew(new Again("u1"));
  assert.equal(watches.length, 2);
});

test("a post whose place is not shown is shown from the history, once it has begun", async (t) => {
  const running = { runId: "run", firstMessage: 1, attempt: 1 };
  const { conversation, log } = open(
    {
      [POST]: [ANSWER],
      [INFO]: [state({ running, branches: [PLACE] }), state({ branches: [PLACE] })],
      [MESSAGES]: [PAGE],
      [STREAM]: [ANSWER],
    },
    { cutAfter: () => false },
  );
  t.after(() => conversation.close());
  await conversation.postAnew(new Again("u1"));
  await until(() => told(log, "setVersions").length > 1);
  assert.deepEqual(told(log, "clear", "addPast", "addText", "setVersions"), [
    ["clear"],
    ["addPast", { role: "user", id: "u1", text: "hi" }],
    ["setVersions", [PLACE]],
    ["addText", "new"],
    // the version that was being written has its message
    ["setVersions", [PLACE]],
  ]);
});

test("a post that was removed from the queue leaves what was there", async (t) => {
  const cancelled = { type: "run-end", outcome: "cancelled" };
  const { conversation, log } = open({
    [POST]: [ended([{ type: "run-queued" }, cancelled])],
    [INFO]: [state(), state()],
    [MESSAGES]: [PAGE],
  });
  t.after(() => conversation.close());
  await conversation.postAnew(new Again("u2"));
  assert.deepEqual(told(log, "cutAfter", "clear", "addPast").map(([name]) => name), [
    "cutAfter",
    "clear",
    ...Array(3).fill("addPast"),
  ]);
});

test("a switch that is refused is tried again behind the answer in its way", async (t) => {
  const running = { runId: "run", firstMessage: 1, attempt: 1 };
  const { conversation, log, requests, tryAgain, activities } = open({
    [LEAF]: [BUSY, state({ branches: [PLACE] })],
    [INFO]: [state({ running }), state({ branches: [PLACE] })],
    [MESSAGES]: [PAGE, PAGE],
    [STREAM]: [ANSWER],
  });
  t.after(() => conversation.close());
  await conversation.switchTo("u3");
  assert.deepEqual(log, [["addError", "conversation_busy"]]);
  assert.equal(requests.length, 1);
  tryAgain();
  await until(() => told(log, "setVersions").length > 1 && activities.at(-1) === "idle");
  assert.deepEqual(requests.map(({ name }) => name).filter((name) => name !== MESSAGES), [
    LEAF,
    INFO,
    STREAM,
    LEAF,
    INFO,
  ]);
  assert.ok(requests.every(({ name, body }) => name !== LEAF || body.message === "u3"));
});

for (const [name, attempt] of [
  ["a switch", (conversation) => conversation.switchTo("u3")],
  ["another answer", (conversation) => conversation.postAnew(new Again("u1"))],
  ["another answer meanwhile", (conversation) =>
    conversation.postMeanwhile(new Again("u1"), "enqueue")],
]) {
  test(`${name} that is refused asks for no change of a message`, async (t) => {
    const asked = [];
    const addError = (error, _again, isMessage) => asked.push([error.code, isMessage]);
    const { conversation } = open({ [LEAF]: [GONE], [POST]: [GONE] }, { addError });
    t.after(() => conversation.close());
    await attempt(conversation);
    assert.deepEqual(asked, [["conflict", false]]);
  });
}

test("what waits is shown until its run has begun, also without a message", async (t) => {
  const queued = ended([{ type: "run-queued" }], { headers: { "X-Run-Id": "next" } });
  const { conversation, log, posts } = open({
    [POST]: [queued],
    [INFO]: [state({ queued: [] })],
    [MESSAGES]: [PAGE],
  });
  t.after(() => conversation.close());
  await conversation.postMeanwhile(new Again("u1"), "enqueue");
  assert.deepEqual(posts()[0].body.onBusy, "enqueue");
  const shown = told(log, "setQueued", "clear").map(([what, texts]) => [what, texts?.length]);
  // the history is read at once, because the page is idle, and nothing waits there any more
  assert.deepEqual(shown, [
    ["setQueued", 1],
    ["setQueued", 1],
    ["clear", undefined],
  ]);
});

test("an edit meanwhile closes its form only once the server has it", async (t) => {
  const { conversation, log } = open({
    [MESSAGES]: [PAGE, PAGE, PAGE],
    [POST]: [BUSY, ANSWER],
    [INFO]: [state()],
  });
  t.after(() => conversation.close());
  const { edit, told: became } = editOf("u2", "better");
  await conversation.postMeanwhile(edit, "interrupt");
  assert.deepEqual([became, told(log, "addError")], [["conversation_busy"], []]);
  await conversation.postMeanwhile(edit, "interrupt");
  assert.deepEqual(became, ["conversation_busy", "accepted"]);
});
