/** A run in the server's other protocols: what is offered, what is asked for, how it is shown. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { AnswerLog } from "../../client_tools/playground/answers.js";
import {
  addressOf,
  dialectsOf,
  readRun,
  sequenceOf,
  subscriptionOf,
} from "../../client_tools/playground/dialects.js";
import { join, lineOf } from "../../client_tools/playground/timeline.js";
import { runsOf } from "../../client_tools/playground/runs.js";
import { Script, START, end, message, owed } from "./waterfall-support.mjs";

const DOCUMENT = {
  paths: {
    "/conversations/{id}/stream": { get: { operationId: "streamRun" } },
    "/threads/{threadId}": { get: { operationId: "followThread" }, post: null },
    "/api/sessions/{id}/messages": { get: { operationId: "listTurns" } },
    "/else": { post: { operationId: "resumeChat" } },
  },
};

test("what the server's document has is offered, at its address", () => {
  const [native, agUi, chat, ...more] = dialectsOf(DOCUMENT);
  assert.deepEqual([native.name, agUi.name, chat.name, more], ["native", "ag-ui", "chat", []]);
  const wanted = { conversation: "a/ü b", run: "run_1", isNewest: true };
  assert.equal(
    addressOf(native, wanted),
    "conversations/a%2F%C3%BC%20b/stream?include=agents,context,message-ids,output,owed,plan," +
      "progress,reasoning,rewind,run,tools,usage&runId=run_1",
  );
  assert.equal(addressOf(agUi, wanted), "threads/a%2F%C3%BC%20b?runId=run_1");
  for (const none of [null, [], "x", {}, { paths: [] }, { paths: { "/": null } }]) {
    assert.deepEqual(dialectsOf(none), []);
  }
});

// ---------------------------------------------------------------- the chat socket
test("the socket is asked for the events behind the run before", () => {
  const of = { conversation: "c", run: "r2" };
  assert.deepEqual(subscriptionOf({ ...of, isNewest: true }), {
    subscribe: { session_id: "c", after_sequence: 0, resume: true },
    isWhole: true,
  });
  const known = { ...of, isNewest: false, before: "r1.1-9", first: "r2.2-1" };
  assert.deepEqual(subscriptionOf(known), {
    subscribe: { session_id: "c", after_sequence: sequenceOf("r1.1-9") },
    isWhole: true,
  });
  assert.deepEqual(subscriptionOf({ ...known, before: "" }), {
    subscribe: { session_id: "c", after_sequence: sequenceOf("r2.2-1") },
    isWhole: false,
  });
  // the last number that the server can give to what this event became
  assert.equal(sequenceOf("r.3-7"), ((3 * 2 ** 23 + 7) * 2 ** 10) + 1023 + 1);
  assert.equal(sequenceOf("none"), 0);
});

// ---------------------------------------------------------------- reading
/** Let `fetch` give one answer, and note what was asked. */
function answering(t, response) {
  const asked = [];
  t.mock.method(globalThis, "fetch", async (url, init) => {
    asked.push([url, init.headers]);
    if (response instanceof Error) throw response;
    return response;
  });
  return asked;
}

async function readAll(access = {}) {
  const [, agUi] = dialectsOf(DOCUMENT);
  const { signal } = new AbortController();
  const place = { url: "http://x/base/", apiKey: null, signal, ...access };
  const wanted = { conversation: "c", run: "r", isNewest: true };
  const steps = [];
  for await (const step of readRun(agUi, wanted, place)) steps.push(step);
  return steps;
}

test("a stream is read frame by frame, below the server's address and with the key", async (t) => {
  const body = ': hi\n\nid: r.1-1\ndata: {"type":"RUN_STARTED"}\n\ndata: {"cut';
  const headers = { "x-run-id": "r", "set-cookie": "secret" };
  const asked = answering(t, new Response(body, { headers }));
  assert.deepEqual(await readAll({ apiKey: "k" }), [
    { kind: "request", path: "/threads/c?runId=r" },
    {
      kind: "response",
      status: 200,
      headers: { "content-type": "text/plain;charset=UTF-8", "x-run-id": "r" },
      body: null,
    },
    { kind: "frame", id: "r.1-1", data: '{"type":"RUN_STARTED"}' },
  ]);
  assert.deepEqual(asked, [
    [
      "http://x/base/threads/c?runId=r",
      { Authorization: "Bearer k", Accept: "text/event-stream" },
    ],
  ]);
});

test("a refusal is shown with its body, and a lost connection as one", async (t) => {
  answering(t, new Response('{"code":"run_not_found"}', { status: 404 }));
  const [, refusal] = await readAll();
  assert.deepEqual([refusal.status, refusal.body], [404, '{"code":"run_not_found"}']);
  answering(t, new TypeError("fetch failed"));
  assert.deepEqual((await readAll()).at(-1), { kind: "lost", message: "fetch failed" });
});

