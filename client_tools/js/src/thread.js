/** The messages and answers of a chat in their order, by the runs of which they are. */

import { Answer } from "./answer.js";
import { unansweredCalls, valueOf, withResults } from "./calls.js";
import { askedIn, eventsOf, resultEvent } from "./past.js";
import { VersionedEntries } from "./versions.js";

/** @typedef {import("./state.js").AssistantEntry} AssistantEntry */
/** @typedef {import("./state.js").UserEntry} UserEntry */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./messages.js").Message} Message */

/**
 * @typedef {object} ShownRun
 * @property {string} id
 * @property {number | null} first position of its first message; null: not known yet
 * @property {boolean | null} isOwn whether its events come from a `send`, not from watching; null:
 *   neither has begun to read it
 * @property {boolean} isOpen whether more of its events follow
 * @property {Readonly<AssistantEntry> | null} before the answer before this run
 */

/**
 * @typedef {object} Exchange what a user has said, and the answer, over all its runs
 * @property {{id: string, entry: UserEntry}[]} asked
 * @property {Answer} answer
 * @property {Readonly<AssistantEntry> | null} said the answer so far
 * @property {Set<string>} ids of the messages of the answer, as far as they are known
 * @property {ShownRun[]} runs
 * @property {boolean} isWaiting whether this chat sends it, and no run of it has begun
 * @property {boolean} isReading whether this chat reads its answer
 * @property {string | null} replaces the id of the message that it takes the place of, with all
 *   behind that, as soon as its run begins
 */

export class Thread {
  /** Whether something has taken the place of what was shown, so that there are new versions. */
  isRewritten = false;
  /** @type {Exchange[]} */
  #exchanges = [];
  #versions = new VersionedEntries();
  /** Runs that others have taken the place of: the watch may come to them later.
   * @type {Set<string>} */
  #gone = new Set();

  /** @returns {readonly (UserEntry | Readonly<AssistantEntry>)[]} */
  get entries() {
    return this.#exchanges.flatMap((exchange) => this.#versions.of(exchange));
  }

  /** @param {readonly import("./branches.js").BranchPoint[]} branches of what is shown */
  set branches(branches) {
    this.#versions.branches = branches;
    this.isRewritten = false;
  }

  /** @returns {Exchange} the last one that has an answer, which may continue */
  get last() {
    const isAnswer = (/** @type {Exchange} */ { runs, said }) => runs.length > 0 || said !== null;
    return this.#exchanges.findLast(isAnswer) ?? this.#insert([]);
  }

  clear() {
    this.#exchanges = [];
  }

  /**
   * @param {Exchange["asked"]} asked messages that this chat sends
   * @param {string | null} [replaces]
   * @returns {Exchange}
   */
  begin(asked, replaces = null) {
    const answer = new Answer();
    const ids = new Set();
    const state = { isWaiting: true, isReading: false };
    const own = { asked, replaces, answer, said: null, ids, runs: [], ...state };
    this.#exchanges.push(own);
    return own;
  }

  /**
   * @param {string} id
   * @returns {Exchange["asked"]} the message of a user, if it is shown
   */
  find(id) {
    const all = this.#exchanges.flatMap(({ asked }) => asked);
    return all.filter((each) => each.id === id).slice(0, 1);
  }

  /**
   * Let an exchange take the place of the message that it replaces; those that wait stay.
   *
   * @param {Exchange} own
   */
  replace(own) {
    const { replaces } = own;
    own.replaces = null;
    const isIt = (/** @type {{id: string}} */ { id }) => id === replaces;
    const index = this.#exchanges.findIndex((each) => each !== own && each.asked.some(isIt));
    const old = this.#exchanges[index];
    if (replaces === null || !old) return;
    const isGone = (/** @type {Exchange} */ each) => each !== own && !each.isWaiting;
    const behind = this.#exchanges.slice(index);
    this.#noteRewriting(behind.filter(isGone));
    this.#versions.forget(replaces);
    const asked = old.asked.slice(0, old.asked.findIndex(isIt));
    const left = asked.length > 0 ? [{ ...old, asked, said: null, runs: [] }] : [];
    const stay = behind.filter((each) => !isGone(each));
    this.#exchanges = [...this.#exchanges.slice(0, index), ...left, ...stay];
  }

  /** @param {Exchange} exchange whose message was refused */
  remove(exchange) {
    this.#exchanges = this.#exchanges.filter((each) => each !== exchange);
  }

