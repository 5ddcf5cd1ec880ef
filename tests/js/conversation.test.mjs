/** The playground's posts, and its recovery after a disconnect. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../client_tools/js/src/index.js";
import { Conversation, MAX_ROUNDS } from "../../client_tools/playground/conversation.js";
import { fromError } from "../../client_tools/playground/problems.js";
import {
  callEvents,
  cut,
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
const INFO = "GET /conversations/c%2F1";
const MESSAGES = `${INFO}/messages`;
const STREAM = `${INFO}/stream`;
const CANCEL = "POST /conversations/c%2F1/cancel";
const CALL_BLUE = ["call_1", "change-background-color", '{"color": "blue"}'];
const CALL_ASK = ["call_2", "ask-user-to-confirm", '{"question": "Really?"}'];
const BLUE = [...callEvents(...CALL_BLUE), ...handsBack(CALL_BLUE)];
const ASK = [...callEvents(...CALL_ASK), ...handsBack(CALL_ASK)];
const OWED_ASK = {
  id: "call_2",
  name: "ask-user-to-confirm",
  arguments: '{"question":"Really?"}',
  kind: "tool_result",
};

/** A conversation with a scripted server. */
function open(script, { confirm = async () => true } = {}) {
  const { fetch, requests } = scriptedFetch(script);
  const page = recordingView();
  const painted = [];
  const actions = { setBackground: (color) => void painted.push(color), confirm };
  const retry = { firstDelay: 1, longestDelay: 2000, unanswered: 4 };
  const limits = { rounds: MAX_ROUNDS };
  const connect = ({ quiet, ...options }) =>
    new Client({ url: "http://x", fetch, unknownTools: "leave", retry, limits, ...options });
  const conversation = new Conversation("c/1", {
    connect,
    view: page.view,
    actions,
    mayRun: () => true,
  });
  const posts = () => requests.filter(({ name }) => name === POST).map(({ body }) => body);
  const keys = () =>
    requests
      .filter(({ name }) => name === POST)
      .map(({ headers }) => headers.get("Idempotency-Key"));
  return { conversation, requests, posts, keys, painted, ...page };
}

function idle(owed = [], messageCount = 0) {
  return json({ id: "c/1", status: "idle", running: null, queued: [], owed, messageCount });
}

function running(firstMessage, messageCount, queued = []) {
  const now = { runId: "run", firstMessage, attempt: 1 };
  return json({ id: "c/1", status: "running", running: now, queued, owed: [], messageCount });
}

function page(...messages) {
  return json({
    messages: messages.map(([role, content], index) => ({ id: `m${index}`, role, content })),
    next: null,
  });
}

/** Everything that is sent again is sent as it was. */
function same(values) {
  values.forEach((value) => assert.deepEqual(value, values[0]));
}

const quotedUuid = /^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$/;
const away = json({ code: "store_unavailable", message: "no store" }, 503);

test("a message is posted with the tools, and alone", async () => {
  const { conversation, posts, keys, log } = open({
    [POST]: [ended([text("Hel"), text("lo")]), ended([text("Again")])],
  });
  await conversation.send("hi");
  await conversation.send("and?");
  const [first, second] = posts();
  assert.deepEqual(first.messages, [{ role: "user", content: "hi", id: first.messages[0].id }]);
  assert.deepEqual(
    first.tools.map(({ name }) => name),
    ["change-background-color", "get-time-zone", "ask-user-to-confirm", "ask_user"],
  );
  assert.deepEqual(first.tools[3], { name: "ask_user" });
  assert.deepEqual(
    [second.messages.map(({ content }) => content), second.tools],
    [["and?"], first.tools],
  );
  const named = [...keys(), `"${first.messages[0].id}"`, `"${second.messages[0].id}"`];
  named.forEach((name) => assert.match(name, quotedUuid));
  assert.equal(new Set(named).size, 4);
  assert.deepEqual(told(log, "addText"), [
    ["addText", "Hel"],
    ["addText", "lo"],
    ["addText", "Again"],
  ]);
});

