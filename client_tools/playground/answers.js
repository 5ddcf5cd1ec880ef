/**
 * The runs of each answer, with the steps that began, ended or delayed something in them.
 *
 * An answer is one run, and the runs that go on with it after results and decisions. Of the pieces
 * of texts and arguments only the first of each model call is kept, so a fast stream costs little.
 */

import { isBehind, readCursor } from "../js/src/events.js";
import { asRecord, parseJson } from "../js/src/json.js";
import { eventOf } from "./recorder.js";

/** @typedef {import("./recorder.js").RecordedStep} RecordedStep */
/** @typedef {import("../js/src/index.js").TraceStep} TraceStep */

/**
 * @typedef {object} Entry one event of a run
 * @property {number} time when it was received, in milliseconds since 1970
 * @property {string} cursor
 * @property {Record<string, any>} event the type `first` stands for the first piece of a model call
 * @property {string} key equal for events that are sent again behind a rewind
 * @property {boolean} isLate it may have happened long before it was received
 * @property {number | null} started when the server began it, by its own clock
 */
/** @typedef {{from: number, to: number | null, state: "open" | "done" | "lost" | "refused" |
 *   "missing", note: string}} Contact a request until its answer, or a time without a connection
 */
/** @typedef {{time: number, entries: Entry[]}} Rewind when it was received, and what became void */
/**
 * @typedef {object} Run
 * @property {string} id
 * @property {Entry[]} entries
 * @property {Rewind[]} rewinds
 * @property {Contact[]} contacts
 * @property {string} last its newest cursor
 * @property {Set<string>} awaited agents whose model call has no piece yet
 * @property {boolean} isEnded
 */
/** @typedef {{id: string, time: number, isError: boolean, approved: boolean | null}} Reply the
 *   result of a call, or a decision on it
 */

/**
 * @typedef {object} Answer
 * @property {number} number counts from 1
 * @property {string} conversation "" if it is not known
 * @property {Run[]} runs
 * @property {Reply[]} replies
 * @property {number | null} left when the conversation went on without what it waits for
 * @property {number} changes grows with each change
 */

/**
 * @typedef {object} Exchange a post or a followed run, with its reconnects
 * @property {boolean} isPost
 * @property {boolean} isNews it has a message of the user
 * @property {Reply[]} replies that it posts
 * @property {Contact[]} contacts before its run is known; those of the run afterwards
 * @property {string} conversation
 * @property {Run | null} run
 * @property {boolean} catchesUp
 * @property {number} read when its last frame came
 * @property {number} pause after which what comes is live
 */

/** Most answers that are kept. */
export const MAX_ANSWERS = 50;
/** Most events that are kept of one run. */
export const MAX_ENTRIES = 20_000;
/** A pause after which a stream has sent all that happened before. */
const CAUGHT_UP = 20; // milliseconds
/** Such a pause before the first event: a busy server may need some time for it. */
const FIRST_PAUSE = 1000; // milliseconds
/** The age below which an event counts as live. */
const FRESH = 100; // milliseconds

