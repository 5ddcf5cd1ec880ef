/** Claims: of several clients that see a call, one runs it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  collect,
  granted,
  handsBack,
  json,
  lost,
  scripted,
  stream,
  text,
  withResolvers,
} from "./client-support.mjs";

const CALL = ["1", "f", "{}"];
const OWED = { id: "1", name: "f", arguments: "{}", kind: "tool_result" };
const DONE = stream({
  events: [text("Done."), { type: "run-end", outcome: "completed" }],
  run: "next",
});
const ANSWERED = json({ code: "tool_result_conflict", message: "answered" }, 409);
const UNKNOWN = json({ code: "tool_call_not_found", message: "no such call" }, 404);

function claimed(seconds) {
  return json({ code: "call_claimed", message: "another client" }, 409, {
    "Retry-After": String(seconds),
  });
}

function stands({ owed = [], running = null, runId = "run" } = {}) {
  return json({ running: running && { runId: running }, runId, owed });
}

/** Answers to the requests to claim, in order; the last one answers the rest. */
function inTurn(...answers) {
  return (response, request) => {
    if (request.method === "DELETE") return granted(response, request);
    (answers.length > 1 ? answers.shift() : answers[0])(response, request);
  };
}

function elsewhere(state, id = "1") {
  return { type: "call-elsewhere", toolCallId: id, toolCallName: "f", state };
}

test("a call is claimed before it runs, and its answer ends the claim", async (t) => {
  const order = [];
  const { client, claims, requests } = await scripted(
    t,
    [stream({ events: handsBack(CALL) }), DONE],
    (...both) => {
      order.push("claimed");
      granted(...both);
    },
  );
  const me = client({ tools: { f: { execute: () => void order.push("ran") } } });
  await collect(me.send("x", { conversationId: "a/b" }));
  assert.deepEqual(order, ["claimed", "ran"]);
  const [{ method, path, body }] = claims;
  assert.deepEqual(
    [claims.length, method, path],
    [1, "POST", "/conversations/a%2Fb/tool-calls/1/claim"],
  );
  assert.match(body.claimant, /^[0-9a-f-]{36}$/);
  assert.equal(body.seconds, 30);
  assert.equal(requests.length, 2);
});

test("one client is one claimant, and another one is another", async (t) => {
  const again = () => stream({ events: handsBack(CALL) });
  const { client, claims } = await scripted(t, [again(), DONE, again(), DONE, again(), DONE]);
  const make = () => client({ tools: { f: { execute: () => "ok" } } });
  const me = make();
  for (const each of [me, me, make()]) await collect(each.send("x"));
  const [first, second, third] = claims.map(({ body }) => body.claimant);
  assert.equal(first, second);
  assert.notEqual(first, third);
});

test("calls that come together are claimed together", async (t) => {
  let waiting = [];
  const { client } = await scripted(
    t,
    [stream({ events: handsBack(["1", "f", "{}"], ["2", "f", "{}"]) }), DONE],
    (...both) => {
      waiting.push(both);
      if (waiting.length < 2) return;
      for (const each of waiting) granted(...each);
      waiting = [];
    },
  );
  assert.equal(
    (await collect(client({ tools: { f: { execute: () => "ok" } } }).send("x"))).error,
    null,
  );
});

test("nothing is claimed where claims are off, or that is left to others", async (t) => {
  const script = () => [stream({ events: handsBack(CALL) }), DONE];
  const { client, claims } = await scripted(t, [...script(), ...script()]);
  const off = await collect(
    client({ claims: false, tools: { f: { execute: () => "ok" } } }).send("x"),
  );
  assert.deepEqual([off.error, off.events.at(-2)], [null, text("Done.")]);
  await collect(client({ unknownTools: "leave" }).send("x"));
  assert.deepEqual(claims, []);
});

test("a claim is renewed while the tool runs, and not behind the answer", async (t) => {
  const [first, second] = [withResolvers(), withResolvers()];
  const script = [
    stream({ events: handsBack(CALL) }),
    DONE,
    stream({ events: handsBack(["2", "f", "{}"]) }),
    DONE,
  ];
  const { client, claims } = await scripted(t, script, (response, request) => {
    granted(response, request);
    if (claims.length === 3) first.resolve();
    if (claims.length === 12) second.resolve();
  });
  const tools = {
    f: { execute: (_, { toolCallId }) => (toolCallId === "1" ? first : second).promise },
  };
  const me = client({ tools, limits: { claimSeconds: 0.03 } });
  await collect(me.send("x", { conversationId: "c" }));
  const count = claims.length;
  await collect(me.send("x", { conversationId: "c" }));
  const asked = claims.map(({ method, path, body }) => `${method} ${path} ${body.claimant}`);
  assert.equal(new Set(asked.slice(0, count)).size, 1);
  // one may have been on its way
  assert.ok(
    asked.slice(count).filter((each) => each.startsWith("POST /conversations/c/tool-calls/1/"))
      .length <= 1,
    asked.join("\n"),
  );
});

