/** What the user posts: a message, another text in place of one, or the wish for another answer. */

import { randomId, reword } from "../js/src/index.js";
import { asRecord } from "../js/src/json.js";
import { contentText, editable } from "./history.js";
import { mediaOf, shownName } from "./parts.js";

/** @typedef {import("../js/src/index.js").Client} Client */
/** @typedef {import("../js/src/index.js").FoundMessage} FoundMessage */
/** @typedef {import("../js/src/index.js").SendOptions} SendOptions */
/** @typedef {import("../js/src/index.js").Sending} Sending */
/** @typedef {import("./run.js").ConversationView} ConversationView */
/** @typedef {SendOptions & {signal: AbortSignal}} PostOptions */
/** @typedef {import("./parts.js").Medium} Medium */

/**
 * @typedef {object} Post may be sent again: its key and the id of its message stay the same
 * @property {string} id of its message, if it has one
 * @property {string} text as the page shows it while it waits
 * @property {readonly Medium[]} [attached] whose names are shown with it
 * @property {boolean} isMessage whether the refused text belongs into the message field
 * @property {(client: Client, conversationId: string, options: PostOptions) => Promise<Sending>}
 *   send
 * @property {(view: ConversationView) => boolean} show called once the server has accepted it;
 *   returns false if the view does not have the place
 * @property {(error: unknown) => boolean} refuse called with the refusal, null if it was stopped;
 *   returns whether it is shown there
 */

/** Posts during an answer, which the page shows until their runs have begun. */
export class QueuedPosts {
  /** @type {Map<string, {text: string, runId: string | null}>} by the ids of the posts */
  #posts = new Map();
  #view;

  /** @param {Pick<ConversationView, "setQueued">} view */
  constructor(view) {
    this.#view = view;
  }

  /**
   * @param {Post} post
   * @param {string | null} runId null: it is on its way
   */
  add({ id, text, attached = [] }, runId) {
    const names = attached.map((medium) => shownName(medium));
    this.#posts.set(id, { text: [text, ...names].filter(Boolean).join("\n"), runId });
    this.#show();
  }

  /** @param {string} id of a post that was refused */
  delete(id) {
    if (this.#posts.delete(id)) this.#show();
  }

  /**
   * Remove what has begun, or was removed from the queue.
   *
   * @param {readonly {id: string}[]} past messages of the history
   * @param {readonly string[] | null} runs that are queued; null: a newer one is not among them
   */
  update(past, runs) {
    const known = new Set(past.map(({ id }) => id));
    for (const [id, { runId }] of this.#posts) {
      const isGone = runs !== null && runId !== null && !runs.includes(runId);
      if (known.has(id) || isGone) this.#posts.delete(id);
    }
    if (this.#posts.size > 0) this.#show();
  }

  #show() {
    this.#view.setQueued([...this.#posts.values()].map(({ text }) => text));
  }
}

/**
 * @typedef {object} MessageExtras
 * @property {readonly Medium[]} [attached]
 * @property {{agentId?: string, model?: string}} [to] the agent and the model that answer it
 */

/** @implements {Post} */
export class Message {
  id = randomId();
  text;
  isMessage = true;
  attached;
  #key = randomId();
  #to;

  /**
   * @param {string} text
   * @param {MessageExtras} [extras]
   */
  constructor(text, { attached = [], to = {} } = {}) {
    this.text = text;
    this.attached = attached;
    this.#to = to;
  }

  /** All that a page needs, after a reload, to post the same message again. */
  get record() {
    const { id, text, attached } = this;
    return { id, key: this.#key, text, attached, to: this.#to };
  }

  /**
   * @param {Record<string, unknown>} record
   * @returns {Message | null} null if it is not a record of a message
   */
  static restore({ id, key, text, attached, to }) {
    if (typeof id !== "string" || typeof key !== "string" || typeof text !== "string") return null;
    const { agentId, model } = asRecord(to);
    const chosen = {
      ...(typeof agentId === "string" && { agentId }),
      ...(typeof model === "string" && { model }),
    };
    const message = new Message(text, { attached: mediaOf(attached), to: chosen });
    message.id = id;
    message.#key = key;
    return message;
  }

  /** @type {Post["send"]} */
  async send(client, conversationId, options) {
    const message = /** @type {const} */ ({ role: "user", content: this.#content, id: this.id });
    const all = { ...this.#to, conversationId, ...options, idempotencyKey: this.#key };
    return client.send(message, all);
  }

  /** @returns {string | import("../js/src/index.js").Part[]} */
  get #content() {
    if (this.attached.length === 0) return this.text;
    const media = this.attached.map(({ type, url, mediaType, name }) => {
      return { type, url, ...(mediaType && { mediaType }), ...(name && { name }) };
    });
    return [...(this.text ? [{ type: "text", text: this.text }] : []), ...media];
  }

  /** @param {Pick<ConversationView, "addUser">} view */
  addTo(view) {
    const kept = this.attached.map(({ name, type }) => `[${name || type}]`);
    const more = { words: this.text, kept, attached: [...this.attached] };
    view.addUser(this.text, this.id, kept.length > 0 ? more : {});
  }

  show() {
    return true;
  }

  refuse() {
    return false;
  }
}

/**
 * Another text in place of a message of the user.
 *
 * @implements {Post}
 */
export class Edit {
  id = randomId();
  text;
  isMessage = false;
  #key = randomId();
  #of;
  #on;
  #isAccepted = false;
  /** @type {FoundMessage | null} its place, which stays the same */
  #found = null;
  /** @type {string | import("../js/src/index.js").Part[]} */
  #content = "";

  /**
   * @param {string} of the id of the message
   * @param {string} text
   * @param {{onAccepted: () => void, onRefused: (error: unknown) => void}} on `onRefused` gets null
   *   if it was stopped
   */
  constructor(of, text, on) {
    this.#of = of;
    this.text = text;
    this.#on = on;
  }

  /** @type {Post["send"]} */
  async send(client, conversationId, options) {
    const { signal } = options;
    this.#found ??= await client.findMessage(conversationId, this.#of, { signal });
    const { message, after } = this.#found;
    const { content, ...additions } = reword(message, this.text);
    this.#content = content;
    const all = { ...additions, conversationId, after, ...options, idempotencyKey: this.#key };
    return client.send({ role: "user", content, id: this.id }, all);
  }

  /** Note that the server has it. */
  accept() {
    this.#isAccepted = true;
    this.#on.onAccepted();
  }

  /** @param {ConversationView} view */
  show(view) {
    this.accept();
    if (!view.cutFrom(this.#of)) return false;
    view.addUser(contentText(this.#content), this.id, editable(this.#content));
    view.beginRun();
    return true;
  }

  /** @param {unknown} error */
  refuse(error) {
    if (!this.#isAccepted) this.#on.onRefused(error);
    return !this.#isAccepted;
  }
}

/**
 * Another answer to a message of the user.
 *
 * @implements {Post}
 */
export class Again {
  id = randomId();
  text = "The answer, written again";
  isMessage = false;
  #of;

  /** @param {string} of the id of the message */
  constructor(of) {
    this.#of = of;
  }

  /** @type {Post["send"]} */
  async send(client, conversationId, options) {
    return client.regenerate(conversationId, this.#of, { ...options, idempotencyKey: this.id });
  }

  /** @param {ConversationView} view */
  show(view) {
    if (!view.cutAfter(this.#of)) return false;
    view.beginRun();
    return true;
  }

  refuse() {
    return false;
  }
}
