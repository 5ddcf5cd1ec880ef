/** The waterfall's rows: what took how long in an answer, from the steps of its requests. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { AnswerLog, MAX_ANSWERS } from "../../client_tools/playground/answers.js";
import { extentOf, rowsOf } from "../../client_tools/playground/spans.js";
import {
  START,
  Script,
  T0,
  begin,
  call,
  end,
  message,
  owed,
  ready,
  result,
  text,
  usage,
} from "./waterfall-support.mjs";

/** A post whose run has begun. */
function started(run = "r1") {
  const script = new Script();
  const exchange = script.post(0);
  script.response(exchange, 5, run);
  script.frame(exchange, 10, { ...START, runId: run }, run);
  const feed = (at, event) => script.frame(exchange, at, event, run);
  return { script, exchange, feed };
}

test("a model call, a tool of the server, and the answer", () => {
  const { script, feed } = started();
  feed(20, message("m1"));
  feed(50, text());
  feed(55, text());
  feed(60, call("a", "look", { title: "Look" }));
  feed(70, usage());
  feed(71, ready("a"));
  feed(75, begin("a"));
  feed(90, { type: "tool-progress", toolCallId: "a", text: "half" });
  feed(175, result("a", { durationMs: 99 }));
  feed(180, message("m2"));
  feed(300, usage({ model: "other" }));
  feed(301, end("completed", { reason: "end_turn", model: "other" }));
  assert.deepEqual(script.rows(), [
    "run : run 10-301 done (completed, end_turn)",
    "model gpt: model 20-70 done",
    "tool look: tool 75-175 done",
    "model other: model 180-300 done",
  ]);
  const rows = rowsOf(script.log.answers[0]);
  const [connection, run, model, tool] = rows;
  assert.deepEqual(
    connection.spans.map(({ from, to, note }) => [from - T0, to - T0, note]),
    [[0, 5, "HTTP 200"]],
  );
  assert.equal(run.title, "other");
  assert.deepEqual([model.spans[0].first - T0, model.tokens], [50, { input: 10, output: 2 }]);
  assert.deepEqual(
    [tool.title, tool.progress, tool.spans[0].worked],
    ["Look", "half", 99],
  );
  assert.deepEqual(extentOf(rows, T0 + 9999), { from: T0, to: T0 + 301, isOpen: false });
});

test("what goes on is open, until the run ends", () => {
  const { script, feed } = started();
  feed(20, message("m1"));
  feed(30, usage());
  feed(40, begin("a"));
  feed(50, message("m2"));
  assert.deepEqual(script.rows(), [
    "run : run 10- open",
    "model gpt: model 20-30 done",
    "tool : tool 40- open",
    "model : model 50- open",
  ]);
  const rows = rowsOf(script.log.answers[0]);
  assert.deepEqual(extentOf(rows, T0 + 70), { from: T0, to: T0 + 70, isOpen: true });
  for (const [outcome, state] of [
    ["cancelled", "stopped"],
    ["failed", "failed"],
  ]) {
    const other = started();
    other.feed(20, begin("a"));
    other.feed(40, message("m1"));
    other.feed(60, { type: "error", error: "no", code: "model_failed" });
    other.feed(60, end(outcome));
    const note = `model_failed, ${outcome}`;
    assert.deepEqual(other.script.rows(), [
      `run : run 10-60 ${state} (${note})`,
      "tool : tool 20-60 stopped",
      "model : model 40-60 stopped",
    ]);
  }
});

test("tools in parallel overlap, and each ends by itself", () => {
  const { script, feed } = started();
  feed(20, message("m1"));
  ["a", "b"].forEach((id) => feed(30, call(id, id)));
  feed(40, usage());
  ["a", "b"].forEach((id) => feed(41, begin(id)));
  feed(60, result("b", { isError: true }));
  feed(90, result("a"));
  feed(95, end());
  assert.deepEqual(script.rows().slice(2), [
    "tool a: tool 41-90 done",
    "tool b: tool 41-60 failed",
  ]);
});

test("a model call without usage ends when its tool begins, or with the next one", () => {
  const { script, feed } = started();
  const of = { parentToolCallId: "a" };
  feed(20, message("m1"));
  feed(30, begin("a"));
  feed(31, message("m2", of));
  feed(40, begin("b", of));
  feed(50, message("m3", of));
  feed(55, result("b", of));
  assert.deepEqual(script.rows().slice(1), [
    "model : model 20-30 done",
    "agent : tool 30- open",
    "  model : model 31-40 done",
    "  tool : tool 40-55 done",
    "  model : model 50- open",
  ]);
});