for (const [how, give] of [
  ["an abort", ({ controller }) => controller.abort()],
  ["a cancel", ({ sending }) => sending.cancel()],
]) {
  test(`${how} gives the claim back`, async (t) => {
    const { promise: dropped, resolve } = withResolvers();
    const { client } = await scripted(
      t,
      [stream({ events: handsBack(CALL) })],
      (response, request) => {
        granted(response, request);
        if (request.method === "DELETE") resolve(request);
      },
    );
    const controller = new AbortController();
    let sending;
    const execute = () => {
      give({ controller, sending });
      return new Promise(() => {});
    };
    sending = client({ tools: { f: { execute } } }).send("x", {
      conversationId: "c",
      signal: controller.signal,
    });
    await collect(sending);
    const { path, query } = await dropped;
    assert.equal(path, "/conversations/c/tool-calls/1/claim");
    assert.match(query.claimant, /^[0-9a-f-]{36}$/);
  });
}

test("who leaves while a claim is on its way gives it back, too", async (t) => {
  const { promise: dropped, resolve } = withResolvers();
  const controller = new AbortController();
  const { client } = await scripted(
    t,
    [stream({ events: handsBack(CALL) })],
    (response, request) => {
      if (request.method === "DELETE") return resolve(granted(response, request));
      controller.abort(); // and the answer never comes
    },
  );
  const tools = { f: { execute: () => assert.fail("it was given up") } };
  const { error } = await collect(client({ tools }).send("x", { signal: controller.signal }));
  assert.equal(error, controller.signal.reason);
  await dropped;
});

test("a call claimed elsewhere is not run, and the run of its answer is followed", async (t) => {
  const { client, requests } = await scripted(
    t,
    [
      stream({ events: handsBack(CALL) }),
      stands({ owed: [{ ...OWED, claimedUntil: "2026-01-31T12:00:30.000Z" }] }),
      stands({ running: "theirs", runId: "theirs" }),
      stands({ running: "theirs", runId: "theirs" }),
      stream({ events: [{ type: "run-start" }, text("Theirs.")], run: "theirs" }),
    ],
    claimed(30),
  );
  const tools = { f: { execute: () => assert.fail("another client runs it") } };
  const { events, error } = await collect(client({ tools }).send("x", { conversationId: "c" }));
  assert.deepEqual(
    [error, events.slice(2)],
    [null, [elsewhere("claimed"), elsewhere("answered"), { type: "run-start" }, text("Theirs.")]],
  );
  assert.deepEqual(
    requests.slice(1).map(({ path }) => path),
    [...Array(3).fill("/conversations/c"), "/conversations/c/stream"],
  );
  assert.equal(requests.at(-1).query.runId, "theirs");
});

for (const [what, answer] of [
  ["answered", ANSWERED],
  ["unknown by now", UNKNOWN],
]) {
  test(`a call that is ${what} is settled: what runs is followed`, async (t) => {
    const { client, requests } = await scripted(
      t,
      [
        stream({ events: handsBack(CALL) }),
        stands({ runId: "theirs" }),
        stream({ events: [text("Theirs.")], run: "theirs" }),
      ],
      answer,
    );
    const tools = { f: { execute: () => assert.fail("it is answered") } };
    const { events, error } = await collect(client({ tools }).send("x"));
    assert.deepEqual([error, events.slice(2)], [null, [elsewhere("answered"), text("Theirs.")]]);
    assert.equal(requests[2].query.runId, "theirs");
  });
}

test("where nothing has come of another client's answer, it ends", async (t) => {
  const { client, requests } = await scripted(
    t,
    [stream({ events: handsBack(CALL) }), stands()],
    ANSWERED,
  );
  const { events, error } = await collect(
    client({ tools: { f: { execute: () => "" } } }).send("x"),
  );
  assert.deepEqual([error, events.at(-1), requests.length], [null, elsewhere("answered"), 2]);
});

test("after a reload, the run of another client's answer is found, too", async (t) => {
  const { client } = await scripted(
    t,
    [
      stands({ owed: [OWED] }),
      stands({ running: "theirs", runId: "theirs" }),
      stream({ events: [text("Theirs.")], run: "theirs" }),
    ],
    ANSWERED,
  );
  const sending = client({ tools: { f: { execute: () => "" } } }).resume("c");
  assert.deepEqual(await sending.text(), "Theirs.");
});

test("after a reload, a run that has ended is not given again", async (t) => {
  const { client, requests } = await scripted(t, [stands({ owed: [OWED] }), stands()], ANSWERED);
  const { events, error } = await collect(
    client({ tools: { f: { execute: () => "" } } }).resume("c"),
  );
  assert.deepEqual(
    [error, events, requests.length],
    [null, [{ type: "owed", toolCalls: [OWED] }, elsewhere("answered")], 2],
  );
});

