/**
 * Results that the server refuses, or would refuse: they block no others, and the model gets the
 * reason.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  collect,
  handsBack,
  json,
  scripted,
  stream,
  text,
  withResolvers,
} from "./client-support.mjs";

const NAMES = ["a", "b", "c"];
const DONE = stream({ events: [{ type: "run-start" }, text("Done.")], run: "next" });
const TOO_LARGE = json({ code: "result_too_large", message: "it is too large" }, 413);
const TOLD = "The answer was refused: it is too large";

/** A stream without a run: what is left of some results. */
function left(...ids) {
  const toolCalls = ids.map((id) => ({ id, name: "f", arguments: "{}", kind: "tool_result" }));
  return (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream", "X-Conversation-Id": "c" });
    response.end(`data: ${JSON.stringify({ type: "owed", toolCalls })}\n\ndata: [DONE]\n\n`);
  };
}

/** Run a client whose run leaves these calls owed; each is answered by its id. */
async function play(
  t,
  script,
  { ids = NAMES, execute = (_, { toolCallId }) => `ran ${toolCallId}`, claim, ...options } = {},
) {
  const server = await scripted(
    t,
    [stream({ events: handsBack(...ids.map((id) => [id, "f", "{}"])) }), ...script],
    claim,
  );
  const me = server.client({ tools: { f: { execute } }, ...options });
  const { events, error } = await collect(me.send("x", { conversationId: "c" }));
  const posts = server.requests.slice(1).filter(({ method }) => method === "POST");
  const messages = posts.map(({ body }) => body.messages);
  return {
    ...server,
    events,
    error,
    messages,
    posted: messages.map((each) => each.map(({ toolCallId }) => toolCallId)),
  };
}

function result(toolCallId, content, more = {}) {
  return { role: "tool", toolCallId, content, ...more };
}

for (const [status, code] of [
  [400, "bad_request"],
  [413, "body_too_large"],
  [422, "invalid_request"],
]) {
  test(`results that are refused together by ${status} are posted one by one`, async (t) => {
    const refused = json({ code, message: "no" }, status);
    const { posted, error, requests, events } = await play(t, [
      refused,
      left("b", "c"),
      left("c"),
      DONE,
    ]);
    assert.deepEqual([error, posted], [null, [NAMES, ["a"], ["b"], ["c"]]]);
    assert.deepEqual(events.at(-1), text("Done."));
    assert.equal(new Set(requests.map(({ headers }) => headers["idempotency-key"])).size, 5);
  });
}

test("a result that is refused alone is told to the model as an error, and here", async (t) => {
  const { messages, error, events, claims } = await play(t, [
    TOO_LARGE,
    left("b", "c"),
    TOO_LARGE,
    left("c"),
    DONE,
  ]);
  assert.equal(error, null);
  assert.deepEqual(messages.slice(1), [
    [result("a", "ran a")],
    [result("b", "ran b")],
    [result("b", TOLD, { isError: true })],
    [result("c", "ran c")],
  ]);
  const said = events.filter(({ type }) => type === "client-tool-result");
  assert.deepEqual(said.slice(3), [
    {
      type: "client-tool-result",
      toolCallId: "b",
      toolCallName: "f",
      content: TOLD,
      isError: true,
    },
  ]);
  assert.deepEqual(
    claims.map(({ method }) => method),
    ["POST", "POST", "POST"],
  );
});

test("one result that is refused is posted as an error, and no more than that", async (t) => {
  const one = await play(t, [TOO_LARGE, DONE], { ids: ["a"] });
  assert.deepEqual(
    [one.error, one.messages],
    [null, [[result("a", "ran a")], [result("a", TOLD, { isError: true })]]],
  );
  const twice = await play(t, [TOO_LARGE, TOO_LARGE], { ids: ["a"] });
  assert.deepEqual([twice.error.code, twice.posted], ["result_too_large", [["a"], ["a"]]]);
});

test("a decision that is refused becomes a denial", async (t) => {
  const owed = {
    type: "owed",
    toolCalls: [{ id: "1", name: "delete", arguments: "{}", kind: "approval" }],
  };
  const { client, requests } = await scripted(t, [stream({ events: [owed] }), TOO_LARGE, DONE]);
  const { error } = await collect(client({ approve: () => true }).send("x"));
  assert.equal(error, null);
  assert.deepEqual(requests[2].body.resume, [
    { interruptId: "1", payload: { approved: false, reason: TOLD } },
  ]);
});

test("answers that do not fit block nothing else, and their questions stay owed", async (t) => {
  const unfit = json({ code: "invalid_answer", message: "no such option" }, 422);
  const { promise: dropped, resolve } = withResolvers();
  const claim = (response, request) => {
    json({})(response);
    if (request.method === "DELETE") resolve(request.path);
  };
  const { error, posted } = await play(t, [unfit, unfit, left("a", "c"), left("a")], { claim });
  assert.deepEqual([error.code, posted], ["invalid_answer", [NAMES, ["a"], ["b"], ["c"]]]);
  assert.equal(await dropped, "/conversations/c/tool-calls/a/claim");
});

