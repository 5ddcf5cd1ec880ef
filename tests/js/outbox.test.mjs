/** What the playground keeps of messages that were not sent, in the storage of a tab. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { ApiError, ConnectionLost } from "../../client_tools/js/src/index.js";
import { Outbox, Outboxes } from "../../client_tools/playground/outbox.js";
import { Message } from "../../client_tools/playground/posts.js";

const KEY = "passback.unsent";
const BUSY = new ApiError("a run is going on", {
  code: "conversation_busy",
  status: 409,
  requestId: "req_1",
});

/** The storage of a tab, with room for so many characters. */
class Storage {
  items = new Map();
  room = Infinity;

  getItem(name) {
    return this.items.get(name) ?? null;
  }

  setItem(name, value) {
    if (value.length > this.room) throw new Error("QuotaExceededError");
    this.items.set(name, value);
  }

  removeItem(name) {
    this.items.delete(name);
  }
}

beforeEach(() => {
  Object.defineProperty(globalThis, "sessionStorage", {
    value: new Storage(),
    configurable: true,
  });
});

function image(length, name = "a.png") {
  const url = "data:image/png;base64,".padEnd(length, "A");
  return { type: "image", url, mediaType: "image/png", name };
}

function refuse(outbox, message, error = BUSY) {
  outbox.begin(message);
  assert.equal(outbox.refuse(message.id, error), true);
}

/** What another page of the tab has of it. */
function reloaded(id = "c") {
  return new Outboxes().of(id, false);
}

test("a reload keeps the same message, its reason, and what it does to an answer", () => {
  const outbox = new Outboxes().of("c", false);
  const to = { agentId: "cook", model: "x:cook" };
  const message = new Message("hi", { attached: [image(40)], to });
  outbox.begin(message, "interrupt");
  outbox.refuse(message.id, BUSY);
  const [kept] = reloaded().refused;
  assert.deepEqual(kept.message.record, message.record);
  assert.deepEqual(kept.message.record.to, to);
  assert.deepEqual([kept.onBusy, kept.lost, kept.kept], ["interrupt", [], "all"]);
  const { code, isCertain, requestId } = kept.refusal;
  assert.deepEqual([code, isCertain, requestId], ["conversation_busy", true, "req_1"]);
});

test("a message counts as kept from before its post until the server has it", () => {
  const outbox = new Outboxes().of("c", false);
  const message = new Message("hi");
  outbox.begin(message);
  assert.deepEqual(outbox.refused, []);
  const [unanswered] = reloaded().refused;
  assert.deepEqual([unanswered.message.id, unanswered.refusal.isCertain], [message.id, false]);
  outbox.accept(message.id);
  assert.deepEqual([reloaded().refused, sessionStorage.getItem(KEY)], [[], null]);
  assert.equal(outbox.refuse(message.id, BUSY), false);
});

test("only an answer of the server says that it does not have the message", () => {
  const outbox = new Outbox();
  const sure = [BUSY, new ConnectionLost("no answer"), null].map((error) => {
    const message = new Message("hi");
    refuse(outbox, message, error);
    return outbox.find(message.id).refusal.isCertain;
  });
  assert.deepEqual(sure, [true, false, false]);
});

test("whoever leaves a conversation leaves what is being posted without an answer", () => {
  const outbox = new Outbox();
  const [first, second] = [new Message("1"), new Message("2")];
  refuse(outbox, first);
  outbox.begin(second);
  outbox.leave();
  assert.deepEqual(
    outbox.refused.map(({ message, refusal }) => [message.text, refusal.code]),
    [["1", "conversation_busy"], ["2", ""]],
  );
});

test("texts are kept first, then attachments as long as there is room", () => {
  const outbox = new Outboxes().of("c", false);
  refuse(outbox, new Message("small", { attached: [image(1_200_000)] }));
  refuse(outbox, new Message("beside it", { attached: [image(900_000, "b.png")] }));
  refuse(outbox, new Message("x".repeat(300)));
  refuse(outbox, new Message("y".repeat(2_000_000)));
  assert.deepEqual(outbox.all.map(({ kept }) => kept), ["all", "text", "all", "nothing"]);
  const after = reloaded().refused;
  const texts = after.map(({ message }) => message.text);
  assert.deepEqual(texts, ["small", "beside it", "x".repeat(300)]);
  assert.deepEqual(after.map(({ lost }) => lost), [[], ["b.png"], []]);
  // and what is lost is still told after another one
  assert.deepEqual(reloaded().refused[1].lost, ["b.png"]);
});

test("a storage that is full keeps nothing old, and all of it once there is room", () => {
  const outbox = new Outboxes().of("c", false);
  refuse(outbox, new Message("first"));
  sessionStorage.room = 10;
  refuse(outbox, new Message("second"));
  assert.deepEqual(outbox.all.map(({ kept }) => kept), ["nothing", "nothing"]);
  assert.equal(sessionStorage.getItem(KEY), null);
  sessionStorage.room = Infinity;
  outbox.remove(outbox.all[0].message.id);
  assert.deepEqual([outbox.all[0].kept, reloaded().refused.length], ["all", 1]);
});

test("the newest new conversation is the one that the server has nothing of", () => {
  const all = new Outboxes();
  for (const [id, isNew] of [["a", true], ["b", true], ["c", false], ["d", true]]) {
    const outbox = all.of(id, isNew);
    if (id !== "d") refuse(outbox, new Message(id));
  }
  assert.equal(all.newest, "b");
  const again = new Outboxes();
  assert.equal(again.newest, "b");
  again.of("b", false).update([], true);
  assert.equal(again.newest, "a");
  again.forget("a");
  assert.deepEqual([again.newest, reloaded("a").all, reloaded("c").all.length], [null, [], 1]);
});

test("what is in the history has arrived, and other messages have not", () => {
  const outbox = new Outbox();
  const messages = [new Message("1"), new Message("2")];
  for (const message of messages) refuse(outbox, message, null);
  outbox.update([{ id: messages[0].id }, { id: "another" }], true);
  assert.deepEqual(outbox.refused.map(({ message }) => message.text), ["2"]);
});

test("a storage with anything else in it is no reason for an error", () => {
  const good = { message: { id: "m", key: "k", text: "hi", attached: 7, to: null } };
  const odd = [{ message: { id: 1, key: "k", text: "" } }, null, "x", good];
  const values = ["", "{", "7", '"x"', "[null, 1, {}]", JSON.stringify([{ id: "c", unsent: odd }])];
  const found = values.map((value) => {
    sessionStorage.setItem(KEY, value);
    return reloaded().refused.map(({ message, refusal }) => [message.text, refusal.remedy]);
  });
  assert.deepEqual(found, [[], [], [], [], [], [["hi", "again"]]]);
});

test("a key that was asked for is not asked for after a reload", () => {
  const outbox = new Outboxes().of("c", false);
  const facts = { code: "unauthenticated", status: 401 };
  refuse(outbox, new Message("hi"), new ApiError("no key", facts));
  assert.equal(outbox.refused[0].refusal.remedy, "key");
  assert.equal(reloaded().refused[0].refusal.remedy, "again");
});
