/**
 * Checks of the arguments of a client: the error names the argument and the expected value.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../client_tools/js/src/index.js";

const ADDRESS = "give the server's address, such as http://127.0.0.1:8000";
const TOOLS = "give an object with the tools by their names, or a list of tools with names";
const execute = () => "";

for (const [options, message] of [
  [5, "the options of a client are 5: give an object, as in new Client({ url })"],
  [
    "http://me:pw@x",
    "the options of a client are a string: give an object, as in new Client({ url })",
  ],
  [null, "the options of a client are null: give an object, as in new Client({ url })"],
  [["http://x"], "the options of a client are a list: give an object, as in new Client({ url })"],
  [{ url: 5 }, `url is 5: ${ADDRESS}`],
  [{ url: null }, `url is null: ${ADDRESS}`],
  [{ url: "" }, `url is not a URL: ${ADDRESS}`],
  [{ url: "x" }, `url is not a URL: ${ADDRESS}`],
  [{ url: "http://" }, `url is not a URL: ${ADDRESS}`],
  [{ url: "http://x:99999" }, `url is not a URL: ${ADDRESS}`],
  [{ url: "localhost:8000" }, `url is not an http: or https: address with a host: ${ADDRESS}`],
  [{ url: "http://me:pw@x" }, "url contains a user or a password: remove it, and use apiKey"],
  [{ apiKey: 5 }, "apiKey is 5: give a text"],
  [{ apiKey: null }, "apiKey is null: give a text"],
  [{ apiKey: "sécret" }, "apiKey must have visible ASCII characters only"],
  [{ tools: 5 }, `tools is 5: ${TOOLS}`],
  [{ tools: "f" }, `tools is a string: ${TOOLS}`],
  [{ tools: execute }, `tools is a function: ${TOOLS}`],
  [{ tools: { f: { execute, description: 5 } } }, "tool f: description is 5: give a text"],
  [
    { tools: { f: { execute, parameters: "{}" } } },
    "tool f: parameters is a string: give a JSON Schema as an object, or a schema of Zod, " +
      "ArkType, Valibot or the like",
  ],
  ...["", "a b", "a.b", "ä", "add\n", "n".repeat(65)].map((name) => [
    { tools: { [name]: { execute } } },
    `tool "${name}": a name is 1 to 64 letters (A-Z), digits, _ or -`,
  ]),
  [
    { tools: { add: { execute }, Add: { execute } } },
    "two tools are named Add (case does not count)",
  ],
  ...["array", "string", null, ["object", "null"]].map((type) => [
    { tools: { f: { execute, parameters: { type } } } },
    `tool f: parameters are a schema of the type ${JSON.stringify(type)}: give one of the type ` +
      "object",
  ]),
  [
    { tools: { later: { execute: "later", parameters: { type: "array" } } } },
    'tool later: parameters are a schema of the type "array": give one of the type object',
  ],
  [
    { tools: { f: { execute, title: 1 } } },
    "tool f: title is 1: give a text",
  ],
  [
    { tools: { f: { execute, needsApproval: "yes" } } },
    "tool f: needsApproval is a string: give true, false, or a function that takes the arguments",
  ],
  [{ approve: true }, "approve is true: give a function"],
  [{ claims: "no" }, "claims is a string: give true or false"],
  [{ unknownTools: "ignore" }, 'unknownTools is a string: give "refuse" or "leave"'],
  [{ trace: {} }, "trace is an object: give a function"],
  [{ fetch: "fetch" }, "fetch is a string: give a function as the platform's fetch is"],
  [{ limits: 5 }, "limits is 5: give an object"],
  [{ limits: { rounds: "3" } }, "limits.rounds is a string: give a number of at least 0"],
  [
    { limits: { round: 3 } },
    /^limits\.round is unknown: there are eventChars, .*, rounds, claimSeconds$/,
  ],
  [{ retry: { attempts: NaN } }, "retry.attempts is NaN: give a number of at least 0"],
  [{ retry: { toString: 1 } }, /^retry\.toString is unknown: there are attempts, /],
  [{ apikey: "secret" }, /^apikey is unknown: there are url, apiKey, tools, /],
]) {
  const words = typeof message === "string" ? message : message.source;
  test(`a client is not made with ${words}`, () => {
    const given =
      typeof options === "object" && options && !Array.isArray(options)
        ? { url: "http://x", ...options }
        : options;
    assert.throws(
      () => new Client(given),
      (error) => {
        assert.equal(error.name, "InvalidArgument");
        if (typeof message === "string") assert.equal(error.message, message);
        else assert.match(error.message, message);
        return !/pw|cret/.test(error.message);
      },
    );
  });
}

test("what is undefined is not given, and an address may be a URL", () => {
  const nothing = {
    apiKey: undefined,
    tools: undefined,
    fetch: undefined,
    limits: undefined,
    retry: { attempts: undefined, unanswered: Infinity },
  };
  assert.ok(new Client({ url: new URL("http://x/base/"), ...nothing }));
});

test("names and schemas are taken that a server takes", () => {
  const tools = {
    ask_user: { execute },
    [`-${"9".repeat(63)}`]: { execute, parameters: {} },
    "a-B_9": { execute, parameters: { type: "object" } },
    open: { execute: "later", parameters: { type: undefined, anyOf: [{}] } },
  };
  assert.ok(new Client({ url: "http://x", tools }));
});
