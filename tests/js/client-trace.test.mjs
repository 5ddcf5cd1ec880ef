/**
 * The trace of a client; connections that are dropped on purpose; tools of other clients.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { isBehind, randomId } from "../../client_tools/js/src/index.js";
import { collect, handsBack, json, lost, scripted, stream, text } from "./client-support.mjs";

/** The steps without their times, and a check of those. */
function recorder() {
  const steps = [];
  let last = 0;
  const trace = ({ time, ...step }) => {
    assert.ok(time >= last, "time goes back");
    assert.ok(Math.abs(time - Date.now()) < 60_000, String(time));
    last = time;
    steps.push(step);
  };
  return { steps, trace };
}

test("a trace is told of each request, answer and frame, and never of the key", async (t) => {
  const { steps, trace } = recorder();
  const secret = { "Set-Cookie": "session=1", "X-Secret": "x", "X-Request-Id": "req_1" };
  const { client } = await scripted(t, [stream({ events: [text("a")], headers: secret })]);
  await client({ trace, apiKey: "top-secret" })
    .send("hi", { conversationId: "c", idempotencyKey: "k" })
    .text();
  const headers = {
    "content-type": "text/event-stream",
    "x-conversation-id": "c",
    "x-request-id": "req_1",
    "x-run-id": "run",
  };
  const body = {
    conversationId: "c",
    messages: [{ role: "user", content: "hi" }],
    include: ["owed", "rewind", "run", "output"],
  };
  assert.deepEqual(steps, [
    {
      kind: "request",
      exchange: 1,
      method: "POST",
      path: "/send-message",
      body: JSON.stringify(body),
      headers: { Accept: "text/event-stream", "Idempotency-Key": '"k"' },
    },
    { kind: "response", exchange: 1, status: 200, headers, body: null },
    { kind: "frame", exchange: 1, id: "run.1-1", data: '{"type":"text","content":"a"}' },
    { kind: "frame", exchange: 1, id: "run.1-2", data: "[DONE]" },
  ]);
  assert.ok(!JSON.stringify(steps).includes("secret"));
});

test("repeats and reconnects are of the same exchange, and a loss is told", async (t) => {
  const { steps, trace } = recorder();
  const { client } = await scripted(t, [
    lost,
    json({ code: "store_unavailable", message: "no store" }, 503),
    stream({ events: [text("a")], end: "cut" }),
    stream({ events: [text("b")], first: 2 }),
    json({ id: "c" }),
  ]);
  const one = client({ trace, retry: { longestDelay: 1 } });
  await one
    .send("hi", { conversationId: "c" })
    .text()
    .catch(() => {});
  assert.deepEqual(steps.map(({ kind }) => kind).slice(0, 3), ["request", "lost", "request"]);
  const refused = steps.find(({ status }) => status === 503);
  assert.deepEqual(JSON.parse(refused.body), {
    request_id: "req_1",
    code: "store_unavailable",
    message: "no store",
  });
  assert.deepEqual([...new Set(steps.map(({ exchange }) => exchange))], [1]);
  await one.conversation("c");
  assert.equal(steps.at(-1).exchange, 2);
});

test("a reader may drop the connection, and reads on behind the last event", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: [text("a")], end: "open" }),
    stream({ events: [text("b")], first: 2 }),
  ]);
  const sending = client().send("hi");
  assert.equal(sending.reconnect(), false);
  const seen = [];
  for await (const event of sending) {
    seen.push(event.content);
    if (event.content === "a") assert.equal(sending.reconnect(), true);
  }
  assert.deepEqual([seen, requests[1].headers["last-event-id"]], [["a", "b"], "run.1-1"]);
  assert.equal(sending.reconnect(), false);
});

test("calls of other clients' tools may be left to them", async (t) => {
  const calls = handsBack(["1", "mine", "{}"], ["2", "theirs", "{}"]);
  const left = handsBack(["2", "theirs", "{}"]).slice(0, 1);
  const { client, requests } = await scripted(t, [
    stream({ events: calls }),
    stream({ events: left }),
  ]);
  const tools = { mine: { execute: () => "done" } };
  const { events, error } = await collect(client({ tools, unknownTools: "leave" }).send("x"));
  assert.deepEqual([events.at(-1), error], [left[0], null]);
  assert.deepEqual(requests[1].body.messages, [{ role: "tool", toolCallId: "1", content: "done" }]);
});

test("results alone leave the declared tools as they are", async (t) => {
  const { client, requests } = await scripted(t, Array(2).fill(stream({ events: [text("a")] })));
  const one = client({ tools: { mine: { execute: () => "done" } } });
  const result = { role: "tool", toolCallId: "1", content: "by hand" };
  await one.send([result]).text();
  await one.send([result, { role: "user", content: "and" }]).text();
  assert.deepEqual(
    requests.map(({ body }) => body.tools?.length),
    [undefined, 1],
  );
});

test("a server that never answered may be given up sooner than one that broke off", async (t) => {
  const away = await scripted(t, Array(9).fill(lost));
  const retry = { attempts: 4, unanswered: 2, longestDelay: 1 };
  assert.equal((await collect(away.client({ retry }).send("x"))).error.code, "connection_lost");
  assert.equal(away.requests.length, 2);
  const broken = await scripted(t, [
    stream({ events: [text("a")], end: "cut" }),
    ...Array(9).fill(lost),
  ]);
  assert.equal((await collect(broken.client({ retry }).send("x"))).error.code, "connection_lost");
  assert.equal(broken.requests.length, 4);
});

test("a run whose log has lost what was read is rewound to its start", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: [text("a")], end: "cut" }),
    json({ code: "invalid_cursor", message: "beyond the end" }, 422),
    stream({ events: [text("b")] }),
  ]);
  const { events, error } = await collect(client().send("x"));
  assert.deepEqual(
    [events, error],
    [[text("a"), { type: "rewind", to: "run.0-0" }, text("b")], null],
  );
  assert.deepEqual(
    [requests[2].query.runId, requests[2].headers["last-event-id"]],
    ["run", undefined],
  );
});

test("a cursor of the caller's own that the server does not know is an error", async (t) => {
  const { client } = await scripted(t, [
    json({ code: "invalid_cursor", message: "not yours" }, 422),
  ]);
  const { error } = await collect(client().resume("c", { lastEventId: "run.1-1" }));
  assert.deepEqual([error.code, error.status], ["invalid_cursor", 422]);
});

test("places of one run are ordered, and ids are random", () => {
  assert.deepEqual(
    [
      ["r.1-10", "r.1-9"],
      ["r.2-1", "r.1-9"],
      ["r.1-1~2", "r.1-1"],
      ["r.1-1", "r.1-1"],
      ["s.2-1", "r.1-1"],
      ["x", "r.1-1"],
    ].map(([one, other]) => isBehind(one, other)),
    [true, true, true, false, false, false],
  );
  assert.match(randomId(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.notEqual(randomId(), randomId());
});
