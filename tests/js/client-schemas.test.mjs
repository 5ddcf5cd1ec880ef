/** Tools whose parameters are schemas of Zod, ArkType and Valibot, as published. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import * as mini from "zod/mini";

import { Client, tool } from "../../client_tools/js/src/index.js";
import { collect, handsBack, scripted, stream, text } from "./client-support.mjs";

const END = { type: "run-end", outcome: "completed", reason: "end_turn" };
const notRed = (color) => color !== "red";
const properties = { color: { type: "string" }, size: { type: "number" } };
const colored = { type: "object", properties, required: ["color"] };

/** A client whose run calls `f` with these arguments; the declared parameters, and the results. */
async function call(t, parameters, each, options) {
  const calls = each.map((args, index) => [String(index), "f", JSON.stringify(args)]);
  const { client, requests } = await scripted(t, [
    stream({ events: handsBack(...calls) }),
    stream({ events: [text("Done."), END], run: "next" }),
  ]);
  const tools = { f: tool({ parameters, execute: (args) => args, ...options?.tool }) };
  const { error } = await collect(client({ tools, ...options?.client }).send("x"));
  assert.equal(error, null);
  const [{ body: first }, { body: second }] = requests;
  return {
    declared: first.tools[0].parameters,
    results: second.messages.map(({ content, isError = false }) => [content, isError]),
  };
}

const libraries = {
  zod: z.object({ color: z.string().trim().refine(notRed, "is red"), size: z.number().default(1) }),
  "zod, asynchronously": z.object({
    color: z
      .string()
      .transform(async (color) => color.trim())
      .refine(async (color) => notRed(color), "is red"),
    size: z.number().default(1),
  }),
  "zod/mini": mini.toJSONSchema(
    mini.object({
      color: mini.string().check(mini.trim(), mini.refine(notRed, "is red")),
      size: mini._default(mini.number(), 1),
    }),
  ),
  arktype: type({
    color: type("string.trim").to(
      type("string").narrow((color, context) => notRed(color) || context.mustBe("not red")),
    ),
    size: "number = 1",
  }),
  valibot: toStandardJsonSchema(
    v.object({
      color: v.pipe(v.string(), v.check((s) => notRed(s.trim()), "is red"), v.trim()),
      size: v.optional(v.number(), 1),
    }),
  ),
  "valibot, asynchronously": {
    "~standard": {
      ...v.objectAsync({
        color: v.pipeAsync(
          v.string(),
          v.transform((color) => color.trim()),
          v.checkAsync(async (color) => notRed(color), "is red"),
        ),
        size: v.optional(v.number(), 1),
      })["~standard"],
      jsonSchema: { input: () => colored },
    },
  },
};

for (const [name, parameters] of Object.entries(libraries)) {
  test(`a schema of ${name} is declared, and applied to the arguments`, async (t) => {
    const each = [{ color: " blue " }, { color: " red " }, { color: 5 }];
    const { declared, results } = await call(t, parameters, each);
    delete declared.properties.size.default; // ArkType leaves it out
    assert.deepEqual(declared, colored);
    assert.deepEqual(results[0], [{ color: "blue", size: 1 }, false]);
    assert.match(results[1][0], /^The arguments do not fit: color: .*\bred\b/);
    assert.match(results[2][0], /^The arguments do not fit: color: .*\bstring\b/);
    assert.deepEqual([results[1][1], results[2][1]], [true, true]);
  });
}

test("approval is asked with what the schema makes of the arguments, if they fit", async (t) => {
  const seen = [];
  const { results } = await call(t, libraries.zod, [{ color: " blue" }, { color: "red" }], {
    tool: { needsApproval: ({ color, size }) => seen.push(["needed", color, size]) > 0 },
    client: { approve: ({ arguments: args }) => seen.push(["asked", args]) > 0 },
  });
  assert.deepEqual(seen, [
    ["needed", "blue", 1],
    ["asked", { color: "blue", size: 1 }],
  ]);
  assert.deepEqual(results, [
    [{ color: "blue", size: 1 }, false],
    ["The arguments do not fit: color: is red", true],
  ]);
});

