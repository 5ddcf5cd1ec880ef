/** Ends of the events: failures, aborts, leaving, cancels; and their resumption. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import { ProtocolError, RunFailed } from "../../client_tools/js/src/index.js";
import {
  collect,
  handsBack,
  json,
  lost,
  scripted,
  stream,
  text,
  withResolvers,
} from "./client-support.mjs";

test("a run that failed is an error, behind all that it said", async (t) => {
  const error = {
    type: "error",
    error: "no model",
    code: "model_unavailable",
    retryable: true,
    retryAfter: 7,
  };
  const end = { type: "run-end", outcome: "failed", reason: "model_unavailable" };
  const { client } = await scripted(t, [stream({ events: [text("Well"), error, end] })]);
  const done = await collect(client().send("x"));
  assert.deepEqual(done.events, [text("Well"), end]);
  assert.ok(done.error instanceof RunFailed);
  const { message, code, status, retryable, retryAfter } = done.error;
  assert.deepEqual(
    [message, code, status, retryable, retryAfter],
    ["no model", "model_unavailable", null, true, 7],
  );
});

test("an answer that is not of the protocol is an error", async (t) => {
  const { client } = await scripted(t, [
    (response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<p>"),
    stream({ events: [{ type: "text" }] }),
    stream({ events: ["nothing"] }),
    stream({ events: [{ type: "owed", toolCalls: [{ id: 1 }] }] }),
  ]);
  for (let count = 0; count < 4; count += 1) {
    const { error } = await collect(client().send("x"));
    assert.ok(error instanceof ProtocolError, inspect(error));
  }
});

test("an abort ends the reading at once, and throws its reason", async (t) => {
  const { client } = await scripted(t, [stream({ events: [text("a"), text("b")], end: "open" })]);
  const controller = new AbortController();
  const seen = [];
  await assert.rejects(async () => {
    for await (const event of client().send("x", { signal: controller.signal })) {
      seen.push(event.content);
      controller.abort(new Error("enough"));
    }
  }, /^Error: enough$/);
  assert.deepEqual(seen, ["a"]);
});

test("an abort while nothing comes ends the waiting for it", async (t) => {
  const { client } = await scripted(t, [() => {}]);
  const signal = AbortSignal.timeout(50);
  await assert.rejects(client().send("x", { signal }).text(), { name: "TimeoutError" });
});

test("who leaves early closes the connection", async (t) => {
  const closed = withResolvers();
  const open = (response, request) => {
    response.on("close", closed.resolve);
    stream({ events: [text("a")], end: "open" })(response, request);
  };
  const { client } = await scripted(t, [open]);
  for await (const event of client().send("x")) {
    assert.equal(event.content, "a");
    break;
  }
  await closed.promise;
});

test("tools that run are told when nobody wants their results", async (t) => {
  const told = [];
  const slow = (name) => ({
    execute: (_, { signal }) =>
      new Promise(() => signal.addEventListener("abort", () => told.push(name))),
  });
  const tools = { slow: slow("slow"), quick: { execute: () => "ok" } };
  const { client, requests } = await scripted(t, [
    stream({ events: handsBack(["1", "slow", "{}"], ["2", "quick", "{}"]) }),
  ]);
  for await (const event of client({ tools }).send("x")) {
    if (event.type === "client-tool-result") break;
  }
  assert.deepEqual([told, requests.length], [["slow"], 1]);
});

test("a cancel while tools run gives them up, and posts nothing", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: handsBack(["1", "slow", "{}"]) }),
  ]);
  const tools = { slow: { execute: () => sending.cancel().then(() => new Promise(() => {})) } };
  const sending = client({ tools }).send("x");
  const { events, error } = await collect(sending);
  assert.deepEqual([events, error, requests.length], [handsBack(["1", "slow", "{}"]), null, 1]);
});

test("a cancel before the answer is made when the run is known", async (t) => {
  const cancelled = { type: "run-end", outcome: "cancelled" };
  let cancelling;
  const { client, requests } = await scripted(t, [
    (response, request) => {
      cancelling = sending.cancel();
      stream({ events: [text("a")], end: "cut" })(response, request);
    },
    json({ cancelled: true }, 202),
    stream({ events: [cancelled], first: 2 }),
  ]);
  const sending = client().send("x", { conversationId: "c" });
  const { events, error } = await collect(sending);
  assert.deepEqual([events, error, await cancelling], [[text("a"), cancelled], null, true]);
  const paths = requests.map(({ path }) => path).sort();
  assert.deepEqual(paths, ["/conversations/c/cancel", "/conversations/c/stream", "/send-message"]);
});

test("a cancel of what never got an answer stops nothing", async (t) => {
  let cancelling;
  const { client, requests } = await scripted(t, [
    (response) => {
      cancelling = sending.cancel();
      response.destroy();
    },
  ]);
  const sending = client({ retry: { attempts: 1 } }).send("x");
  const { error } = await collect(sending);
  assert.deepEqual(
    [error.code, await cancelling, await sending.cancel()],
    ["connection_lost", false, false],
  );
  const early = client().send("x");
  assert.equal(await early.cancel(), false);
  assert.deepEqual(await collect(early), { events: [], error: null });
  assert.equal(requests.length, 1);
});

test("a cancel after the end is no error, and a lost one is repeated", async (t) => {
  const ended = json({ code: "conflict", message: "ended" }, 409);
  const { client } = await scripted(t, [
    stream({ events: [text("a")], end: "open" }),
    lost,
    ended,
    json({ cancelled: true }, 202),
  ]);
  const sending = client().send("x");
  for await (const event of sending) {
    assert.equal(event.content, "a");
    assert.equal(await sending.cancel(), false);
    break;
  }
  assert.equal(await sending.cancel(), true, "a run that was left can be stopped");
});

// ---------------------------------------------------------------- going on after a reload
test("resume answers what is owed where nothing runs", async (t) => {
  const call = { id: "1", name: "f", arguments: "{}", kind: "tool_result" };
  const { client, requests } = await scripted(t, [
    json({ running: null, owed: [call] }),
    stream({ events: [text("Done.")] }),
  ]);
  assert.equal(
    await client({ tools: { f: { execute: () => "ok" } } })
      .resume("c")
      .text(),
    "Done.",
  );
  assert.deepEqual(requests[1].body.messages, [{ role: "tool", toolCallId: "1", content: "ok" }]);
});

test("resume follows the run that goes on, or reads on behind a place", async (t) => {
  const { client, requests } = await scripted(t, [
    json({ running: { runId: "r" }, owed: [] }),
    stream({ events: [text("a")] }),
    stream({ events: [text("b")] }),
  ]);
  assert.equal(await client().resume("c").text(), "a");
  assert.equal(await client().resume("c", { lastEventId: "r.1-7" }).text(), "b");
  assert.deepEqual([requests[1].query.runId, requests[2].headers["last-event-id"]], ["r", "r.1-7"]);
});