const TYPE = /^\{"type":"([a-z-]+)"/;
/** Pieces, of which only the first of each model call counts. */
const PIECES = new Set(["text", "reasoning", "agent-text", "tool-call-args"]);
/** Events without a meaning for times. */
const TIMELESS = new Set(["plan", "output", "posted", "switched", "watching", "deleted"]);

export class AnswerLog {
  /** @type {Answer[]} */
  answers = [];

  #count = 0;
  /** @type {Map<string, Exchange>} */
  #exchanges = new Map();
  /** @type {Map<string, {answer: Answer, run: Run}>} */
  #runs = new Map();
  /** The answer whose runs have handed back a call.
   * @type {Map<string, Answer>} */
  #owed = new Map();
  /** Runs that begin with a message of the user, as far as the stream says so. */
  #newRuns = new Set();

  clear() {
    this.answers = [];
    this.#newRuns.clear();
    this.#exchanges.clear();
    this.#runs.clear();
    this.#owed.clear();
  }

  /**
   * @param {RecordedStep} kept
   * @returns {boolean} whether an answer has changed
   */
  add({ step, exchange: name }) {
    if (step.kind === "request") return this.#addRequest(step, name);
    const exchange = this.#exchanges.get(name);
    if (!exchange) return false;
    if (step.kind === "response") return this.#addResponse(step, exchange);
    if (step.kind === "frame") return this.#addFrame(step, exchange);
    closeContact(exchange.contacts, step.time, "lost", step.message);
    const isOver = exchange.run === null || exchange.run.isEnded;
    if (!isOver && !isMissing(exchange)) exchange.contacts.push(contact(step.time, "missing"));
    return this.#changed(exchange.run);
  }

  /**
   * @param {Extract<TraceStep, {kind: "request"}>} step
   * @param {string} name
   */
  #addRequest({ method, path, body, time }, name) {
    const known = this.#exchanges.get(name);
    if (known) {
      if (!isMissing(known)) known.contacts.push(contact(time, "open"));
      return this.#changed(known.run);
    }
    const isPost = method === "POST" && /\/send-message$/.test(path);
    if (!isPost && !/\/(stream|events)(\?|$)/.test(path)) return false;
    const { isNews, replies } = isPost ? readPost(body, time) : { isNews: false, replies: [] };
    this.#exchanges.set(name, {
      isPost,
      isNews,
      replies,
      contacts: [contact(time, "open")],
      conversation: "",
      run: null,
      catchesUp: false,
      read: time,
      pause: FIRST_PAUSE,
    });
    return false;
  }

  /**
   * @param {Extract<TraceStep, {kind: "response"}>} step
   * @param {Exchange} exchange
   */
  #addResponse({ status, headers, time }, exchange) {
    const isRepeat = exchange.contacts.length > 1;
    closeContact(exchange.contacts, time, status < 400 ? "done" : "refused", `HTTP ${status}`);
    if (status >= 400) return this.#changed(exchange.run);
    Object.assign(exchange, {
      conversation: decoded(headers["x-conversation-id"] ?? "") || exchange.conversation,
      catchesUp: !exchange.isPost || isRepeat,
      read: time,
      pause: FIRST_PAUSE,
    });
    let isChanged = this.#addReplies(exchange.replies.splice(0));
    const runId = headers["x-run-id"];
    if (runId) isChanged = this.#enter(exchange, runId) || isChanged;
    return isChanged;
  }

  /** @param {Reply[]} replies */
  #addReplies(replies) {
    for (const reply of replies) {
      const answer = this.#owed.get(reply.id);
      if (!answer || answer.replies.some(({ id }) => id === reply.id)) continue;
      answer.replies.push(reply);
      answer.changes += 1;
    }
    return replies.length > 0;
  }

  /**
   * @param {Extract<TraceStep, {kind: "frame"}>} step
   * @param {Exchange} exchange
   */
  #addFrame({ id, data, time }, exchange) {
    if (time - exchange.read > exchange.pause) exchange.catchesUp = false;
    exchange.read = time;
    exchange.pause = CAUGHT_UP;
    const type = TYPE.exec(data)?.[1] ?? "";
    const run = this.#runOf(exchange, id);
    if (type === "posted") return this.#addPosted(eventOf(data), time);
    if (!run || type === "" || TIMELESS.has(type)) return false;
    // no agent awaits a piece: most frames end here
    if (PIECES.has(type) && run.awaited.size === 0) return false;
    if (run.last !== "" && !isBehind(id, run.last)) return false;
    if (run.entries.length >= MAX_ENTRIES && type !== "run-end") return false;
    return this.#addEvent(run, { id, data, time }, exchange);
  }

  /**
   * @param {Run} run
   * @param {{id: string, data: string, time: number}} frame
   * @param {Exchange} exchange
   */
  #addEvent(run, { id, data, time }, exchange) {
    const event = eventOf(data);
    const agent = String(event.parentToolCallId ?? "");
    if (PIECES.has(String(event.type))) {
      if (!run.awaited.delete(agent)) return false;
      return this.#keep(run, { time, cursor: id, ...firstPiece(agent) }, exchange);
    }
    run.last = id;
    if (event.type === "rewind") return this.#rewind(run, String(event.to), time);
    if (event.type === "message") run.awaited.add(agent);
    if (event.type === "usage") run.awaited.delete(agent);
    if (event.type === "run-end") run.isEnded = true;
    return this.#keep(run, { time, cursor: id, event, key: data }, exchange);
  }

  /**
   * @param {Run} run
   * @param {Omit<Entry, "isLate" | "started">} entry
   * @param {Exchange} exchange
   */
  #keep(run, entry, exchange) {
    const started = Date.parse(String(entry.event.startedAt));
    run.entries.push(
      takeBack(run, entry.key) ?? {
        ...entry,
        isLate: exchange.catchesUp,
        started: Number.isNaN(started) ? null : started,
      },
    );
    if (Math.abs(entry.time - started) < FRESH) exchange.catchesUp = false;
    this.#noteOwed(run, entry.event);
    return this.#changed(run);
  }

  /**
   * @param {Run} run
   * @param {Record<string, any>} event
   */
  #noteOwed(run, event) {
    const answer = this.#runs.get(run.id)?.answer;
    if (event.type !== "owed" || !answer || !Array.isArray(event.toolCalls)) return;
    for (const call of event.toolCalls) this.#owed.set(String(asRecord(call).id), answer);
  }

  /**
   * @param {Run} run
   * @param {string} to
   * @param {number} time
   */
  #rewind(run, to, time) {
    const entries = run.entries.filter(({ cursor }) => isBehind(cursor, to));
    run.entries = run.entries.filter(({ cursor }) => !isBehind(cursor, to));
    run.rewinds.push({ time, entries });
    run.awaited.clear();
    return this.#changed(run);
  }

  /**
   * @param {Record<string, any>} event
   * @param {number} time
   */
  #addPosted(event, time) {
    const messages = Array.isArray(event.messages) ? event.messages.map(asRecord) : [];
    const isNews = messages.some(({ role }) => role === "user");
    const isChanged = this.#addReplies(messages.flatMap((each) => replyOf(each, time)));
    if (isNews && typeof event.runId === "string") this.#newRuns.add(event.runId);
    return isChanged;
  }

  /**
   * @param {Exchange} exchange
   * @param {string} cursor
   * @returns {Run | null} the run of an event
   */
  #runOf(exchange, cursor) {
    const dot = cursor.lastIndexOf(".");
    if (dot > 0) {
      const { run } = exchange;
      if (run && run.id.length === dot && cursor.startsWith(run.id)) return run;
      if (readCursor(cursor)) this.#enter(exchange, cursor.slice(0, dot));
    }
    return exchange.run;
  }

  /**
   * @param {Exchange} exchange
   * @param {string} runId
   * @returns {boolean} whether the run is new
   */
  #enter(exchange, runId) {
    if (exchange.run?.id === runId) return false;
    const isNews = exchange.isNews || this.#newRuns.has(runId);
    const known = this.#runs.get(runId);
    const run = known?.run ?? this.#begin(runId, exchange, isNews).run;
    run.contacts.push(...(exchange.run ? [] : exchange.contacts));
    Object.assign(exchange, { run, contacts: run.contacts });
    return !known;
  }

  /**
   * @param {string} runId
   * @param {Exchange} exchange
   * @param {boolean} isNews
   */
  #begin(runId, { conversation, read }, isNews) {
    const before = this.answers.findLast((each) => each.conversation === conversation);
    const goesOn = !isNews && before && outcomeOf(before) === "handed-back";
    if (before && !goesOn) before.left ??= read;
    const answer = goesOn ? before : this.#newAnswer(conversation);
    /** @type {Run} */
    const run = {
      id: runId,
      entries: [],
      rewinds: [],
      contacts: [],
      last: "",
      awaited: new Set(),
      isEnded: false,
    };
    answer.runs.push(run);
    answer.changes += 1;
    const place = { answer, run };
    this.#runs.set(runId, place);
    return place;
  }

  /** @param {string} conversation */
  #newAnswer(conversation) {
    this.#count += 1;
    /** @type {Answer} */
    const answer = {
      number: this.#count,
      conversation,
      runs: [],
      replies: [],
      left: null,
      changes: 0,
    };
    this.answers.push(answer);
    if (this.answers.length > MAX_ANSWERS) this.#forget(this.answers.shift());
    return answer;
  }

  /** @param {Answer | undefined} old */
  #forget(old) {
    const runs = new Set(old?.runs);
    for (const run of runs) this.#runs.delete(run.id);
    for (const [name, { run }] of this.#exchanges) {
      if (run && runs.has(run)) this.#exchanges.delete(name);
    }
    for (const [id, answer] of this.#owed) if (answer === old) this.#owed.delete(id);
  }

  /** @param {Run | null} run */
  #changed(run) {
    const answer = run && this.#runs.get(run.id)?.answer;
    if (answer) answer.changes += 1;
    return Boolean(answer);
  }
}

