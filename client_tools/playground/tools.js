/** The tools that this page offers to the agent: their declarations and functions. */

import { asRecord } from "../js/src/json.js";

/** @typedef {import("../js/src/index.js").CallContext} CallContext */
/**
 * @typedef {{description: string, parameters: Record<string, unknown>, execute: (args: any,
 *   context: CallContext) => unknown}} OwnTool
 */

/**
 * @typedef {object} PageActions actions on the page that the tools may use
 * @property {(color: string) => void} setBackground
 * @property {(question: string, signal: AbortSignal) => Promise<boolean>} confirm
 */

/**
 * @typedef {object} PageTool
 * @property {string} name
 * @property {string} description
 * @property {Record<string, unknown>} properties JSON Schemas of its arguments, all of them
 *   required
 * @property {(args: Record<string, unknown>, actions: PageActions, signal: AbortSignal) => string |
 *   Promise<string>} run returns the result, or throws a ToolError
 */

/** A tool's refusal; the model gets the message. */
class ToolError extends Error {}

const COLORS = [
  "blue",
  "red",
  "green",
  "transparent",
  "yellow",
  "purple",
  "orange",
  "pink",
  "brown",
  "gray",
  "black",
  "white",
];

/** @type {PageTool[]} */
const TOOLS = [
  {
    name: "change-background-color",
    description:
      "Change the background color. The color should be one of the following: blue, red, green, " +
      "transparent, yellow, purple, orange, pink, brown, gray, black, or white. " +
      "No other colors or any variants.",
    properties: { color: { type: "string" } },
    run({ color }, actions) {
      if (typeof color !== "string" || !COLORS.includes(color)) {
        throw new ToolError(`The color should be one of the following: ${COLORS.join(", ")}.`);
      }
      actions.setBackground(color);
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
    async run({ question }, actions, signal) {
      if (typeof question !== "string" || question.trim() === "") {
        throw new ToolError("The question is missing.");
      }
      return (await actions.confirm(question, signal)) ? "confirmed" : "declined";
    },
  },
];

/**
 * @param {{name: string, kind?: string}} call
 * @returns {boolean} whether this page runs it
 */
export function isOurs({ name, kind = "tool_result" }) {
  return kind === "tool_result" && TOOLS.some((tool) => tool.name === name);
}

/**
 * Return the tools in the form of the client library.
 *
 * @param {PageActions} actions
 * @returns {Record<string, OwnTool>}
 */
export function toolsFor(actions) {
  return Object.fromEntries(
    TOOLS.map(({ name, description, properties, run }) => {
      const parameters = {
        $schema: "https://json-schema.org/draft/2020-12/schema",
        type: "object",
        properties,
        required: Object.keys(properties),
        additionalProperties: false,
      };
      return [
        name,
        {
          description,
          parameters,
          execute: (args, { signal }) =>
            guarded(() => run(asRecord(args), actions, signal), signal),
        },
      ];
    }),
  );
}

/**
 * Run a tool, and hide from the model all errors except a ToolError.
 *
 * @param {() => string | Promise<string>} run
 * @param {AbortSignal} signal
 */
async function guarded(run, signal) {
  try {
    return await run();
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof ToolError) throw error;
    throw new Error("The tool failed in the browser.", { cause: error });
  }
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
