/** Approvals of the server's tools, and questions. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Answer, Chat, InvalidArgument, readQuestions } from "../../client_tools/js/src/index.js";
import { collect, handsBack, json, scripted, stream, text } from "./client-support.mjs";

const ARGUMENTS = '{"path":"a.txt"}';
const APPROVAL = {
  id: "1",
  name: "delete_file",
  arguments: ARGUMENTS,
  kind: "approval",
  reason: "Sure?",
};
const QUESTION = {
  id: "2",
  name: "ask_user",
  arguments: '{"questions":[{"question":"Who?"}]}',
  kind: "question",
};
const RESULT = { id: "3", name: "f", arguments: "{}", kind: "tool_result" };
const INTERRUPT = {
  type: "interrupt",
  id: "1",
  reason: "Sure?",
  payload: { kind: "approval", toolCallId: "1", toolCallName: "delete_file", arguments: ARGUMENTS },
};
const BEGUN = [
  { type: "tool-call-start", toolCallId: "1", toolCallName: "delete_file" },
  { type: "tool-call-args", toolCallId: "1", delta: ARGUMENTS },
];
const WENT_ON = [
  { type: "tool-call-end", toolCallId: "1" },
  { type: "tool-result", toolCallId: "1", result: "gone" },
  text("Done."),
];

function owes(...toolCalls) {
  return [
    { type: "owed", toolCalls },
    { type: "run-end", outcome: "handed-back" },
  ];
}

function asks() {
  return stream({ events: [{ type: "run-start" }, ...BEGUN, INTERRUPT, ...owes(APPROVAL)] });
}

function goesOn() {
  return stream({
    events: [{ type: "run-start" }, ...WENT_ON, { type: "run-end", outcome: "completed" }],
    run: "next",
  });
}

// ---------------------------------------------------------------- with approve
test("approve decides on a server's tool, in one post with the results", async (t) => {
  const { client, requests, claims } = await scripted(t, [
    stream({ events: owes(APPROVAL, RESULT) }),
    goesOn(),
  ]);
  const asked = [];
  const approve = (call, { conversationId, toolCallId }) => {
    asked.push({ ...call, conversationId, toolCallId });
    return true;
  };
  const me = client({ approve, tools: { f: { execute: () => "ok" } } });
  const { events, error } = await collect(me.send("x", { conversationId: "c" }));
  assert.deepEqual(asked, [
    {
      id: "1",
      name: "delete_file",
      arguments: { path: "a.txt" },
      reason: "Sure?",
      server: true,
      conversationId: "c",
      toolCallId: "1",
    },
  ]);
  assert.deepEqual(
    [error, requests[1].body],
    [
      null,
      {
        conversationId: "c",
        messages: [{ role: "tool", toolCallId: "3", content: "ok" }],
        resume: [{ interruptId: "1", payload: { approved: true } }],
        include: ["owed", "rewind", "run", "output"],
      },
    ],
  );
  const told = events.filter(({ type }) => type === "client-decision");
  assert.deepEqual(told, [
    {
      type: "client-decision",
      toolCallId: "1",
      toolCallName: "delete_file",
      approved: true,
      reason: "",
    },
  ]);
  assert.deepEqual(claims.map(({ path }) => path.split("/")[4]).sort(), ["1", "3"]);
});

for (const [answer, payload] of [
  [true, { approved: true }],
  [false, { approved: false }],
  ["Not today.", { approved: false, reason: "Not today." }],
  ["", { approved: false }],
  [
    { approved: true, always: true },
    { approved: true, always: true },
  ],
  [{ approved: true, reason: "fine" }, { approved: true }],
  [
    { approved: false, reason: "No." },
    { approved: false, reason: "No." },
  ],
  [
    { approved: false, reason: "No.", always: true },
    { approved: false, reason: "No.", always: true },
  ],
  [undefined, { approved: false }],
  [null, { approved: false }],
  [{ approved: "yes" }, { approved: false }],
]) {
  test(`approve may answer ${JSON.stringify(answer)}`, async (t) => {
    const { client, requests } = await scripted(t, [asks(), goesOn()]);
    assert.equal((await collect(client({ approve: async () => answer }).send("x"))).error, null);
    assert.deepEqual(requests[1].body.resume, [{ interruptId: "1", payload }]);
    assert.equal("messages" in requests[1].body, false);
  });
}

test("what cannot be decided is not allowed", async (t) => {
  const broken = { ...APPROVAL, arguments: "{" };
  for (const [owed, approve, reason] of [
    [APPROVAL, () => Promise.reject(new Error("the dialog broke")), "the dialog broke"],
    [broken, () => true, "The arguments are not valid JSON."],
  ]) {
    const { client, requests } = await scripted(t, [stream({ events: owes(owed) }), goesOn()]);
    await collect(client({ approve }).send("x"));
    assert.deepEqual(requests[1].body.resume, [
      { interruptId: "1", payload: { approved: false, reason } },
    ]);
  }
});

test("approve decides on own tools, too; always holds for the conversation", async (t) => {
  const round = () => [
    stream({ events: handsBack(["3", "f", '{"n":1}']) }),
    stream({ events: [text("Done.")], run: "next" }),
  ];
  const { client, requests } = await scripted(t, [...round(), ...round(), ...round()]);
  const asked = [];
  const answers = [
    { approved: true, always: true },
    { approved: false, reason: "No." },
  ];
  const approve = (call) => {
    asked.push(call);
    return answers.shift();
  };
  const me = client({ approve, tools: { f: { needsApproval: true, execute: ({ n }) => n } } });
  for (const conversationId of ["one", "one", "two"]) {
    await collect(me.send("x", { conversationId }));
  }
  const call = { id: "3", name: "f", arguments: { n: 1 }, reason: "", server: false };
  assert.deepEqual(asked, [call, call]);
  const results = requests
    .flatMap(({ body }) => body.messages)
    .filter(({ role }) => role === "tool");
  assert.deepEqual(
    results.map(({ content }) => content),
    [1, 1, "No."],
  );
});

test("a denial for good holds for the conversation as well", async (t) => {
  const round = () => [
    stream({ events: handsBack(["3", "f", "{}"]) }),
    stream({ events: [text("Done.")], run: "next" }),
  ];
  const { client, requests } = await scripted(t, [...round(), ...round(), ...round()]);
  const answers = [{ approved: false, reason: "Never.", always: true }, true];
  const me = client({
    approve: () => answers.shift(),
    tools: { f: { needsApproval: true, execute: () => "ok" } },
  });
  for (const conversationId of ["one", "one", "two"]) {
    await collect(me.send("x", { conversationId }));
  }
  const results = requests
    .flatMap(({ body }) => body.messages)
    .filter(({ role }) => role === "tool");
  assert.deepEqual(
    results.map(({ content }) => content),
    ["Never.", "Never.", "ok"],
  );
});

test("what was decided for good is taken back by the tool's name", async (t) => {
  const { client, requests } = await scripted(t, [
    (response) => response.writeHead(204, { "X-Request-Id": "req_1" }).end(),
  ]);
  await client().retract("a/b", "delete file");
  const [{ method, path }] = requests;
  assert.deepEqual([method, path], ["DELETE", "/conversations/a%2Fb/permissions/delete%20file"]);
});

// ---------------------------------------------------------------- without
test("without approve an approval stays owed, and a later decision goes on", async (t) => {
  const { client, requests, claims } = await scripted(t, [asks(), goesOn()]);
  const me = client({ tools: { f: { execute: () => "ok" } } });
  const first = await collect(me.send("x", { conversationId: "c" }));
  assert.deepEqual(first, {
    events: [{ type: "run-start" }, ...BEGUN, INTERRUPT, ...owes(APPROVAL)],
    error: null,
  });
  const decision = { id: "1", approved: false, reason: "No.", always: false };
  assert.equal(
    await me.decide("c", decision, { include: ["usage"], idempotencyKey: "key" }).text(),
    "Done.",
  );
  const [, { body, headers }] = requests;
  assert.deepEqual(body, {
    conversationId: "c",
    resume: [{ interruptId: "1", payload: { approved: false, reason: "No.", always: false } }],
    include: ["owed", "rewind", "run", "output", "usage"],
  });
  assert.deepEqual([headers["idempotency-key"], requests.length, claims], ['"key"', 2, []]);
});

test("several decisions go in one post, and none is a mistake", async (t) => {
  const { client, requests } = await scripted(t, [goesOn()]);
  const me = client();
  await me
    .decide("c", [
      { id: "1", approved: true },
      { id: "2", approved: true, always: true },
    ])
    .text();
  assert.deepEqual(requests[0].body.resume, [
    { interruptId: "1", payload: { approved: true } },
    { interruptId: "2", payload: { approved: true, always: true } },
  ]);
  assert.throws(() => me.decide("c", []), InvalidArgument);
});

test("after a reload an approval is owed, and approve is asked where there is one", async (t) => {
  const stands = json({
    running: null,
    runId: "run",
    owed: [{ ...APPROVAL, deadline: null, claimedUntil: null }],
  });
  const { client } = await scripted(t, [stands, stands, goesOn()]);
  const { events } = await collect(client().resume("c"));
  assert.deepEqual(events, [
    { type: "owed", toolCalls: [{ ...APPROVAL, deadline: null, claimedUntil: null }] },
  ]);
  assert.equal(
    await client({ approve: () => true })
      .resume("c")
      .text(),
    "Done.",
  );
});

test("an interrupt of another kind is passed on", async (t) => {
  const { client } = await scripted(t, [
    stream({ events: [{ type: "interrupt", id: "x", reason: 1, payload: "odd" }] }),
  ]);
  const { events } = await collect(client().send("x"));
  assert.deepEqual(events, [{ type: "interrupt", id: "x", reason: "", payload: {} }]);
});

test("a call that waits for its approval has whole arguments", () => {
  const answer = new Answer();
  const place = { cursor: "", runId: "run" };
  for (const event of BEGUN) answer.add({ ...event, ...place });
  assert.equal(answer.calls[0].complete, false);
  answer.add({ ...INTERRUPT, ...place });
  assert.deepEqual(answer.calls, [
    { id: "1", name: "delete_file", arguments: ARGUMENTS, complete: true },
  ]);
  for (const event of WENT_ON) answer.add({ ...event, ...place });
  assert.equal(answer.calls[0].result, "gone");
});

// ---------------------------------------------------------------- questions
test("ask_user is declared by its name alone, and answered by its function", async (t) => {
  const { client, requests } = await scripted(t, [
    stream({ events: owes(QUESTION) }),
    stream({ events: [text("Hi.")], run: "next" }),
  ]);
  const asked = [];
  const execute = ({ questions }) => {
    asked.push(questions);
    return { answers: [{ text: "Ada" }] };
  };
  await collect(client({ tools: { ask_user: { execute } } }).send("x"));
  assert.deepEqual(requests[0].body.tools, [{ name: "ask_user" }]);
  assert.deepEqual(asked, [[{ question: "Who?" }]]);
  assert.deepEqual(requests[1].body.messages, [
    { role: "tool", toolCallId: "2", content: { answers: [{ text: "Ada" }] } },
  ]);
});

test("a question stays owed where nothing asks it, or where it is answered later", async (t) => {
  const script = [stream({ events: owes(QUESTION) }), stream({ events: owes(QUESTION) })];
  const { client, requests, claims } = await scripted(t, script);
  for (const options of [{}, { tools: { ask_user: { execute: "later" } } }]) {
    assert.deepEqual(await collect(client(options).send("x")), {
      events: owes(QUESTION),
      error: null,
    });
  }
  assert.deepEqual(
    [requests[1].body.tools, requests.length, claims],
    [[{ name: "ask_user" }], 2, []],
  );
  assert.throws(() => client({ tools: { f: { execute: "soon" } } }), InvalidArgument);
});

for (const [what, given, read] of [
  [
    "defaults",
    { questions: [{ question: "Who?" }] },
    [{ question: "Who?", header: "", options: [], multiple: false, freeText: true }],
  ],
  [
    "options",
    {
      questions: [
        {
          question: "?",
          header: "Letters",
          options: [{ label: "a", description: "b" }, { label: "c" }],
          multiple: true,
          freeText: false,
        },
      ],
    },
    [
      {
        question: "?",
        header: "Letters",
        options: [{ label: "a", description: "b" }, { label: "c" }],
        multiple: true,
        freeText: false,
      },
    ],
  ],
  [
    "what would have no answer",
    { questions: [{ question: "?", header: 1, options: [{ label: 1 }], freeText: false }] },
    [{ question: "?", header: "", options: [], multiple: false, freeText: true }],
  ],
  ["nothing", { questions: [] }, null],
  ["no text", { questions: [{ question: 1 }] }, null],
  ["something else", [], null],
]) {
  test(`questions are read: ${what}`, () =>
    assert.deepEqual(readQuestions(JSON.stringify(given)), read));
}

// ---------------------------------------------------------------- Chat
test("a chat shows what people owe, and continues once they have answered", async (t) => {
  const both = stream({
    events: [
      { type: "run-start" },
      text("Hm. "),
      ...BEGUN,
      INTERRUPT,
      ...owes(APPROVAL, QUESTION, RESULT),
    ],
  });
  const left = stream({
    events: [{ type: "owed", toolCalls: [QUESTION] }],
    headers: { "X-Owed-Tool-Calls": "2" },
  });
  const { client, requests } = await scripted(t, [both, left, goesOn()]);
  const chat = new Chat(client({ unknownTools: "leave" }), { live: false });
  await chat.send("hi");
  assert.deepEqual(
    [chat.getSnapshot().owed, chat.getSnapshot().status],
    [[APPROVAL, QUESTION], "idle"],
  );
  await chat.decide({ id: "1", approved: true });
  assert.deepEqual(chat.getSnapshot().owed, [QUESTION]);
  const seen = [];
  chat.subscribe(() => seen.push(chat.getSnapshot().owed.length));
  await chat.answer("2", "Ada");
  assert.equal(seen[0], 1);
  assert.deepEqual(seen.slice(1), Array(seen.length - 1).fill(0));
  const posts = requests.slice(1).filter(({ method }) => method === "POST");
  assert.deepEqual(
    posts.map(({ body }) => body.resume ?? body.messages),
    [
      [{ interruptId: "1", payload: { approved: true } }],
      [{ role: "tool", toolCallId: "2", content: "Ada" }],
    ],
  );
  const { entries } = chat.getSnapshot();
  assert.deepEqual(
    entries.map(({ role, text: said }) => [role, said]),
    [
      ["user", "hi"],
      ["assistant", "Hm. \n\nDone."],
    ],
  );
  assert.deepEqual(
    entries[1].calls.map(({ name, result, isError }) => [name, result, isError]),
    [
      ["delete_file", "gone", undefined],
      ["ask_user", "Ada", false],
      ["f", undefined, undefined],
    ],
  );
});

test("an answer that does not fit is an error, and the question stays", async (t) => {
  const stands = json({ running: null, runId: "run", owed: [QUESTION] });
  const refused = json({ code: "invalid_answer", message: "there is no such option" }, 422);
  const { client, requests } = await scripted(t, [stands, refused]);
  const chat = new Chat(client(), { conversationId: "c" });
  await chat.resume();
  await chat.answer("2", "no", { isError: true });
  const { owed, error, entries } = chat.getSnapshot();
  assert.deepEqual(
    [owed, error.code, entries[0].calls[0].result],
    [[QUESTION], "invalid_answer", undefined],
  );
  assert.equal(requests[1].body.messages[0].isError, true);
});
