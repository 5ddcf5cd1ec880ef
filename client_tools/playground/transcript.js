/** The view of the conversation: its messages in order, and its tool calls by id. */

import { copyButton } from "./copy.js";
import { button, el, icon } from "./dom.js";
import { mediaList } from "./media.js";
import { REMEDIES, fromError } from "./problems.js";
import { Prose } from "./prose.js";
import { ToolCard } from "./toolcard.js";
import { Turns } from "./turns.js";
import { UsageLines } from "./usage.js";

/** @typedef {import("./history.js").PastMessage} PastMessage */
/** @typedef {import("./plan.js").PlanList} PlanList */
/** @typedef {import("./problems.js").Problem} Problem */
/** @typedef {import("../js/src/index.js").OwedCall} OwedCall */
/** @typedef {import("./conversation.js").Reply} Reply */
/** @typedef {import("./run.js").CallState} CallState */

/** Labels of calls that the server closed. */
const SYNTHETIC = {
  superseded: "closed: the conversation went on without it",
  interrupted: "closed: the server was interrupted",
  unanswered: "closed: its history has no result",
  invalid: "not run: its arguments are not valid",
  timeout: "closed: nobody answered in time",
  denied: "denied",
};

export class Transcript {
  /** The user's last message, and its attachments. */
  lastWords = "";
  /** @type {readonly import("./parts.js").Medium[]} */
  lastAttached = [];

  #root;
  #plan;
  #queued;
  #onRemedy;
  #onReply;
  #onRun;
  #onCut;
  #onFocusLost;
  #turns;
  #usage;
  /** @type {HTMLElement | null} */
  #answer = null;
  /** The last message of the answer to the user's last one.
   * @type {HTMLElement | null} */
  #lastAnswer = null;
  /** @type {Prose | null} the text that is being written */
  #text = null;
  /** @type {Prose[]} all texts of the answer */
  #texts = [];
  /** @type {Text | null} */
  #reasoning = null;
  /** @type {HTMLElement[]} */
  #ofRun = [];
  /** @type {Map<string, ToolCard>} */
  #cards = new Map();
  /** What a person has written about calls whose cards are removed, until they are there again.
   * @type {Map<string, import("./asks.js").Draft>} */
  #drafts = new Map();

  /**
   * @param {HTMLElement} root
   * @param {PlanList} plan
   * @param {HTMLElement} queued element for messages that wait for an answer to end
   * @param {object} on
   * @param {(remedy: import("./problems.js").Remedy, again: () => void) => void} on.onRemedy
   * @param {(reply: Reply) => void} on.onReply
   * @param {() => void} on.onRun called when the tools of this conversation may run
   * @param {() => void} on.onCut called when another version has begun
   * @param {(runId: string) => Promise<number>} on.readCost
   * @param {Omit<import("./turns.js").TurnsHandlers, "onRemedy">} on.turns
   */
  constructor(root, plan, queued, { onRemedy, onReply, onRun, onCut, readCost, turns }) {
    this.#root = root;
    this.#plan = plan;
    this.#queued = queued;
    this.#onRemedy = onRemedy;
    this.#onReply = onReply;
    this.#onRun = onRun;
    this.#onCut = onCut;
    this.#turns = new Turns(root, { ...turns, onRemedy });
    this.#usage = new UsageLines(readCost);
    this.#onFocusLost = turns.onFocusLost;
  }

