/** Branches of a conversation: find a message, and write its text anew. */

import { ApiError } from "./errors.js";

/** @typedef {import("./client.js").MessageContext} MessageContext */
/** @typedef {import("./client.js").Part} Part */
/** @typedef {import("./messages.js").Message} Message */

/**
 * @typedef {object} BranchPoint a place of the branch that is read where it has other versions
 * @property {string | null} after the message before the place; null: the beginning
 * @property {string[]} versions the first message of each version, oldest first
 * @property {string | null} current the one of them that is read; null: it is being written
 */

/**
 * @typedef {object} FoundMessage
 * @property {Message} message
 * @property {string} after the id of the message before it, "" for the first
 */

/** @typedef {MessageContext & {content: string | Part[], agentId?: string}} Reworded */

/** Messages in one page of the history. */
const PAGE = 100;
/** Names of the additions to a message. */
const ADDITIONS = /** @type {const} */ ([
  ...["structuredData", "intent", "constraints", "instructions", "outputSchema", "model"],
  "agentId",
]);

/**
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {string} messageId
 * @param {import("./client.js").RequestOptions} [options]
 * @returns {Promise<FoundMessage>}
 * @throws {ApiError} `message_not_found`
 */
export async function findMessage(client, conversationId, messageId, options) {
  let { total: end } = await client.messages(conversationId, { ...options, limit: 1 });
  /** @type {Message | null} found, if the message before it is still to be read */
  let found = null;
  while (end > 0) {
    const start = Math.max(0, end - PAGE);
    const messages = await readBetween(client, conversationId, [start, end], options);
    if (found) return { message: found, after: messages.at(-1)?.id ?? "" };
    const index = messages.findLastIndex(({ id }) => id === messageId);
    const message = messages[index];
    if (message && (index > 0 || start === 0)) {
      return { message, after: messages[index - 1]?.id ?? "" };
    }
    found = message ?? null;
    end = start;
  }
  throw new ApiError("the branch of the conversation that is read has no such message", {
    code: "message_not_found",
    status: 404,
  });
}

/**
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {[number, number]} range the number of messages to skip, and the end
 * @param {import("./client.js").RequestOptions} [options]
 * @returns {Promise<Message[]>} fewer if the conversation has become shorter
 */
export async function readBetween(client, conversationId, [start, end], options) {
  /** @type {Message[]} */
  const found = [];
  // a page has fewer messages than asked for if they are large
  for (let count = 1; start + found.length < end && count > 0; ) {
    const after = start + found.length;
    const page = await client.messages(conversationId, { ...options, after, limit: end - after });
    count = page.messages.length;
    found.push(...page.messages);
  }
  return found;
}

/**
 * Write the text of a user's message anew: its attachments and other parts, its additions and its
 * agent stay.
 *
 * @param {Message} message of the history
 * @param {string} text
 * @returns {Reworded} the content of the new message, and options of the `send` that posts it
 */
export function reword(message, text) {
  if (message.role !== "user") return { content: text };
  const additions = ADDITIONS.filter((name) => message[name] !== undefined);
  return {
    ...Object.fromEntries(additions.map((name) => [name, message[name]])),
    content: rewordParts(message.content, text),
  };
}

/**
 * @param {string | Part[]} content
 * @param {string} text takes the place of the first text; "": there is none
 */
function rewordParts(content, text) {
  if (typeof content === "string") return text;
  const isText = (/** @type {Part} */ { type }) => type === "text";
  const others = content.filter((part) => !isText(part));
  if (others.length === 0) return text;
  const place = content.findIndex(isText);
  /** @type {Part[]} */
  const said = text === "" ? [] : [{ type: "text", text }];
  const before = place < 0 ? others : content.slice(0, place);
  return [...before, ...said, ...others.slice(before.length)];
}
