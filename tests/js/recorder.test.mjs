/** The playground's bounded record of requests and frames: its lines, and its file. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { MAX_CHARS, MAX_STEPS, Recorder } from "../../client_tools/playground/recorder.js";
import { join, lineOf, matches, sincePost } from "../../client_tools/playground/timeline.js";

const T0 = Date.UTC(2025, 0, 31);

function request(exchange = 1, time = T0, change = {}) {
  const headers = { Accept: "text/event-stream", "Idempotency-Key": '"k"' };
  const body = '{"messages":[]}';
  return {
    kind: "request",
    exchange,
    time,
    method: "POST",
    path: "/send-message",
    headers,
    body,
    ...change,
  };
}

function response(exchange = 1, time = T0 + 5, status = 200, body = null) {
  return { kind: "response", exchange, time, status, headers: { "x-run-id": "run" }, body };
}

function frame(id, event, time = T0 + 10, exchange = 1) {
  return {
    kind: "frame",
    exchange,
    time,
    id,
    data: typeof event === "string" ? event : JSON.stringify(event),
  };
}

function text(content) {
  return { type: "text", content };
}

test("an export has each post with its frames, and their times since the post", () => {
  const recorder = new Recorder(() => {});
  const trace = recorder.tracer();
  assert.equal(recorder.export(), null);
  const steps = [
    request(),
    response(1, T0 + 5, 503, '{"code":"store_unavailable"}'),
    { kind: "lost", exchange: 1, time: T0 + 6, message: "no store" },
    request(1, T0 + 20),
    response(1, T0 + 21),
    frame("run.1-1", text("a"), T0 + 30.25),
    { kind: "lost", exchange: 1, time: T0 + 40, message: "the stream broke off" },
    request(1, T0 + 44, { method: "GET", path: "/conversations/c/stream?include=run", body: null }),
    { kind: "lost", exchange: 1, time: T0 + 45, message: "the server did not answer" },
    request(1, T0 + 50, { method: "GET", path: "/conversations/c/stream?include=run", body: null }),
    response(1, T0 + 51),
    frame("run.1-2", "[DONE]", T0 + 60),
    request(2, T0 + 70, { method: "GET", path: "/conversations/c", body: null }),
    response(2, T0 + 71),
    request(3, T0 + 80),
    response(3, T0 + 81, 409, "<p>busy"),
  ];
  steps.forEach(trace);
  const asked = {
    method: "POST",
    path: "/send-message",
    body: { messages: [] },
    headers: { accept: "text/event-stream", "idempotency-key": '"k"' },
  };
  const headers = { "x-run-id": "run" };
  assert.deepEqual(recorder.export(), {
    format: "passback-run",
    version: 1,
    startedAt: "2025-01-31T00:00:00.000Z",
    exchanges: [
      {
        at: 0,
        request: asked,
        response: { status: 200, headers, body: null },
        frames: [
          { at: 30.3, id: "run.1-1", data: '{"type":"text","content":"a"}' },
          { at: 60, id: "run.1-2", data: "[DONE]" },
        ],
        cuts: [
          {
            at: 6,
            after: 0,
            message: "no store",
            response: { status: 503, headers, body: { code: "store_unavailable" } },
          },
          {
            at: 40,
            after: 1,
            message: "the stream broke off",
            response: { status: 200, headers, body: null },
          },
          { at: 45, after: 1, message: "the server did not answer", response: null },
        ],
      },
      {
        at: 80,
        request: asked,
        response: { status: 409, headers, body: "<p>busy" },
        frames: [],
        cuts: [],
      },
    ],
  });
  recorder.clear();
  assert.deepEqual([recorder.export(), recorder.steps], [null, []]);
});

test("a post to an agent by its name is exported, too", () => {
  const recorder = new Recorder(() => {});
  const path = "/v1/aibot/bots/cook/send-message";
  [request(1, T0, { path }), response()].forEach(recorder.tracer());
  assert.equal(recorder.export().exchanges[0].request.path, path);
});

test("the numbers of two clients do not mix", () => {
  const recorder = new Recorder(() => {});
  for (const content of ["a", "b"]) {
    [request(), response(), frame("run.1-1", text(content))].forEach(recorder.tracer());
  }
  assert.deepEqual(
    recorder.export().exchanges.map(({ frames }) => JSON.parse(frames[0].data).content),
    ["a", "b"],
  );
});

test("steps and their characters are bounded, and what lost its beginning is not exported", () => {
  const kept = [];
  const recorder = new Recorder((each) => void kept.push(each));
  const trace = recorder.tracer();
  trace(request());
  for (let number = 1; number <= 2 * MAX_STEPS; number += 1) {
    trace(frame(`run.1-${number}`, text(".")));
  }
  assert.ok(recorder.steps.length <= MAX_STEPS && recorder.steps.length >= 0.8 * MAX_STEPS);
  assert.equal(recorder.steps.at(-1).step.id, `run.1-${2 * MAX_STEPS}`);
  assert.deepEqual([kept.length, recorder.export()], [2 * MAX_STEPS + 1, null]);
  trace(request(2));
  assert.equal(recorder.export().exchanges.length, 1);
  const large = "x".repeat(MAX_CHARS / 4);
  for (let number = 1; number <= 9; number += 1) trace(frame(`run.2-${number}`, large, T0, 2));
  assert.ok(
    recorder.steps.reduce((sum, { step }) => sum + (step.data?.length ?? 0), 0) <= MAX_CHARS,
  );
});

test("neighbours of one kind become one line, where that is wanted", () => {
  const line = (step, merge = true) => lineOf({ step, exchange: "1.1", at: step.time - T0 }, merge);
  const first = line(frame("run.1-1", text("one "), T0 + 10));
  assert.equal(join(first, line(frame("run.1-2", text("two"), T0 + 30))), true);
  const { data, count, id, lastId, at, lastAt } = first;
  assert.deepEqual(
    [data, count, id, lastId, at, lastAt],
    ["one two", 2, "run.1-1", "run.1-2", 10, 30],
  );
  for (const other of [
    frame("run.1-3", { type: "reasoning", delta: "x" }),
    frame("run.1-3", { type: "run-end", outcome: "completed" }),
    frame("run.1-3", { type: "text", content: 1 }),
    frame("run.1-3", "[DONE]"),
    response(),
  ]) {
    assert.equal(join(first, line(other)), false);
  }
  assert.equal(join(line(frame("1", text("a")), false), line(frame("2", text("b")), false)), false);
  const args = (id) =>
    line(frame("run.1-4", { type: "tool-call-args", toolCallId: id, delta: "{" }));
  assert.deepEqual([join(args("a"), args("a")), join(args("a"), args("b"))], [true, false]);
});

test("a merged line is bounded", () => {
  const make = () =>
    lineOf({ step: frame("1", text("x".repeat(10_000))), exchange: "1.1", at: 0 }, true);
  const line = make();
  for (let count = 0; count < 50; count += 1) join(line, make());
  assert.ok(line.data.length <= 30_000);
  assert.equal(line.count, 51);
});

test("a line is found by its label, id or data", () => {
  const line = lineOf({ step: frame("run.1-7", text("Hello")), exchange: "1.1", at: 0 }, true);
  assert.deepEqual(
    ["", "text", "1-7", "hello", "bye"].map((wanted) => matches(line, wanted)),
    [true, true, true, true, false],
  );
});

test("each step has a line of its own kind", () => {
  const line = (step) => lineOf({ step, exchange: "1.1", at: 0 }, true);
  const again = request(1, T0, {
    method: "GET",
    path: "/conversations/c/stream?include=run",
    body: null,
    headers: { "Last-Event-ID": "run.1-1" },
  });
  const steps = [
    request(),
    again,
    response(),
    response(1, T0, 409, "busy"),
    { kind: "lost", exchange: 1, time: T0, message: "cut" },
    frame("1", { type: "error" }),
    frame("1", { type: "toString" }),
  ];
  assert.deepEqual(
    steps.map((step) => [line(step).label, line(step).kind, line(step).data]),
    [
      ["POST /send-message", "sent", '{"messages":[]}'],
      [
        "GET /conversations/c/stream",
        "sent",
        "/conversations/c/stream?include=run\nLast-Event-ID: run.1-1",
      ],
      ["HTTP 200", "other", '{"x-run-id":"run"}'],
      ["HTTP 409", "error", "busy"],
      ["connection lost", "error", "cut"],
      ["error", "error", '{"type":"error"}'],
      ["toString", "other", '{"type":"toString"}'],
    ],
  );
  assert.deepEqual([0, 412.4, 61_000].map(sincePost), ["+0.000 s", "+0.412 s", "+61.000 s"]);
});