test("a run that begins meanwhile is read, and waits for nothing else", async (t) => {
  const { error, posted, events } = await play(t, [TOO_LARGE, DONE]);
  assert.deepEqual([error, posted, events.at(-1)], [null, [NAMES, ["a"]], text("Done.")]);
});

test("a call that somebody else has answered blocks nothing else", async (t) => {
  const conflict = json({ code: "tool_result_conflict", message: "answered" }, 409);
  const on = await play(t, [conflict, left("c"), conflict, DONE]);
  assert.deepEqual([on.error, on.posted], [null, [NAMES, ["a"], ["b"], ["c"]]]);
  const all = await play(t, [conflict, conflict, conflict], { ids: ["a", "b"] });
  assert.deepEqual(
    [all.error.code, all.posted],
    ["tool_result_conflict", [["a", "b"], ["a"], ["b"]]],
  );
});

test("another refusal is an error at once", async (t) => {
  const { error, posted } = await play(t, [json({ code: "refused", message: "no" }, 403)]);
  assert.deepEqual([error.code, posted], ["refused", [NAMES]]);
});

test("a refusal after the server has the results is no reason to post them again", async (t) => {
  const cut = stream({ events: [text("Do")], run: "next", end: "cut" });
  const { error, posted } = await play(t, [cut, json({ code: "bad_request", message: "no" }, 400)]);
  assert.deepEqual([error.code, posted], ["bad_request", [NAMES]]);
});

test("a cancel between two posts ends it, and the calls that are left are released", async (t) => {
  const { promise: dropped, resolve } = withResolvers();
  let sending;
  const script = [
    stream({ events: handsBack(["a", "f", "{}"], ["b", "f", "{}"]) }),
    TOO_LARGE,
    left("b"),
    DONE,
  ];
  const { client, requests } = await scripted(t, script, (response, request) => {
    json({})(response);
    if (request.method === "DELETE") resolve(request.path);
  });
  sending = client({ tools: { f: { execute: () => "ok" } } }).send("x", { conversationId: "c" });
  let owed = 0;
  for await (const { type } of sending) {
    owed += type === "owed" ? 1 : 0;
    if (owed === 2) await sending.cancel();
  }
  assert.equal(await dropped, "/conversations/c/tool-calls/b/claim");
  assert.equal(requests.filter(({ path }) => path === "/send-message").length, 3);
});

// ---------------------------------------------------------------- before it is posted
function deep(levels) {
  return levels === 0 ? 1 : [deep(levels - 1)];
}

test("what a server would not read is told to the model instead", async (t) => {
  const made = {
    large: "\u00e4".repeat(512 * 1024 + 1),
    whole: "\u00e4".repeat(512 * 1024),
    deep: { a: deep(56) },
    level: { a: deep(55) },
  };
  const execute = (_, { toolCallId }) => made[toolCallId];
  const { messages } = await play(t, [DONE], { ids: Object.keys(made), execute });
  assert.deepEqual(messages[0], [
    result("large", "The result is too large to be sent.", { isError: true }),
    result("whole", made.whole),
    result("deep", "The result is nested too deep to be sent.", { isError: true }),
    result("level", made.level),
  ]);
});

test("halves of characters become U+FFFD, and whole ones stay", async (t) => {
  const made = {
    text: () => "a\ud800b\udc00 \ud83d\ude00",
    json: () => ({ "\udfff": ["\\ud800", "\\\ud800", "\ud83d\ude00"] }),
    thrown: () => {
      throw new Error("\ud800!");
    },
    cut: () => {
      throw new Error("x".repeat(9) + "\ud83d\ude00");
    },
  };
  const execute = (_, { toolCallId }) => made[toolCallId]();
  const { messages } = await play(t, [DONE], {
    ids: Object.keys(made),
    execute,
    limits: { errorTextChars: 10 },
  });
  assert.deepEqual(messages[0], [
    result("text", "a\ufffdb\ufffd \ud83d\ude00"),
    result("json", { "\ufffd": ["\\ud800", "\\\ufffd", "\ud83d\ude00"] }),
    result("thrown", "\ufffd!", { isError: true }),
    result("cut", "xxxxxxxxx\ufffd", { isError: true }),
  ]);
  const owed = {
    type: "owed",
    toolCalls: [{ id: "1", name: "delete", arguments: "{}", kind: "approval" }],
  };
  const { client, requests } = await scripted(t, [stream({ events: [owed] }), DONE]);
  await collect(client({ approve: () => "no\ud800" }).send("x"));
  assert.deepEqual(requests[1].body.resume, [
    { interruptId: "1", payload: { approved: false, reason: "no\ufffd" } },
  ]);
});
