/** A conversation as a user interface shows it: a value that changes, and a way to be told. */

import { Answer } from "./answer.js";
import { InvalidArgument, isSettled } from "./errors.js";
import { pastResults, unanswered, withResults } from "./settled.js";
import { Aborter } from "./signals.js";
import { randomId } from "./wire.js";

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./client.js").Decision} Decision */
/** @typedef {import("./client.js").SendOptions} SendOptions */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */

/**
 * @typedef {{readonly role: "user", readonly text: string, readonly parts?: readonly import("./client.js").Part[]}} UserEntry
 *   `parts`, where the message has some beside its text
 */
/**
 * @typedef {object} AssistantEntry
 * @property {"assistant"} role
 * @property {string} text without what became void
 * @property {string} reasoning
 * @property {readonly import("./calls.js").Call[]} calls
 * @property {unknown} [output] the accepted value, where the answer had to fit an output schema
 * @property {string} [model] the name of the model that spoke last, sub-agents aside, as soon as it is told
 */

/**
 * @typedef {object} ChatState
 * @property {string} conversationId
 * @property {readonly (UserEntry | Readonly<AssistantEntry>)[]} entries what was said since this chat was made
 * @property {"idle" | "running"} status
 * @property {readonly OwedCall[]} owed what people have to answer: approvals by `decide`, questions by `answer`
 * @property {Error | null} error that ended the last `send`, `resume`, `decide` or `answer`
 */

/**
 * @typedef {object} Next a message that was sent while an answer came
 * @property {import("./sending.js").Sending} sending
 * @property {Aborter} reading ends the reading of its answer
 * @property {UserEntry} entry
 * @property {boolean} isTaken whether the server has it
 * @property {() => void} shown is called when all is said
 */

/**
 * @typedef {object} ChatOptions
 * @property {string} [conversationId] default: a new one
 * @property {SendOptions["include"]} [include]
 * @property {SendOptions["onDisconnect"]} [onDisconnect] what becomes of the runs of this chat when nobody follows them
 */

/** What a message may mean for the answer that comes. */
const BEHIND = new Set(["enqueue", "interrupt"]);

export class Chat {
  #client;
  /** Of all posts. */
  #how;
  /** @type {Readonly<ChatState>} */
  #state;
  /** @type {Set<() => void>} */
  #listeners = new Set();
  /** @type {import("./sending.js").Sending | null} */
  #sending = null;
  #leaving = new AbortController();
  /** Ends the reading of `#sending` alone. */
  #reading = new Aborter();
  /** Whether a run is read, and not what stands between two runs: tools, and the post of their results. */
  #isInRun = false;
  /** What was sent behind the answer that comes.
   * @type {Next[]} */
  #next = [];
  /** Fulfilled when the server has what was sent last, or has refused it.
   * @type {Promise<void>} */
  #taken = Promise.resolve();
  #setTaken = () => {};
  /** What is said now; it goes on when people have answered. */
  #answer = new Answer();
  /** What stands before it.
   * @type {ChatState["entries"]} */
  #shown = [];
  /** What people owe behind all that was read; the state shows it when the reading ends.
   * @type {readonly OwedCall[]} */
  #owed = [];
  /** All calls that were last said to be owed, to whomever.
   * @type {ReadonlySet<string>} */
  #waiting = new Set();
  /** The newest run that was read.
   * @type {string | null} */
  #runId = null;
  /** Calls that were looked for in the history.
   * @type {Set<string>} */
  #sought = new Set();

  /**
   * @param {Client} client
   * @param {ChatOptions} [options]
   */
  constructor(client, { conversationId = randomId(), include = [], onDisconnect } = {}) {
    this.#client = client;
    this.#how = { include, ...(onDisconnect && { onDisconnect }) };
    this.#state = { conversationId, entries: [], status: "idle", owed: [], error: null };
  }

