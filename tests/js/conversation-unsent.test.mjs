/** The playground's messages that are refused, or that nobody knows the fate of. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../client_tools/js/src/index.js";
import { Conversation } from "../../client_tools/playground/conversation.js";
import { Outbox } from "../../client_tools/playground/outbox.js";
import { Message } from "../../client_tools/playground/posts.js";
import { ended, json, recordingView, scriptedFetch, text, told } from "./playground-support.mjs";

const POST = "POST /send-message";
const INFO = "GET /conversations/c";
const MESSAGES = `${INFO}/messages`;
const BUSY = json({ code: "conversation_busy", message: "a run is going on" }, 409);
const MISSING = json({ code: "conversation_not_found", message: "none" }, 404);
const END = { type: "run-end", outcome: "completed" };
const QUEUED = ended([{ type: "run-queued", runId: "run" }, text("later"), END]);

function open(script, outbox = new Outbox({ isNew: true })) {
  const { fetch, requests } = scriptedFetch(script);
  const page = recordingView();
  const connect = ({ quiet, ...options }) =>
    new Client({ url: "http://x", fetch, retry: { firstDelay: 1, unanswered: 2 }, ...options });
  const parts = { connect, view: page.view, actions: {}, mayRun: () => true, outbox };
  const conversation = new Conversation("c", parts);
  const posts = () => requests.filter(({ name }) => name === POST);
  return { ...page, conversation, posts, outbox };
}

/** The conversation as the server has it. */
function state(...messages) {
  const idle = { id: "c", status: "idle", runId: "run", running: null, queued: [], owed: [] };
  return {
    [INFO]: [json({ ...idle, messageCount: messages.length })],
    [MESSAGES]: [json({ messages, next: null })],
  };
}

/** Their texts, and the codes of the reasons. */
function reasons(page) {
  return page.unsent().map(({ message, refusal }) => [message.text, refusal.code]);
}

test("a message during an answer that is refused changes nothing of the answer", async (t) => {
  const page = open({ [POST]: [BUSY] });
  t.after(() => page.conversation.close());
  await page.conversation.postMeanwhile(new Message("and this"), "interrupt");
  assert.deepEqual(reasons(page), [["and this", "conversation_busy"]]);
  const names = new Set(page.log.map(([name]) => name));
  assert.deepEqual([...names], ["setQueued", "cutFrom"]);
  assert.deepEqual(told(page.log, "setQueued"), [["setQueued", ["and this"]], ["setQueued", []]]);
});

test("during an answer, it is posted again as the same message with the same effect", async (t) => {
  const { promise, resolve } = Promise.withResolvers?.() ?? withResolvers();
  const answering = () => promise.then(ended([text("a"), END]));
  const page = open({ [POST]: [answering, BUSY, QUEUED], ...state() });
  t.after(() => page.conversation.close());
  const answer = page.conversation.send("hi");
  await page.conversation.postMeanwhile(new Message("and this"), "interrupt");
  const [{ message }] = page.unsent();
  const again = page.conversation.retry(message.id);
  assert.deepEqual(reasons(page), []);
  assert.deepEqual(told(page.log, "setQueued").at(-1), ["setQueued", ["and this"]]);
  // a second click finds nothing to try again
  await page.conversation.retry(message.id);
  await again;
  const [, first, second] = page.posts();
  assert.deepEqual([page.posts().length, second.body], [3, first.body]);
  assert.equal(second.body.onBusy, "interrupt");
  const key = "Idempotency-Key";
  assert.equal(second.headers.get(key), first.headers.get(key));
  resolve();
  await answer;
  assert.deepEqual([reasons(page), page.outbox.isEmpty], [[], true]);
});

test("a refused message makes place in the chat, and for other messages", async (t) => {
  const page = open({ [POST]: [BUSY, ended([text("b"), END])] });
  t.after(() => page.conversation.close());
  await page.conversation.send("first");
  await page.conversation.send("second");
  assert.deepEqual(reasons(page), [["first", "conversation_busy"]]);
  const shown = told(page.log, "addUser", "cutFrom", "addError").map(([name]) => name);
  assert.deepEqual(shown, ["addUser", "cutFrom", "addUser"]);
  const [{ message }] = page.unsent();
  assert.equal(page.conversation.pending.take(message.id), message);
  assert.deepEqual([reasons(page), page.outbox.isEmpty], [[], true]);
});

test("what happens to a message that the server has is no reason to send it again", async (t) => {
  const failure = { type: "error", error: "no", code: "model_unavailable", retryable: true };
  const page = open({ [POST]: [ended([failure])] });
  t.after(() => page.conversation.close());
  await page.conversation.send("hi");
  assert.deepEqual(told(page.log, "addError"), [["addError", "model_unavailable"]]);
  assert.deepEqual([reasons(page), page.outbox.isNew], [[], false]);
});

test("a conversation that is left keeps its message, until its history has it", async (t) => {
  const never = () => new Promise(() => {});
  const left = open({ [POST]: [never] });
  void left.conversation.send("hi");
  await new Promise(setImmediate);
  left.conversation.close();
  const [{ message }] = left.outbox.refused;
  assert.deepEqual(left.unsent(), []);

  const back = open({ [INFO]: [MISSING] }, left.outbox);
  await back.conversation.load();
  assert.deepEqual([reasons(back), told(back.log, "addError")], [[["hi", ""]], []]);
  back.conversation.close();

  const arrived = open(state({ id: message.id, role: "user", content: "hi" }), left.outbox);
  t.after(() => arrived.conversation.close());
  await arrived.conversation.load();
  assert.deepEqual([reasons(arrived), left.outbox.isEmpty], [[], true]);
});

test("a history that cannot be read hides no message that was not sent", async (t) => {
  const outbox = new Outbox();
  const message = new Message("hi");
  outbox.begin(message);
  outbox.refuse(message.id, null);
  const page = open({ [INFO]: [MISSING] }, outbox);
  t.after(() => page.conversation.close());
  await page.conversation.load();
  assert.deepEqual(told(page.log, "addError"), [["addError", "conversation_not_found"]]);
  assert.deepEqual(reasons(page), [["hi", ""]]);
});

function withResolvers() {
  let resolve = () => {};
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
