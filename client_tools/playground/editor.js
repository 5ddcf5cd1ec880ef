/** The form in which the user edits a message, and the choice of what a post does to an answer. */

import { button, el } from "./dom.js";
import { Edit } from "./posts.js";
import { REMEDIES, fromError } from "./problems.js";

/** @typedef {"enqueue" | "interrupt"} OnBusy */
/**
 * @typedef {"free" | "taken" | "blocked"} Readiness for a post; taken: an answer is in progress,
 *   and the post has to say what becomes of it; blocked: nothing can be posted right now
 */
/**
 * @typedef {object} EditorHandlers
 * @property {(edit: Edit, onBusy?: OnBusy) => void} onEdit
 * @property {() => void} onClosed called when the message is to be shown again
 * @property {() => void} onFocusLost called when the form that had the focus is gone
 * @property {(remedy: import("./problems.js").Remedy, again: () => void) => void} onRemedy
 */

const OFFER = "An answer is coming. Queue this behind it, or interrupt it?";

/** The choice to queue a post, or to interrupt the answer that is coming. */
export class Offer {
  element = el("div", { class: "offer inline", label: "During an answer" });
  #why = el("p", {});
  #choices;

  /** @param {(onBusy: OnBusy) => void} onChoose */
  constructor(onChoose) {
    const choose = (/** @type {OnBusy} */ onBusy) => {
      this.close();
      onChoose(onBusy);
    };
    this.#choices = el(
      "div",
      { class: "choices" },
      button("Queue", () => choose("enqueue"), "button small"),
      button("Interrupt", () => choose("interrupt"), "button small"),
    );
    this.element.setAttribute("role", "group");
    this.#why.setAttribute("role", "status");
    this.element.append(this.#why, this.#choices);
    this.close();
  }

  get isOpen() {
    return !this.#choices.hidden;
  }

  open() {
    this.#choices.hidden = false;
    this.#why.textContent = OFFER;
  }

  close() {
    this.#choices.hidden = true;
    this.#why.textContent = "";
  }
}

/** Keeps what was written until it was sent or thrown away, also while it is not shown. */
export class Editor {
  element = el("form", { class: "editor", label: "Edit the message" });
  #of;
  #original;
  #mayBeEmpty;
  #on;
  #field = el("textarea", { label: "Your message" });
  #why = el("p", { class: "why" });
  #remedy = el("span", {});
  #send = el("button", { class: "button small primary", type: "submit" }, "Send");
  #cancel = button("Cancel", () => this.#close(true), "button small");
  #offer = new Offer((onBusy) => this.#post(onBusy));
  /** @type {Edit | null} the last one that was sent */
  #edit = null;
  #isSending = false;
  /** @type {Readiness} */
  #readiness = "free";

