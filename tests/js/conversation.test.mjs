/** What the playground posts, when, and how it goes on after a break. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Api } from "../../client_tools/playground/api.js";
import { Conversation, MAX_ROUNDS } from "../../client_tools/playground/conversation.js";
import {
  callEvents, cut, ended, json, recordingView, scriptedFetch, text, told, unreachable,
} from "./playground-support.mjs";

const POST = "POST /send-message";
const INFO = "GET /conversations/c%2F1";
const MESSAGES = `${INFO}/messages`;
const STREAM = `${INFO}/stream`;
const CANCEL = "POST /conversations/c%2F1/cancel";
const BLUE = callEvents("call_1", "change-background-color", '{"color": "blue"}');
const ASK = callEvents("call_2", "ask-user-to-confirm", '{"question": "Really?"}');

/** A conversation with a scripted server. */
function open(script, { confirm = async () => true } = {}) {
  const { fetch, requests } = scriptedFetch(script);
  const page = recordingView();
  const painted = [];
  const hands = { setBackground: (color) => void painted.push(color), confirm };
  const wait = async (_, signal) => signal.throwIfAborted();
  const conversation = new Conversation("c/1", { api: new Api({ fetch }), view: page.view, hands, wait });
  const posts = () => requests.filter(({ name }) => name === POST).map(({ body }) => body);
  return { conversation, requests, posts, painted, ...page };
}

function idle(owed = [], messageCount = 0) {
  return json({ id: "c/1", status: "idle", owed, messageCount });
}

test("a message is posted with the tools, the next one without", async () => {
  const { conversation, posts, log } = open({ [POST]: [ended([text("Hel"), text("lo")]), ended([text("Again")])] });
  await conversation.send("hi");
  await conversation.send("and?");
  const [first, second] = posts();
  assert.deepEqual(first.messages, [{ role: "user", content: "hi" }]);
  assert.deepEqual(first.tools.map(({ name }) => name), ["change-background-color", "get-time-zone", "ask-user-to-confirm"]);
  assert.deepEqual([second.messages, second.tools], [[{ role: "user", content: "and?" }], undefined]);
  assert.deepEqual(told(log, "addText"), [["addText", "Hel"], ["addText", "lo"], ["addText", "Again"]]);
});

test("the results of parallel calls are posted together, after the stream has ended", async () => {
  const { conversation, posts, painted } = open({ [POST]: [ended([...BLUE, ...ASK]), ended([text("Done")])] });
  await conversation.send("do both");
  assert.deepEqual(painted, ["blue"]);
  assert.deepEqual(posts()[1].messages, [
    { role: "tool", content: "Background color successfully changed to: blue", toolCallId: "call_1" },
    { role: "tool", content: "confirmed", toolCallId: "call_2" },
  ]);
});

test("a call that the server answered itself is not run here", async () => {
  const answered = { type: "tool-result", toolCallId: "call_1", result: "not valid" };
  const { conversation, posts, painted } = open({ [POST]: [ended([...BLUE, answered, text("Sorry")])] });
  await conversation.send("blue");
  assert.deepEqual([painted, posts().length], [[], 1]);
});

test("a failed tool is posted as an error", async () => {
  const mauve = callEvents("call_1", "change-background-color", '{"color": "mauve"}');
  const { conversation, posts } = open({ [POST]: [ended(mauve), ended([])] });
  await conversation.send("mauve");
  assert.equal(posts()[1].messages[0].isError, true);
});

test("a call of another client's tool is left to that client", async () => {
  const foreign = callEvents("call_9", "open-the-door", "{}    ");
  const { conversation, posts, log } = open({ [POST]: [ended(foreign)] });
  await conversation.send("open");
  assert.equal(posts().length, 1);
  assert.deepEqual(log.at(-1), ["setCallState", "call_9", "elsewhere"]);
});

test("results are posted again when the server does not answer, and the tool runs once", async () => {
  const { conversation, posts, painted, log } = open({
    [POST]: [ended(BLUE), unreachable, unreachable, ended([text("Done")])],
  });
  await conversation.send("blue");
  assert.deepEqual(posts().slice(1).map(({ messages }) => messages[0].toolCallId), ["call_1", "call_1", "call_1"]);
  assert.deepEqual([painted, told(log, "addError")], [["blue"], []]);
});

test("a message is not posted twice by itself: trying again asks first whether it arrived", async () => {
  const page = open({
    [POST]: [unreachable],
    [INFO]: [idle([], 2)],
    [MESSAGES]: [json({
      messages: [{ id: "m1", role: "user", content: "hi" }, { id: "m2", role: "assistant", content: "Hello" }],
      next: null,
    })],
  });
  await page.conversation.send("hi");
  assert.deepEqual(told(page.log, "addError"), [["addError", "NetworkError"]]);
  await settled(page);
  assert.deepEqual(told(page.log, "addPast").map(([, { role, text: said }]) => [role, said]), [["user", "hi"], ["assistant", "Hello"]]);
  assert.equal(page.posts().length, 1);
});