  /** Remove what is shown; the same conversation follows. */
  clear() {
    for (const [id, { draft }] of this.#cards) if (draft) this.#drafts.set(id, draft);
    this.#turns.clear();
    this.#usage.clear();
    this.#root.replaceChildren();
    this.#queued.replaceChildren();
    this.#plan.show([]);
    this.#cards.clear();
    this.#close();
  }

  /** Remove what is shown; another conversation follows. */
  leave() {
    this.#turns.leave();
    this.clear();
    this.#drafts.clear();
  }

  /**
   * @param {string} text
   * @param {string} [id]
   * @param {{words?: string, kept?: readonly string[], attached?: import("./parts.js").Medium[],
   *   isStored?: boolean}} [more] what can be edited, if the message has more than text; its media;
   *   whether the server has it
   */
  addUser(text, id = "", { words = text, kept = [], attached = [], isStored = false } = {}) {
    [this.lastWords, this.lastAttached] = [words, attached];
    this.#dropProblems();
    this.#beginUsage();
    const article = el("article", { class: "message user", label: "You" }, text);
    article.append(...mediaList(attached));
    this.#addTurn(article, { role: "user", id, words, kept, attached, isStored });
  }

  /**
   * Remove a message and all that is behind it: another one takes its place.
   *
   * @param {string} id
   * @returns {boolean} false if it is not shown
   */
  cutFrom(id) {
    const found = this.#turns.find(id);
    if (found) this.#removeFrom(found.article);
    return found !== null;
  }

  /**
   * Remove all that is behind a message: another answer takes its place.
   *
   * @param {string} id
   * @returns {boolean} false if it is not shown
   */
  cutAfter(id) {
    const found = this.#turns.find(id);
    if (found) this.#removeFrom(found.row.nextSibling);
    return found !== null;
  }

  /** @param {ChildNode | null} first */
  #removeFrom(first) {
    const hadFocus = this.#root.contains(document.activeElement);
    for (let node = first; node; node = first) {
      first = node.nextSibling;
      node.remove();
    }
    for (const [id, { draft, element }] of this.#cards) {
      if (element.isConnected) continue;
      if (draft) this.#drafts.set(id, draft);
      this.#cards.delete(id);
    }
    this.#close();
    this.#beginUsage();
    this.#turns.refresh();
    [this.lastWords, this.lastAttached] = this.#turns.lastMessage;
    if (hadFocus && !this.#root.contains(document.activeElement)) this.#onFocusLost();
    this.#onCut();
  }

  /** @param {readonly import("../js/src/index.js").BranchPoint[]} branches */
  setVersions(branches) {
    this.#turns.branches = branches;
  }

  /** @param {import("./conversation.js").Activity} activity */
  setActivity(activity) {
    this.#turns.activity = activity;
    if (activity !== "answering") this.#text?.end();
  }

  /**
   * @param {readonly string[]} texts of messages sent during the current answer; they replace the
   *   previous list
   */
  setQueued(texts) {
    const shown = texts.map((text) => {
      return el(
        "article",
        { class: "message user", label: "You, waiting" },
        text,
        el("span", { class: "queued-note" }, "waits"),
      );
    });
    this.#queued.replaceChildren(...shown);
  }

  /** @param {PastMessage} message */
  addPast(message) {
    if (message.role === "user") {
      return this.addUser(message.text, message.id, { ...message, isStored: true });
    }
    if (message.role === "assistant") {
      this.beginAnswer(message.id);
      if (message.text) this.addText(message.text);
      if (message.attached) this.#open().append(...mediaList(message.attached));
      for (const call of message.calls) this.#addPastCall(call);
      if (message.model !== null) this.setModel(message.model);
      this.#addPastUsage(message, false);
      if (message.partial) this.addNote("This answer was cut short.");
      return;
    }
    this.#turns.skip(message.id);
    if (message.role === "child") this.#addChild(message.callId, message.message);
    else this.#addReply(message);
  }

  /**
   * Add a message of a sub-agent; its task is in the call's arguments.
   *
   * @param {string} parent
   * @param {PastMessage} message
   */
  #addChild(parent, message) {
    if (message.role === "child") this.#addChild(message.callId, message.message);
    else if (message.role === "assistant") {
      if (message.text) this.addAgentText(parent, message.text);
      this.#addPastUsage(message, true);
      for (const call of message.calls) this.#addPastCall(call, parent);
    } else if (message.role !== "user") this.#addReply(message);
  }

