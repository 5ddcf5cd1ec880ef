/** A conversation for a user interface: an immutable state, and a subscription to its changes. */

import { Answering } from "./answering.js";
import { reword } from "./branches.js";
import { ConnectionLost, InvalidArgument, errorOf } from "./errors.js";
import { Live } from "./live.js";
import { entryOf } from "./past.js";
import { statusOf } from "./state.js";
import { Thread } from "./thread.js";
import { randomId } from "./wire.js";

/** @typedef {import("./answering.js").ChatPost} ChatPost */
/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./client.js").Decision} Decision */
/** @typedef {import("./client.js").SendOptions} SendOptions */
/** @typedef {import("./client.js").UserMessage} UserMessage */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./state.js").ChatOptions} ChatOptions */
/** @typedef {import("./state.js").ChatSendOptions} ChatSendOptions */
/** @typedef {import("./state.js").ChatState} ChatState */

/** @typedef {"send" | "edit" | "regenerate" | "decide" | "answer" | "stop"} AnswerMethod */
/** @typedef {"switchVersion" | "loadOlder" | "reload" | "resume"} HistoryMethod */
/** @typedef {Pick<Chat, AnswerMethod | HistoryMethod>} ChatMethods */
/**
 * @typedef {{client: Client, conversationId: string | undefined, chat: Chat}} KeptChat a chat, and
 *   what it was made for
 */

/** Values of `onBusy` with which a message may be sent during an answer. */
const WHILE_RUNNING = new Set(["enqueue", "interrupt"]);

export class Chat {
  #client;
  /** Options of every post. */
  #postOptions;
  /** @type {Readonly<ChatState>} */
  #state;
  /** @type {Set<() => void>} */
  #listeners = new Set();
  #thread = new Thread();
  #live;
  #answering;
  #isDeleted = false;
  #isSwitching = false;
  /** Whether the connection is lost on which the conversation is watched. */
  #isLost = false;
  /** The error of the watch, until it is connected.
   * @type {Error | null} */
  #watchError = null;
  /** The run that could not be resumed.
   * @type {string | null} */
  #lostRun = null;