test("trying again posts a message that did not arrive", async () => {
  const page = open({
    [POST]: [json({ code: "store_unavailable", message: "no store" }, 503), ended([text("Hello")])],
    [INFO]: [json({ code: "conversation_not_found", message: "none" }, 404)],
  });
  await page.conversation.send("hi");
  assert.deepEqual(page.log.at(-1), ["addError", "store_unavailable"]);
  await settled(page);
  assert.deepEqual(page.posts().map(({ messages }) => messages), Array(2).fill([{ role: "user", content: "hi" }]));
  assert.deepEqual(page.log.at(-1), ["addText", "Hello"]);
});

test("a cut stream is followed to its end", async () => {
  const { conversation, requests, log } = open({
    [POST]: [cut([text("a")])],
    [STREAM]: [ended([text("b")], { first: 2 })],
  });
  await conversation.send("hi");
  assert.equal(requests[1].headers.get("Last-Event-ID"), "run.1-1");
  assert.deepEqual(told(log, "addText"), [["addText", "a"], ["addText", "b"]]);
});

test("a running answer is shown from its start after a reload", async () => {
  const { conversation, log, requests } = open({
    [INFO]: [json({ status: "running", owed: [], messageCount: 1 })],
    [MESSAGES]: [json({ messages: [{ id: "m1", role: "user", content: "hi" }], next: null })],
    [STREAM]: [ended([{ type: "message", messageId: "m2" }, text("Hello")])],
  });
  await conversation.load();
  assert.equal(requests[2].headers.has("Last-Event-ID"), false);
  assert.deepEqual(log, [
    ["clear"],
    ["addPast", { role: "user", id: "m1", text: "hi" }],
    ["beginAnswer", "m2"],
    ["addText", "Hello"],
  ]);
});

test("calls that are owed when the page loads are run and answered", async () => {
  const owed = [{ id: "call_1", name: "change-background-color", arguments: '{"color":"red"}' }];
  const { conversation, posts, painted } = open({ [INFO]: [idle(owed)], [MESSAGES]: [json({ messages: [] })], [POST]: [ended([])] });
  await conversation.load();
  assert.deepEqual([painted, posts()[0].messages[0].toolCallId, posts()[0].tools], [["red"], "call_1", undefined]);
});

test("a post that leaves calls open asks the server what they are", async () => {
  const parked = ended([], { headers: { "X-Owed-Tool-Calls": "call_2" } });
  const owed = [{ id: "call_2", name: "ask-user-to-confirm", arguments: '{"question":"Really?"}' }];
  const { conversation, posts } = open({ [POST]: [ended(BLUE), parked, ended([])], [INFO]: [idle(owed)] });
  await conversation.send("blue");
  assert.deepEqual(posts().map(({ messages }) => messages[0].toolCallId), [undefined, "call_1", "call_2"]);
});

test("a run that fails says so once and runs no tool", async () => {
  const error = { type: "error", error: "the model is away", code: "model_unavailable", retryable: true };
  const { conversation, log, painted, posts } = open({ [POST]: [ended([...BLUE, error])] });
  await conversation.send("blue");
  assert.deepEqual(told(log, "addProblem", "addError"), [["addProblem", "model_unavailable", "edit"]]);
  assert.deepEqual([painted, posts().length], [[], 1]);
});

test("stop asks the server while it answers", async () => {
  const { conversation, requests, view } = open({ [POST]: [ended([text("a"), text("b")])], [CANCEL]: [json({ cancelled: true }, 202)] });
  view.addText = () => void conversation.stop();
  await conversation.send("hi");
  assert.equal(requests[1].name, CANCEL);
});

test("stop withdraws a question of this page, and posts nothing for it", async () => {
  const page = open({ [POST]: [ended(ASK)] }, {
    confirm: (_, signal) => new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
      void page.conversation.stop();
    }),
  });
  await page.conversation.send("ask");
  assert.equal(page.posts().length, 1);
  assert.deepEqual(page.log.slice(-2), [["setCallState", "call_2", "skipped"], ["addNote", "Stopped."]]);
  assert.equal(page.activities.at(-1), "idle");
});

test("a conversation that was left says nothing more", async () => {
  const page = open({ [POST]: [ended(ASK)] }, {
    confirm: async (_, signal) => {
      page.conversation.close();
      throw signal.reason;
    },
  });
  await page.conversation.send("ask");
  assert.deepEqual(told(page.log, "addError", "addNote"), []);
  assert.equal(page.activities.at(-1), "working");
});

test("an agent that asks for tools without end is stopped", async () => {
  const rounds = Array.from({ length: MAX_ROUNDS + 5 }, (_, index) =>
    ended(callEvents(`call_${index}`, "get-time-zone", "{}    ")));
  const { conversation, posts, log } = open({ [POST]: rounds });
  await conversation.send("loop");
  assert.equal(posts().length, MAX_ROUNDS + 1);
  assert.equal(log.at(-1)[0], "addNote");
});

/** Presses the button of the error that is shown, and waits until the page is idle again. */
async function settled(page) {
  page.activities.length = 0;
  page.tryAgain();
  for (let turn = 0; turn < 1000 && page.activities.at(-1) !== "idle"; turn += 1) {
    await new Promise(setImmediate);
  }
  assert.equal(page.activities.at(-1), "idle");
}
