/** The events of a run, as `send` yields them, and their cursors. */

import { ProtocolError } from "./errors.js";
import { asRecord, parseJson } from "./json.js";

/**
 * @typedef {object} Place fields of every event
 * @property {string} cursor its place in the run's log, to resume from; "" for events without a
 *   place
 * @property {string | null} runId
 */

/**
 * @typedef {object} Nestable field of every event that may come from a sub-agent
 * @property {string} [parentToolCallId] the call that the sub-agent works on; absent for the agent
 *   itself
 */

/** @typedef {{type: "text", content: string} & Place} TextEvent a piece of the answer */
/**
 * @typedef {{type: "agent-text", parentToolCallId: string, delta: string} & Place} AgentTextEvent a
 *   piece of a sub-agent's text; not part of the answer
 */
/**
 * @typedef {{type: "reasoning", delta: string} & Nestable & Place} ReasoningEvent a piece of the
 *   model's reasoning
 */
/**
 * @typedef {{type: "message", messageId: string, startedAt?: string} & Nestable & Place}
 *   MessageEvent a model call begins, and the events that follow belong to this message;
 *   `startedAt` is the server's time, RFC 3339 in UTC
 */
/**
 * @typedef {{type: "usage", left?: Left, model?: string, contextUsed?: number, contextWindow?:
 *   number} & Usage & Nestable & Place} UsageEvent of the model call that just ended, and the rest
 *   of the run's limits; `contextUsed` is an estimate of the tokens of the conversation behind this
 *   answer, `contextWindow` what the model can take
 */
/**
 * @typedef {{type: "context", used: number, window?: number, step?: "snip" | "micro" | "summary" |
 *   "cut" | (string & {}), before?: number} & Nestable & Place} ContextEvent use of the context
 *   window, in estimated tokens; with a `step`, the prompt is shortened from here on
 */
/**
 * @typedef {{type: "plan", entries: PlanEntry[]} & Nestable & Place} PlanEvent the agent's plan; it
 *   replaces the previous one
 */
/**
 * @typedef {{type: "state", values: Record<string, unknown>, removed: string[]} & Nestable & Place}
 *   StateEvent a change of the shared state: keys with their new values, and keys that are gone
 */
/**
 * @typedef {{type: "output", value: unknown} & Place} OutputEvent the answer as an object that fits
 *   the schema
 */
/**
 * @typedef {{type: "tool-call-start", toolCallId: string, toolCallName: string, title?: string,
 *   kind?: ToolKind} & Nestable & Place} ToolCallStartEvent
 */
/**
 * @typedef {{type: "tool-call-args", toolCallId: string, delta: string} & Nestable & Place}
 *   ToolCallArgsEvent
 */
/** @typedef {{type: "tool-call-end", toolCallId: string} & Nestable & Place} ToolCallEndEvent */
/**
 * @typedef {{type: "tool-begin", toolCallId: string, locations?: Location[]} & Nestable & Place}
 *   ToolBeginEvent a tool of the server begins to work on a call, which is valid and allowed
 */
/**
 * @typedef {{type: "tool-progress", toolCallId: string, text: string} & Nestable & Place}
 *   ToolProgressEvent progress of a call
 */
/**
 * @typedef {{type: "tool-result", toolCallId: string, result: string, isError?: boolean,
 *   synthetic?: Synthetic, durationMs?: number} & Nestable & Place} ToolResultEvent the result of
 *   the server's tool, which worked for `durationMs`, or `synthetic` says why the server wrote it
 */
/**
 * @typedef {{type: "client-tool-result", toolCallId: string, toolCallName: string, content:
 *   unknown, isError: boolean, synthetic?: Synthetic} & Place} ClientToolResultEvent a tool of this
 *   client has run; made by this library; `synthetic` is only set by `Chat`, from the history
 */
/**
 * @typedef {{type: "client-decision", toolCallId: string, toolCallName: string, approved: boolean,
 *   reason: string} & Place} ClientDecisionEvent `approve` has decided on a call of the server;
 *   made by this library
 */
/**
 * @typedef {{type: "call-elsewhere", toolCallId: string, toolCallName: string, state: "claimed" |
 *   "answered"} & Place} CallElsewhereEvent another client runs a call, or has answered it; made by
 *   this library
 */
/**
 * @typedef {Omit<ClientToolResultEvent, keyof Place> | Omit<ClientDecisionEvent, keyof Place> |
 *   Omit<CallElsewhereEvent, keyof Place>} ClientEvent an event that this library makes, without a
 *   place
 */
/**
 * @typedef {{type: "interrupt", id: string, reason: string, payload: InterruptPayload} & Place}
 *   InterruptEvent a tool of the server waits for a person's decision; `id` names it in
 *   `client.decide`
 */
/**
 * @typedef {{type: "owed", toolCalls: OwedCall[]} & Place} OwedEvent the calls that clients or
 *   people must answer
 */
