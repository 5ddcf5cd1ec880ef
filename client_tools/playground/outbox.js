/**
 * The messages of the user that the server has not accepted: none is lost, whatever becomes of its
 * post. The texts are kept in this tab over a reload, and so are attachments that are small enough.
 */

import { ApiError, InvalidArgument } from "../js/src/index.js";
import { asRecord, parseJson } from "../js/src/json.js";
import { Message } from "./posts.js";
import { REMEDIES, fromError } from "./problems.js";
import { recall, remember } from "./session.js";

/** @typedef {import("./editor.js").OnBusy} OnBusy */
/** @typedef {import("./problems.js").Problem} Problem */
/**
 * @typedef {Problem & {isCertain: boolean}} Refusal `isCertain`: the server does not have the
 *   message
 */
/**
 * @typedef {object} Unsent
 * @property {Message} message
 * @property {OnBusy} onBusy effect on an answer that is in progress
 * @property {Refusal | null} refusal null: it is being posted
 * @property {readonly string[]} lost names of attachments that were not kept over a reload
 * @property {"all" | "text" | "nothing"} kept what a reload leaves of it
 */

const KEPT = "unsent";
/** Characters that all conversations of a tab keep; a browser stores some five million. */
const MOST_KEPT = 2_000_000;
/** @type {Refusal} */
const UNANSWERED = {
  title: "The page was stopped, left or reloaded before the server answered",
  message: "",
  advice: "Try again: a message that has arrived is not posted twice.",
  remedy: "again",
  code: "",
  requestId: null,
  isCertain: false,
};

/** Those of one conversation. */
export class Outbox {
  /** Whether the conversation began in this tab, and the server has none of it. */
  isNew;
  /** @type {Map<string, Unsent>} by the ids of the messages */
  #unsent;
  #onChange;

  /**
   * @param {{isNew?: boolean, unsent?: readonly Unsent[], onChange?: () => void}} [parts]
   *   `onChange` is called when there is something else to keep
   */
  constructor({ isNew = false, unsent = [], onChange = () => {} } = {}) {
    this.isNew = isNew;
    this.#unsent = new Map(unsent.map((each) => [each.message.id, each]));
    this.#onChange = onChange;
  }

  get isEmpty() {
    return this.#unsent.size === 0;
  }