  /** @returns {Readonly<ChatState>} the same value as long as nothing has changed */
  getSnapshot = () => this.#state;

  /**
   * @param {() => void} listener is called after each change
   * @returns {() => void} ends that; when the last one has gone, the reading ends, too, and the run goes on at the server
   */
  subscribe = (listener) => {
    // a listener that is given twice counts twice
    const own = () => listener();
    this.#listeners.add(own);
    return () => {
      this.#listeners.delete(own);
      // React's strict mode leaves and comes back at once
      queueMicrotask(() => {
        if (this.#listeners.size === 0) this.#leaving.abort();
      });
    };
  };

  /**
   * @param {string | import("./client.js").UserMessage} message
   * @param {Omit<SendOptions, "conversationId" | "include" | "signal">} [options] while an answer comes, `onBusy` has to say
   *   what becomes of it: "enqueue" or "interrupt"
   * @returns {Promise<void>} when all is said; what went wrong is in the state
   * @throws {InvalidArgument} while an answer comes, without that
   */
  send = (message, options) => {
    if (this.#sending && BEHIND.has(options?.onBusy ?? ""))
      return this.#sendBehind(message, options);
    this.#refuseWhileRunning();
    const { conversationId } = this.#state;
    const signal = this.#newSignal();
    const sending = this.#client.send(message, {
      ...this.#how,
      ...options,
      conversationId,
      signal,
    });
    return this.#begin(sending, [entryOf(typeof message === "string" ? message : message.content)]);
  };