test("a claim that has lapsed, or was given back, is taken over", async (t) => {
  for (const script of [[], [stands({ owed: [{ ...OWED, claimedUntil: null }] })]]) {
    const seconds = script.length === 0 ? 0 : 30;
    const { client, requests } = await scripted(
      t,
      [stream({ events: handsBack(CALL) }), ...script, DONE],
      inTurn(claimed(seconds), ...(seconds ? [] : [claimed(seconds)]), granted),
    );
    const ran = [];
    const tools = { f: { execute: () => void ran.push("f") } };
    const { events } = await collect(client({ tools }).send("x"));
    assert.deepEqual(
      [ran, requests.length, events.slice(-2)[0]],
      [["f"], 2 + script.length, text("Done.")],
    );
    assert.equal(events.filter(({ type }) => type === "call-elsewhere").length, 1);
  }
});

test("ready results are posted, and other clients' calls are waited for behind them", async (t) => {
  const both = handsBack(["1", "f", "{}"], ["2", "f", "{}"]);
  const { client, requests } = await scripted(
    t,
    [
      stream({ events: both }),
      stream({ events: [{ type: "owed", toolCalls: [OWED] }], run: "run" }),
      stands({ running: "theirs", runId: "theirs" }),
      stands({ running: "theirs", runId: "theirs" }),
      stream({ events: [text("Theirs.")], run: "theirs" }),
    ],
    (response, request) =>
      (request.path.includes("/1/") ? claimed(30) : granted)(response, request),
  );
  const ran = [];
  const tools = { f: { execute: (_, { toolCallId }) => void ran.push(toolCallId) } };
  const { events, error } = await collect(client({ tools, retry: { firstDelay: 1000 } }).send("x"));
  assert.equal(error, null);
  assert.deepEqual(
    [ran, requests[1].body.messages.map(({ toolCallId }) => toolCallId)],
    [["2"], ["2"]],
  );
  assert.deepEqual(events.at(-1), text("Theirs."));
});

test("while answers are on their way, no other call is begun", async (t) => {
  const parked = stream({ events: [{ type: "owed", toolCalls: [OWED] }], run: "run" });
  let isPosted = false;
  const slow = (response, request) => {
    isPosted = true;
    setTimeout(() => parked(response, request), 60);
  };
  const { client } = await scripted(
    t,
    [stream({ events: handsBack(["1", "f", "{}"], ["2", "f", "{}"]) }), slow, DONE],
    (response, request) => {
      if (request.path.includes("/2/")) return granted(response, request);
      (isPosted || request.method === "DELETE" ? granted : claimed(0))(response, request);
    },
  );
  const ran = [];
  const tools = { f: { execute: (_, { toolCallId }) => void ran.push(toolCallId) } };
  await collect(client({ tools, retry: { firstDelay: 10 } }).send("x"));
  assert.deepEqual(ran, ["2", "1"]);
});

test("a tool whose call was answered elsewhere is aborted, and posts nothing", async (t) => {
  const { client, requests } = await scripted(
    t,
    [
      stream({ events: handsBack(CALL) }),
      stands({ runId: "theirs" }),
      stream({ events: [text("Theirs.")], run: "theirs" }),
    ],
    inTurn(granted, ANSWERED),
  );
  const told = [];
  const execute = (_, { signal }) =>
    new Promise(() => signal.addEventListener("abort", () => told.push("aborted")));
  const { events, error } = await collect(
    client({ tools: { f: { execute } }, limits: { claimSeconds: 0.03 } }).send("x"),
  );
  assert.deepEqual(
    [error, told, events.slice(2)],
    [null, ["aborted"], [elsewhere("answered"), text("Theirs.")]],
  );
  assert.equal(requests.length, 3);
});

test("a claim that was lost to another client lets the tool end", async (t) => {
  const { promise: refused, resolve } = withResolvers();
  const { client, requests } = await scripted(
    t,
    [stream({ events: handsBack(CALL) }), DONE],
    inTurn(granted, (...both) => {
      claimed(30)(...both);
      resolve();
    }),
  );
  const tools = { f: { execute: async () => (await refused, "late") } };
  await collect(client({ tools, limits: { claimSeconds: 0.03 } }).send("x"));
  assert.equal(requests[1].body.messages[0].content, "late");
});

test("a claim without an answer is repeated, and a refusal of another kind is told", async (t) => {
  const away = json({ code: "store_unavailable", message: "away" }, 503);
  const busy = json({ code: "conversation_busy", message: "busy" }, 409);
  const script = () => stream({ events: handsBack(CALL) });
  const tools = { f: { execute: () => "ok" } };
  const patient = await scripted(t, [script(), DONE], inTurn(lost, away, busy, granted));
  assert.equal((await collect(patient.client({ tools }).send("x"))).error, null);
  assert.equal(new Set(patient.claims.map(({ body }) => body.claimant)).size, 1);
  const refused = await scripted(
    t,
    [script()],
    json({ code: "foreign_origin", message: "no" }, 403),
  );
  assert.equal((await collect(refused.client({ tools }).send("x"))).error.code, "foreign_origin");
});

test("a server without claims is one where every client runs what it sees", async (t) => {
  const none = json({ code: "not_found", message: "no such address" }, 404);
  const { client } = await scripted(t, [stream({ events: handsBack(CALL) }), DONE], none);
  assert.equal(
    await client({ tools: { f: { execute: () => "ok" } } })
      .send("x")
      .text(),
    "Done.",
  );
});
