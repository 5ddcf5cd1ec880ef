/** The history of a conversation: its pages, and its messages as a chat shows them. */

import { readBetween } from "./branches.js";
import { valueOf } from "./calls.js";

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./messages.js").Message} Message */
/** @typedef {import("./thread.js").Exchange} Exchange */

/** Messages that are read at once, and at most, until one of a user is among them. */
const PAGE = 100;
const LONGEST = 500;

/**
 * @typedef {{first: number, messages: Message[], next: Message | undefined}} Page messages from the
 *   position `first` on, and the one behind them, if it was asked for
 */

/**
 * Read the messages before a position, so many that they begin with one of a user.
 *
 * @param {Client} client
 * @param {string} conversationId
 * @param {number} end the position
 * @param {import("./client.js").RequestOptions & {withNext?: boolean}} options
 * @returns {Promise<Page>}
 */
export async function readBefore(client, conversationId, end, { withNext = false, ...options }) {
  let first = end;
  /** @type {Message[]} */
  let messages = [];
  let asked = -1;
  /** @type {Message | undefined} */
  let next;
  while (first > 0 && asked < 0 && messages.length < LONGEST) {
    const start = Math.max(0, first - PAGE);
    const last = withNext && first === end ? end + 1 : first;
    const page = await readBetween(client, conversationId, [start, last], options);
    if (last > first) next = page.splice(first - start)[0];
    messages = [...page, ...messages];
    first = start;
    asked = messages.findIndex(({ role }) => role === "user");
  }
  const left = first > 0 ? Math.max(0, asked) : 0;
  return { first: first + left, messages: messages.slice(left), next };
}

/**
 * Read the newest messages, and those that were posted for the run in progress: its events have the
 * rest.
 *
 * @param {Client} client
 * @param {string} conversationId
 * @param {import("./client.js").ConversationView} view
 * @param {import("./client.js").RequestOptions} options
 * @returns {Promise<Page & {end: number, posted: Message[]}>}
 */
export async function readNewest(client, conversationId, { running, messageCount }, options) {
  const end = running?.firstMessage ?? messageCount;
  const page = await readBefore(client, conversationId, end, options);
  const last = Math.min(messageCount, end + PAGE);
  const behind = await readBetween(client, conversationId, [end, last], options);
  const said = behind.findIndex(({ role }) => role === "assistant" || role === "child");
  return { ...page, end, posted: said < 0 ? behind : behind.slice(0, said) };
}

/**
 * @param {{id: string, content: import("./client.js").UserMessage["content"]}} message
 * @returns {import("./state.js").UserEntry}
 */
export function entryOf({ id, content }) {
  if (typeof content === "string") return { role: "user", id, text: content };
  return { role: "user", id, text: textOf(content), parts: content };
}

/** @param {import("./client.js").UserMessage["content"]} content */
export function textOf(content) {
  if (typeof content === "string") return content;
  return content
    .flatMap((part) => (part.type === "text" && "text" in part ? [String(part.text)] : []))
    .join("\n");
}

/**
 * @param {Message[]} messages
 * @returns {Exchange["asked"]}
 */
export function askedIn(messages) {
  return messages.flatMap((message) =>
    message.role === "user" ? [{ id: message.id, entry: entryOf(message) }] : [],
  );
}

/**
 * @param {{toolCallId: string, content: unknown, isError: boolean, synthetic?:
 *   import("./events.js").Synthetic}} result
 * @returns {Event}
 */
export function resultEvent(result) {
  return { type: "client-tool-result", toolCallName: "", ...result, cursor: "", runId: null };
}

/**
 * @param {Message} message of the history
 * @param {boolean} isLast whether it is the last answer of its run
 * @returns {Event[]} the events of an answer that show it
 */
export function eventsOf(message, isLast) {
  const place = { cursor: "", runId: null };
  if (message.role === "tool") {
    const { toolCallId, isError = false, synthetic } = message;
    const content = valueOf(message.content);
    return [resultEvent({ toolCallId, content, isError, ...(synthetic && { synthetic }) })];
  }
  if (message.role !== "assistant") return [];
  const text = textOf(message.content);
  const calls = (message.toolCalls ?? []).flatMap(({ id, function: { name, arguments: args } }) => {
    const toolCallId = id;
    /** @type {Event[]} */
    const events = [
      { type: "tool-call-start", toolCallId, toolCallName: name, ...place },
      { type: "tool-call-args", toolCallId, delta: args, ...place },
      { type: "tool-call-end", toolCallId, ...place },
    ];
    return events;
  });
  const { model } = message;
  /** @type {Event} */
  const end = {
    type: "run-end",
    outcome: "completed",
    ...(model !== undefined && { model }),
    ...place,
  };
  return [
    ...(text ? [/** @type {Event} */ ({ type: "text", content: text, ...place })] : []),
    ...calls,
    ...(isLast ? [end] : []),
  ];
}
