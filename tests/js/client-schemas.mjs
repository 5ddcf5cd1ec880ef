/**
 * Lets the model of a real server call tools whose parameters are schemas, and prints what the
 * user is told, as one line of JSON.
 *
 * Usage: node client-schemas.mjs URL
 */

import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";

import { Client } from "../../client_tools/js/src/index.js";

const [, , url] = process.argv;
const isKnown = (color) => color !== "pink";
const zod = z.object({ color: z.string().refine(async (color) => isKnown(color), "is unknown") });
const known = type("string").narrow((color, context) => isKnown(color) || context.mustBe("known"));
const arktype = type({ color: known.pipe((color) => color.toUpperCase()) });
const valibot = v.object({ color: v.pipe(v.string(), v.check(isKnown, "is unknown")) });

const seen = {};
for (const [name, parameters] of Object.entries({
  zod,
  arktype,
  valibot: toStandardJsonSchema(valibot),
})) {
  const execute = ({ color }) => ({ color });
  const client = new Client({ url, tools: { "set-color": { parameters, execute } } });
  const said = ["blue", "pink"].map((color) => client.send(`set-color to ${color}`).text());
  seen[name] = await Promise.all(said);
}
console.log(JSON.stringify(seen));
