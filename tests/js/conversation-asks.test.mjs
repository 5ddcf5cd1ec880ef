/**
 * The playground with calls that people owe, and calls that other tabs and devices run.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../client_tools/js/src/index.js";
import { Conversation } from "../../client_tools/playground/conversation.js";
import {
  ended,
  handsBack,
  json,
  recordingView,
  scriptedFetch,
  text,
  told,
  unreachable,
} from "./playground-support.mjs";

const POST = "POST /send-message";
const INFO = "GET /conversations/c";
const MESSAGES = `${INFO}/messages`;
const STREAM = `${INFO}/stream`;
const APPROVAL = {
  id: "call_1",
  name: "delete_file",
  arguments: "{}",
  kind: "approval",
  reason: "Sure?",
};
const QUESTION = {
  id: "call_2",
  name: "ask_user",
  arguments: '{"questions":[{"question":"Who?"}]}',
  kind: "question",
};
const BLUE = ["call_3", "change-background-color", '{"color": "blue"}'];
const OWED_BLUE = { id: BLUE[0], name: BLUE[1], arguments: BLUE[2], kind: "tool_result" };
const NOBODY = json({ messages: [] });
const held = () =>
  new Response('{"code": "call_claimed", "message": "held", "request_id": "req_1"}', {
    status: 409,
    headers: { "Retry-After": "30" },
  });

function open(script, { claim, confirm = async () => true, mayRun = () => true } = {}) {
  const { fetch, requests } = scriptedFetch(script, claim);
  const page = recordingView();
  const painted = [];
  const actions = { setBackground: (color) => void painted.push(color), confirm };
  const retry = { firstDelay: 1, longestDelay: 2000, unanswered: 2 };
  const connect = ({ tools, trace }) =>
    new Client({
      url: "http://x",
      fetch,
      unknownTools: "leave",
      retry,
      tools,
      ...(trace && { trace }),
    });
  const conversation = new Conversation("c", { connect, view: page.view, actions, mayRun });
  const posts = () => requests.filter(({ name }) => name === POST).map(({ body }) => body);
  return { conversation, requests, posts, painted, ...page };
}

function owes(...toolCalls) {
  return ended([
    { type: "run-start" },
    { type: "owed", toolCalls },
    { type: "run-end", outcome: "handed-back" },
  ]);
}

function parked(...toolCalls) {
  return ended([{ type: "owed", toolCalls }]);
}

function stands({ owed = [], running = null, runId = "run", messageCount = 0 } = {}) {
  return json({ id: "c", running, queued: [], owed, runId, messageCount });
}

function goesOn(words) {
  return ended([{ type: "run-start" }, text(words)]);
}

test("an approval and a question are shown, and decided one after the other", async () => {
  const page = open({ [POST]: [owes(APPROVAL, QUESTION), parked(QUESTION), goesOn("Done.")] });
  await page.conversation.send("go");
  assert.deepEqual(told(page.log, "showOwed"), [
    ["showOwed", APPROVAL],
    ["showOwed", QUESTION],
  ]);
  await page.conversation.answer({ id: "call_1", approved: false, reason: "No." });
  await page.conversation.answer({
    id: "call_2",
    content: { answers: [{ text: "Ada" }] },
    isError: false,
  });
  const [, decided, answered] = page.posts();
  assert.deepEqual(decided.resume, [
    { interruptId: "call_1", payload: { approved: false, reason: "No." } },
  ]);
  assert.deepEqual(answered.messages, [
    { role: "tool", toolCallId: "call_2", content: { answers: [{ text: "Ada" }] } },
  ]);
  assert.deepEqual([decided.tools, answered.tools], [undefined, undefined]);
  assert.deepEqual(told(page.log, "setDecision", "setResult", "addText"), [
    ["setDecision", "call_1", false],
    ["setResult", "call_2", '{"answers":[{"text":"Ada"}]}', false],
    ["addText", "Done."],
  ]);
});

test("what was decided and what is owed is there after a reload", async () => {
  const call = { id: "call_1", function: { name: "delete_file", arguments: "{}" }, client: false };
  const messages = [
    { id: "m1", role: "assistant", content: "", toolCalls: [call] },
    { id: "m2", role: "approval", toolCallId: "call_1", approved: true },
  ];
  const standing = json({
    id: "c",
    running: null,
    queued: [],
    owed: [QUESTION],
    runId: "run",
    messageCount: 2,
  });
  const page = open({ [INFO]: [standing, standing], [MESSAGES]: [json({ messages })] });
  await page.conversation.load();
  const past = told(page.log, "addPast").map(([, message]) => message);
  assert.deepEqual(
    past.map(({ role, calls, approved }) => [role, calls?.[0].client, approved]),
    [
      ["assistant", false, undefined],
      ["approval", undefined, true],
    ],
  );
  assert.deepEqual(page.log.at(-1), ["showOwed", { ...QUESTION }]);
  assert.equal(page.posts().length, 0);
});

test("a decision clicked twice is posted once, behind the result of a running tool", async () => {
  let decide = () => {};
  const confirm = async () => {
    decide();
    return true;
  };
  const ask = ["call_4", "ask-user-to-confirm", '{"question": "Really?"}'];
  const both = owes(APPROVAL, ...handsBack(ask)[0].toolCalls);
  const page = open({ [POST]: [both, parked(APPROVAL), goesOn("Done.")] }, { confirm });
  const finished = new Promise((resolve) => (page.view.addText = resolve));
  decide = () => {
    void page.conversation.answer({ id: "call_1", approved: true });
    void page.conversation.answer({ id: "call_1", approved: true });
  };
  await page.conversation.send("go");
  await finished;
  assert.deepEqual(
    page.posts().map(({ messages, resume }) => [messages?.[0].toolCallId, resume?.length]),
    [
      [undefined, undefined],
      ["call_4", undefined],
      [undefined, 1],
    ],
  );
});

test("a decision that is clicked again while it is on its way is not posted again", async () => {
  const page = open({ [POST]: [owes(APPROVAL), goesOn("Done."), goesOn("Yes.")] });
  await page.conversation.send("go");
  const decision = { id: "call_1", approved: true };
  page.view.setActivity = (activity) => {
    if (activity === "sending") void page.conversation.answer(decision);
  };
  await page.conversation.answer(decision);
  page.view.setActivity = () => {};
  await page.conversation.send("and?");
  assert.deepEqual(
    page.posts().map(({ resume, messages }) => resume?.length ?? messages[0].content),
    ["go", 1, "and?"],
  );
});

test("a stop forgets what was clicked meanwhile", async () => {
  let stop = () => {};
  const confirm = (_, signal) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
      stop();
    });
  const ask = ["call_4", "ask-user-to-confirm", '{"question": "Really?"}'];
  const page = open({ [POST]: [owes(APPROVAL, ...handsBack(ask)[0].toolCalls)] }, { confirm });
  stop = () => {
    void page.conversation.answer({ id: "call_1", approved: true });
    void page.conversation.stop();
  };
  await page.conversation.send("go");
  assert.deepEqual([page.posts().length, page.activities.at(-1)], [1, "idle"]);
});

test("an answer that does not fit is said, and may be given again", async () => {
  const refused = json({ code: "invalid_answer", message: "there is no such option" }, 422);
  const page = open({ [POST]: [owes(QUESTION), refused, goesOn("Done.")] });
  await page.conversation.send("go");
  const reply = { id: "call_2", content: "Eve", isError: false };
  await page.conversation.answer(reply);
  assert.deepEqual(page.log.at(-1), ["addError", "invalid_answer"]);
  await page.conversation.answer(reply);
  assert.deepEqual(page.log.at(-1), ["addText", "Done."]);
});

test("a call claimed elsewhere leaves the page free; the history shows its result", async () => {
  const theirs = { runId: "theirs", firstMessage: 0 };
  const page = open(
    {
      [POST]: [owes(OWED_BLUE)],
      [INFO]: [
        stands({ owed: [{ ...OWED_BLUE, claimedUntil: "2026-01-31T12:00:30.000Z" }] }),
        stands({ runId: "theirs" }),
        stands({ runId: "theirs" }),
        stands({ running: theirs, runId: "theirs" }),
      ],
      [MESSAGES]: [NOBODY],
      [STREAM]: [goesOn("missed"), goesOn("Theirs.")],
    },
    { claim: held },
  );
  const free = [];
  const { setActivity } = page.view;
  page.view.setActivity = (activity) => {
    free.push([activity, page.conversation.isIdle]);
    setActivity(activity);
  };
  await page.conversation.send("blue");
  assert.deepEqual(page.painted, []);
  assert.deepEqual(told(page.log, "setCallState"), [
    ["setCallState", "call_3", "elsewhere"],
    ["setCallState", "call_3", "answered"],
  ]);
  assert.deepEqual(told(page.log, "clear", "addText"), [["clear"], ["addText", "Theirs."]]);
  assert.deepEqual(
    free.find(([activity]) => activity === "elsewhere"),
    ["elsewhere", true],
  );
  assert.deepEqual(free.at(-1), ["idle", true]);
});

test("a call answered elsewhere while the page loads has its result from the history", async () => {
  const result = { id: "r", role: "tool", toolCallId: OWED_BLUE.id, content: "blue" };
  const past = {
    role: "tool",
    id: "r",
    text: "blue",
    callId: OWED_BLUE.id,
    isError: false,
    synthetic: null,
    durationMs: 0,
  };
  const ends = {
    running: stands({ running: { runId: "theirs", firstMessage: 0 }, runId: "theirs" }),
    over: stands({ runId: "theirs" }),
    "owed by people alone": stands({ owed: [APPROVAL] }),
    "owes more": stands({ owed: [APPROVAL, QUESTION, OWED_BLUE], runId: "theirs" }),
  };
  for (const [how, then] of Object.entries(ends)) {
    const page = open({
      [INFO]: [
        stands({ owed: [APPROVAL, OWED_BLUE] }),
        then,
        stands({ runId: "theirs", messageCount: 1 }),
      ],
      [MESSAGES]: [json({ messages: [result] })],
      [STREAM]: [goesOn("missed")],
    });
    await page.conversation.load();
    assert.deepEqual(page.painted, [], how);
    assert.deepEqual(
      told(page.log, "clear", "addPast", "addText", "showOwed"),
      [["clear"], ["clear"], ["addPast", past]],
      how,
    );
  }
});

test("answers that are posted one by one are this page's own, all of them", async () => {
  const other = { ...OWED_BLUE, id: "call_4" };
  const settled = json({ code: "invalid_request", message: "not together" }, 422);
  const page = open({
    [POST]: [owes(OWED_BLUE, other), settled, parked(other), goesOn("Done.")],
  });
  await page.conversation.send("blue, twice");
  assert.deepEqual(
    page
      .posts()
      .slice(1)
      .map(({ messages }) => messages.length),
    [2, 1, 1],
  );
  assert.deepEqual(page.log.at(-1), ["addText", "Done."]);
  assert.deepEqual(told(page.log, "clear"), []);
});

test("who is free may say something instead, and waits no longer", async () => {
  const waits = stands({ owed: [{ ...OWED_BLUE, claimedUntil: "2026-01-31T12:00:30.000Z" }] });
  const page = open(
    { [POST]: [owes(OWED_BLUE), goesOn("Done.")], [INFO]: Array(20).fill(waits) },
    { claim: held },
  );
  const said = new Promise((resolve) => {
    page.view.setActivity = (activity) => {
      if (activity === "elsewhere") {
        queueMicrotask(() => resolve(page.conversation.send("never mind")));
      }
    };
  });
  await page.conversation.send("blue");
  await said;
  assert.deepEqual(page.log.at(-1), ["addText", "Done."]);
  assert.deepEqual([page.posts().length, told(page.log, "addError")], [2, []]);
});

// ---------------------------------------------------------------- calls answered elsewhere
test("a look shows how it went on where what is owed was answered elsewhere", async () => {
  const page = open({
    [POST]: [owes(APPROVAL)],
    [INFO]: [
      stands({ owed: [APPROVAL] }),
      stands({ runId: "theirs" }),
      stands({ runId: "theirs" }),
    ],
    [MESSAGES]: [json({ messages: [{ id: "m", role: "user", content: "hi" }] })],
  });
  await page.conversation.send("go");
  await page.conversation.checkOwed();
  assert.deepEqual(told(page.log, "clear"), []);
  await page.conversation.checkOwed();
  assert.deepEqual(told(page.log, "clear"), [["clear"]]);
  // nothing is owed any more
  await page.conversation.checkOwed();
  assert.equal(page.requests.filter(({ name }) => name === INFO).length, 3);
});

test("a look that fails, or comes too late, changes nothing", async () => {
  const page = open({
    [POST]: [owes(APPROVAL), goesOn("Done.")],
    [INFO]: [unreachable, unreachable, stands()],
  });
  await page.conversation.send("go");
  await page.conversation.checkOwed();
  const late = page.conversation.checkOwed();
  await page.conversation.send("never mind");
  await late;
  assert.deepEqual(told(page.log, "clear", "addError"), []);
});

test("a call of a conversation begun elsewhere runs when a person says so", async () => {
  let mayRun = false;
  const standing = stands({ owed: [OWED_BLUE] });
  const script = {
    [INFO]: [standing, standing, standing, standing],
    [MESSAGES]: [],
    [POST]: [ended([{ type: "run-start" }, text("Done.")])],
  };
  const page = open(script, { mayRun: () => mayRun });
  await page.conversation.load();
  assert.deepEqual(told(page.log, "askToRun", "showOwed"), [["askToRun", { ...OWED_BLUE }]]);
  assert.deepEqual([page.painted, page.posts(), page.conversation.isIdle], [[], [], true]);
  mayRun = true;
  await page.conversation.load();
  assert.deepEqual(page.painted, ["blue"]);
  assert.deepEqual(told(page.log, "addText"), [["addText", "Done."]]);
});

test("what is said in such a conversation declares the tools, and runs none", async () => {
  const page = open({ [POST]: [owes(OWED_BLUE)] }, { mayRun: () => false });
  await page.conversation.send("make it blue");
  assert.deepEqual(
    page.posts()[0].tools.map(({ name }) => name),
    ["change-background-color", "get-time-zone", "ask-user-to-confirm", "ask_user"],
  );
  assert.deepEqual([page.painted, page.posts().length], [[], 1]);
  assert.deepEqual(told(page.log, "askToRun"), [["askToRun", OWED_BLUE]]);
});
