/**
 * One conversation on the page: what the user says goes to the client library, what comes of it to the view.
 *
 * Each post has a key of its own, and is sent again under it until it is answered: so it counts once.
 */

import { ApiError, randomId } from "../js/src/index.js";
import { Answers } from "./answers.js";
import { loadHistory } from "./history.js";
import { Owing, resultOf, shownResult } from "./owing.js";
import { Run } from "./run.js";

/** @typedef {import("../js/src/index.js").Client} Client */
/** @typedef {import("../js/src/index.js").ClientOptions} ClientOptions */
/** @typedef {import("../js/src/index.js").Event} Event */
/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("../js/src/index.js").Sending} Sending */
/** @typedef {import("../js/src/index.js").TraceStep} TraceStep */
/** @typedef {import("./history.js").PastMessage} PastMessage */
/** @typedef {import("./tools.js").Hands} Hands */

/**
 * @typedef {"idle" | "elsewhere" | "loading" | "sending" | "waiting" | "answering" | "working" | "reconnecting"} Activity
 *   elsewhere: another client runs a tool of this page, and this one is free
 */
/** @typedef {(options: Pick<ClientOptions, "tools" | "trace"> & {quiet?: boolean}) => Client} Connect gives a client as the
 *   page is set up now; a quiet one is not in the time line */
/** @typedef {{id: string} & (import("./asks.js").Result | import("./asks.js").Verdict)} Reply to a call, given by the user */

/**
 * @typedef {object} ChatView
 * @property {() => void} clear
 * @property {(text: string) => void} addUser
 * @property {(texts: readonly string[]) => void} setQueued what the user has said behind the answer that comes
 * @property {(message: PastMessage) => void} addPast
 * @property {(activity: Activity) => void} setActivity
 * @property {(error: unknown, again: () => void) => void} addError
 * @property {(conversationId: string, isNews: boolean) => void} accepted the server has this conversation now; `isNews`
 *   says that a post of this page has begun something there
 */

/** Times that the agent may ask for tools before the user has to speak again. */
export const MAX_ROUNDS = 25;
/** What this page asks to be told beyond what the library needs. */
const INCLUDE = ["agents", "context", "message-ids", "plan", "progress", "reasoning", "usage"];

export class Conversation {
  #connect;
  #view;
  #answers;
  #mayRun;
  #abort = new AbortController();
  /** @type {Activity} */
  #activity = "idle";
  #stopped = false;
  #closed = false;
  /** @type {Sending | null} */
  #sending = null;
  /** @type {(() => void) | null} */
  #onAccepted = null;
  #isPost = false;
  /** Calls that wait for an answer, as far as this page knows. */
  #owing = new Set();
  /** What the user has answered while something else was going on.
   * @type {Map<string, Reply>} */
  #replies = new Map();
  /** The call whose answer is on its way. */
  #replying = "";
  /** Ends with this conversation. */
  #leaving = new AbortController();
  /** What the user has said during an answer, by the messages' ids, until the history has it.
   * @type {Map<string, string>} */
  #queued = new Map();
  /** Whether the server has taken a message of this page that comes behind what is read now. */
  #isBehind = false;

  /**
   * @param {string} id
   * @param {object} parts
   * @param {Connect} parts.connect
   * @param {ChatView & import("./run.js").RunView} parts.view
   * @param {Hands} parts.hands
   * @param {() => boolean} parts.mayRun whether this browser runs the tools of this conversation
   */
  constructor(id, { connect, view, hands, mayRun }) {
    this.id = id;
    this.#connect = connect;
    this.#view = view;
    this.#mayRun = mayRun;
    this.#answers = new Answers(view, hands, () => this.#become("working"));
  }

  get isIdle() {
    return this.#activity === "idle" || this.#activity === "elsewhere";
  }