/**
 * @param {Answer} answer
 * @returns {string} of its last run, "" if that goes on
 */
export function outcomeOf(answer) {
  const last = answer.runs.at(-1)?.entries.findLast(({ event }) => event.type === "run-end");
  return String(last?.event.outcome ?? "");
}

/**
 * @param {number} from
 * @param {"open" | "missing"} state
 * @returns {Contact}
 */
function contact(from, state) {
  return { from, to: null, state, note: "" };
}

/**
 * @param {Contact[]} contacts
 * @param {number} time
 * @param {"done" | "lost" | "refused"} state
 * @param {string} note
 */
function closeContact(contacts, time, state, note) {
  const last = contacts.at(-1);
  if (!last || last.to !== null) return;
  // a time without a connection goes on until the server answers, however often it is tried
  if (last.state === "missing" && state === "lost") return;
  Object.assign(last, { to: time, note, state: last.state === "missing" ? "missing" : state });
}

/** @param {Exchange} exchange */
function isMissing({ contacts }) {
  const last = contacts.at(-1);
  return last?.state === "missing" && last.to === null;
}

/**
 * @param {string} agent
 * @returns {{event: Record<string, any>, key: string}}
 */
function firstPiece(agent) {
  const parent = agent === "" ? {} : { parentToolCallId: agent };
  return { event: { type: "first", ...parent }, key: "" };
}

