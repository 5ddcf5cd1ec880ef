/** The rows of a waterfall: what took how long in an answer, as a tree. */

import { clockOffset, timesOf } from "./times.js";

/** @typedef {import("./answers.js").Answer} Answer */
/** @typedef {import("./answers.js").Run} Run */

/**
 * @typedef {"request" | "missing" | "run" | "queue" | "model" | "tool" | "client" | "person"}
 *   SpanKind missing: without a connection; tool: of the server, or a sub-agent; client: owed by a
 *   client; person: waits for somebody's decision or answer
 */
/**
 * @typedef {"open" | "done" | "failed" | "stopped" | "paused" | "void" | "skipped"} SpanState
 *   stopped: its run was cancelled or failed; paused: the run was handed back meanwhile; void: a
 *   take-over has made it so; skipped: the conversation went on without it
 */
/**
 * @typedef {object} Span
 * @property {SpanKind} kind
 * @property {number} from milliseconds since 1970
 * @property {number | null} to null: it goes on
 * @property {SpanState} state
 * @property {string} note
 * @property {boolean} isRough an end of it is approximate
 * @property {number} first when the first piece came, 0 if none did
 * @property {number} worked milliseconds that the server counted, 0 if it did not say
 */
/**
 * @typedef {object} Row
 * @property {string} id unique in its answer
 * @property {string} parent the id of its row; "" at the top
 * @property {number} depth
 * @property {"contact" | "run" | "model" | "tool" | "agent"} kind
 * @property {string} name
 * @property {string} title
 * @property {Span[]} spans in the order of their beginnings
 * @property {{input: number, output: number} | null} tokens of all model calls below it
 * @property {string} progress
 * @property {boolean} isVoid
 */

/** @type {ReadonlyMap<unknown, SpanState>} by the outcome of the run */
const ENDS = new Map([
  ["handed-back", "paused"],
  ["failed", "failed"],
  ["cancelled", "stopped"],
]);
/**
 * @param {Answer} answer
 * @returns {Row[]} parents before their children, and siblings by their beginnings
 */
export function rowsOf(answer) {
  const offset = clockOffset(answer.runs.flatMap(({ entries }) => entries));
  const rows = new Rows(answer);
  answer.runs.forEach((run, index) => rows.addRun(run, index, offset));
  return sumTokens(inOrder(rows.finish()));
}

/**
 * @param {readonly Row[]} rows
 * @param {number} now
 * @returns {{from: number, to: number, isOpen: boolean}} the time that all rows span
 */
export function extentOf(rows, now) {
  const spans = rows.flatMap((row) => row.spans);
  const from = Math.min(...spans.map((span) => span.from));
  const isOpen = spans.some(({ to }) => to === null);
  const to = Math.max(...spans.map((span) => span.to ?? span.from), isOpen ? now : from);
  return spans.length === 0 ? { from: now, to: now, isOpen: false } : { from, to, isOpen };
}

/** Builds the rows of one answer, event by event. */
class Rows {
  #answer;
  /** @type {Map<string, Row>} */
  #rows = new Map();
  /** The open model call of each agent, by the call that it works on.
   * @type {Map<string, Row>} */
  #models = new Map();
  /** When a call could be answered or made.
   * @type {Map<string, number>} */
  #ready = new Map();
  #prefix;
  #time = 0;
  #isRough = false;

  /**
   * @param {Answer} answer
   * @param {string} [prefix] of the ids of rows
   */
  constructor(answer, prefix = "") {
    this.#answer = answer;
    this.#prefix = prefix;
  }