test("a reading that is left ends with the signal's reason", async (t) => {
  answering(t, new TypeError("aborted"));
  const signal = AbortSignal.abort(new Error("left"));
  await assert.rejects(readAll({ signal }), /left/);
});

// ---------------------------------------------------------------- which runs
test("the runs of all answers can be chosen, the newest first", () => {
  const script = new Script();
  const first = script.post(0);
  script.response(first, 1, "r1");
  script.frame(first, 2, START, "r1");
  script.frame(first, 3, owed(["a"]), "r1");
  const last = script.frame(first, 4, end("handed-back"), "r1");
  const next = script.post(10, { messages: [{ role: "tool", toolCallId: "a" }] });
  script.response(next, 11, "r2");
  script.frame(next, 12, message("m"), "r2");
  const second = script.post(20);
  script.response(second, 21, "r3");
  const runs = runsOf(script.log, { conversation: "c", newest: "r3" });
  assert.deepEqual([...runs.keys()], ["Answer 2", "Answer 1, run 2", "Answer 1, run 1"]);
  assert.deepEqual(runs.get("Answer 1, run 2"), {
    conversation: "c",
    run: "r2",
    first: "r2.1-1",
    before: last,
    isNewest: false,
  });
  assert.equal(runs.get("Answer 2").isNewest, true);
  assert.equal(runs.get("Answer 1, run 1").before, "");
  const other = runsOf(script.log, { conversation: "d", newest: "r9" });
  assert.deepEqual(
    [[...other][0], other.size],
    [["Newest run", { conversation: "d", run: "r9", isNewest: true }], 4],
  );
  assert.equal(runsOf(new AnswerLog(), { conversation: "d", newest: null }).size, 0);
});

// ---------------------------------------------------------------- lines
const FRAMES = [
  [{ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "hi" }, "text", "hi"],
  [{ type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "{" }, "tool", "{"],
  [{ type: "REASONING_MESSAGE_CONTENT", messageId: "m", delta: "hm" }, "other", "hm"],
  [{ type: "text-delta", id: "1", delta: "hi" }, "text", "hi"],
  [{ type: "tool-input-delta", toolCallId: "c", inputTextDelta: "{" }, "tool", "{"],
  [{ object: "content", type: "text", msg_id: "m", delta: true, text: "hi" }, "text", "hi"],
  [
    {
      event: "turn:patch",
      data: {
        turn_id: "t",
        patch_type: "add_content",
        data: { type: "text", text_delta: "hi" },
      },
    },
    "other",
    "hi",
  ],
];
const WHOLE = { object: "content", type: "text", msg_id: "m", text: "hi", status: "completed" };
const LABELS = [
  [WHOLE, "content completed", "other"],
  [{ object: "response", status: "failed" }, "response failed", "error"],
  [{ object: "message", type: "plugin_call", status: "completed" }, "message completed", "other"],
  [{ type: "RUN_ERROR" }, "RUN_ERROR", "error"],
  [{ event: "system:error", data: {} }, "system:error", "error"],
  [
    { event: "turn:patch", data: { patch_type: "tool_result" } },
    "turn:patch tool_result",
    "tool",
  ],
  [{ event: "chat:end", data: null }, "chat:end", "other"],
  [{ type: "tool-output-available" }, "tool-output-available", "tool"],
  [{ type: 7 }, '{"type":7}', "other"],
];

function line(data, exchange = "1") {
  const step = { kind: "frame", id: "1", data: JSON.stringify(data), time: 0, exchange: 1 };
  return lineOf({ step, exchange, at: 0 }, true);
}

test("pieces of each protocol are one line, if they are of one text", () => {
  for (const [frame, kind, text] of FRAMES) {
    const first = line(frame);
    assert.deepEqual([first.kind, first.data], [kind, text]);
    assert.equal(join(first, line(frame)), true, first.label);
    assert.equal(first.data, text + text);
    const other = structuredClone(frame);
    const of = other.event ? other.data : other;
    for (const name of ["messageId", "toolCallId", "id", "msg_id", "turn_id"]) {
      if (name in of) of[name] = "other";
    }
    assert.equal(join(first, line(other)), false, first.label);
  }
});

test("every other frame has a label and a kind of its own, and is never merged", () => {
  for (const [frame, label, kind] of LABELS) {
    const shown = line(frame);
    assert.deepEqual([shown.label, shown.kind], [label, kind]);
    assert.equal(join(shown, line(frame)), false, label);
  }
});
