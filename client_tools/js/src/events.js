/** The events of a run, as `send` gives them. */

import { ProtocolError } from "./errors.js";
import { asRecord, parseJson } from "./json.js";

/**
 * @typedef {object} Place what every event has
 * @property {string} cursor its place in the run's log, to read on from; "" where an event has none
 * @property {string | null} runId
 */

/**
 * @typedef {object} Nestable what every event has that a sub-agent may say, too
 * @property {string} [parentToolCallId] the call that the sub-agent works on; without it the agent itself says it
 */

/** @typedef {{type: "text", content: string} & Place} TextEvent a piece of the answer */
/**
 * @typedef {{type: "agent-text", parentToolCallId: string, delta: string} & Place} AgentTextEvent a piece of what a sub-agent
 *   says; it is no part of the answer
 */
/** @typedef {{type: "reasoning", delta: string} & Nestable & Place} ReasoningEvent a piece of the model's reasoning */
/** @typedef {{type: "message", messageId: string} & Nestable & Place} MessageEvent what follows belongs to this message */
/**
 * @typedef {{type: "usage", left?: Left, model?: string} & Usage & Nestable & Place} UsageEvent of the model call that just ended, and what is left
 *   then of the run's limits
 */
/**
 * @typedef {{type: "context", used: number, window?: number, step?: "snip" | "micro" | "summary" | "cut" | (string & {}),
 *   before?: number} & Nestable & Place} ContextEvent how full the model's window is, in estimated tokens; with a `step` the model is shown less from here on
 */
/**
 * @typedef {{type: "plan", entries: PlanEntry[]} & Nestable & Place} PlanEvent what the agent means to do now; it replaces
 *   what it said before
 */
/** @typedef {{type: "output", value: unknown} & Place} OutputEvent the answer fits the schema that was asked for: this is it */
/** @typedef {{type: "tool-call-start", toolCallId: string, toolCallName: string} & Nestable & Place} ToolCallStartEvent */
/** @typedef {{type: "tool-call-args", toolCallId: string, delta: string} & Nestable & Place} ToolCallArgsEvent */
/** @typedef {{type: "tool-call-end", toolCallId: string} & Nestable & Place} ToolCallEndEvent */
/** @typedef {{type: "tool-progress", toolCallId: string, text: string} & Nestable & Place} ToolProgressEvent how far it is */
/**
 * @typedef {{type: "tool-result", toolCallId: string, result: string, isError?: boolean, synthetic?: Synthetic} & Nestable
 *   & Place} ToolResultEvent the server answered: its tool ran, or `synthetic` says why no tool gave this
 */
/**
 * @typedef {{type: "client-tool-result", toolCallId: string, toolCallName: string, content: unknown,
 *   isError: boolean, synthetic?: Synthetic} & Place} ClientToolResultEvent a tool of this client has run; said by this library, and
 *   `synthetic` only by `Chat`, of what the history has
 */
/**
 * @typedef {{type: "client-decision", toolCallId: string, toolCallName: string, approved: boolean,
 *   reason: string} & Place} ClientDecisionEvent `approve` has decided on a call of the server; said by this library
 */
/**
 * @typedef {{type: "call-elsewhere", toolCallId: string, toolCallName: string, state: "claimed" | "answered"}
 *   & Place} CallElsewhereEvent another client runs a call, or has answered it; said by this library
 */
/**
 * @typedef {Omit<ClientToolResultEvent, keyof Place> | Omit<ClientDecisionEvent, keyof Place>
 *   | Omit<CallElsewhereEvent, keyof Place>} ClientEvent what this library says itself, without a place
 */
/**
 * @typedef {{type: "interrupt", id: string, reason: string, payload: InterruptPayload} & Place} InterruptEvent a tool of
 *   the server waits for a person's decision; `id` names it in `client.decide`
 */
/** @typedef {{type: "owed", toolCalls: OwedCall[]} & Place} OwedEvent the calls that clients, or people, have to answer */
/** @typedef {{type: "run-queued"} & Place} RunQueuedEvent the run waits for another one to end */
/** @typedef {{type: "run-start"} & Place} RunStartEvent */
/**
 * @typedef {{type: "run-end", outcome: "completed" | "handed-back" | "cancelled" | "failed", reason?: Reason, model?: string}
 *   & Place} RunEndEvent `model`: the name of the one that spoke last in the run, sub-agents aside
 */
/**
 * @typedef {"end_turn" | "max_tokens" | "max_turns" | "refusal" | "budget" | (string & {})} Reason why a run has completed, or the
 *   code of its failure
 */
/**
 * @typedef {"superseded" | "interrupted" | "invalid" | "denied" | "timeout" | "unanswered" | (string & {})} Synthetic why the
 *   server wrote the result of a call itself
 */
/**
 * @typedef {{type: "rewind", to: string} & Place} RewindEvent every event of this run whose cursor is behind `to`
 *   is void: `Answer` takes it back
 */

