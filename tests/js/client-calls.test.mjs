/** Calls of client tools: run, approved, bounded, answered. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, LimitExceeded } from "../../client_tools/js/src/index.js";
import { collect, handsBack, scripted, stream, text, withResolvers } from "./client-support.mjs";

const END = { type: "run-end", outcome: "completed", reason: "end_turn" };

/** A client whose run hands back these calls; gives the results that it posts. */
async function resultsOf(t, calls, options) {
  const { client, requests } = await scripted(t, [
    stream({ events: handsBack(...calls) }),
    stream({ events: [text("Done."), END], run: "next" }),
  ]);
  const { events, error } = await collect(client(options).send("x", { conversationId: "c" }));
  assert.equal(error, null);
  const told = events.filter(({ type }) => type === "client-tool-result");
  return { told, ...requests[1].body };
}

test("calls are run together, and their results posted in one post", async (t) => {
  const started = [];
  const { promise: both, resolve } = withResolvers();
  const execute = async ({ n }, { toolCallId, name, conversationId }) => {
    started.push([toolCallId, name, conversationId]);
    if (started.length === 2) resolve();
    await both;
    return { double: 2 * n };
  };
  const calls = [
    ["1", "double", '{"n":1}'],
    ["2", "double", '{"n":2}'],
  ];
  const { told, ...body } = await resultsOf(t, calls, { tools: { double: { execute } } });
  assert.deepEqual(started, [
    ["1", "double", "c"],
    ["2", "double", "c"],
  ]);
  assert.deepEqual(body, {
    conversationId: "c",
    messages: [
      { role: "tool", toolCallId: "1", content: { double: 2 } },
      { role: "tool", toolCallId: "2", content: { double: 4 } },
    ],
    include: ["owed", "rewind", "run", "output"],
  });
  assert.deepEqual(
    told.map(({ toolCallId, isError }) => [toolCallId, isError]),
    [
      ["1", false],
      ["2", false],
    ],
  );
});

test("whatever goes wrong with a call is told to the model", async (t) => {
  const circle = {};
  circle.self = circle;
  const tools = {
    throws: { execute: () => Promise.reject(new Error("it broke ".repeat(1000))) },
    odd: {
      execute: () => {
        throw Object.create(null);
      },
    },
    cyclic: { execute: () => circle },
    large: { execute: () => "x".repeat(200) },
    eager: { execute: () => assert.fail("its arguments are too large") },
    nothing: { execute: () => undefined },
    listed: { execute: () => [{ type: "text", text: "a part" }] },
  };
  const names = ["throws", "odd", "cyclic", "large", "nothing", "listed", "unknown"];
  const calls = [
    ...names.map((name) => [name, name, "{}"]),
    ["eager", "eager", `{"a":"${"x".repeat(100)}"}`],
  ];
  const limits = { resultBytes: 100, argumentChars: 50, errorTextChars: 20 };
  const { messages } = await resultsOf(t, calls, { tools, limits });
  const shown = messages.map(({ toolCallId, content, isError = false }) => [
    toolCallId,
    content,
    isError,
  ]);
  const [, , [, cyclic]] = shown;
  assert.match(cyclic, /^Converting circular/);
  assert.deepEqual(shown, [
    ["throws", "it broke it broke it", true],
    ["odd", "The tool failed.", true],
    ["cyclic", cyclic, true],
    ["large", "The result is too la", true],
    ["nothing", "", false],
    ["listed", [{ type: "text", text: "a part" }], false],
    ["unknown", "This client has no t", true],
    ["eager", "The arguments are to", true],
  ]);
});

test("a call that needs approval runs only when it is allowed", async (t) => {
  const asked = [];
  const run = [];
  const risky = { needsApproval: ({ n }) => n > 1, execute: ({ n }) => (run.push(n), "ran") };
  const approve = async ({ id, name, arguments: { n } }) => {
    asked.push([id, name, n]);
    return { 2: true, 3: false, 4: "Not today." }[n];
  };
  const calls = [1, 2, 3, 4].map((n) => [String(n), "risky", JSON.stringify({ n })]);
  const { messages } = await resultsOf(t, calls, { tools: { risky }, approve });
  assert.deepEqual(asked, [
    ["2", "risky", 2],
    ["3", "risky", 3],
    ["4", "risky", 4],
  ]);
  assert.deepEqual(run, [1, 2]);
  assert.deepEqual(
    messages.map(({ content, isError = false }) => [content, isError]),
    [
      ["ran", false],
      ["ran", false],
      ["The user did not allow this call.", true],
      ["Not today.", true],
    ],
  );
});

test("what is owed and is no call of a tool is left to others", async (t) => {
  const owed = {
    type: "owed",
    toolCalls: [{ id: "1", name: "f", arguments: "{}", kind: "approval" }],
  };
  const { client, requests } = await scripted(t, [stream({ events: [owed] })]);
  const tools = { f: { execute: () => assert.fail("nobody called it") } };
  assert.deepEqual(await collect(client({ tools }).send("x")), { events: [owed], error: null });
  assert.equal(requests.length, 1);
});

test("an agent that hands back too many calls, or without an end, is left", async (t) => {
  const again = stream({ events: handsBack(["1", "f", "{}"]) });
  const { client } = await scripted(t, [
    stream({ events: handsBack(["1", "f", "{}"], ["2", "f", "{}"]) }),
    again,
    again,
    again,
  ]);
  const tools = { f: { execute: () => "ok" } };
  const many = await collect(client({ tools, limits: { owedCalls: 1 } }).send("x"));
  const endless = await collect(client({ tools, limits: { rounds: 2 } }).send("x"));
  assert.ok(many.error instanceof LimitExceeded && endless.error instanceof LimitExceeded);
});

test("tools may be a list of tools with names", async (t) => {
  const add = {
    name: "add",
    description: "Adds",
    parameters: { type: "object" },
    execute: ({ a, b }) => a + b,
  };
  const { client, requests } = await scripted(t, [
    stream({ events: handsBack(["1", "add", '{"a":1,"b":2}']) }),
    stream({ events: [text("Done.")] }),
  ]);
  await client({ tools: [add, { name: "wait", execute: "later" }] })
    .send("x")
    .text();
  const [first, second] = requests.map(({ body }) => body);
  assert.deepEqual(first.tools, [
    { name: "add", description: "Adds", parameters: { type: "object" } },
    { name: "wait" },
  ]);
  assert.deepEqual(second.messages, [{ role: "tool", toolCallId: "1", content: 3 }]);
});

test("a list in which something is no tool is refused, with what to give", () => {
  const execute = () => 1;
  const shaped = { type: "function", function: { name: "add" } };
  const bad = [
    [
      [{ name: "add", execute }, { execute }],
      "tools[1] has no name: give { name, description, parameters, execute }",
    ],
    [[shaped], "tools[0] has no name: give { name, description, parameters, execute }"],
    [[null], "tools[0] has no name: give { name, description, parameters, execute }"],
    [[execute], 'tool execute: execute is neither a function nor "later"'],
    [
      [
        { name: "add", execute },
        { name: "add", execute },
      ],
      "two tools are named add (case does not count)",
    ],
    [[{ name: "", execute }], 'tool "": a name is 1 to 64 letters (A-Z), digits, _ or -'],
    [[{ name: "add" }], 'tool add: execute is neither a function nor "later"'],
    [{ add: null }, 'tool add: execute is neither a function nor "later"'],
  ];
  for (const [tools, message] of bad) {
    assert.throws(() => new Client({ url: "http://x", tools }), {
      name: "InvalidArgument",
      message,
    });
  }
});
