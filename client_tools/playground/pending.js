/** What the user has posted in a conversation, until the server has it and its run has begun. */

import { Edit, Message, QueuedPosts } from "./posts.js";

/** @typedef {import("./editor.js").OnBusy} OnBusy */
/** @typedef {import("./outbox.js").Outbox} Outbox */
/** @typedef {import("./posts.js").Post} Post */
/** @typedef {import("./run.js").ConversationView} ConversationView */

export class PendingPosts {
  #view;
  #outbox;
  #queued;
  #isLeft = false;

  /**
   * @param {ConversationView} view
   * @param {Outbox} outbox
   */
  constructor(view, outbox) {
    this.#view = view;
    this.#outbox = outbox;
    this.#queued = new QueuedPosts(view);
  }

  /** Whether the server has no message of the conversation, which began in this tab. */
  get isNew() {
    return this.#outbox.isNew;
  }

  /**
   * Show a message behind all others, before its post.
   *
   * @param {Message} message
   */
  begin(message) {
    this.#outbox.begin(message);
    this.#queued.delete(message.id);
    message.addTo(this.#view);
  }

  /**
   * Show what is posted during an answer, or after it, as waiting; an edit has its own form.
   *
   * @param {Post} post
   * @param {OnBusy} [onBusy]
   */
  wait(post, onBusy) {
    if (post instanceof Message) this.#outbox.begin(post, onBusy);
    this.show();
    if (!(post instanceof Edit)) this.#queued.add(post, null);
  }

  /**
   * @param {Post} post that the server has
   * @param {string | null} [runId] its run, until which it is shown as waiting
   */
  accept(post, runId = null) {
    this.#outbox.accept(post.id);
    if (runId !== null && !this.#isLeft) this.#queued.add(post, runId);
  }

  /**
   * @param {Pick<Post, "refuse"> | Post} post
   * @param {unknown} error null: it was stopped
   * @returns {boolean} whether that is shown; false if the server has it
   */
  refuse(post, error) {
    if (!("id" in post)) return post.refuse(error);
    // another page may be posting it by now
    if (this.#isLeft) return post.refuse(null);
    this.#queued.delete(post.id);
    if (!(post instanceof Message)) return post.refuse(error);
    if (!this.#outbox.refuse(post.id, error)) return false;
    this.#view.cutFrom(post.id);
    this.show();
    return true;
  }

  /**
   * @param {string} id
   * @returns {import("./outbox.js").Unsent | null} null unless it is of a message that was not sent
   */
  find(id) {
    const unsent = this.#outbox.find(id);
    return unsent?.refusal ? unsent : null;
  }

  /**
   * @param {string} id of a message that was not sent
   * @returns {Message | null} the message, which is forgotten here
   */
  take(id) {
    const unsent = this.find(id);
    if (unsent) this.#outbox.remove(id);
    this.show();
    return unsent?.message ?? null;
  }

  /**
   * Remove what has arrived, or was removed from the queue.
   *
   * @param {readonly {id: string}[]} past messages of the history, which is shown
   * @param {{isKnown: boolean, runs: readonly string[] | null}} server whether it has the
   *   conversation; `runs` are queued, null: a newer one is not among them
   */
  update(past, { isKnown, runs }) {
    this.#queued.update(past, runs);
    this.#outbox.update(past, isKnown);
    this.show();
  }

  /** Show the messages that were not sent. */
  show() {
    this.#view.setUnsent(this.#outbox.refused);
  }

  /** Leave the conversation, with what has no answer. */
  leave() {
    this.#isLeft = true;
    this.#outbox.leave();
  }
}
