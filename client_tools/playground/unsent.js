/** Shows the messages that were not sent, each with the reason and what can be done with it. */

import { button, el, icon } from "./dom.js";
import { mediaList } from "./media.js";
import { postedName } from "./parts.js";
import { REMEDIES } from "./problems.js";
import { escapeInvisible } from "../js/src/index.js";

/** @typedef {import("./editor.js").Readiness} Readiness */
/** @typedef {import("./outbox.js").Unsent} Unsent */
/**
 * @typedef {object} UnsentHandlers
 * @property {(id: string) => void} onRetry
 * @property {(id: string) => void} onEdit
 * @property {(id: string) => void} onNew called when its text is to begin another conversation
 * @property {(id: string) => void} onDrop
 * @property {(id: string) => void} onKey called when a key is needed to try it again
 * @property {() => void} onFocusLost called when what had the focus is gone
 */

export class UnsentCards {
  /** @type {Map<string, {element: HTMLElement, known: string}>} by the ids of the messages */
  #cards = new Map();
  /** @type {Readiness} */
  #readiness = "free";
  #root;
  #on;

  /**
   * @param {HTMLElement} root
   * @param {UnsentHandlers} on
   */
  constructor(root, on) {
    this.#root = root;
    this.#on = on;
  }

  /** @param {Readiness} readiness for another try */
  set readiness(readiness) {
    this.#readiness = readiness;
    for (const element of this.#root.querySelectorAll(".retry")) this.#fit(element);
  }

  /** @param {readonly Unsent[]} all the messages that are shown from now on */
  show(all) {
    const hadFocus = this.#root.contains(document.activeElement);
    const known = new Map(all.map((each) => [each.message.id, contentOf(each)]));
    for (const [id, card] of this.#cards) {
      // what is there stays, with the focus
      if (known.get(id) === card.known) continue;
      card.element.remove();
      this.#cards.delete(id);
    }
    for (const each of all) if (!this.#cards.has(each.message.id)) this.#add(each);
    if (hadFocus && !this.#root.contains(document.activeElement)) this.#on.onFocusLost();
  }

  /** @param {Unsent} unsent */
  #add(unsent) {
    const { id, text, attached } = unsent.message;
    const article = el("article", { class: "message user", label: "You, not sent" }, text);
    article.append(...mediaList(attached));
    const card = el("div", { class: "unsent", label: "Your message, not sent" });
    card.setAttribute("role", "group");
    card.append(...(text || attached.length > 0 ? [article] : []), this.#problem(unsent));
    this.#cards.set(id, { element: card, known: contentOf(unsent) });
    this.#root.append(card);
    card.scrollIntoView({ block: "nearest" });
    if (unsent.refusal?.remedy === "key") this.#on.onKey(id);
  }

  /** @param {Unsent} unsent */
  #problem(unsent) {
    const { refusal, lost } = unsent;
    const { title = "", message = "", advice = "", code = "", requestId = null } = refusal ?? {};
    const facts = [code, requestId && `request ${requestId}`].filter(Boolean).join(" · ");
    const what = refusal?.isCertain ? "was not sent" : "may not have been sent";
    const lines = [`${title}. ${message}`.trim(), lost.length > 0 ? lostNote(lost) : advice];
    const body = el("div", {}, el("strong", {}, `This message ${what}`));
    for (const line of [...lines, keptNote(unsent)].filter(Boolean)) body.append(el("p", {}, line));
    if (facts) body.append(el("p", { class: "facts" }, facts));
    const problem = el("div", { class: "problem" }, icon("alert"), body, this.#actions(unsent));
    problem.setAttribute("role", "alert");
    return problem;
  }

  /** @param {Unsent} unsent */
  #actions({ message: { id }, refusal, lost }) {
    const remedy = refusal?.remedy ?? "again";
    const actions = el("div", { class: "choices" });
    if (remedy === "new") actions.append(button(REMEDIES.new, () => this.#on.onNew(id)));
    else if (remedy !== "edit" && lost.length === 0) {
      const retry = button(REMEDIES.again, () => this.#retry(id), "button retry");
      this.#fit(retry);
      actions.append(retry);
    }
    actions.append(
      button(REMEDIES.edit, () => this.#on.onEdit(id)),
      button("Throw it away", () => this.#on.onDrop(id), "button quiet"),
    );
    return actions;
  }

  /** @param {string} id */
  #retry(id) {
    if (this.#readiness !== "blocked") this.#on.onRetry(id);
  }

  /** @param {Element} retry its button */
  #fit(retry) {
    retry.setAttribute("aria-disabled", String(this.#readiness === "blocked"));
  }
}

/** @param {Unsent} unsent @returns {string} what its card shows, beside the message */
function contentOf({ refusal, lost, kept }) {
  return JSON.stringify([refusal, lost, kept]);
}

/** @param {readonly string[]} lost */
function lostNote(lost) {
  const names = lost.map((name) => escapeInvisible(postedName(name))).join(", ");
  return `A reload has not kept ${names}: edit the message, and attach it again.`;
}

/** @param {Unsent} unsent */
function keptNote({ kept }) {
  if (kept === "all") return "";
  const [what, are] = kept === "text" ? ["its attachments", "They are"] : ["it", "It is"];
  return `A reload loses ${what}. ${are} too large to be kept, or the browser keeps nothing.`;
}
