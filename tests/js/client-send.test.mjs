/** `send`: what is posted, repeated, read on and refused. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import {
  Answer,
  ApiError,
  Client,
  ConnectionLost,
  CursorExpired,
  InvalidArgument,
  LimitExceeded,
  PassbackError,
} from "../../client_tools/js/src/index.js";
import { SaidText } from "../../client_tools/js/src/said.js";
import { collect, json, lost, scripted, stream, text } from "./client-support.mjs";

const END = { type: "run-end", outcome: "completed", reason: "end_turn" };

// ---------------------------------------------------------------- posts and their repeats
test("a post has what is new, and asks for what the client needs to know", async (t) => {
  const parameters = { type: "object" };
  const tools = { add: { description: "Adds", parameters, title: "Add", execute: () => 1 } };
  const { client, requests } = await scripted(t, [stream({ events: [text("Hi"), END] })]);
  const sending = client({ tools, apiKey: "secret-key" }).send("hello", {
    conversationId: "c",
    include: ["usage"],
  });
  assert.deepEqual(await collect(sending), { events: [text("Hi"), END], error: null });
  const [{ headers, ...request }] = requests;
  assert.deepEqual(request, {
    method: "POST",
    path: "/send-message",
    query: {},
    body: {
      conversationId: "c",
      messages: [{ role: "user", content: "hello" }],
      tools: [{ name: "add", description: "Adds", parameters: { type: "object" }, title: "Add" }],
      include: ["owed", "rewind", "run", "output", "usage"],
    },
  });
  assert.equal(headers.authorization, "Bearer secret-key");
  assert.match(headers["idempotency-key"], /^"[0-9a-f-]{36}"$/);
  assert.equal(sending.runId, "run");
});

test("every event has its place", async (t) => {
  const { client } = await scripted(t, [stream({ events: [text("Hi")] })]);
  const events = [];
  for await (const event of client().send("x")) events.push(event);
  assert.deepEqual(events, [{ ...text("Hi"), cursor: "run.1-1", runId: "run" }]);
});

test("a post without an answer is repeated as it was", async (t) => {
  const busy = json({ code: "queue_full", message: "full" }, 429, { "Retry-After": "0" });
  const away = json({ code: "store_unavailable", message: "away" }, 503);
  const { client, requests } = await scripted(t, [
    lost,
    busy,
    away,
    stream({ events: [text("Hi")] }),
  ]);
  assert.equal(await client().send("x").text(), "Hi");
  const posts = requests.map(({ method, body, headers }) => ({
    method,
    body,
    key: headers["idempotency-key"],
  }));
  assert.deepEqual(posts, Array(4).fill(posts[0]));
});

test("the repeats have an end, and the last error is told", async (t) => {
  const away = json({ code: "store_unavailable", message: "away", request_id: "req_1" }, 503);
  const { client, requests } = await scripted(t, [lost, away, away]);
  const { error } = await collect(client({ retry: { attempts: 3 } }).send("x"));
  assert.ok(error instanceof ApiError && error instanceof PassbackError);
  const { name, message, code, status, retryable, requestId } = error;
  assert.deepEqual(
    { name, message, code, status, retryable, requestId },
    {
      name: "ApiError",
      message: "away",
      code: "store_unavailable",
      status: 503,
      retryable: true,
      requestId: "req_1",
    },
  );
  assert.equal(requests.length, 3);
});

test("a server that nobody reaches is an error of its own", async (t) => {
  const { client, requests } = await scripted(t, [lost, lost]);
  const { error } = await collect(client({ retry: { attempts: 2 } }).send("x"));
  assert.ok(error instanceof ConnectionLost);
  assert.deepEqual([error.code, error.retryable, requests.length], ["connection_lost", true, 2]);
});

test("a server that asks for a longer pause than we make is not asked again", async (t) => {
  const busy = json({ code: "queue_full", message: "full" }, 429, { "Retry-After": "3600" });
  const { client, requests } = await scripted(t, [busy]);
  const { error } = await collect(client().send("x"));
  assert.deepEqual([error.code, error.retryAfter, requests.length], ["queue_full", 3600, 1]);
});

test("a busy conversation is asked again only where the caller wants it", async (t) => {
  const busy = json({ code: "conversation_busy", message: "busy" }, 409);
  const { client, requests } = await scripted(t, [busy, busy, stream({ events: [text("Hi")] })]);
  const { error } = await collect(client().send("x"));
  assert.deepEqual([error.code, error.status, error.retryable], ["conversation_busy", 409, true]);
  assert.equal(await client().send("x", { retryBusy: true }).text(), "Hi");
  assert.equal(requests.length, 3);
});

test("a refusal is not repeated", async (t) => {
  const { client, requests } = await scripted(t, [
    json({ code: "invalid_request", message: "no", details: [1] }, 422),
  ]);
  const { error } = await collect(client().send("x"));
  assert.deepEqual(
    [error.code, error.status, error.retryable, error.details],
    ["invalid_request", 422, false, [1]],
  );
  assert.equal(requests.length, 1);
});

test("a refusal that is not ours, or endless, is an error all the same", async (t) => {
  const page = (response) => response.writeHead(404).end("<p>");
  const endless = json({ code: "not_found", message: "x".repeat(100_000) }, 404);
  const { client } = await scripted(t, [stream({ events: [text("a")] }), page, endless]);
  const one = client();
  await one.send("x").text();
  for (let count = 0; count < 2; count += 1) {
    const { error } = await collect(one.send("x"));
    assert.deepEqual(
      [error.code, error.message],
      ["http_404", "the server answered with status 404"],
    );
  }
});

// ---------------------------------------------------------------- cuts
test("after a cut the stream is read on behind the last event", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({
      events: [text("a")],
      end: "cut",
      tail: 'id: run.1-2\ndata: {"type":"text","content":"half',
    }),
    lost,
    stream({ events: [text("b")], first: 2, end: "cut" }),
    stream({ events: [text("c")], first: 3 }),
  ]);
  const sending = client().send("x", { conversationId: "a/b", include: ["usage"] });
  assert.deepEqual(await collect(sending), {
    events: [text("a"), text("b"), text("c")],
    error: null,
  });
  const { headers, ...reconnect } = requests[1];
  assert.deepEqual(reconnect, {
    method: "GET",
    path: "/conversations/a%2Fb/stream",
    query: { include: "owed,rewind,run,output,usage" },
    body: undefined,
  });
  const places = requests.slice(1).map((request) => request.headers["last-event-id"]);
  assert.deepEqual(places, ["run.1-1", "run.1-1", "run.1-2"]);
});

test("a stream that was cut before its first event is read from the run's start", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: [], end: "cut" }),
    stream({ events: [text("a")] }),
  ]);
  assert.equal(await client().send("x").text(), "a");
  assert.deepEqual([requests[1].method, requests[1].query.runId], ["GET", "run"]);
});

test("an answer without a run that was cut is asked for by the same post again", async (t) => {
  const nameless = (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream", "X-Conversation-Id": "c" });
    response.write(": open\n\n", () => response.destroy());
  };
  const { client, requests } = await scripted(t, [nameless, stream({ events: [text("a")] })]);
  assert.equal(await client().send("x").text(), "a");
  assert.deepEqual(requests[1].body, requests[0].body);
  assert.equal(requests[1].headers["idempotency-key"], requests[0].headers["idempotency-key"]);
});

test("cuts that bring events are not counted together", async (t) => {
  const cuts = Array.from("abcdef", (letter, index) =>
    stream({ events: [text(letter)], first: index + 1, end: "cut" }),
  );
  const { client } = await scripted(t, [...cuts, stream({ events: [text("g")], first: 7 })]);
  assert.equal(
    await client({ retry: { attempts: 2 } })
      .send("x")
      .text(),
    "abcdefg",
  );
});

test("a stream that brings nothing any more is given up", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: [text("a")], end: "cut" }),
    lost,
    lost,
  ]);
  const { events, error } = await collect(client({ retry: { attempts: 3 } }).send("x"));
  assert.deepEqual([events, error.code, requests.length], [[text("a")], "connection_lost", 3]);
});

test("the server says how long to wait before a reconnect", async (t) => {
  const { client } = await scripted(t, [
    stream({ events: [text("a")], end: "cut", tail: "retry: 3\n\n" }),
    stream({ events: [text("b")], first: 2 }),
  ]);
  const patient = client({ retry: { firstDelay: 3_600_000, longestDelay: 7_200_000 } });
  assert.equal(await patient.send("x").text(), "ab");
});

test("a connection that is silent for too long counts as cut", async (t) => {
  const { client, requests } = await scripted(t, [
    () => {},
    stream({ events: [text("a")], end: "open" }),
    stream({ events: [text("b")], first: 2 }),
  ]);
  assert.equal(
    await client({ retry: { silence: 100 } })
      .send("x")
      .text(),
    "ab",
  );
  assert.deepEqual(
    requests.map(({ method }) => method),
    ["POST", "POST", "GET"],
  );
});

test("a place that the log has lost is an error of its own", async (t) => {
  const { client } = await scripted(t, [
    stream({ events: [text("a")], end: "cut" }),
    json({ code: "cursor_expired", message: "gone" }, 410),
  ]);
  const { events, error } = await collect(client().send("x"));
  assert.ok(error instanceof CursorExpired);
  assert.deepEqual([events, error.code, error.status], [[text("a")], "cursor_expired", 410]);
});

// ---------------------------------------------------------------- what became void
test("a rewind is shown, and takes back what is behind its place", async (t) => {
  const { client } = await scripted(t, [
    stream({
      events: [
        text("kept "),
        { type: "tool-call-start", toolCallId: "1", toolCallName: "x" },
        text("void"),
        { type: "rewind", to: "run.1-1" },
        text("good"),
      ],
    }),
  ]);
  const answer = new Answer();
  const types = [];
  for await (const event of client().send("x")) {
    types.push(event.type);
    answer.add(event);
  }
  assert.deepEqual(types, ["text", "tool-call-start", "text", "rewind", "text"]);
  assert.deepEqual([answer.text, answer.calls], ["kept good", []]);
});

test("places are ordered by epoch, number and piece, within one run", () => {
  const answer = new Answer();
  const say = (content, cursor) => answer.add({ ...text(content), cursor, runId: null });
  for (const [content, cursor] of [
    ["a", "r.9.1-9"],
    ["b", "r.9.1-10"],
    ["c", "r.9.1-10~1"],
    ["d", "r.9.2-1"],
    ["e", "q.3-3"],
  ]) {
    say(content, cursor);
  }
  answer.add({ type: "rewind", to: "r.9.1-10", cursor: "r.9.3-1", runId: null });
  assert.equal(answer.text, "abe");
});

test("a rewind leaves what earlier runs said, and takes back calls", () => {
  const answer = new Answer();
  const add = (event, cursor) => answer.add({ ...event, cursor, runId: null });
  add(text("one "), "r.1-1");
  add(END, "r.1-2");
  add(text("two "), "s.1-1");
  add({ type: "reasoning", delta: "hm" }, "s.1-2");
  add({ type: "tool-call-start", toolCallId: "1", toolCallName: "f" }, "s.1-3");
  assert.deepEqual([answer.text, answer.reasoning, answer.calls.length], ["one \n\ntwo ", "hm", 1]);
  add({ type: "rewind", to: "s.1-0" }, "s.2-1");
  assert.deepEqual([answer.text, answer.reasoning, answer.calls], ["one ", "", []]);
  add(text("three"), "s.2-2");
  assert.equal(answer.text, "one \n\nthree");
});

test("an answer keeps no more than it may", () => {
  for (const answer of [new Answer(3), new SaidText(3)]) {
    answer.add({ ...text("abc"), cursor: "", runId: null });
    assert.throws(() => answer.add({ ...text("d"), cursor: "", runId: null }), LimitExceeded);
  }
});

// ---------------------------------------------------------------- secrets, and what cannot be
test("no error shows the API key", async (t) => {
  const { client } = await scripted(t, [
    json({ code: "unauthenticated", message: "no" }, 401),
    lost,
  ]);
  const mine = client({ apiKey: "secret-key", retry: { attempts: 1 } });
  const errors = [(await collect(mine.send("x"))).error, (await collect(mine.send("x"))).error];
  for (const thing of [mine, mine.send("x"), ...errors]) {
    assert.doesNotMatch(
      inspect(thing, { depth: 20, showHidden: true }) + JSON.stringify(thing),
      /secret-key/,
    );
  }
  for (const options of [
    { apiKey: "secret-key\n" },
    { url: "http://me:secret-key@x" },
    { url: "secret-key" },
  ]) {
    assert.throws(
      () => new Client({ url: "http://x", ...options }),
      (error) => {
        return error instanceof InvalidArgument && !inspect(error).includes("secret-key");
      },
    );
  }
});

test("what cannot be is refused before anything is sent", async () => {
  const client = new Client({ url: "http://127.0.0.1:1" });
  for (const conversationId of ["", ".", "..", "\ud800"]) {
    assert.throws(() => client.send("x", { conversationId }), InvalidArgument);
  }
  assert.throws(() => client.send("x", { idempotencyKey: 'a"b' }), InvalidArgument);
  assert.throws(() => new Client({ url: "ftp://x" }), InvalidArgument);
  const tools = { f: { needsApproval: true, execute: () => 1 } };
  assert.throws(() => new Client({ url: "http://x", tools }), InvalidArgument);
  const { error } = await collect(client.send([{ role: "user", content: 1n }]));
  assert.ok(error instanceof InvalidArgument);
});

test("the events of one send can be iterated once", async (t) => {
  const { client } = await scripted(t, [stream({ events: [text("a")] })]);
  const sending = client().send("x");
  await sending.text();
  await assert.rejects(sending.text(), InvalidArgument);
});