test("a call that no tool has worked on is a moment, and says why", () => {
  const { script, feed } = started();
  feed(30, call("a"));
  feed(40, result("a", { isError: true, synthetic: "invalid" }));
  feed(41, call("b", "never"));
  feed(50, end());
  assert.deepEqual(script.rows().slice(1), ["tool look: tool 40-40 failed (invalid)"]);
});

test("sub-agents are a tree, also below one another", () => {
  const { script, feed } = started();
  const of = (parentToolCallId) => ({ parentToolCallId });
  feed(20, message("m1"));
  feed(21, call("a", "researcher"));
  feed(22, usage());
  feed(23, begin("a"));
  feed(25, message("m2", of("a")));
  feed(30, { type: "agent-text", delta: "x", ...of("a") });
  feed(31, call("b", "reader", of("a")));
  feed(35, usage({ ...of("a"), model: "small" }));
  feed(36, begin("b", of("a")));
  feed(37, message("m3", of("b")));
  feed(45, usage({ ...of("b"), model: "tiny" }));
  feed(46, result("b", of("a")));
  feed(50, result("a"));
  feed(51, end());
  assert.deepEqual(script.rows(), [
    "run : run 10-51 done (completed)",
    "model gpt: model 20-22 done",
    "agent researcher: tool 23-50 done",
    "  model small: model 25-35 done",
    "  agent reader: tool 36-46 done",
    "    model tiny: model 37-45 done",
  ]);
  assert.equal(rowsOf(script.log.answers[0])[4].spans[0].first - T0, 30);
  const tokens = rowsOf(script.log.answers[0]).map((row) => [row.kind, row.tokens?.input ?? 0]);
  assert.deepEqual(tokens, [
    ["contact", 0],
    ["run", 30],
    ["model", 10],
    ["agent", 20],
    ["model", 10],
    ["agent", 10],
    ["model", 10],
  ]);
});

// ---------------------------------------------------------------- hand-backs
test("a run that hands back and goes on is one waterfall, with the wait", () => {
  const { script, feed } = started();
  feed(20, message("m1"));
  feed(25, call("a", "paint"));
  feed(30, ready("a"));
  feed(31, usage());
  feed(33, owed(["a"]));
  feed(34, end("handed-back"));
  assert.deepEqual(script.rows(), [
    "run : run 10-34 paused (handed-back)",
    "model gpt: model 20-31 done",
    "tool paint: client 30- open",
  ]);
  const next = script.post(500, { messages: [{ role: "tool", toolCallId: "a", content: "x" }] });
  script.response(next, 510, "r2");
  script.frame(next, 511, { ...START, runId: "r2" }, "r2");
  script.frame(next, 512, message("m2"), "r2");
  script.frame(next, 600, usage(), "r2");
  script.frame(next, 601, end(), "r2");
  assert.equal(script.log.answers.length, 1);
  assert.deepEqual(script.rows(), [
    "run : run 10-34 paused (handed-back), run 511-601 done (completed)",
    "model gpt: model 20-31 done",
    "tool paint: client 30-500 done",
    "model gpt: model 512-600 done",
  ]);
});

test("a call that was approved waits for a person, then its tool works", () => {
  const { script, feed } = started();
  feed(25, call("a", "paint"));
  feed(33, owed(["a", "approval", { reason: "It is final." }]));
  feed(34, end("handed-back"));
  const next = script.post(500, { resume: { interruptId: "a", payload: { approved: true } } });
  script.response(next, 510, "r2");
  script.frame(next, 520, begin("a"), "r2");
  script.frame(next, 521, ready("a"), "r2");
  script.frame(next, 600, result("a"), "r2");
  script.frame(next, 601, end(), "r2");
  assert.deepEqual(script.rows().slice(1), [
    "tool paint: person 33-500 done (It is final., allowed), tool 520-600 done",
  ]);
});

test("a denial, a failed result and an answer of somebody else are told apart", () => {
  const { script, feed } = started();
  feed(33, owed(["a", "approval"], ["b"], ["c", "question"]));
  feed(34, end("handed-back"));
  const first = script.post(400, { resume: [{ interruptId: "a", payload: { approved: false } }] });
  script.response(first, 410, null);
  const next = script.post(500, {
    messages: [{ role: "tool", toolCallId: "b", isError: true, content: "no" }],
  });
  script.response(next, 510, "r2");
  script.frame(next, 520, { ...START, runId: "r2" }, "r2");
  assert.deepEqual(script.rows().slice(1), [
    "tool paint: person 33-400 failed (denied)",
    "tool paint: client 33-500 failed",
    "tool paint: person 33-520 done (answered elsewhere)",
  ]);
});

