/**
 * Sub-agents, plans and progress: their own events, and their calls within the call that they work
 * on.
 */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { Answer, Chat, LimitExceeded, ProtocolError } from "../../client_tools/js/src/index.js";
import { readEvent } from "../../client_tools/js/src/events.js";
import { collect, handsBack, scripted, stream, text } from "./client-support.mjs";

const PLACE = { cursor: "", runId: null };
const WITHIN = { parentToolCallId: "1" };
const STARTED = { type: "tool-call-start", toolCallId: "1", toolCallName: "helper" };
const SAID = { type: "agent-text", ...WITHIN, delta: "I look. " };
const INNER = { type: "tool-call-start", toolCallId: "2", toolCallName: "find", ...WITHIN };

function fed(...events) {
  const answer = new Answer();
  events.forEach((event, index) => answer.add({ ...PLACE, cursor: `r.1-${index + 1}`, ...event }));
  return answer;
}

test("every event that a server sends is read", async () => {
  const vectors = JSON.parse(
    await readFile(new URL("../vectors/send_message.json", import.meta.url), "utf8"),
  );
  const sent = vectors.flatMap(({ data }) => data).filter((data) => data !== "[DONE]");
  assert.ok(sent.length > 10);
  for (const data of sent) {
    const event = readEvent(data, PLACE);
    assert.deepEqual(event.type === "interrupt" ? { ...event, ...JSON.parse(data) } : event, {
      ...JSON.parse(data),
      ...PLACE,
    });
  }
});

test("what lacks a field of its kind is no event", () => {
  const bad = [
    { type: "agent-text", delta: "a" },
    { type: "tool-progress", toolCallId: "1" },
    { type: "tool-begin" },
    { type: "tool-begin", toolCallId: "1", locations: "a" },
    { type: "tool-begin", toolCallId: "1", locations: [{ line: 1 }] },
    { type: "plan" },
    { type: "plan", entries: [1] },
    { type: "plan", entries: [{ content: "look", priority: "high" }] },
  ];
  for (const event of bad) {
    assert.throws(() => readEvent(JSON.stringify(event), PLACE), ProtocolError);
  }
});

test("the texts of runs are parted by an empty line, also behind a rewind", () => {
  const answer = fed(
    text("one"),
    text("."),
    { type: "run-end", outcome: "handed-back" },
    { ...text("tw"), cursor: "s.1-1" },
  );
  assert.equal(answer.text, "one.\n\ntw");
  answer.add({ type: "rewind", to: "s.1-0", ...PLACE });
  answer.add(text("two"));
  assert.equal(answer.text, "one.\n\ntwo");
});

test("a call has what its tool says of it, and the time that it took", () => {
  const locations = [{ path: "/a", line: 3 }];
  const answer = fed(
    { ...STARTED, title: "Edit a file", kind: "edit" },
    { type: "tool-begin", toolCallId: "1", locations },
    { type: "tool-result", toolCallId: "1", result: "done", durationMs: 7 },
    { type: "tool-call-start", toolCallId: "2", toolCallName: "look" },
    { type: "tool-begin", toolCallId: "2" },
  );
  assert.deepEqual(answer.calls, [
    {
      id: "1",
      name: "helper",
      arguments: "",
      complete: false,
      title: "Edit a file",
      kind: "edit",
      began: true,
      locations,
      result: "done",
      durationMs: 7,
    },
    { id: "2", name: "look", arguments: "", complete: false, began: true },
  ]);
});

test("the paths of locations count as texts of the answer", () => {
  const answer = new Answer(5);
  const begin = (path) => {
    answer.add({ type: "tool-begin", toolCallId: "1", locations: [{ path }], ...PLACE });
  };
  begin("12345");
  assert.throws(() => begin("6"), LimitExceeded);
});

test("text and calls of a sub-agent are within its call, not in the answer", () => {
  const answer = fed(
    text("I ask. "),
    STARTED,
    { type: "tool-call-args", toolCallId: "1", delta: "{}" },
    { type: "tool-call-end", toolCallId: "1" },
    { type: "reasoning", delta: "secret", ...WITHIN },
    SAID,
    INNER,
    { ...INNER, toolCallId: "3", toolCallName: "zone", parentToolCallId: "2" },
    { type: "tool-progress", toolCallId: "2", text: "half", ...WITHIN },
    { type: "tool-result", toolCallId: "2", result: "here", ...WITHIN },
    { ...SAID, delta: "Found." },
    { type: "tool-result", toolCallId: "1", result: "Found." },
    text("It is there."),
  );
  assert.deepEqual([answer.text, answer.reasoning], ["I ask. It is there.", ""]);
  const zone = { id: "3", name: "zone", arguments: "", complete: false };
  const find = {
    id: "2",
    name: "find",
    arguments: "",
    complete: false,
    progress: "half",
    result: "here",
    calls: [zone],
  };
  assert.deepEqual(answer.calls, [
    {
      id: "1",
      name: "helper",
      arguments: "{}",
      complete: true,
      agentText: "I look. Found.",
      result: "Found.",
      calls: [find],
    },
  ]);
});

test("a rewind takes back what a sub-agent did, also within a call of an earlier run", () => {
  const answer = fed(STARTED, SAID, { type: "run-end", outcome: "handed-back" });
  const before = answer.calls;
  answer.add({ ...INNER, ...PLACE, cursor: "s.1-1" });
  answer.add({ ...SAID, ...PLACE, cursor: "s.1-2" });
  assert.equal(answer.calls[0].calls.length, 1);
  answer.add({ type: "rewind", to: "s.1-0", ...PLACE, cursor: "s.2-1" });
  assert.deepEqual(answer.calls, before);
  assert.equal(before[0].agentText, "I look. ");
  assert.equal(answer.calls, answer.calls, "nothing has changed in between");
});

