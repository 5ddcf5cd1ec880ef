/**
 * Contents of posts: all fields of the protocol, in the first post and in the automatic ones.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Answer, Chat, InvalidArgument } from "../../client_tools/js/src/index.js";
import { collect, handsBack, json, scripted, shown, stream, text } from "./client-support.mjs";

const INCLUDE = ["owed", "rewind", "run", "output"];
const CONTEXT = {
  structuredData: { invoices: [{ customer: "Ann" }] },
  intent: "prepare a reminder",
  constraints: ["amounts in euros"],
  instructions: "Be brief.",
  model: "openai:gpt-5",
  outputSchema: { type: "object", required: ["customer"] },
};
const HELLO = stream({ events: [text("Hello")] });
const OUTPUT = { type: "output", value: { customer: "Ann" } };
const RESULT = { role: "tool", toolCallId: "1", content: "ran" };
const tools = { f: { execute: () => "ran" } };

test("what is said beside the words is posted, and not with the results that follow", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: handsBack(["1", "f", "{}"]) }),
    HELLO,
  ]);
  const how = {
    onBusy: "enqueue",
    onDisconnect: "cancel",
    include: ["usage"],
    conversationId: "c",
  };
  await client({ tools })
    .send("hi", { ...CONTEXT, ...how })
    .text();
  const include = [...INCLUDE, "usage"];
  const first = {
    conversationId: "c",
    messages: [{ role: "user", content: "hi" }],
    tools: [{ name: "f" }],
  };
  assert.deepEqual(
    requests.map(({ body }) => body),
    [
      { ...first, ...CONTEXT, onBusy: "enqueue", onDisconnect: "cancel", include },
      { conversationId: "c", messages: [RESULT], onDisconnect: "cancel", include },
    ],
  );
});

test("an agent is asked by its name, and the results go to the conversation", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: handsBack(["1", "f", "{}"]) }),
    HELLO,
  ]);
  await client({ tools }).send("hi", { agentId: "sales/eu" }).text();
  assert.deepEqual(
    requests.map(({ path }) => path),
    ["/v1/aibot/bots/sales%2Feu/send-message", "/send-message"],
  );
  for (const agentId of ["", ".", "..", "\ud800"]) {
    assert.throws(() => client().send("hi", { agentId }), InvalidArgument);
  }
});

test("what a decision, an answer or a resume leads to may end with its reader", async (t) => {
  const owed = [{ id: "1", name: "f", arguments: "{}", kind: "tool_result" }];
  const stands = json({ running: null, runId: "run", owed });
  const { client, requests } = await scripted(t, [HELLO, HELLO, stands, HELLO]);
  const how = { onDisconnect: "cancel" };
  await client().decide("c", { id: "1", approved: true }, how).text();
  await client()
    .send([RESULT], { conversationId: "c", ...how })
    .text();
  await client({ tools }).resume("c", how).text();
  assert.deepEqual(
    requests.flatMap(({ body }) => body?.onDisconnect ?? []),
    ["cancel", "cancel", "cancel"],
  );
});

test("an answer has the accepted output, and a rewind takes nothing of it back", async (t) => {
  const { client } = await scripted(t, [
    stream({ events: [text('{"a": '), OUTPUT, { type: "run-end", outcome: "completed" }] }),
    HELLO,
  ]);
  const answer = new Answer();
  for await (const event of client().send("hi", CONTEXT)) answer.add(event);
  answer.add({ type: "rewind", to: "next.0-0", cursor: "", runId: "next" });
  assert.deepEqual([answer.text, answer.output], ['{"a": ', OUTPUT.value]);
  const plain = new Answer();
  for await (const event of client().send("hi")) plain.add(event);
  assert.equal(plain.output, undefined);
});

for (const [headers, left] of [
  [{}, null],
  [
    { "X-Budget-Left-Tokens": "20", "X-Budget-Left-Seconds": "0.25", "X-Budget-Left-Cost": "0" },
    { tokens: 20, seconds: 0.25, cost: 0 },
  ],
  [{ "X-Budget-Left-Cost": "0.00001" }, { cost: 0.00001 }],
  [{ "X-Budget-Left-Tokens": "many" }, null],
]) {
  test(`what is left is told when the answer begins: ${JSON.stringify(headers)}`, async (t) => {
    const { client } = await scripted(t, [stream({ events: [text("Hi")], headers })]);
    const sending = client().send("hi");
    assert.equal(sending.left, null);
    await collect(sending);
    assert.deepEqual(sending.left, left);
  });
}

test("a result says whether it is an error, and why no tool gave it", async (t) => {
  const events = ["1", "2", "3"].flatMap((id) => [
    { type: "tool-call-start", toolCallId: id, toolCallName: "f" },
  ]);
  const results = [{ isError: true, synthetic: "denied" }, { isError: true }, {}];
  events.push(
    ...results.map((more, index) => ({
      type: "tool-result",
      toolCallId: `${index + 1}`,
      result: "r",
      ...more,
    })),
  );
  const { client } = await scripted(t, [stream({ events })]);
  const answer = new Answer();
  for await (const event of client().send("hi")) answer.add(event);
  const call = { name: "f", arguments: "", complete: false, result: "r" };
  assert.deepEqual(
    answer.calls,
    results.map((more, index) => ({ id: `${index + 1}`, ...call, ...more })),
  );
});

// ---------------------------------------------------------------- chats
test("a chat says all that a post can say, and shows the output", async (t) => {
  const { client, requests } = await scripted(t, [stream({ events: [text("{}"), OUTPUT] }), HELLO]);
  const chat = new Chat(client(), {
    conversationId: "c",
    onDisconnect: "cancel",
    include: ["usage"],
  });
  const image = { type: "image", url: "https://host/a.png" };
  const parts = [{ type: "text", text: "Who" }, image, { type: "text", text: "is it?" }];
  await chat.send(
    { role: "user", content: parts, id: "m1" },
    { ...CONTEXT, agentId: "sales", idempotencyKey: "mine" },
  );
  const [{ path, headers, body }] = requests;
  assert.deepEqual(
    [path, headers["idempotency-key"]],
    ["/v1/aibot/bots/sales/send-message", '"mine"'],
  );
  assert.deepEqual(body, {
    conversationId: "c",
    messages: [{ role: "user", content: parts, id: "m1" }],
    ...CONTEXT,
    onDisconnect: "cancel",
    include: [...INCLUDE, "usage"],
  });
  const [asked, answered] = shown(chat.getSnapshot());
  assert.deepEqual(asked, { role: "user", text: "Who\nis it?", parts });
  assert.deepEqual(answered, {
    role: "assistant",
    text: "{}",
    reasoning: "",
    calls: [],
    output: OUTPUT.value,
  });
  await chat.send({ role: "user", content: "hi" }, { onDisconnect: "continue" });
  assert.deepEqual(shown(chat.getSnapshot()).slice(2), [
    { role: "user", text: "hi" },
    { role: "assistant", text: "Hello", reasoning: "", calls: [] },
  ]);
  assert.equal(requests[1].body.onDisconnect, "continue");
});