test("a refused result ends no wait; another message skips what waits", () => {
  const { script, feed } = started();
  feed(33, owed(["a"]));
  feed(34, end("handed-back"));
  const refused = script.post(400, { messages: [{ role: "tool", toolCallId: "a" }] });
  script.response(refused, 410, null, 409);
  assert.deepEqual(script.rows().slice(1), ["tool paint: client 33- open"]);
  const other = script.post(500);
  script.response(other, 510, "r2");
  assert.deepEqual(script.rows(0).slice(1), ["tool paint: client 33-510 skipped"]);
  assert.equal(script.log.answers.length, 2);
});

test("a post without messages asks for another answer, whatever waits", () => {
  const { script, feed } = started();
  feed(33, owed(["a"]));
  feed(34, end("handed-back"));
  const again = script.post(500, { messages: [], after: "m" });
  script.response(again, 510, "r2");
  assert.equal(script.log.answers.length, 2);
});

test("a tool that has begun and asks the client is paused meanwhile", () => {
  const { script, feed } = started();
  feed(20, begin("a"));
  feed(33, owed(["a"]));
  assert.deepEqual(script.rows().slice(1), ["tool paint: tool 20-33 paused, client 33- open"]);
});

test("a sub-agent that waits for the client is paused, and goes on", () => {
  const { script, feed } = started();
  feed(20, call("a", "researcher"));
  feed(23, begin("a"));
  feed(25, message("m2", { parentToolCallId: "a" }));
  feed(26, call("b", "paint", { parentToolCallId: "a" }));
  feed(27, usage({ parentToolCallId: "a" }));
  feed(30, owed(["b", "tool_result", { parentToolCallId: "a" }]));
  feed(31, end("handed-back"));
  const next = script.post(100, { messages: [{ role: "tool", toolCallId: "b" }] });
  script.response(next, 101, "r2");
  script.frame(next, 110, begin("a"), "r2");
  script.frame(next, 150, result("a"), "r2");
  assert.deepEqual(script.rows().slice(1), [
    "agent researcher: tool 23-31 paused, tool 110-150 done",
    "  model gpt: model 25-27 done",
    "  tool paint: client 30-100 done",
  ]);
});

test("a run in the queue waits first, and may be cancelled there", () => {
  const script = new Script();
  const exchange = script.post(0, { messages: [{ role: "user" }], onBusy: "enqueue" });
  script.response(exchange, 5);
  script.frame(exchange, 6, { type: "run-queued", runId: "r1" });
  assert.deepEqual(script.rows(), ["run : queue 6- open"]);
  script.frame(exchange, 90, START);
  assert.deepEqual(script.rows(), ["run : queue 6-90 done, run 90- open"]);
  const other = new Script();
  const post = other.post(0);
  other.response(post, 5);
  other.frame(post, 6, { type: "run-queued", runId: "r1" });
  other.frame(post, 50, end("cancelled"));
  assert.deepEqual(other.rows(), ["run : queue 6-50 stopped (cancelled)"]);
});

// ---------------------------------------------------------------- bad networks
test("retries, cuts and the time without a connection are shown", () => {
  const script = new Script();
  const post = script.post(0);
  script.lost(post, 10);
  script.again(post, 20, { method: "POST", path: "/send-message" });
  script.response(post, 30, null, 503);
  script.again(post, 40, { method: "POST", path: "/send-message" });
  script.response(post, 50);
  script.frame(post, 60, START);
  script.lost(post, 100);
  script.again(post, 110);
  script.lost(post, 120);
  script.again(post, 130);
  script.response(post, 140);
  script.frame(post, 200, end());
  script.lost(post, 210);
  const [connection] = rowsOf(script.log.answers[0]);
  assert.deepEqual(
    connection.spans.map(({ kind, from, to, state, note }) => [
      kind,
      from - T0,
      to - T0,
      state,
      note,
    ]),
    [
      ["request", 0, 10, "failed", "the stream broke off"],
      ["request", 20, 30, "failed", "HTTP 503"],
      ["request", 40, 50, "done", "HTTP 200"],
      ["missing", 100, 140, "failed", "HTTP 200"],
    ],
  );
});

test("what happened during a cut is approximate, and what comes live is not", () => {
  const { script, exchange, feed } = started();
  feed(20, message("m1"));
  script.lost(exchange, 30);
  script.again(exchange, 900);
  script.response(exchange, 1000);
  feed(1001, usage());
  feed(1001, begin("a"));
  feed(1001, result("a", { durationMs: 300 }));
  feed(1002, message("m2", { startedAt: new Date(T0 + 600).toISOString() }));
  feed(1100, usage());
  feed(1101, end());
  assert.deepEqual(script.rows(), [
    "run : run 10-1101 done (completed)",
    "model gpt: model 20-300 done about",
    "tool : tool 300-600 done about",
    "model gpt: model 600-1100 done",
  ]);
});