test("the results of parallel calls are posted together, after the stream has ended", async () => {
  const { conversation, posts, painted } = open({
    [POST]: [
      ended([
        ...callEvents(...CALL_BLUE),
        ...callEvents(...CALL_ASK),
        ...handsBack(CALL_BLUE, CALL_ASK),
      ]),
      ended([text("Done")]),
    ],
  });
  await conversation.send("do both");
  assert.deepEqual(painted, ["blue"]);
  assert.deepEqual(posts()[1].messages, [
    {
      role: "tool",
      content: "Background color successfully changed to: blue",
      toolCallId: "call_1",
    },
    { role: "tool", content: "confirmed", toolCallId: "call_2" },
  ]);
});

test("a call that the server answered itself is not run here", async () => {
  const answered = { type: "tool-result", toolCallId: "call_1", result: "not valid" };
  const { conversation, posts, painted } = open({
    [POST]: [ended([...callEvents(...CALL_BLUE), answered, text("Sorry")])],
  });
  await conversation.send("blue");
  assert.deepEqual([painted, posts().length], [[], 1]);
});

test("a failed tool is posted as an error", async () => {
  const mauve = handsBack(["call_1", "change-background-color", '{"color": "mauve"}']);
  const { conversation, posts } = open({ [POST]: [ended(mauve), ended([])] });
  await conversation.send("mauve");
  assert.equal(posts()[1].messages[0].isError, true);
});

test("a call of another client's tool is left to that client", async () => {
  const call = ["call_9", "open-the-door", "{}    "];
  const { conversation, posts, log } = open({
    [POST]: [ended([...callEvents(...call), ...handsBack(call)])],
  });
  await conversation.send("open");
  assert.equal(posts().length, 1);
  assert.deepEqual(log.at(-1), ["showOwed", handsBack(call)[0].toolCalls[0]]);
});

test("results are posted again if the server does not answer, and the tool runs once", async () => {
  const { conversation, posts, keys, painted, log } = open({
    [POST]: [ended(BLUE), unreachable, away, ended([text("Done")])],
  });
  await conversation.send("blue");
  assert.deepEqual(
    posts()
      .slice(1)
      .map(({ messages }) => messages[0].toolCallId),
    ["call_1", "call_1", "call_1"],
  );
  same(keys().slice(1));
  assert.notEqual(keys()[0], keys()[1]);
  assert.deepEqual([painted, told(log, "addError")], [["blue"], []]);
});

test("a message whose answer did not come is posted again under its key", async () => {
  const { conversation, posts, keys, log, activities } = open({
    [POST]: [unreachable, cut([])],
    [STREAM]: [ended([text("Hello")])],
  });
  await conversation.send("hi");
  assert.equal(posts().length, 2);
  same(posts());
  same(keys());
  assert.deepEqual(log, [
    ["addUser", "hi"],
    ["addText", "Hello"],
  ]);
  assert.deepEqual(activities, [
    "sending",
    "reconnecting",
    "answering",
    "reconnecting",
    "answering",
    "idle",
  ]);
});

test("trying again after that asks first whether the message arrived", async () => {
  const mine = open({
    [POST]: Array(4).fill(unreachable),
    [INFO]: [idle([], 2)],
    [MESSAGES]: [
      () =>
        json({
          messages: [
            { id: mine.posts()[0].messages[0].id, role: "user", content: "hi" },
            { id: "m2", role: "assistant", content: "Hello" },
          ],
          next: null,
        })(),
    ],
  });
  await mine.conversation.send("hi");
  assert.deepEqual(reasons(mine), [["hi", "network", false]]);
  await settled(mine);
  assert.deepEqual(reasons(mine), []);
  assert.deepEqual(
    told(mine.log, "addPast").map(([, { role, text: said }]) => [role, said]),
    [
      ["user", "hi"],
      ["assistant", "Hello"],
    ],
  );
  assert.equal(mine.posts().length, 4);
});

test("trying again posts a message that did not arrive, though others did meanwhile", async () => {
  const mine = open({
    [POST]: [...Array(4).fill(away), ended([text("Hello")])],
    [INFO]: [idle([], 2)],
    [MESSAGES]: [page(["user", "hi"], ["assistant", "another tab's"])],
  });
  await mine.conversation.send("hi");
  assert.deepEqual(reasons(mine), [["hi", "store_unavailable", true]]);
  await settled(mine);
  same(mine.posts());
  same(mine.keys());
  assert.deepEqual([mine.posts().length, mine.log.at(-1)], [5, ["addText", "Hello"]]);
});