  /** @returns {readonly Unsent[]} oldest first, with those that are being posted */
  get all() {
    return [...this.#unsent.values()];
  }

  /** @returns {readonly Unsent[]} those that nobody posts right now */
  get refused() {
    return this.all.filter(({ refusal }) => refusal !== null);
  }

  /** @param {string} id */
  find(id) {
    return this.#unsent.get(id);
  }

  /**
   * Keep a message from before its post until the server has it.
   *
   * @param {Message} message
   * @param {OnBusy} [onBusy]
   */
  begin(message, onBusy = "enqueue") {
    const { lost = [] } = this.#unsent.get(message.id) ?? {};
    this.#unsent.set(message.id, { message, onBusy, refusal: null, lost, kept: "nothing" });
    this.#onChange();
  }

  /** @param {string} id of a message that the server has */
  accept(id) {
    if (!this.#unsent.has(id)) return;
    this.isNew = false;
    this.remove(id);
  }

  /**
   * @param {string} id
   * @param {unknown} error null: it was stopped, or the conversation was left
   * @returns {boolean} false if it is not kept here, because the server has it
   */
  refuse(id, error) {
    const unsent = this.#unsent.get(id);
    if (!unsent) return false;
    unsent.refusal = error === null ? UNANSWERED : refusalOf(error);
    this.#onChange();
    return true;
  }

  /** Note that the conversation is left: nobody hears of what is being posted. */
  leave() {
    for (const { message, refusal } of this.all) if (!refusal) this.refuse(message.id, null);
  }

  /**
   * Remove what has arrived.
   *
   * @param {readonly {id: string}[]} past messages of the history
   * @param {boolean} isKnown whether the server has the conversation
   */
  update(past, isKnown) {
    if (isKnown) this.isNew = false;
    for (const { id } of past) this.accept(id);
  }

  /** @param {string} id of a message that is sent, thrown away, or edited */
  remove(id) {
    if (this.#unsent.delete(id)) this.#onChange();
  }
}

/** Those of all conversations of this tab. */
export class Outboxes {
  /** @type {Map<string, Outbox>} by the ids of the conversations */
  #outboxes = new Map();

  constructor() {
    const stored = parseJson(recall(KEPT) ?? "");
    for (const each of Array.isArray(stored) ? stored : []) this.#restore(asRecord(each));
    this.#save();
  }

  /** @returns {string | null} the newest conversation that has nothing but unsent messages */
  get newest() {
    const found = [...this.#outboxes].findLast(([, { isNew, isEmpty }]) => isNew && !isEmpty);
    return found?.[0] ?? null;
  }

  /**
   * @param {string} conversationId
   * @param {boolean} isNew whether it begins in this tab
   */
  of(conversationId, isNew) {
    const known = this.#outboxes.get(conversationId);
    if (known) return known;
    const outbox = new Outbox({ isNew, onChange: () => this.#save() });
    this.#outboxes.set(conversationId, outbox);
    return outbox;
  }

  /** @param {string} conversationId of one that was deleted */
  forget(conversationId) {
    if (this.#outboxes.delete(conversationId)) this.#save();
  }

  /** @param {Record<string, unknown>} stored a conversation */
  #restore({ id, isNew, unsent }) {
    if (typeof id !== "string" || !Array.isArray(unsent)) return;
    const restored = unsent.flatMap((each) => restoreUnsent(asRecord(each)) ?? []);
    const parts = { isNew: isNew === true, unsent: restored, onChange: () => this.#save() };
    this.#outboxes.set(id, new Outbox(parts));
  }

  #save() {
    const filled = [...this.#outboxes].filter(([, { isEmpty }]) => !isEmpty);
    const all = filled.flatMap(([, outbox]) => outbox.all);
    chooseKept(all);
    const kept = filled.map(([id, outbox]) => {
      return { id, isNew: outbox.isNew, unsent: outbox.all.flatMap((each) => stored(each) ?? []) };
    });
    if (remember(KEPT, kept.length > 0 ? JSON.stringify(kept) : null)) return;
    // an older state might bring back what was sent since
    remember(KEPT, null);
    for (const each of all) each.kept = "nothing";
  }
}

/** @param {unknown} error @returns {Refusal} */
function refusalOf(error) {
  const isCertain = error instanceof ApiError || error instanceof InvalidArgument;
  return { ...fromError(error), isCertain };
}

/**
 * Choose what is kept over a reload: the texts first.
 *
 * @param {readonly Unsent[]} all
 */
function chooseKept(all) {
  let rest = MOST_KEPT;
  for (const each of all) {
    const { length } = each.message.text;
    each.kept = length <= rest ? "text" : "nothing";
    if (length <= rest) rest -= length;
  }
  for (const each of all) {
    const length = each.message.attached.reduce((sum, { url }) => sum + url.length, 0);
    if (each.kept === "nothing" || length > rest) continue;
    each.kept = "all";
    rest -= length;
  }
}

/** @param {Unsent} unsent @returns {object | null} null: nothing of it is kept */
function stored({ message, onBusy, refusal, lost, kept }) {
  if (kept === "nothing") return null;
  const names = message.attached.map(({ name, type }) => name || type);
  if (kept === "all") return { message: message.record, onBusy, refusal, lost };
  const text = { ...message.record, attached: [] };
  return { message: text, onBusy, refusal, lost: names };
}

/** @param {Record<string, unknown>} stored @returns {Unsent | null} */
function restoreUnsent({ message, onBusy, refusal, lost }) {
  const restored = Message.restore(asRecord(message));
  if (!restored) return null;
  return {
    message: restored,
    onBusy: onBusy === "interrupt" ? onBusy : "enqueue",
    refusal: restoreRefusal(asRecord(refusal)),
    lost: Array.isArray(lost) ? lost.map(String) : [],
    kept: "nothing",
  };
}

/** @param {Record<string, unknown>} stored @returns {Refusal} */
function restoreRefusal({ title, message, advice, remedy, code, requestId, isCertain }) {
  if (typeof title !== "string") return UNANSWERED;
  const known = typeof remedy === "string" && Object.hasOwn(REMEDIES, remedy) && remedy !== "key";
  return {
    title,
    message: String(message ?? ""),
    advice: String(advice ?? ""),
    remedy: known ? /** @type {import("./problems.js").Remedy} */ (remedy) : "again",
    code: String(code ?? ""),
    requestId: typeof requestId === "string" ? requestId : null,
    isCertain: isCertain === true,
  };
}