/**
 * @typedef {TextEvent | AgentTextEvent | ReasoningEvent | MessageEvent | UsageEvent | OutputEvent | ContextEvent | PlanEvent
 *   | ToolCallStartEvent | ToolCallArgsEvent | ToolCallEndEvent | ToolProgressEvent | ToolResultEvent
 *   | ClientToolResultEvent | ClientDecisionEvent | CallElsewhereEvent | InterruptEvent | OwedEvent
 *   | RunQueuedEvent | RunStartEvent | RunEndEvent | RewindEvent} Event
 */

/**
 * @typedef {object} Usage tokens
 * @property {number} inputTokens
 * @property {number} outputTokens
 * @property {number} cachedTokens
 * @property {number} reasoningTokens
 * @property {true} [estimated] an answer was cut before the provider had counted it
 */

/**
 * @typedef {object} Left what is left of the tightest limit of each kind, where there is one and it is told
 * @property {number} [turns] model calls of this run
 * @property {number} [tokens] of input and output together
 * @property {number} [seconds] of work
 * @property {number} [cost] in the currency of the server's prices
 */

/**
 * @typedef {object} PlanEntry one thing that the agent means to do
 * @property {string} content
 * @property {"high" | "medium" | "low" | (string & {})} priority
 * @property {"pending" | "in_progress" | "completed" | (string & {})} status
 */

/**
 * @typedef {object} OwedCall
 * @property {string} id
 * @property {string} name
 * @property {string} arguments JSON, as text
 * @property {"tool_result" | "approval" | "question" | (string & {})} kind what is owed: the result of a client's tool, a
 *   decision on a server's tool, a person's answers to the questions in `arguments`
 * @property {string} [reason] why a person is asked, for those of kind "approval"
 * @property {string} [parentToolCallId] the call by which an agent was given the task in which this one was made
 * @property {string | null} [deadline] until when it can be answered, RFC 3339 in UTC: `client.conversation` knows it
 * @property {string | null} [claimedUntil] until when a client has claimed it, RFC 3339 in UTC: `client.conversation` knows it
 */

/**
 * @typedef {object} InterruptPayload
 * @property {string} [kind] "approval"
 * @property {string} [toolCallId]
 * @property {string} [toolCallName]
 * @property {string} [arguments] JSON, as text
 */

/** @typedef {{type: "error", error: string, code: string, retryable: boolean, retryAfter?: number}} ErrorEvent */

/** @type {Record<string, string[]>} the texts that an event of a type has */
const TEXTS = {
  text: ["content"],
  "agent-text": ["parentToolCallId", "delta"],
  reasoning: ["delta"],
  message: ["messageId"],
  "tool-call-start": ["toolCallId", "toolCallName"],
  "tool-call-args": ["toolCallId", "delta"],
  "tool-call-end": ["toolCallId"],
  "tool-progress": ["toolCallId", "text"],
  "tool-result": ["toolCallId", "result"],
  interrupt: ["id"],
  "run-end": ["outcome"],
  rewind: ["to"],
  error: ["error"],
};

/**
 * @param {string} data of one frame
 * @param {Place} place
 * @returns {Event | (ErrorEvent & Place)} types of a later server are passed on
 * @throws {ProtocolError}
 */
export function readEvent(data, place) {
  const event = asRecord(parseJson(data));
  if (typeof event.type !== "string")
    throw new ProtocolError("the stream holds something that is no event");
  const missing = TEXTS[event.type]?.find((field) => typeof event[field] !== "string");
  if (missing) throw new ProtocolError(`an event "${event.type}" of the stream has no ${missing}`);
  if (event.type === "owed") event.toolCalls = readOwed(event.toolCalls);
  if (event.type === "plan") event.entries = readPlan(event.entries);
  if (event.type === "interrupt") {
    const reason = typeof event.reason === "string" ? event.reason : "";
    Object.assign(event, { reason, payload: asRecord(event.payload) });
  }
  return /** @type {Event} */ ({ ...event, ...place });
}

/**
 * @param {unknown} value
 * @returns {PlanEntry[]}
 * @throws {ProtocolError}
 */
function readPlan(value) {
  if (!Array.isArray(value)) throw new ProtocolError("the entries of a plan are no list");
  return value.map((each) => {
    const entry = asRecord(each);
    const { content, priority, status } = entry;
    if (typeof content !== "string" || typeof priority !== "string" || typeof status !== "string") {
      throw new ProtocolError("an entry of a plan has no content, no priority or no status");
    }
    return { ...entry, content, priority, status };
  });
}

/**
 * @param {unknown} value
 * @returns {OwedCall[]}
 * @throws {ProtocolError}
 */
export function readOwed(value) {
  if (!Array.isArray(value)) throw new ProtocolError("the list of owed calls is none");
  return value.map((each) => {
    const call = asRecord(each);
    const { id, name, arguments: text, kind } = call;
    if (typeof id !== "string" || typeof name !== "string" || typeof text !== "string") {
      throw new ProtocolError("an owed call has no id, no name or no arguments");
    }
    // fields of a later server are passed on
    return { ...call, id, name, arguments: text, kind: String(kind) };
  });
}