test("trying again in a conversation that the server does not know begins it", async () => {
  const mine = open({
    [POST]: [json({ code: "internal", message: "a fault" }, 500), ended([text("Hello")])],
    [INFO]: [json({ code: "conversation_not_found", message: "none" }, 404)],
  });
  await mine.conversation.send("hi");
  await settled(mine);
  same(mine.keys());
  const shown = told(mine.log, "clear", "addUser", "addText");
  assert.deepEqual(shown.slice(-3), [["clear"], ["addUser", "hi"], ["addText", "Hello"]]);
});

test("in a busy conversation trying again shows the running answer first", async () => {
  const mine = open({
    [POST]: [
      json({ code: "conversation_busy", message: "a run is going on" }, 409),
      ended([text("Mine")]),
    ],
    [INFO]: [running(0, 1)],
    [MESSAGES]: [page(["user", "another tab's"])],
    [STREAM]: [ended([text("Theirs")])],
  });
  await mine.conversation.send("hi");
  assert.deepEqual([mine.posts().length, mine.log.at(-1)[0]], [1, "cutFrom"]);
  assert.deepEqual(reasons(mine), [["hi", "conversation_busy", true]]);
  await settled(mine);
  assert.deepEqual(told(mine.log, "addText", "addUser").slice(1), [
    ["addText", "Theirs"],
    ["addUser", "hi"],
    ["addText", "Mine"],
  ]);
});

test("a cut stream is followed to its end", async () => {
  const { conversation, requests, log } = open({
    [POST]: [cut([text("a")])],
    [STREAM]: [ended([text("b")], { first: 2 })],
  });
  await conversation.send("hi");
  assert.equal(requests[1].headers.get("Last-Event-ID"), "run.1-1");
  assert.deepEqual(told(log, "addText"), [
    ["addText", "a"],
    ["addText", "b"],
  ]);
});

test("a part that a lost worker said is dropped, and its calls with it", async () => {
  const { conversation, requests, posts, painted, log } = open({
    [POST]: [cut([text("RecordedStep"), text("Once"), ...callEvents(...CALL_BLUE)])],
    [STREAM]: [ended([{ type: "rewind", to: "run.1-1" }, text("Twice")], { first: 7 })],
  });
  await conversation.send("hi");
  assert.equal(requests[1].headers.get("Last-Event-ID"), "run.1-6");
  assert.deepEqual(log.slice(-3), [["dropRun"], ["addText", "RecordedStep"], ["addText", "Twice"]]);
  assert.deepEqual([painted, posts().length, told(log, "addError")], [[], 1, []]);
});

test("a run whose log has lost what was shown is read again from its start", async () => {
  const { conversation, keys, requests, log } = open({
    [POST]: [cut([text("Once")])],
    [STREAM]: [
      json({ code: "invalid_cursor", message: "beyond the end" }, 422),
      ended([text("Twice")]),
    ],
  });
  await conversation.send("hi");
  assert.equal(keys().length, 1);
  assert.deepEqual(
    requests.map(({ query, headers }) => [query.get("runId"), headers.get("Last-Event-ID")]),
    [
      [null, null],
      [null, "run.1-1"],
      ["run", null],
    ],
  );
  assert.deepEqual(log, [
    ["addUser", "hi"],
    ["addText", "Once"],
    ["dropRun"],
    ["addText", "Twice"],
  ]);
});

test("after a reload, a running answer is shown from its start, behind its messages", async () => {
  const { conversation, log, requests } = open({
    [INFO]: [running(2, 6)],
    [MESSAGES]: [
      page(
        ["user", "before"],
        ["assistant", "done"],
        ["user", "one"],
        ["user", "two"],
        ["assistant", "a turn"],
        ["tool", "its result"],
      ),
    ],
    [STREAM]: [cut([]), ended([{ type: "message", messageId: "m2" }, text("Hello")])],
  });
  await conversation.load();
  const streams = requests.filter(({ name }) => name === STREAM);
  assert.deepEqual(
    streams.map(({ query, headers }) => [query.get("runId"), headers.has("Last-Event-ID")]),
    Array(2).fill(["run", false]),
  );
  const shown = log.map(([name, past]) => [name, past?.text ?? past]);
  assert.deepEqual(shown, [
    ["clear", undefined],
    ...["before", "done", "one", "two"].map((said) => ["addPast", said]),
    ["setVersions", []],
    ["beginAnswer", undefined],
    ["addText", "Hello"],
  ]);
});