/** @typedef {{type: "run-queued"} & Place} RunQueuedEvent the run waits for another one to end */
/** @typedef {{type: "run-start"} & Place} RunStartEvent */
/**
 * @typedef {{type: "run-end", outcome: "completed" | "handed-back" | "cancelled" | "failed",
 *   reason?: Reason, model?: string} & Place} RunEndEvent `model`: the name of the model that
 *   answered last in the run, sub-agents aside
 */
/**
 * @typedef {"end_turn" | "max_tokens" | "max_turns" | "refusal" | "budget" | (string & {})} Reason
 *   of a run's end, or the code of its failure
 */
/**
 * @typedef {"superseded" | "interrupted" | "invalid" | "denied" | "timeout" | "unanswered" |
 *   (string & {})} Synthetic why the server wrote the result of a call itself
 */
/**
 * @typedef {"read" | "edit" | "delete" | "move" | "search" | "execute" | "think" | "fetch" |
 *   (string & {})} ToolKind what a tool does
 */
/**
 * @typedef {{type: "rewind", to: string} & Place} RewindEvent every event of this run whose cursor
 *   is after `to` is void: `Answer` drops it
 */

/**
 * @typedef {{type: "posted", first: number, messages: import("./messages.js").Message[]} & Place}
 *   PostedEvent the messages with which a run begins, before its `run-start`: they replace all
 *   messages from the position `first` on. Many come in several events
 */
/**
 * @typedef {{type: "switched", message: string} & Place} SwitchedEvent another branch is read: the
 *   one that ends with `message`. It also comes behind a reconnect, if it may have been missed
 */
/** @typedef {{type: "deleted"} & Place} DeletedEvent the conversation was deleted */
/**
 * @typedef {{type: "watching"} & Place} WatchingEvent what is said from here on follows, a run in
 *   progress from its start; what was said before has to be read from the history. Made by this
 *   library
 */
/**
 * @typedef {Event | PostedEvent | SwitchedEvent | DeletedEvent | WatchingEvent | (ErrorEvent &
 *   Place)} WatchEvent an event of a conversation; the `error` is that of a run, which ends with it
 */

/**
 * @typedef {TextEvent | AgentTextEvent | ReasoningEvent | MessageEvent | UsageEvent | OutputEvent |
 *   ContextEvent | PlanEvent | StateEvent | ToolCallStartEvent | ToolCallArgsEvent |
 *   ToolCallEndEvent | ToolBeginEvent | ToolProgressEvent | ToolResultEvent |
 *   ClientToolResultEvent | ClientDecisionEvent | CallElsewhereEvent | InterruptEvent | OwedEvent |
 *   RunQueuedEvent | RunStartEvent | RunEndEvent | RewindEvent} Event
 */

/**
 * @typedef {object} Usage tokens
 * @property {number} inputTokens
 * @property {number} outputTokens
 * @property {number} cachedTokens
 * @property {number} reasoningTokens
 * @property {true} [estimated] an answer was cut off before the provider had counted it
 */

/**
 * @typedef {object} Left the rest of the tightest limit of each kind, if there is a limit
 * @property {number} [turns] model calls of this run
 * @property {number} [tokens] of input and output together
 * @property {number} [seconds] of work
 * @property {number} [cost] in the currency of the server's prices
 */

/**
 * @typedef {object} Location a file that a call is about, or one of its lines
 * @property {string} path
 * @property {number} [line]
 */

/**
 * @typedef {object} PlanEntry one step of the agent's plan
 * @property {string} content
 * @property {"high" | "medium" | "low" | (string & {})} priority
 * @property {"pending" | "in_progress" | "completed" | (string & {})} status
 */

/**
 * @typedef {object} OwedCall
 * @property {string} id
 * @property {string} name
 * @property {string} arguments JSON, as text
 * @property {"tool_result" | "approval" | "question" | (string & {})} kind the kind of answer: the
 *   result of a client's tool, a decision on a server's tool, a person's answers to the questions
 *   in `arguments`
 * @property {string} [reason] reason of an approval
 * @property {string} [parentToolCallId] the call that the sub-agent which made this call works on
 * @property {string | null} [deadline] end of the time to answer, RFC 3339 in UTC; only from
 *   `client.conversation`
 * @property {string | null} [claimedUntil] end of a client's claim, RFC 3339 in UTC; only from
 *   `client.conversation`
 */

/**
 * @typedef {object} InterruptPayload
 * @property {string} [kind] "approval"
 * @property {string} [toolCallId]
 * @property {string} [toolCallName]
 * @property {string} [arguments] JSON, as text
 */

/**
 * @typedef {{type: "error", error: string, code: string, retryable: boolean, retryAfter?: number}}
 *   ErrorEvent
 */

