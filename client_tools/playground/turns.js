/** The messages that are shown, each with a row of what can be done with it. */

import { button, el, icon } from "./dom.js";
import { Editor, Offer } from "./editor.js";
import { Again } from "./posts.js";

/** @typedef {import("../js/src/index.js").BranchPoint} BranchPoint */
/** @typedef {import("./conversation.js").Activity} Activity */
/** @typedef {import("./editor.js").OnBusy} OnBusy */
/** @typedef {import("./editor.js").Readiness} Readiness */
/** @typedef {import("./parts.js").Medium} Medium */

/**
 * @typedef {object} Shown
 * @property {"user" | "answer"} role
 * @property {string} id "": not known
 * @property {string} [words] the text that can be edited
 * @property {readonly string[]} [kept] names of the other parts
 * @property {readonly Medium[]} [attached]
 * @property {boolean} [isStored] whether the server has it; default: true
 * @property {HTMLButtonElement} [copy] copies the text of an answer; hidden until it has some
 */
/**
 * @typedef {object} TurnsHandlers
 * @property {(edit: import("./posts.js").Edit, onBusy?: OnBusy) => void} onEdit
 * @property {(again: Again, onBusy?: OnBusy) => void} onAgain
 * @property {(messageId: string, topOf: () => number) => Promise<void>} onSwitch resolves when the
 *   version is shown, or refused; `topOf` tells where the place is on the screen
 * @property {(text: string) => void} onWords called with a text for the message field
 * @property {() => void} onFocusLost called when what had the focus is gone
 * @property {import("./editor.js").EditorHandlers["onRemedy"]} onRemedy
 */
/** @typedef {{after: string | null, step: -1 | 1}} Switch the place, and the direction */

/** From so many messages on, those that are far from the screen are not laid out. */
const MANY = 100;
/** @type {Partial<Record<Activity, Readiness>>} */
export const READINESS = {
  idle: "free",
  elsewhere: "free",
  waiting: "taken",
  answering: "taken",
  working: "taken",
};

export class Turns {
  /** @type {Turn[]} */
  #turns = [];
  /** @type {readonly BranchPoint[]} */
  #branches = [];
  /** @type {Readiness} */
  #readiness = "free";
  /** Ids of messages since the last turn that are not shown by themselves.
   * @type {string[]} */
  #hidden = [];
  /** Open ones of this conversation, by the ids of their messages.
   * @type {Map<string, Editor>} */
  #editors = new Map();
  /** Those with text of other conversations.
   * @type {Map<string, Editor>} */
  #away = new Map();
  /** @type {Editor | null} that had the focus when its message was removed */
  #focused = null;
  #isPlanned = false;
  #unsent = el("section", { class: "transcript", label: "Not sent" });
  #root;
  #on;

  /**
   * @param {HTMLElement} root
   * @param {TurnsHandlers} on
   */
  constructor(root, on) {
    this.#root = root;
    this.#on = on;
  }

  /** @returns {[string, readonly Medium[]]} the text and the media of the user's last message */
  get lastMessage() {
    const last = this.#turns.findLast(({ role }) => role === "user");
    return [last?.words ?? "", last?.attached ?? []];
  }

  /**
   * @param {HTMLElement} article
   * @param {Shown} shown
   * @returns {HTMLElement[]} to be put into the transcript
   */
  add(article, shown) {
    const turn = new Turn(article, shown, this.#hidden, {
      onEdit: () => this.#edit(turn),
      onAgain: (question, onBusy) => this.#on.onAgain(new Again(question), onBusy),
      onSwitch: (version, place) => void this.#switch(version, place),
    });
    this.#hidden = [];
    this.#turns.push(turn);
    const editor = this.#editors.get(turn.id) ?? this.#away.get(turn.id);
    for (const [id, each] of this.#editors) if (each.hasSent(turn.id)) this.#forget(id);
    if (!editor) return [article, turn.row];
    this.#away.delete(turn.id);
    this.#editors.set(turn.id, editor);
    turn.isEdited = true;
    return [article, editor.element, turn.row];
  }

  /** @param {HTMLElement} article of an answer that has text now */
  offerCopy(article) {
    const copy = this.#turns.findLast((turn) => turn.article === article)?.copy;
    if (copy) copy.hidden = false;
  }