  /** @param {Exclude<PastMessage, {role: "user" | "assistant" | "child"}>} message */
  #addReply(message) {
    if (message.role === "hidden") return;
    if (message.role === "approval") return this.setDecision(message.callId, message.approved);
    this.setResult(message.callId, message.text, message.isError, message.synthetic);
    if (message.durationMs) this.setDuration(message.callId, message.durationMs);
  }

  /**
   * @param {import("./history.js").PastCall} call
   * @param {string} [parent]
   */
  #addPastCall(call, parent) {
    this.beginCall(call.id, call.name, parent);
    if (call.title) this.setTitle(call.id, call.title);
    this.addArguments(call.id, call.arguments);
    this.setCallState(call.id, "waiting");
    if (call.client) this.#cards.get(call.id)?.setClients();
  }

  /**
   * @param {import("./history.js").PastAnswer} answer
   * @param {boolean} isWithin whether a sub-agent gave it
   */
  #addPastUsage({ usage, runId }, isWithin) {
    if (!usage) return;
    const call = { runId: runId ?? null, isWithin, isPast: true };
    this.#usage.add(this.#lastAnswer, usage, call);
  }

  /** @param {import("../js/src/index.js").UsageEvent} event */
  addUsage(event) {
    const isWithin = event.parentToolCallId !== undefined;
    this.#usage.add(this.#lastAnswer, event, { runId: event.runId, isWithin, isPast: false });
  }

  /** Count for another answer. */
  #beginUsage() {
    this.#lastAnswer = null;
    this.#usage.begin();
  }

  endUsage() {
    void this.#usage.end();
  }

  /** @param {boolean} mayCost */
  showCosts(mayCost) {
    this.#usage.mayCost = mayCost;
  }

  beginRun() {
    this.#close();
    this.#usage.beginRun();
    this.#plan.keep();
    for (const card of this.#cards.values()) card.endWords();
    this.#ofRun = [];
  }

  dropRun() {
    this.#close();
    this.#usage.dropRun();
    this.#plan.takeBack();
    for (const element of this.#ofRun.splice(0)) element.remove();
    this.#turns.refresh();
  }

  /** @param {string} [id] */
  beginAnswer(id = "") {
    this.#close();
    this.#answer = el("article", { class: "message answer", label: "The agent" });
    this.#lastAnswer = this.#answer;
    /** @type {Prose[]} */
    const texts = (this.#texts = []);
    const source = () => texts.map((text) => text.source).join("\n\n");
    const copy = copyButton(source, "Copy the answer");
    copy.hidden = true;
    this.#addTurn(this.#answer, { role: "answer", id, copy });
  }

  /** @param {string} text */
  addText(text) {
    const answer = this.#open();
    if (this.#text === null) {
      this.#text = new Prose();
      this.#texts.push(this.#text);
      answer.append(this.#text.element);
      this.#turns.offerCopy(answer);
    }
    this.#text.add(text);
  }

  /** @param {string} text */
  addReasoning(text) {
    const answer = this.#open();
    if (this.#reasoning === null) {
      this.#reasoning = document.createTextNode("");
      const body = el("div", { class: "reasoning-text" }, this.#reasoning);
      answer.append(el("details", { class: "reasoning" }, el("summary", {}, "Reasoning"), body));
    }
    this.#reasoning.appendData(text);
  }

  /**
   * @param {string} id
   * @param {string} name
   * @param {string} [parent] the card of that call contains the new one, if the page knows it
   */
  beginCall(id, name, parent) {
    const draft = this.#drafts.get(id);
    this.#drafts.delete(id);
    const card = new ToolCard(name, (reply) => this.#onReply({ id, ...reply }), this.#onRun, draft);
    const above = parent === undefined ? undefined : this.#cards.get(parent);
    this.#cards.set(id, card);
    if (above) {
      above.nest(card);
      this.#ofRun.push(card.element);
      return;
    }
    const answer = this.#open();
    answer.classList.add("with-tools");
    answer.append(card.element);
    this.#reasoning = null;
    this.#endText();
  }

  /**
   * @param {string} parent
   * @param {string} text
   */
  addAgentText(parent, text) {
    const element = this.#cards.get(parent)?.addWords(text);
    if (element && !this.#ofRun.includes(element)) this.#ofRun.push(element);
  }

  /**
   * @param {string} id
   * @param {string} text
   */
  setProgress(id, text) {
    this.#cards.get(id)?.setProgress(text);
  }

  /**
   * @param {string} id
   * @param {string} title
   */
  setTitle(id, title) {
    this.#cards.get(id)?.setTitle(title);
  }

  /**
   * @param {string} id
   * @param {number} milliseconds
   */
  setDuration(id, milliseconds) {
    this.#cards.get(id)?.setDuration(milliseconds);
  }

  /** @param {string} name of the answer's model; shown only if the answer has text */
  setModel(name) {
    const answer = this.#answer;
    if (!answer || this.#text === null || answer.querySelector(":scope > .model")) return;
    answer.append(el("p", { class: "model" }, name));
  }

  /** @param {readonly import("../js/src/index.js").PlanEntry[]} entries */
  setPlan(entries) {
    this.#plan.show(entries);
  }

  /**
   * @param {string} id
   * @param {string} delta
   */
  addArguments(id, delta) {
    this.#cards.get(id)?.addArguments(delta);
  }

  /**
   * @param {string} id
   * @param {CallState} state
   */
  setCallState(id, state) {
    this.#cards.get(id)?.setState(state);
  }

  /**
   * @param {string} id
   * @param {string} text
   * @param {boolean} isError
   * @param {string | null} [synthetic]
   */
  setResult(id, text, isError, synthetic) {
    this.#cards.get(id)?.setResult(text, isError);
    const why = /** @type {Record<string, string>} */ (SYNTHETIC)[synthetic ?? ""];
    if (why) this.#cards.get(id)?.explain(why);
  }

  /**
   * @param {string} id
   * @param {boolean} approved
   */
  setDecision(id, approved) {
    this.#cards.get(id)?.setDecision(approved);
  }

  /** @param {string} id of a call whose answer by this page the server has accepted */
  settle(id) {
    this.#cards.get(id)?.settle();
  }

  /**
   * @param {string} id of a call that needs no answer any more, because the user has sent another
   *   message
   */
  supersede(id) {
    this.#cards.get(id)?.withdraw();
    this.#cards.get(id)?.explain(SYNTHETIC.superseded);
  }

  /** @param {OwedCall} call perhaps one that began before this page followed the run */
  showOwed(call) {
    if (!this.#cards.has(call.id)) this.beginCall(call.id, call.name, call.parentToolCallId);
    this.#cards.get(call.id)?.owe(call);
  }

  /** @param {OwedCall} call */
  askToRun(call) {
    if (!this.#cards.has(call.id)) this.beginCall(call.id, call.name, call.parentToolCallId);
    this.#cards.get(call.id)?.askToRun(call.arguments);
  }

  /** @param {string} text */
  addNote(text) {
    this.#add(el("p", { class: "note" }, text));
    this.#close();
  }

  /**
   * @param {unknown} error
   * @param {() => void} again
   * @param {boolean} [isMessage] whether the user's last message may be changed and sent again
   */
  addError(error, again, isMessage = true) {
    this.addProblem(fromError(error, isMessage), again);
    // the user looks at the place where it was tried
    if (!isMessage) this.#root.lastElementChild?.scrollIntoView({ block: "nearest" });
  }

  /**
   * @param {Problem} problem
   * @param {() => void} [again]
   */
  addProblem(problem, again = () => {}) {
    this.#dropProblems();
    const facts = [problem.code, problem.requestId && `request ${problem.requestId}`]
      .filter(Boolean)
      .join(" · ");
    const card = el(
      "div",
      { class: "problem" },
      icon("alert"),
      el(
        "div",
        {},
        el("strong", {}, problem.title),
        el("p", {}, problem.message),
        el("p", {}, problem.advice),
        el("p", { class: "facts" }, facts),
      ),
    );
    card.setAttribute("role", "alert");
    const action = REMEDIES[problem.remedy];
    if (action) card.append(button(action, () => this.#onRemedy(problem.remedy, again)));
    else this.#onRemedy(problem.remedy, again);
    // an answer that is in progress goes on above it
    this.#root.append(card);
  }

  /** Remove problems, before something new is tried. */
  #dropProblems() {
    for (const card of this.#root.querySelectorAll(".problem")) card.remove();
  }

  /** @returns {HTMLElement} the current answer, created if there is none */
  #open() {
    if (this.#answer === null) this.beginAnswer();
    return /** @type {HTMLElement} */ (this.#answer);
  }

  #close() {
    this.#answer = null;
    this.#endText();
    this.#reasoning = null;
  }

  #endText() {
    this.#text?.end();
    this.#text = null;
  }

  /**
   * @param {HTMLElement} article
   * @param {import("./turns.js").Shown} shown
   */
  #addTurn(article, shown) {
    for (const element of this.#turns.add(article, shown)) this.#add(element);
    this.#turns.refreshSoon();
  }

  /** @param {HTMLElement} element */
  #add(element) {
    this.#root.append(element);
    this.#ofRun.push(element);
  }
}