test("a sub-agent's call that began before has no name, and its calls are not the answer's", () => {
  const owed = { id: "2", name: "find", arguments: "{}", kind: "tool_result", ...WITHIN };
  const answer = fed({ type: "owed", toolCalls: [owed] });
  answer.add({ ...SAID, ...PLACE });
  answer.add({ type: "tool-call-end", toolCallId: "9", ...WITHIN, ...PLACE });
  const find = { id: "2", name: "find", arguments: "{}", complete: true };
  assert.deepEqual(answer.calls, [
    { id: "1", name: "", arguments: "", complete: true, agentText: "I look. ", calls: [find] },
  ]);
});

test("what sub-agents say, and progress, count for the size of an answer", () => {
  for (const event of [SAID, { type: "tool-progress", toolCallId: "1", text: "half way" }]) {
    const answer = new Answer(10);
    answer.add({ ...event, ...PLACE });
    assert.throws(() => answer.add({ ...event, ...PLACE }), LimitExceeded);
  }
});

test("a chat runs a sub-agent's client tool, and shows it within the call", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({
      events: [
        STARTED,
        SAID,
        { ...INNER, toolCallName: "zone" },
        ...handsBack(["2", "zone", "{}"]).map(nested),
      ],
    }),
    stream({
      events: [{ type: "tool-result", toolCallId: "1", result: "UTC" }, text("It is UTC.")],
      run: "next",
    }),
  ]);
  const chat = new Chat(client({ tools: { zone: { execute: () => "UTC" } } }), {
    include: ["agents"],
  });
  await chat.send("where?");
  const [, { text: said, calls }] = chat.getSnapshot().entries;
  assert.equal(said, "It is UTC.");
  assert.deepEqual(
    calls.map(({ name, result }) => [name, result]),
    [["helper", "UTC"]],
  );
  assert.deepEqual(
    calls[0].calls.map(({ name, result }) => [name, result]),
    [["zone", "UTC"]],
  );
  assert.deepEqual(requests[1].body.messages, [{ role: "tool", toolCallId: "2", content: "UTC" }]);
  assert.ok(requests.every(({ body }) => body.include.includes("agents")));
});

test("a plan, progress and estimates come as they were sent", async (t) => {
  const events = [
    { type: "plan", entries: [{ content: "look", priority: "high", status: "pending" }] },
    { type: "tool-progress", toolCallId: "1", text: "half" },
    {
      type: "usage",
      inputTokens: 1,
      outputTokens: 2,
      cachedTokens: 0,
      reasoningTokens: 0,
      estimated: true,
    },
  ];
  const { client } = await scripted(t, [stream({ events })]);
  assert.deepEqual((await collect(client().send("x"))).events, events);
});

function nested(event) {
  return event.type === "owed"
    ? { ...event, toolCalls: event.toolCalls.map((call) => ({ ...call, ...WITHIN })) }
    : event;
}

test("an answer's model is the last one, sub-agents aside, and is rewound with its run", () => {
  const used = (model, more = {}) => ({
    type: "usage",
    inputTokens: 1,
    outputTokens: 1,
    cachedTokens: 0,
    reasoningTokens: 0,
    ...more,
    ...(model && { model }),
  });
  const answer = fed();
  const models = [
    used("small"),
    used("other", WITHIN),
    used(""),
    { type: "run-end", outcome: "handed-back" },
    { type: "run-end", outcome: "completed", model: "large" },
    { ...used("void"), cursor: "s.1-1" },
    { type: "rewind", to: "s.1-0" },
  ].map((event) => {
    answer.add({ ...PLACE, ...event });
    return answer.model;
  });
  assert.deepEqual(
    [fed().model, ...models],
    [undefined, "small", "small", "small", "small", "large", "void", "large"],
  );
});

test("usage is given for each model call and in sum, and is rewound with its run", () => {
  const used = (count, more = {}) => ({
    type: "usage",
    inputTokens: count,
    outputTokens: 2 * count,
    cachedTokens: 0,
    reasoningTokens: 1,
    ...more,
  });
  const answer = fed(used(1), used(10, { ...WITHIN, estimated: true }));
  assert.deepEqual(
    answer.modelCalls.map(({ inputTokens, parentToolCallId }) => [inputTokens, parentToolCallId]),
    [
      [1, undefined],
      [10, "1"],
    ],
  );
  assert.deepEqual(answer.usage, {
    inputTokens: 11,
    outputTokens: 22,
    cachedTokens: 0,
    reasoningTokens: 2,
    estimated: true,
  });
  answer.add({ type: "run-end", outcome: "handed-back", ...PLACE });
  answer.add({ ...used(5), ...PLACE, cursor: "s.1-1" });
  answer.add({ type: "rewind", to: "s.1-0", ...PLACE });
  assert.equal(answer.usage.inputTokens, 11);
  const plain = fed(used(1));
  assert.deepEqual(plain.usage, {
    inputTokens: 1,
    outputTokens: 2,
    cachedTokens: 0,
    reasoningTokens: 1,
  });
  assert.deepEqual([fed().usage, fed().modelCalls], [null, []]);
});