/** A schema of an unknown library, which answers like this. */
const own = (validate) => ({
  "~standard": { version: 1, vendor: "own", validate, jsonSchema: { input: () => colored } },
});

test("the model is told where each issue is, and not too many", async (t) => {
  const issue = (message, path) => ({ message, path });
  const few = own(() => ({
    issues: [
      issue("is odd"),
      issue("is odd, too", []),
      issue("is no name", ["users", 0, { key: "name" }]),
      issue("is no symbol", [Symbol("s")]),
    ],
  }));
  const [[said, isError]] = (await call(t, few, [{}])).results;
  assert.equal(
    said,
    "The arguments do not fit: is odd; is odd, too; users.0.name: is no name; " +
      "Symbol(s): is no symbol",
  );
  assert.ok(isError);
  const many = own(() => ({ issues: Array.from({ length: 1000 }, (_, n) => issue("no", [n])) }));
  const [[counted]] = (await call(t, many, [{}])).results;
  assert.match(counted, /^The arguments do not fit: 0: no; 1: no; .*; 19: no; and 980 more$/);
  const long = own(() => ({ issues: [issue("x".repeat(10_000), ["y".repeat(10_000)])] }));
  assert.equal((await call(t, long, [{}])).results[0][0].length, 2000);
});

test("a schema that throws is an error result, and the run goes on", async (t) => {
  for (const validate of [
    () => {
      throw new Error("it broke");
    },
    () => Promise.reject(new Error("it broke")),
  ]) {
    assert.deepEqual((await call(t, own(validate), [{}])).results, [["it broke", true]]);
  }
});

test("arguments of a JSON Schema are not touched: the server has checked them", async (t) => {
  const { declared, results } = await call(t, colored, [{ color: 5, more: [1] }]);
  assert.deepEqual(declared, colored);
  assert.deepEqual(results, [[{ color: 5, more: [1] }, false]]);
});

for (const [parameters, message] of [
  [
    v.object({ a: v.string() }),
    "tool f: parameters (a schema of valibot) have no JSON Schema: wrap them in " +
      "toStandardJsonSchema() of @valibot/to-json-schema",
  ],
  [
    mini.object({ a: mini.string() }),
    "tool f: parameters (a schema of zod) have no JSON Schema: use Zod 4.2 or newer, and " +
      "z.toJSONSchema(schema) for those of zod/mini",
  ],
  [
    { "~standard": { version: 1, vendor: "own", validate: () => ({ value: 1 }) } },
    "tool f: parameters (a schema of own) have no JSON Schema: give a JSON Schema instead",
  ],
  [
    z.object({ at: z.date() }),
    "tool f: parameters (a schema of zod) cannot be written as JSON Schema: Date cannot be " +
      "represented in JSON Schema. Take types that JSON has, and transform them",
  ],
  [
    toStandardJsonSchema(v.object({ at: v.date() })),
    /^tool f: parameters \(a schema of valibot\) cannot be written as JSON Schema: The "date"/,
  ],
]) {
  const { vendor } = parameters["~standard"];
  test(`a client is not made with a schema of ${vendor} that gives no JSON Schema`, () => {
    const tools = { f: { parameters, execute: () => "" } };
    const expected = { name: "InvalidArgument", message };
    assert.throws(() => new Client({ url: "http://x", tools }), expected);
  });
}

for (const [parameters, kind] of [
  [z.string(), "string"],
  [z.array(z.number()), "array"],
  [type("number"), "number"],
]) {
  test(`a client is not made with a schema of the type ${kind}`, () => {
    const tools = { f: { parameters, execute: () => "" } };
    const words = `the type "${kind}": give one of the type object`;
    const expected = {
      name: "InvalidArgument",
      message: `tool f: parameters are a schema of ${words}`,
    };
    assert.throws(() => new Client({ url: "http://x", tools }), expected);
  });
}
