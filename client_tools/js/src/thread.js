/** The messages and answers of a chat in their order, by the runs of which they are. */

import { Answer } from "./answer.js";
import { unansweredCalls, withResults } from "./calls.js";

/** @typedef {import("./chat.js").AssistantEntry} AssistantEntry */
/** @typedef {import("./chat.js").UserEntry} UserEntry */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./messages.js").Message} Message */

/**
 * @typedef {object} ShownRun
 * @property {string} id
 * @property {number | null} first position of its first message; null: not known yet
 * @property {boolean | null} isOwn whether its events come from a `send`, not from watching; null:
 *   neither has begun to read it
 * @property {boolean} isOpen whether more of its events follow
 * @property {boolean} [isAgain] whether its events come again, from its start
 * @property {Readonly<AssistantEntry> | null} before the answer before this run
 */

/**
 * @typedef {object} Exchange what a user has said, and the answer, over all its runs
 * @property {{id: string, entry: UserEntry}[]} asked
 * @property {Answer} answer
 * @property {Readonly<AssistantEntry> | null} said the answer so far
 * @property {ShownRun[]} runs
 * @property {boolean} isWaiting whether this chat sends it, and no run of it has begun
 * @property {string | null} replaces the id of the message that it takes the place of, with all
 *   behind that, as soon as its run begins
 */

export class Thread {
  /** @type {Exchange[]} */
  #exchanges = [];

  /** @returns {readonly (UserEntry | Readonly<AssistantEntry>)[]} */
  get entries() {
    return this.#exchanges.flatMap(({ asked, said }) => [
      ...asked.map(({ entry }) => entry),
      ...(said ? [said] : []),
    ]);
  }

  /** @returns {Exchange} the last one that has an answer, which may continue */
  get last() {
    const isAnswer = (/** @type {Exchange} */ { runs, said }) => runs.length > 0 || said !== null;
    return this.#exchanges.findLast(isAnswer) ?? this.#insert([]);
  }

  /** The position from which on all messages are shown, if it is known. */
  get lastFirst() {
    const known = this.#exchanges.flatMap(({ runs: [run] }) => run?.first ?? []);
    return known.at(-1) ?? null;
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
    const own = { asked, replaces, answer: new Answer(), said: null, runs: [], isWaiting: true };
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
    const asked = old.asked.slice(0, old.asked.findIndex(isIt));
    const left = asked.length > 0 ? [{ ...old, asked, said: null, runs: [] }] : [];
    const behind = this.#exchanges.slice(index);
    const stay = behind.filter((each) => each === own || each.isWaiting);
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
    const found = this.#findRun(id);
    // a post that is repeated under its key has the same run
    const isRepeated = own !== null && found?.run.isOwn === true && found.exchange !== own;
    if (found && !isRepeated) {
      found.run.isOwn ??= own !== null;
      if (found.run.isOwn !== (own !== null)) return false;
      if (found.run.isAgain) this.#add(found.exchange, rewindOf(id));
      found.run.isAgain = false;
      return true;
    }
    this.#addRun(own ?? this.last, { id, first: null, isOwn: own !== null });
    return true;
  }

  /**
   * Let the watch read the rest of a run that a `send` has left; all of it, if the watch has not
   * come to it yet.
   *
   * @param {string} id
   */
  release(id) {
    const run = this.#findRun(id)?.run;
    if (!run?.isOpen) return;
    run.isOwn = null;
    run.isAgain = run.first === null;
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
   * @param {boolean} isEarly whether those of other clients belong to the history before the chat
   */
  post({ runId, first, messages }, isEarly) {
    const id = String(runId);
    this.#dropFrom(first, id);
    this.#addResults(messages);
    const posted = askedIn(messages);
    const ids = new Set(posted.map((each) => each.id));
    const sent = this.#exchanges.find((each) => each.asked.some((one) => ids.has(one.id)));
    const asked = isEarly ? [] : posted;
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
    } else if (found.run.first === null || found.exchange === sent) found.run.first ??= first;
    else found.exchange.asked.push(...asked);
  }

  /**
   * Replace all from a position on by messages of the history.
   *
   * @param {number} first
   * @param {Message[]} messages
   */
  load(first, messages) {
    this.#dropFrom(first, "");
    messages.forEach((message, index) => {
      const asked = askedIn([message]);
      if (asked.length > 0) {
        const run = { id: "", first: first + index, isOwn: false };
        this.#addRun(this.#insert(asked), run).isOpen = false;
      }
      for (const event of eventsOf(message)) this.#add(this.last, event);
    });
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
      const { toolCallId, content, isError = false, synthetic } = message;
      const how = { isError, ...(synthetic !== undefined && { synthetic }) };
      this.addResults(new Map([[toolCallId, { result: content, ...how }]]));
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
    this.#exchanges = this.#exchanges.filter(({ runs: [run] }) => !run || !isGone(run));
    for (const exchange of this.#exchanges) {
      const gone = exchange.runs.find(isGone);
      if (gone) this.#cut(exchange, gone.id);
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
 * @param {{id: string, content: import("./client.js").UserMessage["content"]}} message
 * @returns {UserEntry}
 */
export function entryOf({ id, content }) {
  if (typeof content === "string") return { role: "user", id, text: content };
  return { role: "user", id, text: textOf(content), parts: content };
}

/** @param {import("./client.js").UserMessage["content"]} content */
function textOf(content) {
  if (typeof content === "string") return content;
  return content
    .flatMap((part) => (part.type === "text" && "text" in part ? [String(part.text)] : []))
    .join("\n");
}

/**
 * @param {Message[]} messages
 * @returns {Exchange["asked"]}
 */
function askedIn(messages) {
  return messages.flatMap((message) =>
    message.role === "user" ? [{ id: message.id, entry: entryOf(message) }] : [],
  );
}

/** @param {string} run @returns {Event} */
function rewindOf(run) {
  return { type: "rewind", to: `${run}.0-0`, cursor: "", runId: run };
}

/**
 * @param {{toolCallId: string, content: unknown, isError: boolean, synthetic?:
 *   import("./events.js").Synthetic}} result
 * @returns {Event}
 */
function resultEvent(result) {
  return { type: "client-tool-result", toolCallName: "", ...result, cursor: "", runId: null };
}

/**
 * @param {Message} message of the history
 * @returns {Event[]} the events of an answer that show it
 */
function eventsOf(message) {
  const place = { cursor: "", runId: null };
  if (message.role === "tool") {
    const { toolCallId, content, isError = false, synthetic } = message;
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
  return [
    ...(text ? [/** @type {Event} */ ({ type: "text", content: text, ...place })] : []),
    ...calls,
    { type: "run-end", outcome: "completed", ...(model !== undefined && { model }), ...place },
  ];
}
