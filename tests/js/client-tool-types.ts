/** Compiled, never run: the types that the functions of a tool get from its parameters. */

import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import { Client, tool } from "passback";
import type { ArgumentsOf, ClientTool, ClientTools, ResultOf } from "passback";
import * as v from "valibot";
import { z } from "zod";
import * as mini from "zod/mini";

type Equal<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(_: Equal<A, B>): void => undefined;
const url = "http://x";

const order = tool({
  parameters: z.object({ count: z.number(), size: z.string().default("small") }),
  needsApproval: ({ count }) => count > 10,
  execute: ({ count, size }, { signal }) => {
    same<typeof count, number>(true);
    same<typeof size, string>(true);
    return signal.aborted ? null : count + size.length;
  },
});
same<ArgumentsOf<typeof order>, { count: number; size: string }>(true);
same<ResultOf<typeof order>, number | null>(true);

const parsed = tool({
  parameters: type({ "at?": "string", n: "string.numeric.parse" }),
  execute: async ({ at, n }) => {
    same<typeof at, string | undefined>(true);
    same<typeof n, number>(true);
    return { n };
  },
});
same<ResultOf<typeof parsed>, { n: number }>(true);

tool({
  parameters: toStandardJsonSchema(v.object({ a: v.pipe(v.string(), v.transform(Number)) })),
  execute: ({ a }) => same<typeof a, number>(true),
});
tool({
  parameters: mini.toJSONSchema(mini.object({ a: mini.number() })),
  execute: ({ a }) => same<typeof a, number>(true),
});
tool({
  parameters: {
    type: "object",
    properties: {
      color: { enum: ["red", "blue"] },
      size: { type: ["integer", "null"] },
      marks: { type: "array", items: { type: "object", properties: { on: { type: "boolean" } } } },
      pair: { type: "array", prefixItems: [{ type: "string" }], items: { type: "number" } },
      kind: { const: "page" },
      title: { type: "string" },
      weight: { type: "number" },
      other: { $ref: "#/$defs/other" },
    },
    required: ["color", "size"],
  },
  execute: (args) => {
    same<
      typeof args,
      {
        color: "red" | "blue";
        size: number | null;
        marks?: { on?: boolean }[];
        pair?: unknown[];
        kind?: "page";
        title?: string;
        weight?: number;
        other?: unknown;
      }
    >(true);
  },
});

// a schema that is not a literal says nothing about the arguments: the function may
const dynamic: Record<string, unknown> = JSON.parse("{}");
interface Place {
  city: string;
}
tool({ parameters: dynamic, execute: ({ city }: Place) => city.length });
tool({ execute: () => "no parameters" });
// @ts-expect-error what it takes is not known
tool({ parameters: dynamic, execute: ({ city }) => city });
// @ts-expect-error the same without parameters
tool({ execute: ({ city }) => city });
const properties: Record<string, { type: "string" }> = {};
tool({
  parameters: { type: "object", properties, required: Object.keys(properties) },
  execute: (args) => same<typeof args, Record<string, unknown>>(true),
});

// @ts-expect-error a typo in an argument
tool({ parameters: z.object({ color: z.string() }), execute: ({ colour }) => colour });
// @ts-expect-error a typo in an argument
tool({ parameters: type({ color: "string" }), execute: ({ colour }) => colour });
const valibot = toStandardJsonSchema(v.object({ color: v.string() }));
// @ts-expect-error a typo in an argument
tool({ parameters: valibot, execute: ({ colour }) => colour });
tool({
  parameters: { type: "object", properties: { color: { type: "string" } } },
  // @ts-expect-error a typo in an argument
  execute: ({ colour }) => colour,
});
tool({
  parameters: z.object({ color: z.string() }),
  execute: ({ color }) => color,
  // @ts-expect-error a typo in an argument
  needsApproval: ({ colour }) => colour === "",
});
// @ts-expect-error another type than the schema's
tool({ parameters: z.object({ n: z.number() }), execute: ({ n }: { n: string }) => n });
// @ts-expect-error more than the schema has
tool({ parameters: z.object({ n: z.number() }), execute: (_: { n: number; m: string }) => 1 });
// @ts-expect-error this schema has no JSON Schema
tool({ parameters: v.object({ color: v.string() }), execute: () => "" });
// @ts-expect-error no schema
tool({ parameters: 5, execute: () => "" });
// @ts-expect-error an unknown field
tool({ execute: () => "", parameter: {} });
// @ts-expect-error a tool does something
tool({ parameters: z.object({}) });

// inline, without `tool`
export const client = new Client({
  url,
  approve: () => true,
  tools: {
    order,
    zod: {
      parameters: z.object({ at: z.object({ tags: z.array(z.string()) }) }),
      needsApproval: ({ at }) => at.tags.length > 1,
      execute: ({ at: { tags } }, { signal }) => (same<typeof tags, string[]>(true), signal),
    },
    union: {
      parameters: z.discriminatedUnion("kind", [
        z.object({ kind: z.literal("a"), n: z.number() }),
        z.object({ kind: z.literal("b") }),
      ]),
      execute: (args) => (args.kind === "a" ? args.n : 0),
    },
    arktype: { parameters: type({ n: "number" }), execute: ({ n }) => void n.toFixed() },
    valibot: { parameters: valibot, execute: ({ color }) => same<typeof color, string>(true) },
    plain: {
      parameters: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
      execute: ({ n }) => same<typeof n, number>(true),
    },
    own: { execute: ({ city }: Place) => city },
    none: { execute: () => "" },
    later: { parameters: z.object({}), execute: "later" },
  },
});
export const plain: Client = client;
new Client({
  url,
  // @ts-expect-error a typo in an argument
  tools: { paint: { parameters: valibot, execute: ({ colour }) => colour } },
});
new Client({
  url,
  // @ts-expect-error this schema has no JSON Schema
  tools: { paint: { parameters: v.object({ color: v.string() }), execute: ({ color }) => color } },
});
// @ts-expect-error what it takes is not known
new Client({ url, tools: { paint: { execute: ({ color }) => color } } });

// each is a tool whatever its parameters
const tools = { order, parsed, none: tool({ execute: async () => 1 }) };
export const any: ClientTool = order;
export const all: ClientTools = tools;
export const listed = new Client({ url, tools: [{ name: "order", ...order }] });
export const typed = new Client({ url, tools });
