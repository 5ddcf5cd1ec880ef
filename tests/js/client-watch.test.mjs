/** `client.watch`: all runs of a conversation, whoever begins them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { CursorExpired, InvalidArgument, RunFailed } from "../../client_tools/js/src/index.js";
import { collect, json, lost, scripted, text, withResolvers } from "./client-support.mjs";
import { begins, frame, serve, ENDED } from "./watch-support.mjs";

const HI = { id: "u1", role: "user", content: "hi" };
const MORE = { id: "u2", role: "user", content: "more" };
const TWO_RUNS = [
  ...begins("one", 1, 0, HI),
  frame("one", 2, text("a")),
  frame("one", 3, ENDED),
  ...begins("two", 4, 2, MORE),
  frame("two", 5, text("b")),
  frame("two", 6, ENDED),
];
const DELETED = frame(null, 0, { type: "deleted" });
const inTurn =
  (script) =>
  (...http) =>
    script.shift()(...http);

test("the runs come in their order, with their messages, until the end", async (t) => {
  const { client, watches } = await scripted(t, [], undefined, serve([...TWO_RUNS, DELETED]));
  const events = [];
  for await (const event of client().watch("c", { include: ["usage"] })) events.push(event);
  assert.deepEqual(events, [
    { type: "watching", cursor: "", runId: null },
    { type: "posted", first: 0, messages: [HI], cursor: "", runId: "one" },
    { type: "run-start", cursor: "one.1-1", runId: "one" },
    { type: "text", content: "a", cursor: "one.1-2", runId: "one" },
    { ...ENDED, cursor: "one.1-3", runId: "one" },
    { type: "posted", first: 2, messages: [MORE], cursor: "", runId: "two" },
    { type: "run-start", cursor: "two.1-4", runId: "two" },
    { type: "text", content: "b", cursor: "two.1-5", runId: "two" },
    { ...ENDED, cursor: "two.1-6", runId: "two" },
    { type: "deleted", cursor: "", runId: null },
  ]);
  const [{ path, query, headers }] = watches;
  assert.deepEqual(
    [path, query, headers["last-event-id"]],
    ["/conversations/c/events", { include: "owed,rewind,run,output,usage" }, undefined],
  );
});

test("a cut at any event loses nothing, and nothing with a place comes twice", async (t) => {
  for (let at = 0; at <= TWO_RUNS.length; at += 1) {
    const all = serve([...TWO_RUNS, DELETED]);
    let count = 0;
    const { client, watches } = await scripted(t, [], undefined, (...http) => {
      count += 1;
      return count === 1 ? serve(TWO_RUNS.slice(0, at), "cut")(...http) : all(...http);
    });
    const { events, error } = await collect(client().watch("c", { after: "zero.1-0" }));
    assert.equal(error, null);
    // those without a place replace themselves
    const placed = events.filter(({ type }) => type !== "posted");
    assert.deepEqual(
      placed.map(({ type, content }) => content ?? type),
      ["run-start", "a", "run-end", "run-start", "b", "run-end", "deleted"],
    );
    const before = TWO_RUNS.slice(0, at).findLast(({ id }) => id);
    assert.deepEqual(
      watches.map(({ headers }) => headers["last-event-id"]),
      ["zero.1-0", before?.id ?? "zero.1-0"],
    );
  }
});

test("a reconnect without a place says that it begins anew", async (t) => {
  const script = [serve([], "cut"), serve([DELETED])];
  const { client } = await scripted(t, [], undefined, inTurn(script));
  const { events } = await collect(client().watch("c"));
  assert.deepEqual(
    events.map(({ type }) => type),
    ["watching", "watching", "deleted"],
  );
});

test("proxies that end silent streams are no failures, servers that are gone are", async (t) => {
  let count = 0;
  const { client } = await scripted(t, [], undefined, (response, request) => {
    count += 1;
    if (count > 6) return lost(response);
    serve([], "open")(response, request);
    response.end(": ping\n\n");
  });
  const watching = client({ retry: { attempts: 3 } }).watch("c", { after: "one.1-1" });
  const { error } = await collect(watching);
  assert.deepEqual([error.code, count], ["connection_lost", 8]);
});

test("a conversation that is gone when the connection is back was deleted", async (t) => {
  const gone = json({ code: "conversation_not_found", message: "no" }, 404);
  const script = [serve([], "cut"), gone, gone];
  const { client } = await scripted(t, [], undefined, inTurn(script));
  const { events } = await collect(client().watch("c", { after: "one.1-1" }));
  assert.deepEqual(events, [{ type: "deleted" }]);
  const { events: none, error } = await collect(client().watch("c"));
  assert.deepEqual([none, error.code], [[], "conversation_not_found"]);
});

test("lost events are an error that says so, before the stream and within it", async (t) => {
  const expired = { type: "error", error: "gone", code: "cursor_expired", retryable: false };
  const script = [
    json({ code: "cursor_expired", message: "gone" }, 410),
    serve([frame("one", 2, text("a")), frame(null, 0, expired)]),
    serve([frame(null, 0, expired)]),
    serve([frame("one", 2, text("a")), frame(null, 0, { ...expired, code: "broken" })]),
  ];
  const { client } = await scripted(t, [], undefined, inTurn(script));
  for (const kind of [CursorExpired, CursorExpired, CursorExpired, RunFailed]) {
    const { error } = await collect(client().watch("c", { after: "one.1-1" }));
    assert.ok(error instanceof kind, error);
  }
});

test("a run that fails is an event, and the next one follows", async (t) => {
  const failed = { type: "error", error: "no", code: "model_rejected", retryable: false };
  const events = [frame("one", 2, failed), ...begins("two", 3, 2, MORE), DELETED];
  const { client } = await scripted(t, [], undefined, serve(events));
  const { events: seen, error } = await collect(client().watch("c", { after: "one.1-1" }));
  assert.equal(error, null);
  assert.deepEqual(seen[0], failed);
  assert.deepEqual(
    seen.map(({ type }) => type),
    ["error", "posted", "run-start", "deleted"],
  );
});

test("a run whose log has lost what was read is read again from its start", async (t) => {
  const script = [
    serve([frame("one", 2, text("a"))], "cut"),
    json({ code: "invalid_cursor", message: "no" }, 422),
    serve([...begins("one", 1, 0, HI), frame("one", 2, text("b")), DELETED]),
  ];
  const { client, watches } = await scripted(t, [], undefined, inTurn(script));
  const { events } = await collect(client().watch("c", { after: "one.1-1" }));
  assert.deepEqual(
    events.map(({ type, to, content }) => to ?? content ?? type),
    ["a", "one.0-0", "posted", "run-start", "b", "deleted"],
  );
  assert.equal(watches[2].headers["last-event-id"], "one.0-0");
});

test("an abort, and leaving the loop, close the connection", { timeout: 8000 }, async (t) => {
  const closed = [withResolvers(), withResolvers()];
  const left = [...closed];
  const { client } = await scripted(t, [], undefined, (response, request) => {
    response.on("close", left.shift().resolve);
    serve(TWO_RUNS)(response, request);
  });
  for await (const event of client().watch("c")) if (event.type === "text") break;
  await closed[0].promise;
  const leaving = new AbortController();
  const { error } = await collect(
    (async function* () {
      for await (const event of client().watch("c", { signal: leaving.signal })) {
        yield event;
        if (event.type === "text") leaving.abort();
      }
    })(),
  );
  await closed[1].promise;
  assert.equal(error.name, "AbortError");
});

test("a watch beside a send of the same client: each has the whole run", async (t) => {
  const run = [frame("one", 1, { type: "run-start" }), frame("one", 2, text("a"))];
  const done = { data: "[DONE]" };
  const { client } = await scripted(
    t,
    [serve([...run, frame("one", 3, ENDED), done], "end", "one")],
    undefined,
    serve([...begins("one", 1, 0, HI), ...run.slice(1), frame("one", 3, ENDED), DELETED]),
  );
  const one = client();
  const [sent, seen] = await Promise.all([collect(one.send("hi")), collect(one.watch("c"))]);
  assert.deepEqual([sent.error, seen.error], [null, null]);
  assert.deepEqual(seen.events.slice(2, -1), sent.events);
});

test("what is no conversation is refused at once, and a broken stream is named", async (t) => {
  const { client } = await scripted(
    t,
    [],
    undefined,
    serve([frame(null, 0, { type: "posted", runId: "one", messages: [] })]),
  );
  assert.throws(() => client().watch(".."), InvalidArgument);
  const { error } = await collect(client().watch("c"));
  assert.match(error.message, /posted messages lack their position/);
});

test("another branch is told, and a conversation is waited for", async (t) => {
  const switched = frame(null, 0, { type: "switched", message: "u1" });
  const script = [
    serve([...TWO_RUNS.slice(0, 4), switched], "cut"),
    serve([...TWO_RUNS, DELETED]),
    serve([frame(null, 0, { type: "switched" })]),
  ];
  const { client, watches } = await scripted(t, [], undefined, inTurn(script));
  const events = [];
  for await (const event of client().watch("c", { absent: "wait" })) events.push(event);
  const types = TWO_RUNS.map(({ data }) => JSON.parse(data).type);
  assert.deepEqual(
    events.map(({ type }) => type),
    ["watching", ...types.slice(0, 4), "switched", ...types.slice(4), "deleted"],
  );
  assert.deepEqual(events[5], { type: "switched", message: "u1", cursor: "", runId: null });
  assert.deepEqual(
    watches.map(({ query, headers }) => [query.absent, headers["last-event-id"]]),
    [
      ["wait", undefined],
      ["wait", "one.1-3"],
    ],
  );
  const { error } = await collect(client().watch("c"));
  assert.deepEqual([error.code, watches[2].query.absent], ["protocol_error", undefined]);
});
