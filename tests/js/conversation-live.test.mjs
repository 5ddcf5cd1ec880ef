/** The page's conversation while it is idle: it shows what other clients do. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../client_tools/js/src/index.js";
import { Conversation } from "../../client_tools/playground/conversation.js";
import { ended, json, recordingView, scriptedFetch, text, told } from "./playground-support.mjs";
import { begins, frame, written } from "./watch-support.mjs";

const POST = "POST /send-message";
const INFO = "GET /conversations/c";
const MESSAGES = `${INFO}/messages`;
const STREAM = `${INFO}/stream`;
const START = { type: "run-start" };
const END = { type: "run-end", outcome: "completed" };
const HI = { id: "m0", role: "user", content: "hi" };

/** A conversation whose server answers each watch by the next of these functions. */
function open(script, ...watches) {
  const asked = [];
  const watched = (init) => {
    asked.push(init.headers.get("Last-Event-ID"));
    return (watches.shift() ?? silent)(init);
  };
  const { fetch, requests } = scriptedFetch(script, undefined, watched);
  const page = recordingView();
  const idle = [];
  const setActivity = (activity) => activity === "idle" && idle.shift()?.();
  const connect = ({ quiet, ...options }) =>
    new Client({ url: "http://x", fetch, retry: { firstDelay: 1 }, ...options });
  const view = { ...page.view, setActivity };
  const conversation = new Conversation("c", { connect, view, actions: {}, mayRun: () => true });
  const settled = () => new Promise((resolve) => idle.push(resolve));
  return { ...page, view, conversation, requests, asked, settled };
}

/** A stream that stays open. */
function streaming(...frames) {
  return ({ signal }) => {
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(`: open\n\n${written(frames)}`));
        signal.addEventListener("abort", () => controller.error(signal.reason));
      },
    });
    const headers = { "Content-Type": "text/event-stream", "X-Conversation-Id": "c" };
    return new Response(body, { headers });
  };
}

const silent = streaming();

function state(runId, { running = null, messageCount = 2 } = {}) {
  return json({ id: "c", status: "idle", runId, running, queued: [], owed: [], messageCount });
}

function page(...messages) {
  return json({ messages, next: null, total: messages.length });
}

test("a run of another client is shown with its message as it comes", async (t) => {
  const running = { runId: "run", firstMessage: 0, attempt: 1 };
  const { conversation, settled, asked, log } = open(
    {
      [INFO]: [state(null, { messageCount: 0 }), state(null), state("run", { running })],
      [MESSAGES]: [page(HI)],
      [STREAM]: [ended([START, text("a"), END])],
    },
    streaming(...begins("run", 1, 0, HI)),
  );
  t.after(() => conversation.close());
  await conversation.load();
  await settled();
  assert.deepEqual(told(log, "addPast", "addText"), [
    ["addPast", { role: "user", id: "m0", text: "hi" }],
    ["addText", "a"],
  ]);
  // it goes on behind what is shown
  assert.deepEqual(asked, [null, "run.1-3"]);
});

test("runs that ended before the watch began are shown from the history", async (t) => {
  const { conversation, settled, log, requests } = open(
    {
      [INFO]: [state("one"), state("two"), state("two"), state("two")],
      [MESSAGES]: [page(), page(HI)],
    },
    silent,
    silent,
  );
  t.after(() => conversation.close());
  await conversation.load();
  await settled();
  assert.deepEqual(told(log, "addPast"), [["addPast", { role: "user", id: "m0", text: "hi" }]]);
  assert.equal(requests.filter(({ name }) => name === INFO).length, 3);
});

test("a version to which others switch is shown", { timeout: 8000 }, async (t) => {
  const switched = streaming({ data: '{"type":"switched","message":"m0"}' });
  const { conversation, settled, asked, log } = open(
    { [POST]: [ended([START, text("a"), END])], [INFO]: [state("run")], [MESSAGES]: [page(HI)] },
    switched,
  );
  t.after(() => conversation.close());
  await conversation.send("no");
  await settled();
  assert.deepEqual(told(log, "clear", "addPast"), [
    ["clear"],
    ["addPast", { role: "user", id: "m0", text: "hi" }],
  ]);
  assert.deepEqual(asked[0], "run.1-3");
});

test("an own answer comes once, and the watch goes on behind it", async (t) => {
  const { conversation, asked, log } = open({ [POST]: [ended([START, text("a"), END])] });
  t.after(() => conversation.close());
  await conversation.send("hi");
  assert.deepEqual(told(log, "clear", "addUser", "addText"), [
    ["addUser", "hi"],
    ["addText", "a"],
  ]);
  assert.deepEqual(asked, ["run.1-3"]);
});

for (const [name, gone] of [
  ["a deletion is shown", streaming({ data: '{"type":"deleted"}' })],
  [
    "a deletion while nobody watched is shown",
    json({ code: "conversation_not_found", message: "no" }, 404),
  ],
]) {
  test(`${name}, and the next message begins anew`, async (t) => {
    const answer = ended([START, text("a"), END]);
    const { conversation, log, view } = open({ [POST]: [answer, answer] }, gone);
    t.after(() => conversation.close());
    const shown = new Promise((resolve) => {
      view.addError = (error) => resolve(log.push(["addError", error.code]));
    });
    await conversation.send("hi");
    await shown;
    await conversation.send("again");
    assert.deepEqual(told(log, "addError", "clear", "addUser"), [
      ["addUser", "hi"],
      ["addError", "conversation_deleted"],
      ["clear"],
      ["addUser", "again"],
    ]);
  });
}

test("events that are lost are read from the history", async (t) => {
  const { conversation, settled, log } = open(
    {
      [POST]: [ended([START, text("a"), END])],
      [INFO]: [state("two"), state("two")],
      [MESSAGES]: [page(HI)],
    },
    json({ code: "cursor_expired", message: "gone" }, 410),
  );
  t.after(() => conversation.close());
  await conversation.send("hi");
  await settled();
  assert.deepEqual(told(log, "addUser", "clear", "addPast"), [
    ["addUser", "hi"],
    ["clear"],
    ["addPast", { role: "user", id: "m0", text: "hi" }],
  ]);
});

test("a server that cannot follow conversations changes nothing", async (t) => {
  const refused = json({ code: "not_found", message: "no" }, 404);
  const { conversation, log } = open({ [POST]: [ended([START, END])] }, refused);
  t.after(() => conversation.close());
  await conversation.send("hi");
  assert.deepEqual(told(log, "addUser", "clear", "addError"), [["addUser", "hi"]]);
});