  /** @param {string} id of a message that is not shown by itself */
  skip(id) {
    this.#hidden.push(id);
  }

  /** Forget the messages; the same conversation follows. Texts in editors stay. */
  clear() {
    for (const editor of this.#editors.values()) if (editor.hasFocus) this.#focused = editor;
    this.#turns = [];
    this.#branches = [];
    this.#hidden = [];
  }

  /** Forget the messages; another conversation follows. */
  leave() {
    this.clear();
    for (const [id, editor] of this.#editors) if (editor.unsent) this.#away.set(id, editor);
    this.#editors.clear();
    this.#focused = null;
    this.#unsent.remove();
  }

  /**
   * @param {string} id
   * @returns {{article: HTMLElement, row: HTMLElement} | null} the elements of a message
   */
  find(id) {
    return this.#turns.find((turn) => turn.id === id && turn.article.isConnected) ?? null;
  }

  /** @param {readonly BranchPoint[]} branches of the whole history, which is shown */
  set branches(branches) {
    this.#branches = branches;
    this.#showUnsent();
    this.refresh();
  }

  /** @param {Activity} activity */
  set activity(activity) {
    this.#readiness = READINESS[activity] ?? "blocked";
    if (this.#readiness === "taken") for (const turn of this.#turns) turn.isStored = true;
    this.refresh();
  }

  /** Refresh once, after all messages that are added at the same time. */
  refreshSoon() {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    queueMicrotask(() => {
      this.#isPlanned = false;
      this.refresh();
    });
  }

  /** Show what can be done with the messages that are shown now. */
  refresh() {
    this.#turns = this.#turns.filter(({ article }) => article.isConnected);
    this.#root.classList.toggle("long", this.#turns.length >= MANY);
    const places = this.#branches.map((branch) => ({ branch, index: this.#indexOf(branch) }));
    let question = "";
    this.#turns.forEach((turn, index) => {
      if (turn.role === "user") question = turn.isStored ? turn.id : "";
      const next = this.#turns[index + 1];
      const isEnd = next ? turn.role === "answer" && next.role === "user" : !this.#isBusy;
      const own = places.filter((place) => place.index === index);
      turn.show(
        isEnd ? question : "",
        own.map(({ branch }) => branch),
        this.#readiness,
      );
    });
    for (const editor of this.#editors.values()) editor.readiness = this.#readiness;
    if (!this.#focused?.element.isConnected) return;
    this.#focused.focus();
    this.#focused = null;
  }

  get #isBusy() {
    return this.#readiness !== "free";
  }

  /**
   * @param {BranchPoint} branch
   * @returns {number} the index of the turn that begins its current version; -1: it is not shown
   */
  #indexOf({ after, current }) {
    if (current === null) return -1;
    const begins = this.#turns.findIndex(({ id, before }) => [...before, id].includes(current));
    if (begins >= 0 || after === null) return begins;
    // the message of the server that begins it is not known by its id
    const index = this.#turns.findIndex(({ id, before }) => [...before, id].includes(after));
    return index >= 0 && this.#turns[index]?.id === after ? index + 1 : index;
  }

  /** @param {Turn} turn */
  #edit(turn) {
    const { id, words, kept } = turn;
    let editor = this.#editors.get(id);
    if (!editor) {
      editor = new Editor(id, { words, kept }, {
        onEdit: this.#on.onEdit,
        onClosed: () => this.#close(id),
        onFocusLost: this.#on.onFocusLost,
        onRemedy: this.#on.onRemedy,
      });
      this.#editors.set(id, editor);
      editor.readiness = this.#readiness;
    }
    turn.isEdited = true;
    turn.article.after(editor.element);
    editor.focus();
  }

