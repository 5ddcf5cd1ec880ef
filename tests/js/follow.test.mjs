/** Following a run over connections that break. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError, NetworkError } from "../../client_tools/playground/api.js";
import { MAX_FAILURES, MAX_UNANSWERED, follow } from "../../client_tools/playground/follow.js";
import { REWOUND, cut, ended, text } from "./playground-support.mjs";

/** Collects what `follow` gives, with streams from a list and no real waiting. */
async function collect(script, signal = new AbortController().signal) {
  const asked = [];
  const waits = [];
  const seen = [];
  const events = follow({
    signal,
    wait: async (milliseconds) => void waits.push(milliseconds),
    open: async (after) => {
      asked.push(after);
      return script.shift()();
    },
  });
  let error = null;
  try {
    for await (const { data } of events) seen.push(data === "[DONE]" ? data : labelOf(JSON.parse(data)));
  } catch (raised) {
    error = raised;
  }
  return { seen, asked, waits, error };
}

function labelOf({ content, code }) {
  return content ?? code;
}

function refused(status, retryAfter = null) {
  return () => {
    throw new ApiError("no", { code: "some_code", status, retryAfter });
  };
}

function away() {
  throw new NetworkError();
}

test("a run that ends is read once", async () => {
  const { seen, asked } = await collect([ended([text("a"), text("b")])]);
  assert.deepEqual([seen, asked], [["a", "b", "[DONE]"], [null]]);
});

test("after a cut the stream is opened again behind the last event that came whole", async () => {
  const half = "id: run.1-3\ndata: {\"type\":\"te";
  const { seen, asked } = await collect([
    cut([text("a"), text("b")], { tail: half }),
    cut([text("c")], { first: 3 }),
    ended([text("d")], { first: 4 }),
  ]);
  assert.deepEqual(seen, ["a", "b", "c", "d", "[DONE]"]);
  assert.deepEqual(asked, [null, "run.1-2", "run.1-3"]);
});

test("a cut before the first event opens the run from its start", async () => {
  const { seen, asked } = await collect([cut([]), ended([text("a")])]);
  assert.deepEqual([seen, asked], [["a", "[DONE]"], [null, null]]);
});

test("a run that is rewound goes on from its start", async () => {
  const { seen, asked, error } = await collect([
    cut([text("a"), text("b")], { tail: REWOUND }),
    ended([text("a"), text("c")]),
  ]);
  assert.deepEqual([seen, error], [["a", "b", "rewound", "[DONE]", "a", "c", "[DONE]"], null]);
  assert.deepEqual(asked, [null, "run.0-0"]);
});

test("another error is an end", async () => {
  const failed = { type: "error", error: "rewound", code: "model_failed", retryable: false };
  const { seen } = await collect([ended([failed])]);
  assert.deepEqual(seen, ["model_failed", "[DONE]"]);
});

test("a server that is away for a moment is asked again, each time later", async () => {
  const { seen, waits } = await collect([
    cut([text("a")]),
    away,
    refused(503),
    refused(502),
    ended([text("b")], { first: 2 }),
  ]);
  assert.deepEqual(seen, ["a", "b", "[DONE]"]);
  assert.equal(waits.length, 4);
  for (let index = 1; index < waits.length; index += 1) assert.ok(waits[index] > waits[index - 1]);
});

test("the server says how long to wait first", async () => {
  for (const asks of [cut([text("a")], { tail: "retry: 1000\n\n" }), refused(503, "1")]) {
    const { waits } = await collect([asks, ended([])]);
    assert.ok(waits[0] >= 750 && waits[0] <= 1000, String(waits[0]));
  }
});

test("a server that nobody has heard of yet is given up sooner, with what it said last", async () => {
  for (const [last, name] of [[away, "NetworkError"], [refused(503), "ApiError"]]) {
    const { error, asked } = await collect([...Array(MAX_UNANSWERED - 1).fill(away), last]);
    assert.deepEqual([error.name, asked.length], [name, MAX_UNANSWERED]);
  }
});

test("connections that bring nothing are given up in the end", async () => {
  const { error, asked } = await collect(Array(MAX_FAILURES).fill(cut([])));
  assert.ok(error instanceof NetworkError);
  assert.equal(asked.length, MAX_FAILURES);
});

test("connections that bring something each time are not given up", async () => {
  const pieces = Array.from({ length: 3 * MAX_FAILURES }, (_, index) => cut([text("x")], { first: 1 + index }));
  const { seen } = await collect([...pieces, ended([])]);
  assert.equal(seen.length, 3 * MAX_FAILURES + 1);
});

test("a refusal is not repeated", async () => {
  const { error, asked } = await collect([cut([text("a")]), refused(404)]);
  assert.deepEqual([error.status, asked.length], [404, 2]);
});

test("a reader who leaves gets nothing more", async () => {
  const abort = new AbortController();
  abort.abort();
  const { seen, error } = await collect([ended([text("a")])], abort.signal);
  assert.deepEqual([seen, error.name], [[], "AbortError"]);
});