  /**
   * Note who reads a run: the first one to ask does, for the whole run.
   *
   * @param {string} id
   * @param {Exchange | null} own where a `send` reads it; null: it is watched
   * @returns {boolean} whether this reader is the one
   */
  claim(id, own) {
    if (own === null && this.#gone.has(id)) return false;
    const found = this.#findRun(id);
    // a post that is repeated under its key has the same run
    const isRepeated = own !== null && found?.run.isOwn === true && found.exchange !== own;
    if (found && !isRepeated) {
      found.run.isOwn ??= own !== null;
      return found.run.isOwn === (own !== null);
    }
    this.#addRun(own ?? this.last, { id, first: null, isOwn: own !== null });
    return true;
  }

  /** @param {string} id of a run that a `send` has left before its end: it has to be read again */
  release(id) {
    const run = this.#findRun(id)?.run;
    if (run) run.isOwn = null;
  }

  /**
   * @param {string} id
   * @returns {boolean} whether the watch has come to this run
   */
  isReached(id) {
    return (this.#findRun(id)?.run.first ?? null) !== null;
  }

  /**
   * @param {Event} event
   * @param {Exchange} [exchange] default: that of its run
   */
  add(event, exchange) {
    const found = event.runId === null ? null : this.#findRun(event.runId);
    if (found && event.type === "run-end") found.run.isOpen = false;
    this.#add(found?.exchange ?? exchange ?? this.last, event);
  }

  /**
   * Take the messages with which a run begins: they replace all from their position on.
   *
   * @param {import("./events.js").PostedEvent} event
   */
  post({ runId, first, messages }) {
    const id = String(runId);
    if (this.#gone.has(id)) return;
    this.#dropFrom(first, id);
    this.#addResults(messages);
    const asked = askedIn(messages);
    const ids = new Set(asked.map((each) => each.id));
    const sent = this.#exchanges.find((each) => each.asked.some((one) => ids.has(one.id)));
    if (sent && !sent.runs.some((run) => run.id === id)) {
      this.#addRun(sent, { id, first, isOwn: null });
    }
    const found = this.#findRun(id);
    const isFirst = found?.exchange.runs[0] === found?.run;
    if (!found) {
      const exchange = asked.length > 0 ? this.#insert(asked) : this.last;
      this.#addRun(exchange, { id, first, isOwn: null });
    } else if (asked.length > 0 && !isFirst) {
      // another client has begun the run that a `send` reads behind its own
      this.#cut(found.exchange, id);
      this.#addRun(this.#insert(asked), { id, first, isOwn: null });
    } else {
      // a run that is resumed is read before its message
      const isUnasked = found.run.first !== null || found.exchange.asked.length === 0;
      if (isUnasked && found.exchange !== sent) found.exchange.asked.push(...asked);
      found.run.first ??= first;
    }
  }

  /**
   * @param {Message[]} messages with which a run of another client begins
   * @returns {boolean} whether they have answers that are not shown, or results that are: of
   *   another branch
   */
  isOfOtherBranch(messages) {
    if (messages.some(({ role }) => role === "assistant")) return true;
    // what this chat has answered itself is shown before it is posted
    if (this.#exchanges.some(({ isReading }) => isReading)) return false;
    const open = new Set(unansweredCalls(this.entries));
    return messages.every((each) => each.role === "tool" && !open.has(each.toolCallId));
  }

  /**
   * Show the newest messages of the history. The older ones that are shown stay if they are those
   * before these.
   *
   * @param {number} first
   * @param {Message[]} messages
   * @returns {boolean} whether older ones stay
   */
  load(first, messages) {
    const begins = (/** @type {{id: string}} */ { id }) => id === messages[0]?.id;
    const at = Math.max(
      0,
      this.#exchanges.findIndex(({ asked }) => asked.some(begins)),
    );
    const reading = this.#exchanges.slice(at).filter(isBeingRead);
    const older = this.#exchanges.slice(0, at);
    this.#exchanges = [...older, ...pastOf(first, messages, reading), ...reading];
    return at > 0;
  }

  /**
   * Show messages before the first one.
   *
   * @param {number} first
   * @param {Message[]} messages
   */
  prepend(first, messages) {
    this.#exchanges = [...pastOf(first, messages, []), ...this.#exchanges];
  }

  /**
   * Show messages of the history behind those that are shown.
   *
   * @param {number} first
   * @param {Message[]} messages
   * @param {ReadonlySet<string>} shown messages of users that are shown otherwise
   * @returns {Exchange[]}
   */
  append(first, messages, shown) {
    let isShown = false;
    messages.forEach((message, index) => {
      const asked = askedIn([message]);
      if (asked.length > 0) isShown = shown.has(message.id);
      if (isShown) return;
      if (asked.length > 0 || this.#exchanges.length === 0) {
        const run = { id: "", first: first + index, isOwn: false };
        this.#addRun(this.#insert(asked), run).isOpen = false;
      }
      if (asked.length > 0) return;
      const { last } = this;
      last.ids.add(message.id);
      for (const event of eventsOf(message, isLastOfRun(messages, index))) this.#add(last, event);
    });
    return this.#exchanges;
  }

  /** @param {import("./calls.js").Results} results of calls that are shown */
  addResults(results) {
    for (const exchange of this.#exchanges) {
      for (const [toolCallId, { result, ...how }] of results) {
        exchange.answer.add(resultEvent({ toolCallId, content: result, ...how }));
      }
      if (exchange.said) {
        const [said] = withResults([exchange.said], results);
        exchange.said = /** @type {AssistantEntry} */ (said);
      }
    }
  }

  /** @param {Message[]} messages whose results are shown, unless they are */
  #addResults(messages) {
    const open = new Set(unansweredCalls(this.entries));
    for (const message of messages) {
      if (message.role !== "tool" || !open.has(message.toolCallId)) continue;
      const { toolCallId, isError = false, synthetic } = message;
      const how = { isError, ...(synthetic !== undefined && { synthetic }) };
      this.addResults(new Map([[toolCallId, { result: valueOf(message.content), ...how }]]));
    }
  }

  /** @param {string} id */
  #findRun(id) {
    const exchange = this.#exchanges.findLast(({ runs }) => runs.some((run) => run.id === id));
    const run = exchange?.runs.find((each) => each.id === id);
    return exchange && run ? { exchange, run } : null;
  }

  /**
   * @param {Exchange} exchange
   * @param {{id: string, first: number | null, isOwn: boolean | null}} run
   * @returns {ShownRun}
   */
  #addRun(exchange, run) {
    const shown = /** @type {ShownRun} */ ({ ...run, isOpen: true, before: exchange.said });
    exchange.runs.push(shown);
    exchange.isWaiting = false;
    return shown;
  }

  /**
   * @param {Exchange["asked"]} asked messages of another client, before those that wait
   * @returns {Exchange}
   */
  #insert(asked) {
    const exchange = this.begin(asked);
    this.#exchanges.pop();
    exchange.isWaiting = false;
    const waiting = this.#exchanges.findIndex(({ isWaiting }) => isWaiting);
    this.#exchanges.splice(waiting < 0 ? this.#exchanges.length : waiting, 0, exchange);
    return exchange;
  }