  /**
   * @param {Client} client
   * @param {ChatOptions} [options]
   */
  constructor(client, { conversationId, include = [], onDisconnect, live = true } = {}) {
    const id = conversationId ?? randomId();
    const isNew = conversationId === undefined;
    this.#client = client;
    const postOptions = { include, ...(onDisconnect && { onDisconnect }) };
    this.#postOptions = postOptions;
    this.#state = {
      conversationId: id,
      entries: [],
      status: isNew ? "idle" : "loading",
      isBusy: false,
      hasOlder: false,
      owed: [],
      error: null,
      refused: null,
    };
    const thread = this.#thread;
    const options = { conversationId: id, include, isNew, isFollowed: live };
    this.#live = new Live(client, options, thread, {
      onEvent: (event) => this.#answering.addWatched(event),
      onChange: () => this.#change(),
      onStopped: () => this.#noteStop(),
      onDeleted: () => this.#noteDeletion(),
      onLoaded: (view) => this.#continue(view),
      onConnection: (isOpen, error) => this.#noteWatch(isOpen, error),
      onError: (error) => this.#change({ error: errorOf(error) }),
    });
    this.#answering = new Answering({
      client,
      conversationId: id,
      postOptions,
      thread,
      live: this.#live,
      state: () => this.#state,
      change: (change) => this.#change(change),
    });
  }

  /** @returns {Readonly<ChatState>} the same object until something changes */
  getSnapshot = () => this.#state;

  /**
   * @param {() => void} listener called after each change
   * @returns {() => void} unsubscribes; without listeners, reading stops and the run continues on
   *   the server
   */
  subscribe = (listener) => {
    // a function that subscribes twice is two listeners
    const own = () => listener();
    this.#listeners.add(own);
    this.#live.begin();
    return () => {
      this.#listeners.delete(own);
      // React's strict mode unsubscribes and subscribes again at once
      queueMicrotask(() => {
        if (this.#listeners.size > 0) return;
        this.#answering.leave();
        this.#live.end();
      });
    };
  };

  /**
   * @param {string | import("./client.js").UserMessage} message
   * @param {ChatSendOptions} [options] during an answer, `onBusy` must be "enqueue" or "interrupt"
   * @returns {Promise<void>} resolves when the answer has ended; an error is in the state
   * @throws {InvalidArgument} during an answer, without `onBusy`
   */
  send = (message, options) => this.#dispatch(this.#postOf(message, options), options);

  /**
   * Put another message in the place of one of the user's: what stood behind that stays as another
   * branch.
   *
   * @param {string} id of the message
   * @param {string | import("./client.js").UserMessage} message a text takes the place of the text
   *   alone: attachments and additions stay
   * @param {ChatSendOptions} [options] as of `send`
   * @returns {Promise<void>} as `send`
   */
  edit = async (id, message, options = {}) => {
    this.#refuseUnless(options);
    const { conversationId } = this.#state;
    let found;
    try {
      found = await this.#client.findMessage(conversationId, id);
    } catch (raised) {
      return this.#change({ error: errorOf(raised) });
    }
    const { after } = found;
    if (typeof message === "string") {
      const { content, ...additions } = reword(found.message, message);
      const post = this.#postOf({ role: "user", content }, { ...additions, ...options, after }, id);
      return this.#dispatch(post, options);
    }
    return this.#dispatch(this.#postOf(message, { ...options, after }, id), options);
  };

  /**
   * Answer a message of the user again: the earlier answer, and what followed it, stay as another
   * branch.
   *
   * @param {string} id of the message
   * @param {Omit<import("./client.js").RegenerateOptions, "include" | "signal">} [options] `onBusy`
   *   as of `send`
   * @returns {Promise<void>} as `send`
   */
  regenerate = (id, options) => {
    const { conversationId } = this.#state;
    /** @type {ChatPost["send"]} */
    const send = (reading) =>
      this.#client.regenerate(conversationId, id, { ...this.#postOptions, ...options, ...reading });
    const asked = this.#thread.find(id);
    return this.#dispatch({ send, asked, replaces: id, message: null }, options);
  };

  /**
   * Show another version of a message or an answer, and what followed it, to all clients.
   *
   * @param {string} id one of the `ids` of an entry's `versions`
   * @returns {Promise<void>} resolves when the history is read; an error is in the state
   * @throws {InvalidArgument} during an answer
   */
  switchVersion = async (id) => {
    this.#refuseWhileRunning();
    this.#isSwitching = true;
    this.#change({ error: null });
    try {
      await this.#client.switchBranch(this.#state.conversationId, id);
      await this.#live.reload();
    } catch (raised) {
      this.#change({ error: errorOf(raised) });
    } finally {
      this.#isSwitching = false;
      this.#change();
    }
  };

  /** Show a page of the messages before the first one of `entries`.
   * @returns {Promise<void>} resolves when it is read; an error is in the state */
  loadOlder = async () => {
    try {
      await this.#live.loadOlder();
    } catch (raised) {
      this.#change({ error: errorOf(raised) });
    }
  };

  /**
   * Read the history again, and follow the conversation, after an error.
   *
   * @returns {Promise<void>} resolves when it is read; an error is in the state
   */
  reload = () => {
    this.#lostRun = null;
    this.#change({ error: null });
    return this.#live.reload();
  };

  /**
   * Follow the current run, and answer the calls that are owed. A chat does that itself when the
   * history is read.
   *
   * @returns {Promise<void>} as `send`
   */
  resume = async () => {
    if (this.#live.loading !== null) await this.#live.loading;
    else if (this.#answering.resuming === null) {
      this.#refuseWhileRunning();
      return this.#answering.resume({}, this.#thread.begin([]));
    }
    return this.#answering.resuming ?? undefined;
  };

  /**
   * Decide on approvals in `owed`; the waiting answer continues.
   *
   * @param {Decision | Decision[]} decision
   * @returns {Promise<void>} as `send`
   */
  decide = (decision) => {
    this.#refuseWhileRunning();
    const { conversationId } = this.#state;
    return this.#answering.settle((reading) =>
      this.#client.decide(conversationId, decision, { ...this.#postOptions, ...reading }),
    );
  };

  /**
   * Answer a call in `owed`; the waiting answer continues.
   *
   * @param {string} id
   * @param {unknown} content for a question: `Answers`, or a text if there is one question
   * @param {{isError?: boolean}} [options] `isError`: the question was declined, and the content
   *   says why
   * @returns {Promise<void>} as `send`
   */
  answer = (id, content, { isError = false } = {}) => {
    this.#refuseWhileRunning();
    const { conversationId, owed } = this.#state;
    const options = { conversationId, ...this.#postOptions };
    /** @type {import("./client.js").ToolMessage} */
    const message = { role: "tool", toolCallId: id, content, ...(isError && { isError }) };
    const toolCallName = owed.find((call) => call.id === id)?.name ?? "";
    /** @type {Event} */
    const ownEvent = {
      type: "client-tool-result",
      toolCallId: id,
      toolCallName,
      content,
      isError,
      cursor: "",
      runId: null,
    };
    return this.#answering.settle(
      (reading) => this.#client.send([message], { ...options, ...reading }),
      ownEvent,
    );
  };

  /** Stop the run on the server.
   * @returns {Promise<boolean>} whether there was a run */
  stop = async () => {
    const { sending } = this.#answering;
    if (sending) return sending.cancel();
    const { runId } = this.#live;
    return runId !== null && this.#client.cancel(this.#state.conversationId, { runId });
  };

  #refuseWhileRunning() {
    if (this.#state.isBusy) {
      throw new InvalidArgument(
        'an answer is in progress: wait for it, stop it, or send with onBusy "enqueue" or ' +
          '"interrupt"',
      );
    }
  }

  /**
   * @param {{onBusy?: SendOptions["onBusy"]}} [options] `onBusy`: behind or instead of an answer,
   *   perhaps to another client's message
   */
  #refuseUnless({ onBusy = "reject" } = {}) {
    if (!WHILE_RUNNING.has(onBusy)) this.#refuseWhileRunning();
  }

  /**
   * Post, and show the answer.
   *
   * @param {ChatPost} post
   * @param {{onBusy?: SendOptions["onBusy"]}} [options]
   * @returns {Promise<void>}
   */
  #dispatch(post, options) {
    this.#refuseUnless(options);
    return this.#answering.post(post, () => {
      if (this.#isDeleted) this.#thread.clear();
      this.#isDeleted = false;
    });
  }

  /**
   * @param {string | UserMessage} said
   * @param {Omit<SendOptions, "conversationId" | "include" | "signal">} [options]
   * @param {string | null} [replaces]
   * @returns {ChatPost}
   */
  #postOf(said, options, replaces = null) {
    const { conversationId } = this.#state;
    /** @type {UserMessage} */
    const { id, ...rest } = typeof said === "string" ? { role: "user", content: said } : said;
    // the same message comes to those who watch
    const message = { ...rest, id: id ?? this.#sameId(rest.content, replaces) ?? randomId() };
    /** @type {ChatPost["send"]} */
    const send = (reading) =>
      this.#client.send(message, {
        ...this.#postOptions,
        ...options,
        conversationId,
        ...reading,
      });
    return { send, asked: [{ id: message.id, entry: entryOf(message) }], replaces, message };
  }

  /**
   * @param {UserMessage["content"]} content
   * @param {string | null} replaces
   * @returns {string | null} the id of the message that was refused last, if this is the same: the
   *   server may have it, since an answer may have been lost
   */
  #sameId(content, replaces) {
    const { refused } = this.#state;
    if (refused === null || refused.replaces !== replaces) return null;
    const isSame = JSON.stringify(refused.message.content) === JSON.stringify(content);
    return isSame ? refused.message.id : null;
  }

  /**
   * Continue what the history ends with.
   *
   * @param {import("./client.js").ConversationView} view
   */
  #continue({ running, owed }) {
    const isLost = running?.runId === this.#lostRun;
    const isReading = this.#answering.sending !== null;
    if (isReading || (running ? isLost : owed.length === 0)) {
      return isReading ? this.#change() : this.#answering.forgetOwed();
    }
    const exchange = this.#thread.last;
    if (!running) return void this.#answering.resume({}, exchange);
    const { runId } = running;
    const resuming = this.#answering.resume({ runId }, exchange);
    this.#live.claim({ type: "run-start", cursor: `${runId}.0-0`, runId }, exchange);
    void resuming.then(() => {
      const { error } = this.#state;
      if (error && !(error instanceof ConnectionLost)) this.#lostRun = runId;
    });
  }

  #noteDeletion() {
    this.#isDeleted = true;
    this.#answering.forgetOwed();
  }

  #noteStop() {
    this.#isLost = false;
    this.#answering.rest();
  }

  /**
   * @param {boolean} isOpen
   * @param {unknown} raised
   */
  #noteWatch(isOpen, raised) {
    if (this.#isLost === !isOpen && !raised) return;
    this.#isLost = !isOpen;
    const isOver = isOpen && this.#state.error === this.#watchError;
    this.#watchError = raised ? errorOf(raised) : null;
    this.#change({
      ...(isOver && { error: null }),
      ...(this.#watchError && { error: this.#watchError }),
    });
  }

  /** @param {Partial<ChatState>} [change] */
  #change(change = {}) {
    const { sending, hasBegun, isLost } = this.#answering;
    const { runId, isLoading, hasOlder } = this.#live;
    const isBusy = sending !== null || runId !== null;
    const status = statusOf({
      isDeleted: this.#isDeleted,
      isLost: sending ? isLost : this.#isLost,
      isBusy,
      hasBegun,
      isLoading: isLoading || this.#isSwitching,
    });
    const { entries } = this.#thread;
    const next = { ...this.#state, entries, status, isBusy, hasOlder, ...change };
    const { refused, error } = next;
    // it was accepted, and the answer was lost
    const isKnown = refused !== null && this.#thread.find(refused.message.id).length > 0;
    const isOver = isKnown && error === refused.error;
    this.#state = { ...next, ...(isKnown && { refused: null }), ...(isOver && { error: null }) };
    for (const listener of [...this.#listeners]) listener();
  }
}

/**
 * @param {Chat} chat
 * @returns {ChatMethods} for bindings to frameworks
 */
export function methodsOf(chat) {
  const { send, edit, regenerate, switchVersion, loadOlder, reload } = chat;
  const { resume, decide, answer, stop } = chat;
  return {
    ...{ send, edit, regenerate, switchVersion, loadOlder, reload },
    ...{ resume, decide, answer, stop },
  };
}

/**
 * @param {KeptChat | null} kept
 * @param {Client} client
 * @param {ChatOptions} options
 * @returns {KeptChat} the same one, unless the client or the conversation is another
 */
export function keepChat(kept, client, options) {
  const { conversationId } = options;
  const isSame =
    kept?.client === client &&
    (kept.conversationId === conversationId ||
      kept.chat.getSnapshot().conversationId === conversationId);
  // a new chat that is asked for by the id it has made may be left by that id, too
  if (isSame) return Object.assign(kept, { conversationId });
  return { client, conversationId, chat: new Chat(client, options) };
}
