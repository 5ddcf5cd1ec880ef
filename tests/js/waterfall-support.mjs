/** Steps of a client as the waterfall gets them, from a script with times. */

import { AnswerLog } from "../../client_tools/playground/answers.js";
import { rowsOf } from "../../client_tools/playground/spans.js";

export const T0 = Date.UTC(2026, 0, 31);
const HEADERS = { "x-conversation-id": "c" };

/** A client whose steps go into a log. Times are milliseconds since the start of the test. */
export class Script {
  log = new AnswerLog();
  #exchange = 0;
  #numbers = new Map();
  #epochs = new Map();

  /** @param {number} at @param {object} body @returns {string} the exchange */
  post(at, body = { messages: [{ role: "user", content: "hi" }] }) {
    this.#exchange += 1;
    const name = `1.${this.#exchange}`;
    this.again(name, at, { method: "POST", path: "/send-message", body: JSON.stringify(body) });
    return name;
  }

  /** @param {number} at */
  follow(at, run = "r1") {
    this.#exchange += 1;
    const name = `1.${this.#exchange}`;
    this.again(name, at, { path: `/conversations/c/stream?runId=${run}` });
    return name;
  }

  again(exchange, at, change = {}) {
    const step = { kind: "request", method: "GET", path: "/conversations/c/stream", body: null };
    this.step(exchange, at, { ...step, headers: {}, ...change });
  }

  response(exchange, at, run = "r1", status = 200, headers = HEADERS) {
    const named = run === null ? headers : { ...headers, "x-run-id": run };
    this.step(exchange, at, { kind: "response", status, headers: named, body: null });
  }

  lost(exchange, at) {
    this.step(exchange, at, { kind: "lost", message: "the stream broke off" });
  }

  /** A frame with the next number of its run; returns its cursor. */
  frame(exchange, at, event, run = "r1", cursor = this.next(run)) {
    const data = typeof event === "string" ? event : JSON.stringify(event);
    this.step(exchange, at, { kind: "frame", id: cursor, data });
    return cursor;
  }

  next(run = "r1") {
    const number = (this.#numbers.get(run) ?? 0) + 1;
    this.#numbers.set(run, number);
    return `${run}.${this.#epochs.get(run) ?? 1}-${number}`;
  }

  /** Another worker has the run: its numbers begin anew under a higher epoch. */
  takeOver(run = "r1") {
    this.#epochs.set(run, (this.#epochs.get(run) ?? 1) + 1);
    this.#numbers.set(run, 0);
  }

  step(exchange, at, step) {
    return this.log.add({ step: { ...step, time: T0 + at, exchange: 0 }, exchange, at: 0 });
  }

  /** The rows of an answer as short texts, without the connection. */
  rows(index = -1) {
    return rowsOf(this.log.answers.at(index))
      .filter(({ kind }) => kind !== "contact")
      .map(shortRow);
  }
}

/** @returns {string} such as "  model gpt: model 10-20 done" */
export function shortRow({ depth, kind, name, title, spans }) {
  const shown = kind === "model" ? title : kind === "run" ? "" : name;
  return `${"  ".repeat(depth)}${kind} ${shown}: ${spans.map(shortSpan).join(", ")}`;
}

function shortSpan({ kind, from, to, state, isRough, note }) {
  const times = `${from - T0}-${to === null ? "" : to - T0}`;
  const about = isRough ? " about" : "";
  return `${kind} ${times} ${state}${about}${note && ` (${note})`}`;
}

export const text = (content = "a") => ({ type: "text", content });
export const message = (id, more = {}) => ({ type: "message", messageId: id, ...more });
export const usage = (more = {}) => ({
  type: "usage",
  inputTokens: 10,
  outputTokens: 2,
  model: "gpt",
  ...more,
});
export const call = (id, name = "look", more = {}) => ({
  type: "tool-call-start",
  toolCallId: id,
  toolCallName: name,
  ...more,
});
export const ready = (id, more = {}) => ({ type: "tool-call-end", toolCallId: id, ...more });
export const begin = (id, more = {}) => ({ type: "tool-begin", toolCallId: id, ...more });
export const result = (id, more = {}) => ({
  type: "tool-result",
  toolCallId: id,
  result: "ok",
  ...more,
});
export const end = (outcome = "completed", more = {}) => ({ type: "run-end", outcome, ...more });
export const START = { type: "run-start", runId: "r1" };
/** @param {...[string, string?, object?]} calls id, kind and more of each */
export const owed = (...calls) => ({
  type: "owed",
  toolCalls: calls.map(([id, kind = "tool_result", more = {}]) => ({
    id,
    name: "paint",
    arguments: "{}",
    kind,
    ...more,
  })),
});