  /**
   * @param {Run} run
   * @param {number} index
   * @param {number} offset
   */
  addRun(run, index, offset) {
    this.#addContacts(run);
    const { times, isRough } = timesOf(run.entries, offset);
    const first = times[0] ?? run.contacts[0]?.from;
    if (first !== undefined) this.#endOwed(first, index);
    const row = this.#row("run", { kind: "run", name: "Run" });
    run.entries.forEach((entry, at) => {
      this.#time = times[at] ?? entry.time;
      this.#isRough = isRough[at] ?? false;
      this.#feed(entry.event, row);
    });
    run.rewinds.forEach((rewind, number) => this.#addVoid(rewind, `void.${index}.${number}.`));
  }

  /** @returns {Row[]} */
  finish() {
    const { left } = this.#answer;
    if (left !== null) this.#endOwed(left, this.#answer.runs.length);
    return [...this.#rows.values()].filter(({ spans }) => spans.length > 0);
  }

  /** @param {Run} run */
  #addContacts({ contacts }) {
    if (contacts.length === 0) return;
    const row = this.#row("contact", { kind: "contact", name: "Connection" });
    for (const { from, to, state, note } of contacts) {
      const kind = state === "missing" ? "missing" : "request";
      const hasFailed = state === "lost" || state === "refused" || state === "missing";
      const ended = hasFailed ? "failed" : "done";
      row.spans.push({ ...span(kind, from, note), to, state: to === null ? "open" : ended });
    }
    row.spans.sort((a, b) => a.from - b.from);
  }

  /**
   * @param {import("./answers.js").Rewind} rewind
   * @param {string} prefix
   */
  #addVoid({ time, entries }, prefix) {
    const ghost = new Rows({ ...this.#answer, replies: [], left: null }, prefix);
    for (const entry of entries) {
      ghost.#time = entry.time;
      ghost.#isRough = entry.isLate;
      if (entry.event.type !== "tool-result" || ghost.#openSpan(entry.event.toolCallId)) {
        ghost.#feed(entry.event, null);
      }
    }
    for (const row of ghost.#rows.values()) {
      /** @type {Span[]} */
      const spans = row.spans.map((one) => ({ ...one, to: one.to ?? time, state: "void" }));
      const isInside = Boolean(ghost.#rows.get(row.parent)?.spans.length);
      const parent = isInside ? row.parent : row.parent.slice(prefix.length);
      const name = row.name || (this.#rows.get(row.id.slice(prefix.length))?.name ?? "");
      this.#rows.set(row.id, { ...row, name, parent, spans, isVoid: true });
    }
  }

  /**
   * @param {Record<string, any>} event
   * @param {Row | null} run null: its events are void
   */
  #feed(event, run) {
    const agent = String(event.parentToolCallId ?? "");
    switch (event.type) {
      case "run-queued":
        return run?.spans.push(this.#begin("queue"));
      case "run-start":
        if (run) this.#end(run, "done");
        return run?.spans.push(this.#begin("run"));
      case "message":
        return this.#beginModel(agent, String(event.messageId));
      case "first":
        return this.#noteFirst(agent);
      case "usage":
        return this.#endModel(agent, event);
      case "run-end":
        return this.#endRun(event, run);
      case "error":
        return run && this.#note(run, String(event.code ?? event.error));
      case "owed":
        return readCalls(event.toolCalls).forEach((call) => this.#owe(call));
      default:
        return this.#feedCall(event, agent);
    }
  }

  /**
   * @param {Record<string, any>} event
   * @param {string} agent
   */
  #feedCall(event, agent) {
    const id = String(event.toolCallId ?? "");
    switch (event.type) {
      case "tool-call-start": {
        this.#noteFirst(agent);
        const row = this.#call(id, agent);
        row.name = String(event.toolCallName);
        row.title = String(event.title ?? "");
        return;
      }
      case "tool-call-end":
        return this.#ready.set(id, this.#time);
      case "tool-begin":
        // not every model counts tokens, and its tools begin when it has ended
        this.#endModel(agent, {});
        return this.#work(this.#call(id, agent));
      case "tool-progress":
        this.#call(id, agent).progress = String(event.text);
        return;
      case "tool-result":
        return this.#endCall(this.#call(id, agent), event);
    }
  }

  // ---------------------------------------------------------------- model calls
  /**
   * @param {string} agent
   * @param {string} id
   */
  #beginModel(agent, id) {
    this.#endModel(agent, {});
    const parent = agent === "" ? "" : this.#call(agent, "", "agent").id;
    const row = this.#row(`model.${id}`, { kind: "model", name: "Model call", parent });
    row.spans.push(this.#begin("model"));
    this.#models.set(agent, row);
  }

  /** @param {string} agent */
  #noteFirst(agent) {
    const one = this.#models.get(agent)?.spans.at(-1);
    if (one && one.first === 0) one.first = Math.max(one.from, this.#time);
  }

  /**
   * @param {string} agent
   * @param {Record<string, any>} usage
   */
  #endModel(agent, { model, inputTokens, outputTokens }) {
    const row = this.#models.get(agent);
    if (!row) return;
    this.#models.delete(agent);
    this.#end(row, "done");
    if (typeof model === "string") row.title = model;
    if (Number.isFinite(inputTokens) && Number.isFinite(outputTokens)) {
      row.tokens = { input: inputTokens, output: outputTokens };
    }
  }

  // ---------------------------------------------------------------- calls
  /**
   * @param {string} id
   * @param {string} agent that makes it
   * @param {Row["kind"]} [kind]
   */
  #call(id, agent, kind = "tool") {
    const parent = agent === "" ? "" : this.#call(agent, "", "agent").id;
    const row = this.#row(`call.${id}`, { kind, name: "", parent });
    if (kind === "agent") row.kind = kind;
    return row;
  }

  /** @param {string} id */
  #openSpan(id) {
    const last = this.#rows.get(`${this.#prefix}call.${id}`)?.spans.at(-1);
    return last?.to === null ? last : undefined;
  }

  /** @param {Row} row */
  #work(row) {
    this.#end(row, "done");
    row.spans.push(this.#begin("tool"));
  }

  /**
   * @param {Row} row
   * @param {Record<string, any>} result
   */
  #endCall(row, { isError, synthetic, durationMs }) {
    const isOpen = row.spans.at(-1)?.to === null;
    // without a beginning, no tool has worked on it, or the stream does not say when
    if (!isOpen) row.spans.push(this.#begin("tool"));
    this.#end(row, isError === true ? "failed" : "done");
    const last = row.spans.at(-1);
    if (last && Number.isFinite(durationMs)) last.worked = durationMs;
    if (typeof synthetic === "string") this.#note(row, synthetic);
  }

  /** @param {Record<string, any>} call */
  #owe({ id, name, kind, reason, parentToolCallId }) {
    const agent = String(parentToolCallId ?? "");
    const row = this.#call(String(id), agent);
    row.name = String(name);
    const isClients = kind === "tool_result";
    this.#end(row, "paused");
    const from = isClients ? (this.#ready.get(String(id)) ?? this.#time) : this.#time;
    const wait = { ...this.#begin(isClients ? "client" : "person"), from };
    wait.note = String(reason ?? "");
    row.spans.push(wait);
    const reply = this.#answer.replies.find((each) => each.id === id);
    if (!reply) return;
    wait.to = Math.max(from, reply.time);
    wait.state = reply.isError || reply.approved === false ? "failed" : "done";
    if (reply.approved !== null) this.#note(row, reply.approved ? "allowed" : "denied");
  }

  /**
   * End what still waits for an answer when a run begins, or another message has come.
   *
   * @param {number} time
   * @param {number} index of that run
   */
  #endOwed(time, index) {
    const isSkipped = index >= this.#answer.runs.length;
    for (const { spans } of this.#rows.values()) {
      const last = spans.at(-1);
      if (last?.to !== null || (last.kind !== "client" && last.kind !== "person")) continue;
      last.to = Math.max(last.from, time);
      last.state = isSkipped ? "skipped" : "done";
      last.note ||= isSkipped ? "" : "answered elsewhere";
    }
  }

  // ---------------------------------------------------------------- ends
  /**
   * @param {Record<string, any>} end
   * @param {Row | null} run
   */
  #endRun({ outcome, reason, model }, run) {
    const state = ENDS.get(outcome) ?? "done";
    for (const agent of [...this.#models.keys()]) {
      const row = this.#models.get(agent);
      this.#endModel(agent, {});
      const last = row?.spans.at(-1);
      if (last && state !== "paused") last.state = state === "failed" ? "stopped" : state;
    }
    for (const row of this.#rows.values()) {
      if (row.kind !== "tool" && row.kind !== "agent") continue;
      if (row.spans.at(-1)?.kind === "tool") this.#end(row, state === "paused" ? state : "stopped");
    }
    if (!run) return;
    if (run.spans.at(-1)?.to !== null) run.spans.push(this.#begin("run"));
    this.#end(run, state);
    if (typeof model === "string") run.title = model;
    this.#note(run, reason === undefined ? String(outcome) : `${outcome}, ${reason}`);
  }

  // ---------------------------------------------------------------- rows and spans
  /**
   * @param {string} id
   * @param {Pick<Row, "kind" | "name"> & {parent?: string}} more
   * @returns {Row}
   */
  #row(id, { parent = "", ...more }) {
    const whole = this.#prefix + id;
    const known = this.#rows.get(whole);
    if (known) return known;
    /** @type {Row} */
    const row = {
      id: whole,
      parent,
      depth: 0,
      title: "",
      spans: [],
      tokens: null,
      progress: "",
      isVoid: false,
      ...more,
    };
    this.#rows.set(whole, row);
    return row;
  }

  /** @param {SpanKind} kind */
  #begin(kind) {
    return { ...span(kind, this.#time, ""), isRough: this.#isRough };
  }

  /**
   * @param {Row} row
   * @param {SpanState} state
   */
  #end({ spans }, state) {
    const last = spans.at(-1);
    if (last?.to !== null) return;
    last.to = Math.max(last.from, this.#time);
    last.state = state;
    last.isRough ||= this.#isRough;
  }

  /**
   * @param {Row} row
   * @param {string} text
   */
  #note({ spans }, text) {
    const last = spans.at(-1);
    if (last) last.note = last.note === "" ? text : `${last.note}, ${text}`;
  }
}

/**
 * @param {SpanKind} kind
 * @param {number} from
 * @param {string} note
 * @returns {Span}
 */
function span(kind, from, note) {
  return { kind, from, to: null, state: "open", note, isRough: false, first: 0, worked: 0 };
}

/**
 * Give the run and each sub-agent the tokens of all model calls below them.
 *
 * @param {Row[]} rows parents before their children
 * @returns {Row[]} the same
 */
function sumTokens(rows) {
  const byId = new Map(rows.map((row) => [row.id, row]));
  const run = byId.get("run");
  for (const row of [...rows].reverse()) {
    if (!row.tokens || row === run) continue;
    const above = byId.get(row.parent) ?? run;
    if (above) above.tokens = sum(above.tokens, row.tokens);
  }
  return rows;
}

/**
 * @param {Row["tokens"]} one
 * @param {{input: number, output: number}} other
 */
function sum(one, other) {
  return { input: (one?.input ?? 0) + other.input, output: (one?.output ?? 0) + other.output };
}

/**
 * @param {unknown} value
 * @returns {Record<string, any>[]}
 */
function readCalls(value) {
  const calls = Array.isArray(value) ? value : [];
  return calls.filter((each) => typeof each === "object" && each !== null);
}

/**
 * @param {Row[]} rows
 * @returns {Row[]}
 */
function inOrder(rows) {
  const ids = new Set(rows.map(({ id }) => id));
  /** @type {Map<string, Row[]>} */
  const children = new Map();
  for (const row of rows) {
    const parent = ids.has(row.parent) && row.parent !== row.id ? row.parent : "";
    const siblings = children.get(parent);
    if (siblings) siblings.push(row);
    else children.set(parent, [row]);
  }
  const rank = (/** @type {Row} */ { kind }) => ["contact", "run"].indexOf(kind);
  const begin = (/** @type {Row} */ { spans }) => spans[0]?.from ?? 0;
  for (const list of children.values()) {
    list.sort((a, b) => {
      if (rank(a) >= 0 || rank(b) >= 0) return (rank(a) >>> 0) - (rank(b) >>> 0);
      return begin(a) - begin(b);
    });
  }
  /** @type {Row[]} */
  const result = [];
  const waiting = (children.get("") ?? []).map((row) => ({ row, parent: "", depth: 0 })).reverse();
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { row, parent, depth } = next;
    result.push({ ...row, parent, depth });
    const below = (children.get(row.id) ?? []).map((each) => ({
      row: each,
      parent: row.id,
      depth: depth + 1,
    }));
    waiting.push(...below.reverse());
  }
  return result;
}