  /** Goes on after a reload: shows the run that goes on, and answers the calls that are owed.
   * @returns {Promise<void>} as `send` */
  resume = () => {
    this.#refuseWhileRunning();
    const signal = this.#newSignal();
    return this.#begin(
      this.#client.resume(this.#state.conversationId, { ...this.#how, signal }),
      [],
    );
  };

  /**
   * Decides on approvals of `owed`; the answer that waited goes on.
   *
   * @param {Decision | Decision[]} decision
   * @returns {Promise<void>} as `send`
   */
  decide = (decision) => {
    this.#refuseWhileRunning();
    const options = { ...this.#how, signal: this.#newSignal() };
    return this.#show(this.#client.decide(this.#state.conversationId, decision, options));
  };

  /**
   * Answers a call of `owed`; the answer that waited goes on.
   *
   * @param {string} id
   * @param {unknown} content of a question: `Answers`, or just a text where there is one question
   * @param {{isError?: boolean}} [options] `isError`: the question is not answered, and the content says why
   * @returns {Promise<void>} as `send`
   */
  answer = (id, content, { isError = false } = {}) => {
    this.#refuseWhileRunning();
    const { conversationId, owed } = this.#state;
    const options = { conversationId, ...this.#how, signal: this.#newSignal() };
    /** @type {import("./client.js").ToolMessage} */
    const message = { role: "tool", toolCallId: id, content, ...(isError && { isError }) };
    const toolCallName = owed.find((call) => call.id === id)?.name ?? "";
    /** @type {Event} */
    const told = {
      type: "client-tool-result",
      toolCallId: id,
      toolCallName,
      content,
      isError,
      cursor: "",
      runId: null,
    };
    return this.#show(this.#client.send([message], options), { told });
  };

  /** Stops the run at the server.
   * @returns {Promise<boolean>} whether there was one */
  stop = async () => (await this.#sending?.cancel()) ?? false;

  #refuseWhileRunning() {
    if (this.#sending)
      throw new InvalidArgument(
        'an answer comes: wait for it, stop it, or send with onBusy "enqueue" or "interrupt"',
      );
  }

  /**
   * Posts at once, and shows the answer when the one that comes has ended.
   *
   * @param {string | import("./client.js").UserMessage} message
   * @param {Omit<SendOptions, "conversationId" | "include" | "signal">} [options]
   * @returns {Promise<void>}
   */
  #sendBehind(message, options) {
    const { conversationId } = this.#state;
    const reading = new Aborter(this.#leaving.signal);
    const { signal } = reading;
    const sending = this.#client.send(message, {
      ...this.#how,
      ...options,
      conversationId,
      signal,
    });
    const entry = entryOf(typeof message === "string" ? message : message.content);
    return new Promise((shown) => {
      const next = { sending, reading, entry, isTaken: false, shown: () => shown() };
      this.#next.push(next);
      this.#change({ entries: [...this.#state.entries, entry] });
      // a refusal is told when its turn has come
      this.#taken = this.#taken
        .then(() => sending.start())
        .then(
          (event) => this.#take(next, event),
          () => {},
        );
    });
  }

  /**
   * @param {Next} next
   * @param {Event | undefined} event its first
   */
  #take(next, event) {
    next.isTaken = true;
    // it found no run: what the answer before waits for is over
    if (next === this.#next[0] && event?.type !== "run-queued" && !this.#isInRun)
      this.#reading.close();
  }

  /** Of the next sending. */
  #newSignal() {
    this.#leaving = new AbortController();
    this.#reading = new Aborter(this.#leaving.signal);
    return this.#reading.signal;
  }

  /**
   * @param {import("./sending.js").Sending} sending
   * @param {UserEntry[]} asked
   */
  #begin(sending, asked) {
    this.#answer = new Answer();
    this.#shown = [...this.#state.entries, ...asked];
    return this.#show(sending, { entries: this.#shown });
  }

  /**
   * Adds to the answer that was begun.
   *
   * @param {import("./sending.js").Sending} sending
   * @param {{entries?: ChatState["entries"], told?: Event | undefined}} [start] what stands there before anything is said, and
   *   what this chat itself has answered: true as soon as the server has it
   */
  async #show(sending, { entries = this.#state.entries, told } = {}) {
    const { signal } = this.#leaving;
    this.#sending = sending;
    this.#isInRun = false;
    if (this.#next.length === 0) this.#taken = new Promise((resolve) => (this.#setTaken = resolve));
    this.#change({ entries, status: "running", error: null });
    /** @type {Error | null} */
    let error = null;
    try {
      await this.#read(sending, told).catch((raised) => this.#catchUp(raised, signal));
    } catch (raised) {
      if (!this.#reading.signal.aborted)
        error = raised instanceof Error ? raised : new Error(String(raised));
    }
    this.#setTaken();
    if (this.#next.length > 0 && !signal.aborted) return void this.#showNext();
    for (const { shown } of this.#next.splice(0)) shown();
    this.#sending = null;
    this.#change({ status: "idle", owed: this.#owed, error });
    if (error === null && !signal.aborted) await this.#settle(signal);
  }

  /** What was sent behind the answer that has ended stands in the entries already. */
  async #showNext() {
    const next = /** @type {Next} */ (this.#next.shift());
    this.#reading = next.reading;
    this.#answer = new Answer();
    this.#shown = this.#state.entries.slice(0, this.#state.entries.length - this.#next.length);
    await this.#show(next.sending);
    next.shown();
  }

  /**
   * @param {import("./sending.js").Sending} sending
   * @param {Event} [told]
   */
  async #read(sending, told) {
    const answer = this.#answer;
    this.#sending = sending;
    for await (const event of sending) {
      this.#setTaken();
      if (told) answer.add(told);
      told = undefined;
      answer.add(event);
      this.#note(event);
      const { text, reasoning, calls, output, model } = answer;
      const role = /** @type {const} */ ("assistant");
      const said = {
        role,
        text,
        reasoning,
        calls,
        ...(output !== undefined && { output }),
        ...(model !== undefined && { model }),
      };
      const behind = this.#next.map(({ entry }) => entry);
      this.#change({
        entries: [...this.#shown, said, ...behind],
        owed: common(this.#state.owed, this.#owed),
      });
      // the message behind it takes what this run leaves owed for unanswered
      if (event.type === "run-end" && this.#next[0]?.isTaken) return;
    }
  }

  /** @param {Event} event */
  #note(event) {
    this.#owed = owedAfter(this.#owed, event);
    this.#runId = event.runId ?? this.#runId;
    this.#isInRun = event.cursor !== "" && event.type !== "run-end";
    if (event.type === "run-start") this.#waiting = new Set();
    if (event.type === "owed") this.#waiting = new Set(event.toolCalls.map(({ id }) => id));
  }

  /**
   * Another client has answered: goes on with what came of that.
   *
   * @param {unknown} raised
   * @param {AbortSignal} signal
   */
  async #catchUp(raised, signal) {
    if (!isSettled(raised)) throw raised;
    if (this.#next.length > 0) await this.#taken;
    // the message that was sent behind it has gone past what was owed
    if (this.#next[0]?.isTaken) return;
    const { conversationId } = this.#state;
    const { running, runId, owed } = await this.#client.conversation(conversationId, { signal });
    const isSame = owed.some(({ id }) => this.#waiting.has(id));
    const begun = running?.runId ?? (isSame ? null : runId);
    this.#owed = owed.filter(isForPeople);
    this.#waiting = new Set(owed.map(({ id }) => id));
    const next = begun !== null && begun !== this.#runId && { runId: begun };
    await this.#read(this.#client.resume(conversationId, { ...this.#how, signal, ...next }));
  }

  /**
   * Calls that others have answered, or that were given up, get their results from the history.
   *
   * @param {AbortSignal} signal
   */
  async #settle(signal) {
    // as long as something is owed, answers that are given have no results yet
    const ids =
      this.#waiting.size > 0
        ? []
        : unanswered(this.#state.entries).filter((id) => !this.#sought.has(id));
    if (ids.length === 0) return;
    try {
      const results = await pastResults(
        this.#client,
        this.#state.conversationId,
        new Set(ids),
        signal,
      );
      for (const id of ids) this.#sought.add(id);
      for (const [toolCallId, { result: content, ...how }] of results) {
        this.#answer.add({
          type: "client-tool-result",
          toolCallId,
          toolCallName: "",
          content,
          ...how,
          cursor: "",
          runId: null,
        });
      }
      this.#shown = withResults(this.#shown, results);
      this.#change({ entries: withResults(this.#state.entries, results) });
    } catch {
      // they are shown without: the next reading looks again
    }
  }

  /** @param {Partial<ChatState>} change */
  #change(change) {
    this.#state = { ...this.#state, ...change };
    for (const listener of [...this.#listeners]) listener();
  }
}

/**
 * @param {import("./client.js").UserMessage["content"]} content
 * @returns {UserEntry}
 */
function entryOf(content) {
  if (typeof content === "string") return { role: "user", text: content };
  const text = content
    .flatMap((part) => (part.type === "text" && "text" in part ? [String(part.text)] : []))
    .join("\n");
  return { role: "user", text, parts: content };
}

/** @param {OwedCall} call */
function isForPeople({ kind }) {
  return kind === "approval" || kind === "question";
}

/**
 * @param {readonly OwedCall[]} owed to people
 * @param {Event} event
 */
function owedAfter(owed, event) {
  if (event.type === "run-start") return [];
  if (event.type === "owed") return event.toolCalls.filter(isForPeople);
  if (event.type !== "client-tool-result" && event.type !== "client-decision") return owed;
  return owed.filter(({ id }) => id !== event.toolCallId);
}

/**
 * @param {readonly OwedCall[]} calls
 * @param {readonly OwedCall[]} others
 * @returns {readonly OwedCall[]} the first ones without those that are not among the others; the same list if all are
 */
function common(calls, others) {
  const left = calls.filter(({ id }) => others.some((other) => other.id === id));
  return left.length === calls.length ? calls : left;
}