test("events that come together get their times from what the server says", () => {
  const { script, feed } = started();
  const at = (milliseconds) => new Date(T0 + milliseconds).toISOString();
  feed(22, message("m1", { startedAt: at(20) }));
  for (const event of [
    usage(),
    begin("a"),
    result("a", { durationMs: 300 }),
    message("m2", { startedAt: at(996) }),
    usage(),
  ]) {
    feed(1000, event);
  }
  feed(1001, end());
  // 2 ms is the least time that an event was on its way
  assert.deepEqual(script.rows().slice(1), [
    "model gpt: model 22-698 done about",
    "tool : tool 698-998 done about",
    "model gpt: model 998-1000 done",
  ]);
});

test("without a time of the server, late events are as late as they were received", () => {
  const { script, exchange, feed } = started();
  feed(20, message("m1"));
  script.lost(exchange, 30);
  script.again(exchange, 900);
  script.response(exchange, 1000);
  feed(1001, usage());
  feed(1002, message("m2"));
  assert.deepEqual(script.rows().slice(1), [
    "model gpt: model 20-1001 done about",
    "model : model 1002- open about",
  ]);
});

test("a run that was joined late has the times of the server, by this page's clock", () => {
  // the server's clock is ten minutes ahead
  const at = (milliseconds) => new Date(T0 + milliseconds + 600_000).toISOString();
  const script = new Script();
  const exchange = script.follow(5000);
  script.response(exchange, 5010);
  const feed = (time, event) => script.frame(exchange, time, event);
  feed(5011, START);
  feed(5011, message("m1", { startedAt: at(1000) }));
  feed(5011, text());
  feed(5011, usage());
  ["a", "b"].forEach((id) => feed(5011, begin(id)));
  feed(5012, result("a", { durationMs: 500 }));
  feed(5012, result("b", { durationMs: 2000 }));
  feed(5012, message("m2", { startedAt: at(4000) }));
  feed(5060, text());
  feed(5200, usage());
  feed(5201, message("m3", { startedAt: at(5195) }));
  feed(5300, end());
  // an event is received at least as late as it happens: 6 ms is the least that was seen
  assert.deepEqual(script.rows(), [
    "run : run 1006-5300 done about (completed)",
    "model gpt: model 1006-2006 done about",
    "tool : tool 2006-2506 done about",
    "tool : tool 2006-4006 done about",
    "model gpt: model 4006-5200 done",
    "model : model 5201-5300 done",
  ]);
});

test("a run that is read twice has its events once, with the times of the first reading", () => {
  const { script, feed } = started();
  const cursors = [20, 30].map((at, index) => feed(at, index ? usage() : message("m1")));
  const before = script.rows();
  const again = script.follow(400);
  script.response(again, 401);
  script.frame(again, 402, START, "r1", "r1.1-1");
  script.frame(again, 402, message("m1"), "r1", cursors[0]);
  script.frame(again, 402, usage(), "r1", cursors[1]);
  assert.deepEqual(script.rows(), before);
  script.frame(again, 500, end());
  assert.equal(script.rows().length, before.length);
  script.frame(again, 501, "[DONE]", "r1", "r1.1-4");
  assert.deepEqual(script.rows()[0], "run : run 10-500 done (completed)");
});

// ---------------------------------------------------------------- take-overs
test("what a take-over makes void stays to be seen, as void", () => {
  const { script, feed } = started();
  feed(20, message("m1"));
  const to = feed(30, usage());
  feed(31, message("m2"));
  feed(40, text());
  feed(50, call("a"));
  feed(60, begin("a"));
  script.takeOver();
  feed(900, { type: "rewind", to });
  feed(901, message("m3"));
  feed(950, usage());
  feed(951, end());
  assert.deepEqual(script.rows(), [
    "run : run 10-951 done (completed)",
    "model gpt: model 20-30 done",
    "model : model 31-60 void",
    "tool look: tool 60-900 void",
    "model gpt: model 901-950 done",
  ]);
});