  /**
   * @param {number} first
   * @param {string} id of a run that stays
   */
  #dropFrom(first, id) {
    const isGone = (/** @type {ShownRun} */ run) => run.id !== id && (run.first ?? -1) >= first;
    this.#noteRewriting(this.#exchanges.map((each) => ({ runs: each.runs.filter(isGone) })));
    this.#exchanges = this.#exchanges.filter(({ runs: [run] }) => !run || !isGone(run));
    for (const exchange of this.#exchanges) {
      const gone = exchange.runs.find(isGone);
      if (gone) this.#cut(exchange, gone.id);
    }
  }

  /** @param {{runs: ShownRun[]}[]} gone what something else takes the place of */
  #noteRewriting(gone) {
    for (const { id } of gone.flatMap(({ runs }) => runs)) {
      this.#gone.add(id);
      this.isRewritten = true;
    }
  }

  /**
   * Remove a run, and those after it, from an answer, which ends there.
   *
   * @param {Exchange} exchange
   * @param {string} id
   */
  #cut(exchange, id) {
    const index = exchange.runs.findIndex((run) => run.id === id);
    exchange.said = exchange.runs[index]?.before ?? null;
    exchange.runs.splice(index);
    exchange.answer = new Answer();
  }

  /**
   * @param {Exchange} exchange
   * @param {Event} event
   */
  #add(exchange, event) {
    const { answer } = exchange;
    answer.add(event);
    exchange.isWaiting = false;
    const { text, reasoning, calls, output, model } = answer;
    exchange.said = {
      role: "assistant",
      text,
      reasoning,
      calls,
      ...(output !== undefined && { output }),
      ...(model !== undefined && { model }),
    };
  }
}

/**
 * @param {number} first
 * @param {Message[]} messages
 * @param {Exchange[]} reading what is shown otherwise
 */
function pastOf(first, messages, reading) {
  const shown = new Set(reading.flatMap(({ asked }) => asked.map(({ id }) => id)));
  return new Thread().append(first, messages, shown);
}

/** @param {Exchange} exchange */
function isBeingRead({ isWaiting, isReading }) {
  return isWaiting || isReading;
}

/**
 * @param {Message[]} messages
 * @param {number} index of an answer
 * @returns {boolean} whether no other answer of the same run follows
 */
function isLastOfRun(messages, index) {
  const run = /** @type {{runId?: string}} */ (messages[index]).runId;
  const isSame = (/** @type {Message} */ message) =>
    message.role === "assistant" && message.runId === run;
  return run === undefined || !messages.slice(index + 1).some(isSame);
}
