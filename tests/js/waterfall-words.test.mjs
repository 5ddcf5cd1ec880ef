/** The waterfall in words, and the marks of its axis. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  duration,
  lengthOf,
  marksOf,
  nameOf,
  wordsOf,
} from "../../client_tools/playground/waterfall-words.js";

function row(change = {}) {
  return {
    id: "x",
    parent: "",
    depth: 0,
    kind: "tool",
    name: "look",
    title: "",
    spans: [],
    tokens: null,
    progress: "",
    isVoid: false,
    ...change,
  };
}

function span(kind, from, to, change = {}) {
  const state = to === null ? "open" : "done";
  return { kind, from, to, state, note: "", isRough: false, first: 0, worked: 0, ...change };
}

test("a duration has a unit that fits, and never sixty seconds", () => {
  const shown = [
    [0, "0 ms"],
    [-3, "0 ms"],
    [412.4, "412 ms"],
    [999.4, "999 ms"],
    [999.6, "1 s"],
    [1234, "1.23 s"],
    [12_340, "12.3 s"],
    [59_960, "60 s"],
    [60_000, "1 min"],
    [119_600, "2 min"],
    [125_000, "2 min 5 s"],
    [3_600_000, "1 h"],
    [5_430_000, "1 h 30 min"],
  ];
  assert.deepEqual(
    shown.map(([milliseconds]) => [milliseconds, duration(milliseconds)]),
    shown,
  );
});

test("each kind of row has its name, and its spans in words", () => {
  const model = row({
    kind: "model",
    name: "Model call",
    title: "gpt",
    spans: [span("model", 1020, 1432, { first: 1050 })],
    tokens: { input: 812, output: 64 },
  });
  assert.equal(nameOf(model), "gpt");
  assert.deepEqual(wordsOf(model, 1000), [
    "Model call, gpt",
    "model call 412 ms from +20 ms, first piece after 30 ms",
    "812 tokens in, 64 out",
  ]);
  const tool = row({
    title: "Look around",
    progress: "half",
    spans: [
      span("person", 1000, 2000, { note: "It is final., allowed" }),
      span("tool", 3000, 3500, { isRough: true, worked: 480, state: "failed" }),
      span("tool", 4000, null),
    ],
  });
  assert.deepEqual(wordsOf(tool, 1000), [
    "Look around (look)",
    "waits for a person 1 s from +0 ms, It is final., allowed",
    "works about 500 ms from +2 s, failed, 480 ms by the server's clock",
    "works from +3 s, goes on",
    "last progress: half",
  ]);
  const agent = row({ kind: "agent", name: "helper", spans: [span("tool", 0, 5)] });
  assert.deepEqual(wordsOf(agent, 0), ["Sub-agent helper", "works 5 ms from +0 ms"]);
  const run = row({ kind: "run", name: "Run", title: "gpt", spans: [] });
  assert.deepEqual([nameOf(run), nameOf(row({ name: "" }))], ["Run", "call"]);
  assert.equal(nameOf(row({ kind: "agent", name: "" })), "sub-agent");
});

test("the length of a row is that of its spans, unless one goes on", () => {
  assert.equal(lengthOf(row({ spans: [span("run", 0, 5), span("run", 10, 20)] })), 15);
  assert.equal(lengthOf(row({ spans: [span("run", 0, 5), span("run", 10, null)] })), null);
});

test("marks are few, round and in the axis, for every length of an answer", () => {
  const day = 86_400_000;
  for (let total = 1; total <= day; total = Math.ceil(total * 1.07)) {
    const marks = marksOf(total, 4);
    assert.ok(marks.length >= 2 && marks.length <= 5, `${total}: ${marks}`);
    assert.equal(marks[0], 0);
    assert.ok(marks.at(-1) <= total, `${total}: ${marks}`);
    const steps = new Set(marks.slice(1).map((mark, index) => mark - marks[index]));
    assert.equal(steps.size, 1, `${total}: ${marks}`);
    const [step] = steps;
    assert.ok(step <= 10_000 ? /^[125]0*$/.test(String(step)) : step % 5000 === 0, String(step));
  }
  assert.deepEqual(marksOf(3870, 4), [0, 1000, 2000, 3000]);
});
