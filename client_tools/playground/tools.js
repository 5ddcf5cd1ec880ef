/** The tools that this page lends to the agent: what the model is told of them, and what they do. */

import { asRecord, parseJson } from "./api.js";

/** @typedef {import("./api.js").ToolDeclaration} ToolDeclaration */
/** @typedef {import("./api.js").OwedCall} OwedCall */

/**
 * @typedef {object} Hands what the tools may touch
 * @property {(color: string) => void} setBackground
 * @property {(question: string, signal: AbortSignal) => Promise<boolean>} confirm
 */

/**
 * @typedef {object} ToolResult
 * @property {string} content
 * @property {boolean} isError
 */

/**
 * @typedef {object} ClientTool
 * @property {string} name
 * @property {string} description
 * @property {Record<string, unknown>} properties of its arguments, by JSON Schema; all of them are required
 * @property {(args: Record<string, unknown>, hands: Hands, signal: AbortSignal) => string | Promise<string>} run
 *   gives the result, or throws a ToolError
 */

/** The tool says no; the model reads the message. */
class ToolError extends Error {}

const COLORS = [
  "blue", "red", "green", "transparent", "yellow", "purple",
  "orange", "pink", "brown", "gray", "black", "white",
];

/** @type {ClientTool[]} */
const TOOLS = [
  {
    name: "change-background-color",
    description:
      "Change the background color. The color should be one of the following: blue, red, green, transparent, " +
      "yellow, purple, orange, pink, brown, gray, black, or white. No other colors or any variants.",
    properties: { color: { type: "string" } },
    run({ color }, hands) {
      if (typeof color !== "string" || !COLORS.includes(color)) {
        throw new ToolError(`The color should be one of the following: ${COLORS.join(", ")}.`);
      }
      hands.setBackground(color);
      return `Background color successfully changed to: ${color}`;
    },
  },
  {
    name: "get-time-zone",
    description: "Tell the time zone and the local time of the user's browser.",
    properties: {},
    run() {
      const now = new Date();
      const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
      return `${zone} (UTC${utcOffset(now)}), local time ${localTime(now)}`;
    },
  },
  {
    name: "ask-user-to-confirm",
    description: 'Ask the user a yes-or-no question. The result is "confirmed" or "declined".',
    properties: { question: { type: "string", description: "The question, in one sentence." } },
    async run({ question }, hands, signal) {
      if (typeof question !== "string" || question.trim() === "") {
        throw new ToolError("The question is missing.");
      }
      return (await hands.confirm(question, signal)) ? "confirmed" : "declined";
    },
  },
];

/** @type {ToolDeclaration[]} */
export const declarations = TOOLS.map(({ name, description, properties }) => ({
  name,
  description,
  parameters: JSON.stringify({
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties,
    required: Object.keys(properties),
    additionalProperties: false,
  }),
}));

/** @param {string} name */
export function isOurs(name) {
  return TOOLS.some((tool) => tool.name === name);
}

/**
 * Runs one call; whatever goes wrong becomes a result that the model can react to.
 *
 * @param {OwedCall} call
 * @param {Hands} hands
 * @param {AbortSignal} signal
 * @returns {Promise<ToolResult>}
 * @throws the signal's reason, when the page gave the call up
 */
export async function runTool(call, hands, signal) {
  const tool = TOOLS.find(({ name }) => name === call.name);
  if (!tool) return failure(`This page has no tool named ${call.name}.`);
  const args = parseJson(call.arguments || "{}");
  if (args === undefined) return failure("The arguments are not valid JSON.");
  try {
    return { content: await tool.run(asRecord(args), hands, signal), isError: false };
  } catch (error) {
    signal.throwIfAborted();
    return failure(error instanceof ToolError ? error.message : "The tool failed in the browser.");
  }
}

/**
 * @param {string} content
 * @returns {ToolResult}
 */
function failure(content) {
  return { content, isError: true };
}

/**
 * @param {Date} date
 * @returns {string} such as "+01:00"
 */
function utcOffset(date) {
  const minutes = -date.getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `${minutes < 0 ? "-" : "+"}${twoDigits(hours)}:${twoDigits(rest)}`;
}

/**
 * @param {Date} date
 * @returns {string} such as "2025-01-31 18:05"
 */
function localTime(date) {
  const day = [date.getFullYear(), date.getMonth() + 1, date.getDate()].map(twoDigits).join("-");
  return `${day} ${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
}

/** @param {number} value */
function twoDigits(value) {
  return String(value).padStart(2, "0");
}