  /**
   * Say something. Errors are shown, not thrown.
   *
   * @param {string} text
   */
  async send(text) {
    const [id, key] = [randomId(), randomId()];
    this.#view.addUser(text);
    await this.#attempt(
      (signal) => this.#post({ id, text, key }, signal),
      () => void this.#sendUnlessKnown({ id, text, key }),
    );
  }

  /**
   * Say something while an answer comes. Errors are shown, not thrown.
   *
   * @param {string} text
   * @param {"enqueue" | "interrupt"} onBusy what it means for that answer
   */
  async sendMeanwhile(text, onBusy) {
    const [id, key] = [randomId(), randomId()];
    this.#queue(id, text);
    const tools = this.#mayRun() ? this.#answers.tools : this.#answers.declared;
    const options = {
      conversationId: this.id,
      include: INCLUDE,
      idempotencyKey: key,
      onBusy,
      signal: this.#leaving.signal,
    };
    let isQueued = false;
    try {
      // taken is enough: its answer is read behind the one that comes now
      for await (const event of this.#connect({ tools }).send(
        { role: "user", content: text, id },
        options,
      )) {
        isQueued = event.type === "run-queued";
        break;
      }
    } catch (error) {
      if (this.#closed) return;
      this.#queue(id, null);
      return this.#view.addError(error, () => void this.#sendUnlessKnown({ id, text, key }));
    }
    if (this.#closed) return;
    this.#view.accepted(this.id, true);
    this.#isBehind = true;
    if (!isQueued || this.isIdle) await this.load();
  }

  /**
   * @param {string} id of a message
   * @param {string | null} text null: it waits no more
   */
  #queue(id, text) {
    if (text === null) this.#queued.delete(id);
    else this.#queued.set(id, text);
    this.#view.setQueued([...this.#queued.values()]);
  }

  /** Show what the server has, and go on with what is going on there. */
  async load() {
    await this.#attempt(
      (signal) => this.#resume(signal),
      () => void this.load(),
    );
  }

  /** Show what the server has, and what is going on there, and leave the calls to the tab that has begun it. */
  async watch() {
    await this.#attempt(
      (signal) => this.#resume(signal, { answers: false }),
      () => void this.load(),
    );
  }

  /**
   * Answer a call by hand, or decide on it. The first answer of a call counts. While a tool of this page runs, it waits.
   *
   * @param {Reply} reply
   */
  async answer(reply) {
    if (reply.id === this.#replying || this.#replies.has(reply.id)) return;
    this.#replies.set(reply.id, reply);
    if (this.isIdle) await this.#reply(reply);
  }

  /** @param {Reply} reply */
  async #reply(reply) {
    const key = randomId();
    const post = async (/** @type {AbortSignal} */ signal) => {
      this.#replies.delete(reply.id);
      this.#replying = reply.id;
      this.#onAccepted = () => this.#accepted(reply);
      const options = { conversationId: this.id, include: INCLUDE, idempotencyKey: key, signal };
      try {
        await this.#follow(
          "approved" in reply
            ? this.#client().decide(this.id, reply, options)
            : this.#client().send([resultOf(reply)], options),
        );
      } finally {
        this.#replying = "";
      }
    };
    const again = () => void this.#attempt(post, again);
    await this.#attempt(post, again);
  }

  /** @param {Reply} reply */
  #accepted(reply) {
    if ("approved" in reply) this.#view.setDecision(reply.id, reply.approved);
    else this.#view.setResult(reply.id, shownResult(reply.content), reply.isError);
  }

  /** See whether what is owed here was answered elsewhere; if so, show how it went on. */
  async look() {
    if (this.#activity !== "idle" || this.#owing.size === 0) return;
    const abort = this.#abort;
    const stands = await this.#connect({ quiet: true })
      .conversation(this.id, { signal: abort.signal })
      .catch(() => null);
    if (!stands || this.#closed || abort !== this.#abort || this.#activity !== "idle") return;
    const open = new Set(stands.owed.map(({ id }) => id));
    if (stands.running || [...this.#owing].some((id) => !open.has(id))) await this.watch();
  }

  /**
   * Stop the answer: on the server when it runs there, here when it waits for a tool of this page. A post without an
   * answer is stopped when its answer comes, or given up when this is asked twice.
   */
  async stop() {
    const isOnItsWay = this.#activity === "sending" || this.#activity === "reconnecting";
    const givesUp = !this.#sending || (this.#stopped && isOnItsWay);
    this.#stopped = true;
    this.#replies.clear();
    if (givesUp) return this.#abort.abort();
    try {
      await this.#sending?.cancel();
    } catch (error) {
      if (error instanceof ApiError && (error.status ?? 0) < 500) return; // it has just ended by itself
      this.#view.addError(error, () => void this.load());
      this.#abort.abort();
    }
  }

  /** Cut the connection that is read, as a bad network would; the page then comes back by itself. */
  cut() {
    return this.#sending?.reconnect() ?? false;
  }

  /** Leave the conversation; what runs on the server runs on. */
  close() {
    this.#closed = true;
    this.#leaving.abort();
    this.#abort.abort();
  }

  /**
   * Try again after an error that leaves open whether the message arrived.
   *
   * @param {{id: string, text: string, key: string}} message
   */
  async #sendUnlessKnown(message) {
    await this.#attempt(
      async (signal) => {
        const past = await this.#resume(signal, { mayBeMissing: true });
        if (past.some(({ id }) => id === message.id)) return;
        this.#view.addUser(message.text);
        await this.#post(message, signal);
      },
      () => void this.#sendUnlessKnown(message),
    );
  }

  /**
   * @param {(signal: AbortSignal) => Promise<unknown>} work
   * @param {() => void} again
   */
  async #attempt(work, again) {
    this.#abort.abort();
    const abort = (this.#abort = new AbortController());
    this.#stopped = false;
    try {
      await work(abort.signal);
    } catch (error) {
      if (this.#closed || abort !== this.#abort) return;
      if (!isAbort(error)) this.#view.addError(error, again);
      else if (this.#stopped) this.#view.addNote("Stopped.");
    } finally {
      if (!this.#closed && abort === this.#abort) this.#rest();
    }
  }

  /** Nothing goes on: what the user has answered meanwhile is posted. */
  #rest() {
    this.#become("idle");
    if (this.#isBehind) return void this.load();
    const [reply] = this.#replies.values();
    if (reply) void this.#reply(reply);
  }

  /**
   * @param {AbortSignal} signal
   * @param {{mayBeMissing?: boolean, answers?: boolean}} [options]
   * @returns {Promise<PastMessage[]>} what is in the history
   */
  async #resume(signal, { mayBeMissing = false, answers = true } = {}) {
    this.#become("loading");
    this.#owing = new Set();
    this.#isBehind = false;
    const client = this.#client(answers);
    const stands = await client.conversation(this.id, { signal }).catch((error) => {
      if (mayBeMissing && error instanceof ApiError && error.status === 404) return null;
      throw error;
    });
    const past = stands ? await loadHistory(client, this.id, stands, signal) : [];
    this.#view.clear();
    past.forEach((message) => this.#view.addPast(message));
    this.#showQueued(past, stands?.queued ?? []);
    if (!stands) return past;
    if (stands.plan?.length) this.#view.setPlan(stands.plan);
    this.#view.accepted(this.id, false);
    const { running, owed } = stands;
    const next = stands.queued?.[0];
    const resume = (/** @type {string} */ runId) =>
      client.resume(this.id, { runId, include: INCLUDE, signal });
    // the post that waits takes the calls of the run before it for unanswered
    if (running)
      await this.#follow(resume(running.runId), {
        answers,
        until: next ? isHandedBack : undefined,
      });
    if (next) {
      await this.#follow(resume(next), { until: ({ type }) => type === "run-start" });
      return this.#resume(signal, { answers }); // what was posted for it is in the history since it began
    }
    if (!running && owed?.length > 0) {
      await this.#follow(client.resume(this.id, { include: INCLUDE, signal }), { answers, owed });
    }
    return past;
  }

  /**
   * @param {readonly PastMessage[]} past what the history has
   * @param {readonly string[]} runs that wait
   */
  #showQueued(past, runs) {
    for (const { id } of past) this.#queued.delete(id);
    // what is in neither was taken out of the queue
    if (runs.length === 0 && !this.#isBehind) this.#queued.clear();
    if (this.#queued.size > 0) this.#view.setQueued([...this.#queued.values()]);
  }

  /**
   * @param {{id: string, text: string, key: string}} message
   * @param {AbortSignal} signal
   */
  async #post({ id, text, key }, signal) {
    const options = { conversationId: this.id, include: INCLUDE, idempotencyKey: key, signal };
    await this.#follow(this.#client().send({ role: "user", content: text, id }, options), {
      superseded: this.#owing,
    });
  }

  /**
   * @param {Sending} sending
   * @param {object} [options]
   * @param {boolean} [options.answers] whether this page runs calls
   * @param {OwedCall[]} [options.owed] what is owed by what it shows
   * @param {ReadonlySet<string>} [options.superseded] what is owed no more when the run begins
   * @param {((event: Event) => boolean) | undefined} [options.until] behind which event to leave
   */
  async #follow(
    sending,
    { answers = true, owed = [], superseded = new Set(), until = () => false } = {},
  ) {
    const mayRun = this.#mayRun();
    const run = new Run(this.#view, { answers, mayRun });
    const calls = new Owing(owed);
    this.#sending = sending;
    try {
      for await (const event of sending) {
        calls.feed(event);
        // what another client has answered, and what came of it, is in the history
        if (calls.isOutdated || (calls.wentOnElsewhere && event.cursor)) break;
        run.feed(event);
        if (event.type === "run-start") this.#supersede(superseded);
        this.#note(event, answers && mayRun && calls.mine.size > 0);
        if (until(event)) return;
        // the post that waits takes the calls of this run for unanswered
        if (this.#isBehind && event.type === "run-end") break;
      }
      calls.end();
      if (this.#stopped && run.outcome === "handed-back") this.#view.addNote("Stopped.");
    } finally {
      this.#sending = null;
      this.#onAccepted = null;
      this.#owing = calls.open;
    }
    if (this.#isBehind) {
      // what was stopped is the answer before
      this.#stopped = false;
      await this.#resume(this.#abort.signal);
    } else if ((calls.isOutdated || calls.wentOnElsewhere) && !this.#stopped)
      await this.#resume(this.#abort.signal, { answers });
  }

  /** @param {ReadonlySet<string>} ids of calls that a message went past */
  #supersede(ids) {
    for (const id of ids) {
      this.#replies.delete(id);
      this.#view.supersede(id);
    }
  }

  /**
   * @param {Event} event
   * @param {boolean} works whether this page has calls to run
   */
  #note(event, works) {
    if (event.type === "run-queued") this.#become("waiting");
    else if (event.type === "run-start") this.#become("answering");
    else if (event.type === "owed" && works) this.#become("working");
    else if (event.type === "call-elsewhere" && !works) this.#become("elsewhere");
    else if (event.type === "call-elsewhere") this.#become("working");
  }

  /** @param {boolean} [answers] whether it has the page's tools */
  #client(answers = true) {
    const tools = this.#mayRun() ? this.#answers.tools : this.#answers.declared;
    return this.#connect({ tools: answers ? tools : {}, trace: (step) => this.#trace(step) });
  }

  /** @param {TraceStep} step */
  #trace(step) {
    if (this.#closed) return;
    if (step.kind === "lost") this.#become("reconnecting");
    else if (step.kind === "request") {
      // a claim may be renewed while a post is on its way
      if (step.path.endsWith("/claim") || step.method === "DELETE") return;
      this.#isPost = step.path === "/send-message";
      if (this.#isPost && this.#activity !== "reconnecting") this.#become("sending");
    } else if (step.kind === "response" && isStream(step.headers)) {
      this.#onAccepted?.();
      this.#onAccepted = null;
      this.#view.accepted(this.id, this.#isPost);
      this.#become("answering");
    }
  }

  /** @param {Activity} activity */
  #become(activity) {
    if (activity === this.#activity) return;
    this.#activity = activity;
    this.#view.setActivity(activity);
  }
}

/** @param {Record<string, string>} headers */
function isStream(headers) {
  return (
    "x-conversation-id" in headers &&
    (headers["content-type"] ?? "").startsWith("text/event-stream")
  );
}

/** @param {Event} event */
function isHandedBack(event) {
  return event.type === "run-end" && event.outcome === "handed-back";
}

/**
 * @param {unknown} error
 * @returns {boolean} whether this page itself gave the request up
 */
function isAbort(error) {
  return error instanceof Error && error.name === "AbortError";
}
