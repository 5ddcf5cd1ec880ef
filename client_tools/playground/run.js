/** Shows the events of a run, and removes what is rewound. */

import { isBehind } from "../js/src/index.js";
import { isOurs } from "./tools.js";

/** @typedef {import("../js/src/index.js").Event} Event */
/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("../js/src/index.js").PlanEntry} PlanEntry */
/** @typedef {import("./conversation.js").Activity} Activity */
/** @typedef {import("./history.js").PastMessage} PastMessage */

/**
 * @typedef {object} RunView the view of a run's events
 * @property {() => void} beginRun mark the start of a run
 * @property {() => void} dropRun remove everything since the start of the run
 * @property {(messageId?: string) => void} beginAnswer start another message
 * @property {(text: string) => void} addText
 * @property {(text: string) => void} addReasoning
 * @property {(id: string, name: string, parent?: string) => void} beginCall `parent`: the call that
 *   the sub-agent which makes this one works on
 * @property {(id: string, title: string) => void} setTitle the name of a call's tool for people
 * @property {(id: string, milliseconds: number) => void} setDuration how long a call's tool worked
 * @property {(parent: string, text: string) => void} addAgentText text of the sub-agent that works
 *   on a call
 * @property {(id: string, text: string) => void} setProgress progress of a call
 * @property {(name: string) => void} setModel the model of the last answer
 * @property {(event: import("../js/src/index.js").UsageEvent) => void} addUsage of a model's call
 * @property {() => void} endUsage called when a run has ended
 * @property {(entries: readonly PlanEntry[]) => void} setPlan the agent's plan
 * @property {(id: string, delta: string) => void} addArguments
 * @property {(id: string, state: CallState) => void} setCallState
 * @property {(id: string, text: string, isError: boolean, synthetic?: string | null) => void}
 *   setResult `synthetic`: why the server wrote it itself
 * @property {(id: string, approved: boolean) => void} setDecision a person's decision on a call
 * @property {(call: OwedCall) => void} showOwed a call that this page does not run, and somebody
 *   must answer or decide on
 * @property {(call: OwedCall) => void} askToRun a call of this page's tools that runs once a person
 *   allows it
 * @property {(text: string) => void} addNote
 * @property {(id: string) => void} supersede a call that needs no answer any more
 */

/**
 * @typedef {object} ChatView the view of a conversation's messages
 * @property {() => void} clear
 * @property {(text: string, id?: string, parts?: {words?: string, kept?: string[], attached?:
 *   import("./parts.js").Medium[]}) => void} addUser `parts`: what can be edited of a message with
 *   more than text, and its media
 * @property {(id: string) => boolean} cutFrom remove a message and all behind it; false: it is not
 *   shown
 * @property {(id: string) => boolean} cutAfter remove all behind a message; false: it is not shown
 * @property {(branches: readonly import("../js/src/index.js").BranchPoint[]) => void} setVersions
 *   called when the whole history is shown, and when its versions have changed
 * @property {(texts: readonly string[]) => void} setQueued messages that the user has sent during
 *   the current answer
 * @property {(unsent: readonly import("./outbox.js").Unsent[]) => void} setUnsent messages that the
 *   server has not accepted, and nobody posts right now
 * @property {(message: PastMessage) => void} addPast
 * @property {(mayCost: boolean) => void} showCosts whether answers of the history may have a cost
 * @property {(id: string) => void} settle called when the server has accepted this page's answer
 * @property {(activity: Activity) => void} setActivity
 * @property {(error: unknown, again: () => void, isMessage?: boolean) => void} addError
 *   `isMessage`: the user's last message may be changed and sent again; default: true
 * @property {(conversationId: string, isNews: boolean) => void} accepted the server has this
 *   conversation now; `isNews` says that a post of this page has begun something there
 */
/** @typedef {ChatView & RunView} ConversationView */

/**
 * @typedef {"writing" | "waiting" | "running" | "skipped" | "elsewhere" | "answered" | "approval" |
 *   "question" | "unrun"} CallState elsewhere: left to another client; answered: by another client;
 *   approval, question: waits for a person; unrun: this page runs it once a person allows it
 */

/** @type {Record<string, string>} notes on ends of a run */
const ENDINGS = {
  max_tokens: "The answer reached the model's limit and ends here.",
  max_turns: "The agent took as many steps as it may in one go. Send a message to let it continue.",
  refusal: "The model declined to answer.",
  budget: "The budget of this conversation is used up.",
  cancelled: "Stopped.",
};

/** @type {Record<string, string>} notes on how the prompt was shortened */
const STEPS = {
  snip: "old results of tools are left out",
  micro: "large results of tools are shortened",
  summary: "older messages are summed up",
  cut: "older messages are left out",
};