  /** @param {string} id of a message whose editor is closed; it keeps a text that was not sent */
  #close(id) {
    const editor = this.#editors.get(id);
    const turn = this.#turns.find((each) => each.id === id);
    const hadFocus = editor?.hasFocus === true;
    editor?.element.remove();
    if (!editor?.unsent) this.#editors.delete(id);
    if (!turn) return;
    turn.isEdited = false;
    if (hadFocus) turn.focus();
  }

  /** @param {string} id of a message that is edited no more */
  #forget(id) {
    this.#editors.get(id)?.reset();
    this.#close(id);
  }

  /** Show the texts of messages that are not shown any more. */
  #showUnsent() {
    const shown = new Set(this.#turns.map(({ id }) => id));
    const gone = [...this.#editors].filter(([id]) => !shown.has(id));
    for (const [id, editor] of gone) if (!editor.unsent) this.#editors.delete(id);
    const cards = gone
      .filter(([, editor]) => editor.unsent)
      .map(([id, editor]) => this.#unsentCard(id, editor.unsent));
    this.#unsent.replaceChildren(...cards);
    if (cards.length > 0) this.#root.append(this.#unsent);
    else this.#unsent.remove();
    if (this.#focused && !shown.has(this.#idOf(this.#focused))) {
      this.#focused = null;
      this.#on.onFocusLost();
    }
  }

  /** @param {Editor} editor */
  #idOf(editor) {
    return [...this.#editors].find(([, each]) => each === editor)?.[0] ?? "";
  }

  /**
   * @param {string} id
   * @param {string} text
   */
  #unsentCard(id, text) {
    const drop = () => {
      this.#editors.delete(id);
      this.#showUnsent();
      this.#on.onFocusLost();
    };
    const use = () => {
      drop();
      this.#on.onWords(text);
    };
    const why = "Not sent: the message that you edited is not in this version any more.";
    return el(
      "div",
      { class: "note unsent-edit" },
      el("p", {}, why),
      el("pre", {}, text),
      button("Write it as a new message", use, "button small"),
      button("Throw it away", drop, "button small"),
    );
  }

  /**
   * @param {string} version the id of its first message
   * @param {Switch} place
   */
  async #switch(version, { after, step }) {
    const turnOf = () => this.#turns.find((each) => each.hasPlace(after));
    let top = 0;
    const topOf = () => (top = turnOf()?.row.getBoundingClientRect().top ?? top);
    await this.#on.onSwitch(version, topOf);
    if (document.activeElement === document.body) turnOf()?.focusSwitch({ after, step });
  }
}

/** A message, and its row. */
class Turn {
  row = el("div", { class: "row" });
  role;
  id;
  words;
  kept;
  attached;
  isStored;
  article;
  copy;
  /** Ids of the messages before it that are not shown by themselves. */
  before;
  #on;
  /** @type {HTMLButtonElement | null} */
  #edit = null;
  /** @type {HTMLButtonElement | null} */
  #again = null;
  #offer;
  #question = "";
  /** @type {Readiness} */
  #readiness = "free";
  #versions = el("span", { class: "versions" });
  /** What the row shows. */
  #known = "";
  /** @type {{after: string | null, buttons: Record<-1 | 1, HTMLButtonElement>}[]} */
  #switches = [];

