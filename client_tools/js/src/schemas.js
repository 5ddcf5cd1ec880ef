/**
 * Parameters of a tool as a schema of a library that implements Standard Schema and Standard JSON
 * Schema (https://standardschema.dev): declared to the server as JSON Schema, and applied to the
 * arguments of each call. No library is imported. The types also read plain JSON Schema.
 */

import { InvalidArgument } from "./errors.js";

/**
 * @template [Output=unknown]
 * @typedef {{readonly "~standard": {
 *   readonly version: 1,
 *   readonly vendor: string,
 *   readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>,
 *   readonly types?: {readonly input: unknown, readonly output: Output} | undefined,
 *   readonly jsonSchema: {
 *     readonly input: (options: ConversionOptions) => Record<string, unknown>,
 *   },
 * }}} StandardSchema a schema of Zod, ArkType, Valibot or another library
 */
/**
 * @typedef {{target: "draft-2020-12", libraryOptions?: Record<string, unknown>}} ConversionOptions
 */
/**
 * @template Output
 * @typedef {{readonly value: Output, readonly issues?: undefined}
 *   | {readonly issues: readonly Issue[]}} Validated
 */
/**
 * @typedef {{readonly message: string, readonly path?: readonly (PropertyKey | {readonly key:
 *   PropertyKey})[] | undefined}} Issue
 */

/** @typedef {{readonly [keyword: string]: unknown}} JsonSchema of type `object` */
/** @typedef {StandardSchema | JsonSchema} ToolParameters of a tool */

/**
 * @template P
 * @typedef {P extends {readonly "~standard": {readonly types?: Types<infer O>, readonly jsonSchema:
 *   unknown}} ? O
 *   : P extends {readonly "~standard": unknown} ? unknown
 *   : Described<P>} Known the type of the arguments, as far as the parameters tell it
 */
/**
 * @template Output
 * @typedef {{readonly output: Output} | undefined} Types
 */
/**
 * @template S
 * @typedef {S extends {readonly const: infer V} ? V
 *   : S extends {readonly enum: readonly (infer V)[]} ? V
 *   : S extends {readonly type: readonly (infer T)[]} ? OfType<T, S>
 *   : S extends {readonly type: infer T} ? OfType<T, S>
 *   : unknown} Described the values that fit a JSON Schema; perhaps more than those, never fewer
 */
/**
 * @template T
 * @template S
 * @typedef {T extends "string" ? string
 *   : T extends "number" | "integer" ? number
 *   : T extends "boolean" ? boolean
 *   : T extends "null" ? null
 *   : T extends "array" ? ListOf<S>
 *   : T extends "object" ? ObjectOf<S>
 *   : unknown} OfType
 */
/**
 * @template S
 * @typedef {S extends {readonly prefixItems: unknown} ? unknown[]
 *   : S extends {readonly items: infer I} ? Described<I>[]
 *   : unknown[]} ListOf
 */
/**
 * @template S
 * @typedef {S extends {readonly properties: infer P}
 *   ? string extends keyof P ? Record<string, unknown> : Flat<Fields<P, RequiredOf<S>>>
 *   : Record<string, unknown>} ObjectOf
 */
/**
 * @template P
 * @template R
 * @typedef {{-readonly [K in keyof P as K extends R ? K : never]: Described<P[K]>}
 *   & {-readonly [K in keyof P as K extends R ? never : K]?: Described<P[K]>}} Fields
 */
/**
 * @template S
 * @typedef {S extends {readonly required: readonly (infer R)[]} ? string extends R ? never : R :
 *   never} RequiredOf
 */
/**
 * @template T
 * @typedef {{[K in keyof T]: T[K]}} Flat
 */

/** Issues that the model is shown. */
const MAX_ISSUES = 20;
/**
 * Of Valibot: leave out checks that JSON Schema does not have, as the other libraries do.
 *
 * @type {Record<string, unknown>}
 */
const LIBRARY_OPTIONS = {
  overrideAction: (/** @type {{jsonSchema: unknown}} */ { jsonSchema }) => jsonSchema,
};
/** How to get a schema with JSON Schema, by the name that the library gives itself. */
const REMEDIES = new Map([
  ["valibot", "wrap them in toStandardJsonSchema() of @valibot/to-json-schema"],
  ["zod", "use Zod 4.2 or newer, and z.toJSONSchema(schema) for those of zod/mini"],
  ["arktype", "use ArkType 2.2 or newer"],
]);

/**
 * @param {unknown} value
 * @returns {value is StandardSchema} perhaps one without `jsonSchema`
 */
export function isStandardSchema(value) {
  // types of ArkType are functions
  const isObject = typeof value === "object" || typeof value === "function";
  return isObject && value !== null && "~standard" in value;
}

/**
 * @param {string} name of the tool
 * @param {ToolParameters | undefined} parameters
 * @returns {JsonSchema | undefined} the parameters as they are declared to the server
 * @throws {InvalidArgument} the library cannot convert them, or the server refuses them
 */
export function declaredParameters(name, parameters) {
  const schema = isStandardSchema(parameters) ? converted(name, parameters) : parameters;
  const { type = "object" } = schema ?? {};
  if (type !== "object") {
    throw new InvalidArgument(
      `tool ${name}: parameters are a schema of the type ${JSON.stringify(type)}: give one of ` +
        "the type object",
    );
  }
  return schema;
}

/**
 * @param {string} name of the tool
 * @param {StandardSchema} parameters
 * @returns {JsonSchema}
 * @throws {InvalidArgument}
 */
function converted(name, parameters) {
  const { vendor, jsonSchema } = parameters["~standard"];
  const place = `tool ${name}: parameters (a schema of ${vendor})`;
  if (!jsonSchema) {
    const remedy = REMEDIES.get(vendor) ?? "give a JSON Schema instead";
    throw new InvalidArgument(`${place} have no JSON Schema: ${remedy}`);
  }
  try {
    const { $schema, ...schema } = jsonSchema.input({
      target: "draft-2020-12", // what the server takes a schema for that names none
      libraryOptions: LIBRARY_OPTIONS,
    });
    return schema;
  } catch (error) {
    const reason = error instanceof Error ? error.message : error;
    throw new InvalidArgument(
      `${place} cannot be written as JSON Schema: ${reason}. Take types that JSON has, and ` +
        "transform them",
    );
  }
}

/**
 * @param {ToolParameters | undefined} parameters
 * @param {unknown} args
 * @returns {Promise<any>} what the schema makes of the arguments; unchanged if it is a JSON Schema,
 *   which the server has checked
 * @throws {Error} they do not fit; for the model
 */
export async function validArguments(parameters, args) {
  if (!isStandardSchema(parameters)) return args;
  const validated = await parameters["~standard"].validate(args);
  if (!validated.issues) return validated.value;
  const issues = validated.issues.slice(0, MAX_ISSUES).map(issueText);
  const more = validated.issues.length - issues.length;
  if (more > 0) issues.push(`and ${more} more`);
  throw new Error(`The arguments do not fit: ${issues.join("; ")}`);
}

/** @param {Issue} issue */
function issueText({ message, path = [] }) {
  const keys = path.map((part) => String(typeof part === "object" ? part.key : part));
  return keys.length > 0 ? `${keys.join(".")}: ${message}` : message;
}
