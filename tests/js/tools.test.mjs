/** The playground's tools: their declarations, effects and results. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Toolbox } from "../../client_tools/js/src/tools.js";
import { LIMITS } from "../../client_tools/js/src/options.js";
import { toolsFor } from "../../client_tools/playground/tools.js";

const here = new AbortController().signal;

/** Run a tool as the client library does. */
async function runTool(call, mine, signal) {
  const toolbox = new Toolbox(toolsFor(mine), undefined, LIMITS);
  const { content, isError = false } = await toolbox.run(call, { conversationId: "c", signal });
  return { content, isError };
}

function actions({ answer = true } = {}) {
  const done = [];
  return {
    done,
    setBackground: (color) => void done.push(color),
    confirm: async (question) => {
      done.push(question);
      return answer;
    },
  };
}

function call(name, args) {
  return { id: "call_1", name, arguments: args };
}

test("three tools are declared, each with an object schema of its own", () => {
  assert.deepEqual(
    Object.entries(toolsFor(actions())).map(([name, { parameters }]) => [
      name,
      parameters.type,
      parameters.required,
    ]),
    [
      ["change-background-color", "object", ["color"]],
      ["get-time-zone", "object", []],
      ["ask-user-to-confirm", "object", ["question"]],
    ],
  );
});

test("a listed colour is painted", async () => {
  const mine = actions();
  const result = await runTool(call("change-background-color", '{"color":"blue"}'), mine, here);
  assert.deepEqual(result, {
    content: "Background color successfully changed to: blue",
    isError: false,
  });
  assert.deepEqual(mine.done, ["blue"]);
});

for (const args of [
  '{"color":"url(//x)"}',
  '{"color":"mauve"}',
  '{"color":["blue"]}',
  '{"color":"BLUE"}',
  "{}",
  "[]",
  "null",
]) {
  test(`no other colour is: ${args}`, async () => {
    const mine = actions();
    const result = await runTool(call("change-background-color", args), mine, here);
    assert.equal(result.isError, true);
    assert.match(result.content, /one of the following: blue, red/);
    assert.deepEqual(mine.done, []);
  });
}

test("the time zone is the browser's", async () => {
  const { content, isError } = await runTool(call("get-time-zone", ""), actions(), here);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  assert.equal(isError, false);
  assert.ok(content.startsWith(`${zone} (UTC`), content);
  assert.match(content, /\(UTC[+-]\d\d:\d\d\), local time \d{4}-\d\d-\d\d \d\d:\d\d$/);
});

for (const [answer, content] of [
  [true, "confirmed"],
  [false, "declined"],
]) {
  test(`the user's answer is ${content}`, async () => {
    const mine = actions({ answer });
    const result = await runTool(call("ask-user-to-confirm", '{"question":"Really?"}'), mine, here);
    assert.deepEqual([result, mine.done], [{ content, isError: false }, ["Really?"]]);
  });
}

for (const [name, args, message] of [
  ["ask-user-to-confirm", '{"question":" "}', "The question is missing."],
  ["ask-user-to-confirm", '{"question', "The arguments are not valid JSON."],
  ["rm -rf", "{}", "This client has no tool named rm -rf."],
  ["toString", "{}", "This client has no tool named toString."],
]) {
  test(`a call that cannot run is an error result: ${name} ${args}`, async () => {
    assert.deepEqual(await runTool(call(name, args), actions(), here), {
      content: message,
      isError: true,
    });
  });
}

test("a tool that breaks is an error result without its text", async () => {
  const broken = {
    ...actions(),
    setBackground: () => {
      throw new Error("secret");
    },
  };
  const result = await runTool(call("change-background-color", '{"color":"red"}'), broken, here);
  assert.deepEqual(result, { content: "The tool failed in the browser.", isError: true });
});

test("a question that was withdrawn has no result", async () => {
  const abort = new AbortController();
  const mine = {
    ...actions(),
    confirm: async () => {
      abort.abort();
      throw abort.signal.reason;
    },
  };
  const asked = runTool(call("ask-user-to-confirm", '{"question":"Really?"}'), mine, abort.signal);
  await assert.rejects(asked, { name: "AbortError" });
});