  /**
   * @param {string} of the id of the message
   * @param {{words: string, kept: readonly string[]}} message its text, and the names of its other
   *   parts
   * @param {EditorHandlers} on
   */
  constructor(of, { words, kept }, on) {
    this.#of = of;
    this.#original = words;
    this.#mayBeEmpty = kept.length > 0;
    this.#on = on;
    this.#field.value = words;
    this.#field.rows = 1;
    this.#why.setAttribute("role", "alert");
    const attached = el("p", { class: "about" }, `With it: ${kept.join(", ")}`);
    const actions = el("div", { class: "choices" }, this.#remedy, this.#cancel, this.#send);
    const rest = kept.length > 0 ? [attached] : [];
    this.element.append(this.#field, ...rest, this.#why, this.#offer.element, actions);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.element.addEventListener("keydown", (event) => this.#onKey(event));
    this.#field.addEventListener("input", () => this.#fit());
    this.#fit();
  }

  /** What was written; "" if it is what the message says. */
  get unsent() {
    return this.#isChanged ? this.#words : "";
  }

  get hasFocus() {
    return this.element.contains(document.activeElement);
  }

  /** @param {string} id @returns {boolean} whether this is the message that it has sent */
  hasSent(id) {
    return this.#edit?.id === id;
  }

  /** @param {Readiness} readiness */
  set readiness(readiness) {
    // a refusal because of another client's answer may come before that answer is shown
    if (this.#readiness === "taken" && readiness !== "taken") this.#closeOffer();
    this.#readiness = readiness;
    this.#fit();
  }

  /** Take the focus, where it was. */
  focus() {
    this.#fit();
    this.#field.focus();
  }

  /** Forget what was written. */
  reset() {
    this.#edit = null;
    this.#field.value = this.#original;
    this.#tell("");
    this.#closeOffer();
    this.#fit();
  }

  get #words() {
    return this.#field.value.trim();
  }

  get #isChanged() {
    return this.#words !== this.#original.trim();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key === "Escape") {
      event.stopPropagation();
      if (this.#offer.isOpen) this.#closeOffer();
      else this.#close(false);
    } else if (event.key === "Enter" && event.target === this.#field) {
      if (event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.element.requestSubmit();
    }
  }

  #submit() {
    if (this.#isBlocked) return;
    if (this.#readiness === "taken") this.#offer.open();
    else this.#post();
  }

  /** @param {OnBusy} [onBusy] */
  #post(onBusy) {
    if (this.#isBlocked) return;
    // what may have arrived is sent again as it was
    if (this.#edit?.text !== this.#words) {
      this.#edit = new Edit(this.#of, this.#words, {
        onAccepted: () => this.#accepted(),
        onRefused: (error) => this.#refused(error),
      });
    }
    this.#isSending = true;
    this.#tell("");
    this.#fit();
    // a button that disappears takes the focus with it
    if (this.hasFocus) this.#field.focus();
    this.#on.onEdit(this.#edit, onBusy);
  }

  #accepted() {
    const { hasFocus } = this;
    this.#isSending = false;
    this.reset();
    this.#on.onClosed();
    if (hasFocus) this.#on.onFocusLost();
  }

  /** @param {unknown} error null: it was stopped */
  #refused(error) {
    this.#isSending = false;
    this.#fit();
    if (error === null) return;
    const { title, message, advice, code, remedy, requestId } = fromError(error);
    const isBusy = code === "conversation_busy";
    const facts = [code, requestId && `request ${requestId}`].filter(Boolean).join(" · ");
    this.#tell(`${title}. ${message}${isBusy ? "" : ` ${advice}`} (${facts})`);
    if (isBusy) this.#offer.open();
    const again = () => this.#post();
    if (remedy === "key") this.#on.onRemedy(remedy, again);
    if (remedy !== "reload" && remedy !== "new") return;
    const action = button(REMEDIES[remedy], () => this.#on.onRemedy(remedy, again), "button small");
    this.#remedy.replaceChildren(action);
  }

  /** @param {boolean} forgets whether what was written is thrown away */
  #close(forgets) {
    if (this.#isSending) return;
    if (forgets) this.reset();
    this.#closeOffer();
    this.#on.onClosed();
  }

  #closeOffer() {
    if (!this.#offer.isOpen) return;
    const hadFocus = this.#offer.element.contains(document.activeElement);
    this.#offer.close();
    if (hadFocus) this.#field.focus();
  }

  /** @param {string} why an edit was refused */
  #tell(why) {
    this.#why.textContent = why;
    this.#remedy.replaceChildren();
  }

  get #isBlocked() {
    const isEmpty = this.#words === "" && !this.#mayBeEmpty;
    return this.#isSending || isEmpty || !this.#isChanged || this.#readiness === "blocked";
  }

  #fit() {
    this.#field.readOnly = this.#isSending;
    this.element.setAttribute("aria-busy", String(this.#isSending));
    this.#send.setAttribute("aria-disabled", String(this.#isBlocked));
    this.#cancel.setAttribute("aria-disabled", String(this.#isSending));
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }
}