export class Run {
  /** Outcome of the current run, "" until it ends. */
  outcome = "";

  #view;
  #answers;
  #mayRun;
  /** @type {string | null} */
  #runId = null;
  /** @type {Event[]} events that a rewind may void */
  #events = [];

  /**
   * @param {RunView} view
   * @param {{answers: boolean, mayRun: boolean}} how whether this tab runs calls of the page's
   *   tools, and whether this browser may
   */
  constructor(view, { answers, mayRun }) {
    this.#view = view;
    this.#answers = answers;
    this.#mayRun = mayRun;
    view.beginRun();
  }

  /** @param {Event} event of this run, or of a later one */
  feed(event) {
    if (event.type === "rewind") return this.#rewind(event.to);
    if (event.runId !== null && event.runId !== this.#runId) this.#next(event.runId);
    this.#events.push(event);
    this.#show(event);
    if (event.type !== "run-end") return;
    this.#events = [];
    this.#view.endUsage();
  }

  /** @param {string} runId */
  #next(runId) {
    if (this.#runId !== null) this.#view.beginRun();
    this.#runId = runId;
    this.#events = [];
    this.outcome = "";
  }

  /** @param {string} to */
  #rewind(to) {
    this.#events = this.#events.filter(({ cursor }) => !isBehind(cursor, to));
    this.#view.dropRun();
    for (const event of this.#events) this.#show(event);
  }

  /** @param {Event} event unknown ones are ignored */
  #show(event) {
    switch (event.type) {
      case "usage":
        if (event.parentToolCallId === undefined) this.#nameModel(event);
        return this.#view.addUsage(event);
      case "message":
      case "reasoning":
      case "plan":
      case "context":
        // of a sub-agent, only text and calls are shown
        return event.parentToolCallId === undefined ? this.#showOwn(event) : undefined;
      case "agent-text":
        return this.#view.addAgentText(event.parentToolCallId, event.delta);
      case "tool-progress":
        return this.#view.setProgress(event.toolCallId, event.text);
      case "text":
        return this.#view.addText(event.content);
      case "tool-call-start":
        this.#view.beginCall(event.toolCallId, event.toolCallName, event.parentToolCallId);
        return event.title && this.#view.setTitle(event.toolCallId, event.title);
      case "tool-call-args":
        return this.#view.addArguments(event.toolCallId, event.delta);
      case "tool-call-end":
        return this.#view.setCallState(event.toolCallId, "waiting");
      case "tool-result":
        this.#view.setResult(
          event.toolCallId,
          event.result,
          event.isError === true,
          event.synthetic,
        );
        return event.durationMs && this.#view.setDuration(event.toolCallId, event.durationMs);
      case "client-tool-result":
        return this.#view.setResult(event.toolCallId, String(event.content), event.isError);
      case "call-elsewhere":
        return this.#view.setCallState(
          event.toolCallId,
          event.state === "answered" ? "answered" : "elsewhere",
        );
      case "owed":
        return event.toolCalls.forEach((call) => this.#owe(call));
      case "run-end":
        return this.#end(event);
    }
  }

  /**
   * @param {Extract<Event, {type: "message" | "reasoning" | "plan" | "context"}>} event
   */
  #showOwn(event) {
    if (event.type === "message") this.#view.beginAnswer(event.messageId);
    else if (event.type === "reasoning") this.#view.addReasoning(event.delta);
    else if (event.type === "plan") this.#view.setPlan(event.entries);
    else this.#view.addNote(contextNote(event));
  }

  /** @param {OwedCall} call */
  #owe(call) {
    if (isOurs(call) && !this.#mayRun) this.#view.askToRun(call);
    else if (!this.#answers || !isOurs(call)) this.#view.showOwed(call);
  }

  /** @param {{model?: string}} event */
  #nameModel({ model }) {
    if (typeof model === "string") this.#view.setModel(model);
  }

  /** @param {{outcome: string, reason?: string, model?: string}} event */
  #end({ outcome, reason, ...event }) {
    this.outcome = outcome;
    this.#nameModel(event);
    const ending = ENDINGS[String(reason ?? outcome)];
    if (ending) this.#view.addNote(ending);
  }
}

/** @param {{used: number, window?: number, step?: string}} event */
function contextNote({ used, window, step }) {
  if (step !== undefined) {
    const how = STEPS[step] ?? "older parts are left out";
    return (
      `The model is shown less of what came before: ${how}. ` + "The conversation here stays whole."
    );
  }
  const share = window ? Math.round((100 * used) / window) : 100;
  const fills = share > 100 ? "is larger than" : `fills ${share} % of`;
  return (
    `This conversation ${fills} what the model can be shown at a time. ` +
    "Older parts of it will make room; here it stays whole."
  );
}