  /**
   * @param {HTMLElement} article
   * @param {Shown} shown
   * @param {readonly string[]} before
   * @param {object} on
   * @param {() => void} on.onEdit
   * @param {(question: string, onBusy?: OnBusy) => void} on.onAgain
   * @param {(version: string, place: Switch) => void} on.onSwitch
   */
  constructor(article, shown, before, on) {
    const { role, id, words = "", kept = [], attached = [], isStored = true, copy } = shown;
    this.copy = copy ?? null;
    copy?.classList.add("action");
    this.article = article;
    this.attached = attached;
    this.role = role;
    this.id = id;
    this.words = words;
    this.kept = kept;
    this.isStored = isStored;
    this.before = before;
    this.#on = on;
    this.#offer = new Offer((onBusy) => on.onAgain(this.#question, onBusy));
    this.#offer.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#closeOffer();
    });
    this.row.classList.add(`of-${role}`);
    this.row.setAttribute("role", "group");
    this.row.setAttribute("aria-label", role === "user" ? "Your message" : "The answer");
    // the transcript is read out as it grows, and this is no part of what is said
    this.row.setAttribute("aria-live", "off");
    this.row.hidden = true;
  }

  /** @param {boolean} isEdited whether an editor stands in its place */
  set isEdited(isEdited) {
    this.article.hidden = isEdited;
    this.row.classList.toggle("edited", isEdited);
  }

  focus() {
    this.#edit?.focus();
  }

  /** @param {string | null} after @returns {boolean} whether it has the versions of this place */
  hasPlace(after) {
    return this.#switches.some((each) => each.after === after);
  }

  /** @param {Switch} place */
  focusSwitch({ after, step }) {
    const buttons = this.#switches.find((each) => each.after === after)?.buttons;
    if (!buttons) return;
    const isEnd = buttons[step].dataset.version === undefined;
    const other = step === 1 ? buttons[-1] : buttons[1];
    (isEnd ? other : buttons[step]).focus();
  }

  /**
   * @param {string} question the id of the message that can be answered again; "": none
   * @param {readonly BranchPoint[]} branches whose versions begin here
   * @param {Readiness} readiness
   */
  show(question, branches, readiness) {
    this.#question = question;
    this.#readiness = readiness;
    if (readiness !== "taken") this.#closeOffer();
    const isEditable = this.role === "user" && this.isStored && this.id !== "";
    const isCopied = this.copy?.hidden === false;
    const known = JSON.stringify([isEditable, question !== "", isCopied, branches, readiness]);
    // what is there stays, with the focus
    if (known === this.#known) return;
    this.#known = known;
    if (isEditable) this.#edit ??= action("edit", "Edit", this.#on.onEdit);
    this.#again ??= question ? action("again", "Regenerate", () => this.#askAgain()) : null;
    if (this.#again) this.#again.hidden = question === "";
    this.#again?.setAttribute("aria-disabled", String(readiness === "blocked"));
    this.#showVersions(branches);
    const parts = [this.#versions, this.copy, this.#edit, this.#again, this.#offer.element];
    const missing = parts.filter((part) => part !== null && part.parentNode !== this.row);
    if (missing.length > 0) this.row.replaceChildren(...parts.filter((part) => part !== null));
    this.row.hidden = !isEditable && question === "" && !isCopied && branches.length === 0;
  }

  #askAgain() {
    if (this.#readiness === "free") this.#on.onAgain(this.#question);
    else if (this.#readiness === "taken") this.#offer.open();
  }

  #closeOffer() {
    if (!this.#offer.isOpen) return;
    const hadFocus = this.#offer.element.contains(document.activeElement);
    this.#offer.close();
    if (hadFocus) this.#again?.focus();
  }

  /** @param {readonly BranchPoint[]} branches */
  #showVersions(branches) {
    this.#switches = [];
    const isFree = this.#readiness === "free";
    const groups = branches.map(({ after, versions, current }) => {
      const index = versions.indexOf(current ?? "");
      const step = (/** @type {-1 | 1} */ by, /** @type {string} */ sign) => {
        const version = versions[index + by];
        const name = by < 0 ? "Previous version" : "Next version";
        const element = button(sign, () => this.#step(element, { after, step: by }), "step");
        element.setAttribute("aria-label", name);
        element.title = name;
        element.setAttribute("aria-disabled", String(!isFree || version === undefined));
        if (version !== undefined) element.dataset.version = version;
        return element;
      };
      const buttons = { [-1]: step(-1, "‹"), 1: step(1, "›") };
      this.#switches.push({ after, buttons });
      const [number, count] = [index + 1, versions.length];
      const group = el(
        "span",
        { class: "version", label: `Version ${number} of ${count}` },
        buttons[-1],
        el("span", { class: "number" }, `${number}/${count}`),
        buttons[1],
      );
      group.setAttribute("role", "group");
      return group;
    });
    this.#versions.replaceChildren(...groups);
  }

  /**
   * @param {HTMLButtonElement} element
   * @param {Switch} place
   */
  #step(element, place) {
    const { version } = element.dataset;
    if (version !== undefined && this.#readiness === "free") this.#on.onSwitch(version, place);
  }
}

/**
 * @param {string} sign
 * @param {string} name
 * @param {() => void} onClick
 */
function action(sign, name, onClick) {
  const element = el("button", { class: "action", type: "button", title: name, label: name });
  element.addEventListener("click", onClick);
  element.append(icon(sign));
  return element;
}
