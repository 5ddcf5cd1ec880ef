/** What a program gives, checked when it is given: a table says of each argument what it takes. */

import { InvalidArgument } from "./errors.js";
import { LIMITS, RETRY } from "./limits.js";

/** @typedef {[words: string, fits: (value: unknown) => boolean]} Takes what to give, as words, and whether a value is that */

const ADDRESS = "the server's address, such as http://127.0.0.1:8000";
const isText = (/** @type {unknown} */ value) => typeof value === "string";
const isFunction = (/** @type {unknown} */ value) => typeof value === "function";
const isBoolean = (/** @type {unknown} */ value) => typeof value === "boolean";
const isObject = (/** @type {unknown} */ value) => typeof value === "object" && value !== null;
const isRecord = (/** @type {unknown} */ value) => isObject(value) && !Array.isArray(value);

/** @type {Record<string, Takes>} */
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
/** @type {Takes} */
const NUMBER = ["a number of at least 0", (value) => typeof value === "number" && value >= 0];
const NUMBERS = {
  limits: Object.fromEntries(Object.keys(LIMITS).map((name) => [name, NUMBER])),
  retry: Object.fromEntries(Object.keys(RETRY).map((name) => [name, NUMBER])),
};
/** @type {Record<string, Takes>} */
const TOOL = {
  description: ["a text", isText],
  parameters: ["a JSON Schema as an object", isRecord],
  needsApproval: ["true, false, or a function that takes the arguments", (value) => isBoolean(value) || isFunction(value)],
};

/**
 * Refuses options of a client of which one is not what it should be, or none that there is; what is undefined is not given.
 *
 * @param {unknown} options
 * @throws {InvalidArgument}
 */
export function checkOptions(options) {
  if (!isRecord(options)) throw new InvalidArgument(`the options of a client are ${shown(options)}: give an object, as in new Client({ url })`);
  const given = /** @type {Record<string, unknown>} */ (options);
  refuseMisfits(given, CLIENT, "");
  refuseMisfits(/** @type {any} */ (given.limits ?? {}), NUMBERS.limits, "limits.");
  refuseMisfits(/** @type {any} */ (given.retry ?? {}), NUMBERS.retry, "retry.");
}

/**
 * @param {string} name
 * @param {import("./tools.js").ClientTool} tool
 * @throws {InvalidArgument}
 */
export function checkTool(name, { description, parameters, needsApproval }) {
  refuseMisfits({ description, parameters, needsApproval }, TOOL, `tool ${name}: `);
}

/**
 * @param {unknown} url
 * @returns {string} the address without what goes behind it
 * @throws {InvalidArgument} shows no text of it: it may hold a password
 */
export function addressOf(url) {
  let parsed;
  try {
    parsed = new URL(String(url), globalThis.location?.href);
  } catch {
    throw new InvalidArgument(`url is no URL: give ${ADDRESS}`);
  }
  // a secret in an address ends up in logs
  if (parsed.username || parsed.password) throw new InvalidArgument("url holds a user or a password: leave it out, and give apiKey");
  if (!/^https?:$/.test(parsed.protocol)) throw new InvalidArgument(`url is no http: or https: address with a host: give ${ADDRESS}`);
  return `${parsed.origin}${parsed.pathname}`.replace(/\/+$/, "");
}

/**
 * @param {Record<string, unknown>} given
 * @param {Record<string, Takes>} table
 * @param {string} place before the name
 */
function refuseMisfits(given, table, place) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    const takes = Object.hasOwn(table, name) ? table[name] : undefined;
    if (!takes) throw new InvalidArgument(`${place}${name} is unknown: there are ${Object.keys(table).join(", ")}`);
    const [words, fits] = takes;
    if (!fits(value)) throw new InvalidArgument(`${place}${name} is ${shown(value)}: give ${words}`);
  }
}

/** @param {unknown} value a number is shown as it is, of everything else the kind: it may hold a secret */
function shown(value) {
  if (value === null || ["number", "boolean", "undefined"].includes(typeof value)) return String(value);
  if (Array.isArray(value)) return "a list";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