test("what is sent again behind a rewind keeps its first time", () => {
  const { script, feed } = started();
  const of = { parentToolCallId: "a" };
  feed(20, call("a", "one"));
  feed(21, begin("a"));
  feed(21, call("b", "two"));
  const to = feed(22, begin("b"));
  feed(30, message("m1", of));
  feed(31, message("m2", { parentToolCallId: "b" }));
  feed(40, usage(of));
  feed(45, result("b"));
  script.takeOver();
  feed(900, { type: "rewind", to });
  feed(901, message("m1", of));
  feed(902, usage(of));
  feed(950, message("m3", { parentToolCallId: "b" }));
  assert.deepEqual(script.rows().slice(1), [
    "agent one: tool 21- open",
    "  model gpt: model 30-40 done",
    "agent two: tool 22- open",
    "  model : model 31-900 void",
    "  model : model 950- open",
  ]);
});

// ---------------------------------------------------------------- what is kept
test("requests that are no part of an answer are ignored, and so is what is no event", () => {
  const script = new Script();
  const other = script.post(0);
  script.again("1.9", 1, { method: "PUT", path: "/conversations/c/calls/a/claim" });
  script.response("1.9", 2);
  script.frame("1.9", 3, message("m1"));
  script.response(other, 4, null, 409);
  assert.deepEqual(script.log.answers, []);
  const exchange = script.post(10, "no object");
  script.response(exchange, 11);
  for (const data of ["", "[DONE]", "null", "{", '{"type":7}', '{"type":"toString"}']) {
    script.frame(exchange, 12, data);
  }
  script.frame(exchange, 13, text(), "r1", "no cursor");
  script.frame(exchange, 14, owed());
  script.frame(exchange, 14, { type: "owed", toolCalls: [null, 7, {}] });
  script.frame(exchange, 15, message("m1", { parentToolCallId: "m1" }));
  assert.doesNotThrow(() => script.rows());
  script.log.clear();
  assert.deepEqual(script.log.answers, []);
});

test("only the newest answers are kept, and a stream of pieces changes nothing", () => {
  const script = new Script();
  for (let number = 0; number < MAX_ANSWERS + 10; number += 1) {
    const run = `r${number}`;
    const exchange = script.post(number * 10);
    script.response(exchange, number * 10 + 1, run);
    script.frame(exchange, number * 10 + 2, message("m"), run);
    script.frame(exchange, number * 10 + 3, text(), run);
    const { changes } = script.log.answers.at(-1);
    for (let piece = 0; piece < 100; piece += 1) {
      script.frame(exchange, number * 10 + 4, text(), run);
    }
    assert.equal(script.log.answers.at(-1).changes, changes);
  }
  assert.equal(script.log.answers.length, MAX_ANSWERS);
  assert.deepEqual(
    [script.log.answers[0].number, script.log.answers.at(-1).number],
    [11, MAX_ANSWERS + 10],
  );
});

test("what comes first may be late, though the server took a moment to send it", () => {
  const script = new Script();
  const follow = script.follow(1000);
  script.response(follow, 1001, "r1");
  const startedAt = new Date(T0 + 400).toISOString();
  script.frame(follow, 1100, START, "r1");
  script.frame(follow, 1101, message("m", { startedAt }), "r1");
  script.frame(follow, 1200, end("completed"), "r1");
  assert.deepEqual(script.rows(0).slice(-1), ["model : model 400-1200 done"]);
});

test("runs that other clients begin are told apart by what they posted", () => {
  const script = new Script();
  // it is quiet for so long that what comes then is live
  const watch = script.follow(-1000);
  script.response(watch, -999, null);
  const posted = (at, runId, ...messages) =>
    script.frame(watch, at, { type: "posted", runId, first: 0, messages }, runId, "");
  posted(110, "r1", { role: "user", content: "hi" });
  script.frame(watch, 111, START, "r1");
  script.frame(watch, 120, owed(["a"]), "r1");
  script.frame(watch, 121, end("handed-back"), "r1");
  posted(300, "r2", { role: "tool", toolCallId: "a", content: "x" });
  script.frame(watch, 301, { ...START, runId: "r2" }, "r2");
  script.frame(watch, 310, owed(["b"]), "r2");
  script.frame(watch, 311, end("handed-back"), "r2");
  posted(500, "r3", { role: "user", content: "well" });
  script.frame(watch, 501, { ...START, runId: "r3" }, "r3");
  assert.deepEqual(
    script.log.answers.map(({ runs }) => runs.map(({ id }) => id)),
    [["r1", "r2"], ["r3"]],
  );
  assert.deepEqual(script.rows(0).slice(1), [
    "tool paint: client 120-300 done",
    "tool paint: client 310-501 skipped",
  ]);
});

test("an empty log has no rows, and no extent", () => {
  assert.deepEqual(new AnswerLog().answers, []);
  assert.deepEqual(extentOf([], 7), { from: 7, to: 7, isOpen: false });
});