/**
 * @param {Run} run
 * @param {string} key
 * @returns {Entry | null} the same event from before a rewind, which holds again
 */
function takeBack({ rewinds }, key) {
  for (const { entries } of key === "" ? [] : rewinds) {
    const index = entries.findIndex((entry) => entry.key === key);
    if (index >= 0) return entries.splice(index, 1)[0] ?? null;
  }
  return null;
}

/**
 * @param {string | null} body
 * @param {number} time
 */
function readPost(body, time) {
  const post = asRecord(parseJson(body ?? ""));
  const messages = Array.isArray(post.messages) ? post.messages.map(asRecord) : [];
  const resumed = Array.isArray(post.resume) ? post.resume : [post.resume];
  const decisions = resumed.map(asRecord).flatMap(({ interruptId, payload }) => {
    const given = /** @type {{approved?: unknown}} */ (asRecord(payload));
    return replyOf({ role: "approval", toolCallId: interruptId, ...given }, time);
  });
  const replies = [...messages.flatMap((each) => replyOf(each, time)), ...decisions];
  // without messages and answers, it asks for another answer to an earlier message
  const isNews = messages.some(({ role }) => role === "user") || replies.length === 0;
  return { isNews, replies };
}

/**
 * @param {Record<string, unknown>} message
 * @param {number} time
 * @returns {Reply[]} one, or none
 */
function replyOf({ role, toolCallId, isError, approved }, time) {
  if (typeof toolCallId !== "string" || (role !== "tool" && role !== "approval")) return [];
  const decision = role === "approval" ? approved !== false : null;
  return [{ id: toolCallId, time, isError: isError === true, approved: decision }];
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