test("only those messages are shown that the server counted, however many came since", async () => {
  const { conversation, log, requests } = open({
    [INFO]: [idle([], 1)],
    [MESSAGES]: [page(["user", "hi"])],
  });
  await conversation.load();
  assert.deepEqual([requests[1].query.get("after"), requests[1].query.get("limit")], ["0", "1"]);
  assert.equal(told(log, "addPast").length, 1);
});

test("a post that waits says so, and its own run is the one that stop takes out", async () => {
  const queued = { type: "run-queued", runId: "run" };
  const started = { type: "run-start", runId: "run" };
  const { conversation, requests, view, activities } = open({
    [POST]: [ended([queued, started, text("a")])],
    [CANCEL]: [json({ cancelled: true }, 202)],
  });
  view.setActivity = (activity) => {
    activities.push(activity);
    if (activity === "waiting") void conversation.stop();
  };
  await conversation.send("hi");
  assert.deepEqual(activities, ["sending", "answering", "waiting", "answering", "idle"]);
  assert.deepEqual([requests[1].name, requests[1].query.get("runId")], [CANCEL, "run"]);
});

test("after a reload a post that waits is shown when its turn has come", async () => {
  const { conversation, requests, log } = open({
    [INFO]: [running(0, 1, ["run_2"]), running(2, 3)],
    [MESSAGES]: [
      page(["user", "one"]),
      page(["user", "one"], ["assistant", "first"], ["user", "two"]),
    ],
    [STREAM]: [
      ended([text("first")]),
      ended([
        { type: "run-queued", runId: "run_2" },
        { type: "run-start", runId: "run_2" },
      ]),
      ended([text("second")]),
    ],
  });
  await conversation.load();
  assert.deepEqual(
    requests.filter(({ name }) => name === STREAM).map(({ query }) => query.get("runId")),
    ["run", "run_2", "run"],
  );
  assert.deepEqual(told(log, "addText"), [
    ["addText", "first"],
    ["addText", "second"],
  ]);
  assert.deepEqual(
    told(log, "addPast").map(([, { text: said }]) => said),
    ["one", "one", "first", "two"],
  );
});

test("calls that are owed when the page loads are run and answered", async () => {
  const owed = [
    {
      id: "call_1",
      name: "change-background-color",
      arguments: '{"color":"red"}',
      kind: "tool_result",
    },
  ];
  const { conversation, posts, painted } = open({
    [INFO]: [idle(owed), idle(owed)],
    [MESSAGES]: [json({ messages: [] })],
    [POST]: [ended([])],
  });
  await conversation.load();
  assert.deepEqual(
    [painted, posts()[0].messages[0].toolCallId, posts()[0].tools],
    [["red"], "call_1", undefined],
  );
});

test("calls that are still open behind a post are answered next", async () => {
  const parked = ended([{ type: "owed", toolCalls: [OWED_ASK] }], {
    headers: { "X-Owed-Tool-Calls": "call_2" },
  });
  const { conversation, posts } = open({ [POST]: [ended(BLUE), parked, ended([])] });
  await conversation.send("blue");
  assert.deepEqual(
    posts().map(({ messages }) => messages[0].toolCallId),
    [undefined, "call_1", "call_2"],
  );
});

test("a run that fails says so once and runs no tool", async () => {
  const error = {
    type: "error",
    error: "the model is away",
    code: "model_unavailable",
    retryable: true,
  };
  const { conversation, log, painted, posts } = open({
    [POST]: [ended([...callEvents(...CALL_BLUE), error])],
  });
  await conversation.send("blue");
  assert.deepEqual(told(log, "addError"), [["addError", "model_unavailable"]]);
  assert.deepEqual([painted, posts().length], [[], 1]);
});