/** @type {Record<string, string[]>} the text fields that each type of event must have */
const TEXTS = {
  text: ["content"],
  "agent-text": ["parentToolCallId", "delta"],
  reasoning: ["delta"],
  message: ["messageId"],
  "tool-call-start": ["toolCallId", "toolCallName"],
  "tool-call-args": ["toolCallId", "delta"],
  "tool-call-end": ["toolCallId"],
  "tool-begin": ["toolCallId"],
  "tool-progress": ["toolCallId", "text"],
  "tool-result": ["toolCallId", "result"],
  interrupt: ["id"],
  "run-end": ["outcome"],
  rewind: ["to"],
  error: ["error"],
  posted: ["runId"],
  switched: ["message"],
};
/** Events of a conversation, and not of the run before them. */
const PLACELESS = new Set(["switched", "deleted"]);

/**
 * @param {string} data of one frame
 * @param {Place} place
 * @returns {Exclude<WatchEvent, WatchingEvent>} unknown types are passed on
 * @throws {ProtocolError}
 */
export function readEvent(data, place) {
  const event = asRecord(parseJson(data));
  if (typeof event.type !== "string") {
    throw new ProtocolError("the stream contains something that is not an event");
  }
  const missing = TEXTS[event.type]?.find((field) => typeof event[field] !== "string");
  if (missing) throw new ProtocolError(`an event "${event.type}" of the stream has no ${missing}`);
  if (event.type === "owed") event.toolCalls = readOwed(event.toolCalls);
  if (event.type === "plan") event.entries = readPlan(event.entries);
  if (event.type === "tool-begin" && event.locations !== undefined) {
    event.locations = readLocations(event.locations);
  }
  if (event.type === "interrupt") {
    const reason = typeof event.reason === "string" ? event.reason : "";
    Object.assign(event, { reason, payload: asRecord(event.payload) });
  }
  if (event.type === "posted") return readPosted(event);
  const { cursor, runId } = PLACELESS.has(event.type) ? { cursor: "", runId: null } : place;
  return /** @type {Event} */ ({ ...event, cursor, runId });
}

/**
 * @param {Record<string, unknown>} event has no id of its own, and names its run
 * @returns {PostedEvent}
 * @throws {ProtocolError}
 */
function readPosted({ runId, first, messages, ...more }) {
  if (!Number.isSafeInteger(first) || !Array.isArray(messages)) {
    throw new ProtocolError("posted messages lack their position, or are not a list");
  }
  return /** @type {any} */ ({ ...more, first, messages, cursor: "", runId });
}

/**
 * @param {unknown} value
 * @returns {PlanEntry[]}
 * @throws {ProtocolError}
 */
function readPlan(value) {
  if (!Array.isArray(value)) throw new ProtocolError("the entries of a plan are not a list");
  return value.map((each) => {
    const entry = asRecord(each);
    const { content, priority, status } = entry;
    if (typeof content !== "string" || typeof priority !== "string" || typeof status !== "string") {
      throw new ProtocolError("an entry of a plan lacks its content, priority or status");
    }
    return { ...entry, content, priority, status };
  });
}

/**
 * @param {unknown} value
 * @returns {Location[]}
 * @throws {ProtocolError}
 */
function readLocations(value) {
  if (!Array.isArray(value)) throw new ProtocolError("the locations of a call are not a list");
  return value.map((each) => {
    const location = asRecord(each);
    const { path } = location;
    if (typeof path !== "string") throw new ProtocolError("a location of a call lacks its path");
    return { ...location, path };
  });
}

/**
 * @param {unknown} value
 * @returns {OwedCall[]}
 * @throws {ProtocolError}
 */
export function readOwed(value) {
  if (!Array.isArray(value)) throw new ProtocolError("the owed calls are not a list");
  return value.map((each) => {
    const call = asRecord(each);
    const { id, name, arguments: text, kind } = call;
    if (typeof id !== "string" || typeof name !== "string" || typeof text !== "string") {
      throw new ProtocolError("an owed call lacks its id, name or arguments");
    }
    // unknown fields are passed on
    return { ...call, id, name, arguments: text, kind: String(kind) };
  });
}
/**
 * @param {string} cursor
 * @returns {{run: string, place: [number, number, number]} | null} null if it is not a cursor
 */
export function readCursor(cursor) {
  const found = /^(.+)\.(\d+)-(\d+)(?:~(\d+))?$/.exec(cursor);
  if (!found) return null;
  const [, run = "", epoch, number, piece = "0"] = found;
  return { run, place: [Number(epoch), Number(number), Number(piece)] };
}

/**
 * @param {string} cursor
 * @param {string} to
 * @returns {boolean} whether the first is of the same run as the second, and after it
 */
export function isBehind(cursor, to) {
  const [one, other] = [readCursor(cursor), readCursor(to)];
  if (!one || !other || one.run !== other.run) return false;
  const [a, b] = [one.place, other.place];
  const at = a.findIndex((number, index) => number !== b[index]);
  return at >= 0 && (a[at] ?? 0) > (b[at] ?? 0);
}
