/** The options of a client: their defaults, and the check of what a program passes. */

import { InvalidArgument } from "./errors.js";
import { isStandardSchema } from "./schemas.js";

/**
 * @typedef {object} Limits
 * @property {number} eventChars one event of a stream
 * @property {number} errorBytes the body of an error
 * @property {number} jsonBytes any other body
 * @property {number} argumentChars the arguments of one call
 * @property {number} resultBytes the result of one call, in UTF-8: a text as it is, any other value
 *   as JSON
 * @property {number} resultDepth levels of arrays and objects in it; a server accepts 64 in a whole
 *   post
 * @property {number} errorTextChars the error of a tool, as the model gets it
 * @property {number} owedCalls calls that one run may leave owed
 * @property {number} rounds posts of results that one `send` may lead to
 * @property {number} claimSeconds duration of a claim, 1 to 600: how long other clients wait if
 *   this one dies
 */

/** @type {Readonly<Limits>} */
export const LIMITS = Object.freeze({
  eventChars: 8 * 1024 * 1024,
  errorBytes: 64 * 1024,
  jsonBytes: 64 * 1024 * 1024,
  argumentChars: 1024 * 1024,
  resultBytes: 1024 * 1024,
  resultDepth: 56,
  errorTextChars: 2000,
  owedCalls: 128,
  rounds: 100,
  claimSeconds: 30,
});

/**
 * @typedef {object} Retry
 * @property {number} attempts number that may fail in a row, default: 8
 * @property {number} unanswered the same while there was no answer at all. Without this and
 *   `attempts`, a client whose server has never answered gives up within two seconds
 * @property {number} firstDelay milliseconds before the second attempt, unless the server sets the
 *   delay; doubled each time
 * @property {number} longestDelay milliseconds; if the server asks for a longer delay, there is no
 *   retry
 * @property {number} silence milliseconds without a byte after which a connection counts as lost;
 *   the server pings every 15 seconds
 */

/** @type {Readonly<Retry>} */
export const RETRY = Object.freeze({
  attempts: 8,
  unanswered: Infinity,
  firstDelay: 400,
  longestDelay: 30_000,
  silence: 45_000,
});

/**
 * @typedef {[words: string, fits: (value: unknown) => boolean]} Rule the expected value in words,
 *   and the check of it
 */

const ADDRESS = "the server's address, such as http://127.0.0.1:8000";
const isText = (/** @type {unknown} */ value) => typeof value === "string";
const isFunction = (/** @type {unknown} */ value) => typeof value === "function";
const isBoolean = (/** @type {unknown} */ value) => typeof value === "boolean";
const isObject = (/** @type {unknown} */ value) => typeof value === "object" && value !== null;
const isRecord = (/** @type {unknown} */ value) => isObject(value) && !Array.isArray(value);

/** @type {Record<string, Rule>} */
const CLIENT = {
  url: [ADDRESS, (value) => isText(value) || value instanceof URL],
  apiKey: ["a text", isText],
  tools: ["an object with the tools by their names, or a list of tools with names", isObject],
  approve: ["a function", isFunction],
  claims: ["true or false", isBoolean],
  unknownTools: ['"refuse" or "leave"', (value) => value === "refuse" || value === "leave"],
  trace: ["a function", isFunction],
  fetch: ["a function as the platform's fetch is", isFunction],
  limits: ["an object", isRecord],
  retry: ["an object", isRecord],
};
/** @type {Rule} */
const NUMBER = ["a number of at least 0", (value) => typeof value === "number" && value >= 0];
const NUMBERS = {
  limits: Object.fromEntries(Object.keys(LIMITS).map((name) => [name, NUMBER])),
  retry: Object.fromEntries(Object.keys(RETRY).map((name) => [name, NUMBER])),
};
/** @type {Record<string, Rule>} */
const TOOL = {
  description: ["a text", isText],
  parameters: [
    "a JSON Schema as an object, or a schema of Zod, ArkType, Valibot or the like",
    (value) => isRecord(value) || isStandardSchema(value),
  ],
  title: ["a text", isText],
  needsApproval: [
    "true, false, or a function that takes the arguments",
    (value) => isBoolean(value) || isFunction(value),
  ],
};

/**
 * Check the names and values of a client's options; undefined ones count as absent.
 *
 * @param {unknown} options
 * @throws {InvalidArgument}
 */
export function checkOptions(options) {
  if (!isRecord(options)) {
    throw new InvalidArgument(
      `the options of a client are ${describe(options)}: give an object, as in new Client({ url })`,
    );
  }
  const given = /** @type {Record<string, unknown>} */ (options);
  checkFields(given, CLIENT, "");
  checkFields(/** @type {any} */ (given.limits ?? {}), NUMBERS.limits, "limits.");
  checkFields(/** @type {any} */ (given.retry ?? {}), NUMBERS.retry, "retry.");
}

/**
 * @param {string} name
 * @param {import("./tools.js").ClientTool} tool
 * @throws {InvalidArgument}
 */
export function checkTool(name, { description, parameters, title, needsApproval }) {
  checkFields({ description, parameters, title, needsApproval }, TOOL, `tool ${name}: `);
}

/**
 * @param {unknown} url
 * @returns {string} the address without its query and fragment
 * @throws {InvalidArgument} does not quote the URL, which may contain a password
 */
export function readAddress(url) {
  let parsed;
  try {
    parsed = new URL(String(url), globalThis.location?.href);
  } catch {
    throw new InvalidArgument(`url is not a URL: give ${ADDRESS}`);
  }
  // a secret in an address ends up in logs
  if (parsed.username || parsed.password) {
    throw new InvalidArgument("url contains a user or a password: remove it, and use apiKey");
  }
  if (!/^https?:$/.test(parsed.protocol)) {
    throw new InvalidArgument(`url is not an http: or https: address with a host: give ${ADDRESS}`);
  }
  return `${parsed.origin}${parsed.pathname}`.replace(/\/+$/, "");
}

/**
 * @param {Record<string, unknown>} given
 * @param {Record<string, Rule>} table
 * @param {string} place prefix of the name in errors
 */
function checkFields(given, table, place) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    const rule = Object.hasOwn(table, name) ? table[name] : undefined;
    if (!rule) {
      throw new InvalidArgument(
        `${place}${name} is unknown: there are ${Object.keys(table).join(", ")}`,
      );
    }
    const [words, fits] = rule;
    if (!fits(value)) {
      throw new InvalidArgument(`${place}${name} is ${describe(value)}: give ${words}`);
    }
  }
}

/** @param {unknown} value numbers are shown, of other values only the kind: they may be secret */
function describe(value) {
  if (value === null || ["number", "boolean", "undefined"].includes(typeof value)) {
    return String(value);
  }
  if (Array.isArray(value)) return "a list";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