test("a reader whom the log has left behind is shown the messages instead", async () => {
  const error = { type: "error", error: "trimmed", code: "cursor_expired", retryable: false };
  const { conversation, log } = open({ [POST]: [ended([text("a"), error])] });
  await conversation.send("hi");
  assert.deepEqual(log.at(-1), ["addError", "cursor_expired"]);
});

test("stop asks the server while it answers", async () => {
  const { conversation, requests, view } = open({
    [POST]: [ended([text("a"), text("b")])],
    [CANCEL]: [json({ cancelled: true }, 202)],
  });
  view.addText = () => void conversation.stop();
  await conversation.send("hi");
  assert.deepEqual([requests[1].name, requests[1].query.get("runId")], [CANCEL, "run"]);
});

test("stop before the answer has come stops it when it comes", async () => {
  const { conversation, requests } = open({
    [POST]: [
      () => {
        void conversation.stop();
        return ended([])();
      },
    ],
    [CANCEL]: [json({ cancelled: true }, 202)],
  });
  await conversation.send("hi");
  assert.deepEqual(
    requests.map(({ name }) => name),
    [POST, CANCEL],
  );
});

test("stop for a second time gives up a post that nobody answers", async () => {
  const { conversation, posts, log } = open({
    [POST]: [
      () => {
        void conversation.stop();
        void conversation.stop();
        return unreachable();
      },
    ],
  });
  await conversation.send("hi");
  assert.deepEqual([posts().length, log.at(-1)], [1, ["addNote", "Stopped."]]);
});

test("stop withdraws a question of this page, and posts nothing for it", async () => {
  const page = open(
    { [POST]: [ended(ASK)] },
    {
      confirm: (_, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason));
          void page.conversation.stop();
        }),
    },
  );
  await page.conversation.send("ask");
  assert.equal(page.posts().length, 1);
  assert.deepEqual(page.log.slice(-2), [
    ["setCallState", "call_2", "skipped"],
    ["addNote", "Stopped."],
  ]);
  assert.equal(page.activities.at(-1), "idle");
});

test("a conversation that was left says nothing more", async () => {
  const page = open(
    { [POST]: [ended(ASK)] },
    {
      confirm: async (_, signal) => {
        page.conversation.close();
        throw signal.reason;
      },
    },
  );
  await page.conversation.send("ask");
  assert.deepEqual(told(page.log, "addError", "addNote"), []);
  assert.equal(page.activities.at(-1), "working");
});

test("an agent that asks for tools without end is stopped", async () => {
  const rounds = Array.from({ length: MAX_ROUNDS + 5 }, (_, index) =>
    ended(handsBack([`call_${index}`, "get-time-zone", "{}"])),
  );
  const { conversation, posts, log } = open({ [POST]: rounds });
  await conversation.send("loop");
  assert.equal(posts().length, MAX_ROUNDS + 1);
  assert.deepEqual(log.at(-1), ["addError", "limit_exceeded"]);
});

test("what answers in the server's place is told as that, and may be tried again", async () => {
  const gateway = () => new Response("<h1>Bad gateway</h1>", { status: 502 });
  const { fetch } = scriptedFetch({ [INFO]: [gateway] });
  const error = await new Client({ url: "http://x", fetch })
    .conversation("c/1")
    .catch((raised) => raised);
  const { title, remedy, message } = fromError(error);
  assert.deepEqual([title, remedy], ["The server cannot be reached", "again"]);
  assert.match(message, /^http:\/\/x did not answer as a passback server: status 502/);
});

/** The messages that were not sent, each with the code of its reason, and whether that is sure. */
function reasons(page) {
  return page
    .unsent()
    .map(({ message, refusal }) => [message.text, refusal.code, refusal.isCertain]);
}

/** Tries the first message that was not sent again, and waits until the page is idle again. */
async function settled(page) {
  page.activities.length = 0;
  void page.conversation.retry(page.unsent()[0].message.id);
  for (let turn = 0; turn < 1000 && page.activities.at(-1) !== "idle"; turn += 1) {
    await new Promise(setImmediate);
  }
  assert.equal(page.activities.at(-1), "idle");
}
