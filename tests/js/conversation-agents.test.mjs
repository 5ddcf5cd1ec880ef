/**
 * The playground's view of sub-agents, progress and plans, from the stream and from the history.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../client_tools/js/src/index.js";
import { Conversation } from "../../client_tools/playground/conversation.js";
import { loadHistory, readMessage } from "../../client_tools/playground/history.js";
import { join, lineOf } from "../../client_tools/playground/timeline.js";
import { ended, json, recordingView, scriptedFetch, text } from "./playground-support.mjs";

const INFO = "GET /conversations/c";
const WITHIN = { parentToolCallId: "1" };
const PLAN = [{ content: "look", priority: "high", status: "in_progress" }];
const IDLE = { id: "c", status: "idle", running: null, queued: [], owed: [] };

function open(script) {
  const { fetch, requests } = scriptedFetch(script);
  const page = recordingView();
  const connect = ({ quiet, ...options }) =>
    new Client({ url: "http://x", fetch, ...options });
  const actions = { setBackground() {}, confirm: async () => true };
  return {
    conversation: new Conversation("c", { connect, view: page.view, actions, mayRun: () => true }),
    client: connect({}),
    requests,
    ...page,
  };
}

function child(message) {
  return { id: "x", role: "child", toolCallId: "1", message: { id: "m", ...message } };
}

test("a sub-agent's text and calls go to its call, its thoughts and plans nowhere", async () => {
  const { conversation, log, requests } = open({
    "POST /send-message": [
      ended([
        { type: "tool-call-start", toolCallId: "1", toolCallName: "helper" },
        { type: "message", messageId: "m", ...WITHIN },
        { type: "reasoning", delta: "hm", ...WITHIN },
        { type: "plan", entries: [], ...WITHIN },
        { type: "agent-text", delta: "I look.", ...WITHIN },
        { type: "tool-call-start", toolCallId: "2", toolCallName: "find", ...WITHIN },
        { type: "tool-progress", toolCallId: "2", text: "half", ...WITHIN },
        { type: "plan", entries: PLAN },
        text("Found."),
      ]),
    ],
  });
  await conversation.send("where?");
  assert.deepEqual(log.slice(1), [
    ["beginCall", "1", "helper", undefined],
    ["addAgentText", "1", "I look."],
    ["beginCall", "2", "find", "1"],
    ["setProgress", "2", "half"],
    ["setPlan", PLAN],
    ["addText", "Found."],
  ]);
  assert.deepEqual(
    ["agents", "plan", "progress"].filter((word) => !requests[0].body.include.includes(word)),
    [],
  );
});

test("a tool's title and its time are shown, in the stream and in the history", async () => {
  const { conversation, log, requests } = open({
    "POST /send-message": [
      ended([
        { type: "tool-call-start", toolCallId: "1", toolCallName: "edit", title: "Edit a file" },
        { type: "tool-begin", toolCallId: "1", locations: [{ path: "a" }] },
        { type: "tool-result", toolCallId: "1", result: "done", durationMs: 7 },
        { type: "tool-call-start", toolCallId: "2", toolCallName: "look" },
        { type: "tool-result", toolCallId: "2", result: "seen" },
      ]),
    ],
  });
  await conversation.send("edit it");
  assert.deepEqual(log.slice(1), [
    ["beginCall", "1", "edit", undefined],
    ["setTitle", "1", "Edit a file"],
    ["setResult", "1", "done", false, undefined],
    ["setDuration", "1", 7],
    ["beginCall", "2", "look", undefined],
    ["setResult", "2", "seen", false, undefined],
  ]);
  assert.ok(requests[0].body.include.includes("tools"));

  const call = { id: "1", type: "function", function: { name: "edit", arguments: "{}" } };
  const [asks, done] = [
    { id: "a", role: "assistant", content: "", toolCalls: [{ ...call, title: "Edit a file" }] },
    { id: "t", role: "tool", toolCallId: "1", content: "done", durationMs: 7 },
  ].map(readMessage);
  assert.deepEqual([asks.calls[0].title, done.durationMs], ["Edit a file", 7]);
});

test("the history has what sub-agents did, and the conversation its plan", async () => {
  const { conversation, log } = open({
    [INFO]: [json({ ...IDLE, messageCount: 2, plan: PLAN })],
    [`${INFO}/messages`]: [
      json({
        messages: [
          child({ role: "assistant", content: "I look." }),
          child({
            role: "child",
            toolCallId: "2",
            message: { id: "n", role: "approval", toolCallId: "3", approved: true },
          }),
          child({ role: "something of tomorrow" }),
        ],
        next: null,
      }),
    ],
  });
  await conversation.load();
  const said = {
    role: "assistant",
    id: "m",
    text: "I look.",
    calls: [],
    partial: false,
    model: null,
  };
  const allowed = { role: "approval", id: "n", callId: "3", approved: true };
  assert.deepEqual(log, [
    ["clear"],
    ["addPast", { role: "child", id: "x", callId: "1", message: said }],
    [
      "addPast",
      {
        role: "child",
        id: "x",
        callId: "1",
        message: { role: "child", id: "m", callId: "2", message: allowed },
      },
    ],
    ["addPast", { role: "child", id: "x", callId: "1", message: { role: "hidden", id: "m" } }],
    ["setPlan", PLAN],
    ["setVersions", []],
  ]);
});

test("what a sub-agent says in the run that goes on is left to the run's stream", async () => {
  const messages = [
    child({ role: "approval", toolCallId: "3", approved: true }),
    child({ role: "tool", toolCallId: "3", content: "done" }),
    child({ role: "assistant", content: "I did it." }),
  ];
  const { client } = open({ [`${INFO}/messages`]: [json({ messages, next: null })] });
  const stands = { running: { runId: "run", firstMessage: 0, attempt: 1 }, messageCount: 3 };
  const past = await loadHistory(client, "c", stands, new AbortController().signal);
  assert.deepEqual(
    past.map(({ message }) => message.role),
    ["approval", "tool"],
  );
});

test("pieces of one sub-agent's words are one line of the time line, those of two are not", () => {
  const line = (parentToolCallId) => {
    const step = {
      kind: "frame",
      id: "r.1-1",
      data: JSON.stringify({ type: "agent-text", parentToolCallId, delta: "a" }),
      time: 0,
      exchange: 1,
    };
    return lineOf({ step, exchange: "1", at: 0 }, true);
  };
  const first = line("1");
  assert.deepEqual(
    [join(first, line("1")), first.data, join(first, line("2"))],
    [true, "aa", false],
  );
});
