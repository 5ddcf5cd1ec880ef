/** The client of one server. */

import { findMessage } from "./branches.js";
import { Claims } from "./claims.js";
import { Contact } from "./contact.js";
import { InvalidArgument } from "./errors.js";
import { Http } from "./http.js";
import { LIMITS, RETRY, checkOptions } from "./options.js";
import { Backoff, withRetry } from "./retry.js";
import { Sending } from "./sending.js";
import { Toolbox } from "./tools.js";
import { watchConversation } from "./watch.js";
import { agentPath, conversationPath, included, randomId } from "./wire.js";

/** @typedef {{type: "text", text: string}} TextPart */
/**
 * @typedef {{type: "image" | "audio" | "file", url: string, mediaType?: string, name?: string}}
 *   LinkedPart media by an `http:`, `https:` or `data:` URL
 */
/**
 * @typedef {{type: "image" | "audio" | "file", data: string, mediaType: string, name?: string}}
 *   InlinePart media in base64
 */
/** @typedef {{type: "data", data: unknown}} DataPart any JSON */
/**
 * @typedef {TextPart | LinkedPart | InlinePart | DataPart | {type: string & {}, [key: string]:
 *   unknown}} Part also the parts of chat completions, and of newer servers
 */
/** @typedef {{role: "user" | "system", content: string | Part[], id?: string}} UserMessage */
/**
 * @typedef {{role: "tool", toolCallId: string, content: unknown, isError?: boolean}} ToolMessage a
 *   result that your own code has produced
 */

/**
 * @template {Record<string, unknown>} [T={}]
 * @typedef {object} ClientOptions
 * @property {string | URL} [url] of the server; default: the origin of the page
 * @property {string} [apiKey]
 * @property {{[K in keyof T]: import("./tools.js").TypedTool<T[K]>} | readonly
 *   import("./tools.js").NamedTool[]} [tools] by name, or a list of tools with a `name`; declared
 *   with each user message; without it the tools of a conversation stay unchanged
 * @property {import("./tools.js").Approve} [approve] asked before calls of tools that need
 *   approval, the server's included; without it, an approval of a server's tool stays owed until
 *   `decide`
 * @property {boolean} [claims] whether a call is claimed before it runs, so that no other client
 *   runs it; default: true
 * @property {"refuse" | "leave"} [unknownTools] whether a call of a tool that this client does not
 *   have is answered with an error (the default) or left to another client
 * @property {import("./trace.js").Trace} [trace] called with each request, response and frame
 * @property {typeof globalThis.fetch} [fetch]
 * @property {Partial<import("./options.js").Limits>} [limits]
 * @property {Partial<import("./options.js").Retry>} [retry]
 */

/**
 * @typedef {object} MessageContext additions to a user message; a post of results alone has none
 * @property {unknown} [structuredData] data to work on, any JSON
 * @property {string} [intent] what the user wants, in the program's words
 * @property {readonly string[]} [constraints] rules for the agent
 * @property {string} [instructions] instructions of the program for the answer to this message
 * @property {Record<string, unknown> | string} [outputSchema] the JSON Schema, of type object, of
 *   the answer, also if tool calls come first; `Answer` has the `output`
 * @property {string} [model] the model that answers this message, if the server lets clients choose
 */

/**
 * @typedef {object} PostOptions
 * @property {string} [conversationId] default: a new one
 * @property {string} [agentId] the agent to ask, if the server has several
 * @property {AbortSignal} [signal] stops reading, and running tools, at once; the run continues on
 *   the server
 * @property {("agents" | "context" | "plan" | "progress" | "reasoning" | "state" | "usage" |
 *   "message-ids" | "output" | "tools" | (string & {}))[]} [include] more kinds of events; `output`
 *   is always included
 * @property {"reject" | "enqueue" | "interrupt" | "rollback"} [onBusy] what a message does during a
 *   run
 * @property {"continue" | "cancel"} [onDisconnect] whether the run continues when nobody follows it
 * @property {string} [idempotencyKey] names the post, so that a later `send` with the same key and
 *   content joins its run; default: a random one
 * @property {boolean} [retryBusy] whether a post is retried that was refused because of another run
 * @property {(isOpen: boolean) => void} [onConnection] called with false when the connection broke,
 *   or could not be made, and is tried again, and with true each time it is there
 */

/**
 * @typedef {object} Decision
 * @property {string} id of the interrupt, which is the call's
 * @property {boolean} approved
 * @property {string} [reason] for the model, if it is not approved
 * @property {boolean} [always] whether it holds for all later calls of this tool in this
 *   conversation, until `retract`
 */

/**
 * @typedef {MessageContext & PostOptions & {after?: string}} SendOptions `after`: the id of the
 *   message that the new ones follow, "" for the beginning; what stood behind it stays as another
 *   branch. Default: the last message
 */
/** @typedef {Omit<PostOptions, "conversationId" | "agentId">} RegenerateOptions */

/** @typedef {Omit<PostOptions, "conversationId" | "agentId" | "onBusy">} DecideOptions */

/**
 * @typedef {object} ResumeOptions
 * @property {string} [lastEventId] the cursor to continue after
 * @property {string} [runId] the run to follow, from its start
 * @property {AbortSignal} [signal]
 * @property {SendOptions["onDisconnect"]} [onDisconnect] whether runs that this client's answers
 *   start continue when nobody follows them
 * @property {SendOptions["include"]} [include]
 * @property {PostOptions["onConnection"]} [onConnection]
 */

/**
 * @typedef {object} WatchOptions
 * @property {string} [after] the cursor of the last event that was seen, of any run
 * @property {"wait" | "refuse"} [absent] whether a conversation that does not exist is waited for,
 *   or an `ApiError` (the default)
 * @property {SendOptions["include"]} [include]
 * @property {AbortSignal} [signal] closes the connection; the iteration throws its reason
 * @property {PostOptions["onConnection"]} [onConnection]
 */

/** @typedef {{signal?: AbortSignal}} RequestOptions */

/**
 * @typedef {object} ConversationView
 * @property {string} id
 * @property {"idle" | "running"} status
 * @property {string | null} runId the newest run
 * @property {{runId: string, firstMessage: number, attempt: number} | null} running
 * @property {string[]} queued
 * @property {import("./events.js").OwedCall[]} owed
 * @property {number} messageCount
 * @property {import("./events.js").Usage} [usage] of all messages together, if the server sends it
 * @property {import("./events.js").PlanEntry[]} [plan] the agent's plan, if the server sends it
 * @property {number} [cost] of all its model calls, in the currency of the server's prices
 * @property {number} [seconds] total working time of its runs
 * @property {{toolCallId: string, name: string, reason: string}[]} [refusals] the latest denied
 *   calls; `reason` is the text that the model got
 * @property {{name: string, decision: "allow" | "deny", reason?: string}[]} [permissions] permanent
 *   decisions about tools of the server
 * @property {string} [title] for people, empty if it has none; it and the times are missing if the
 *   server does not send them
 * @property {string} [createdAt] when its first message came, RFC 3339 in UTC
 * @property {string} [updatedAt] when a client last posted something
 * @property {import("./branches.js").BranchPoint[]} [branches] the places with several versions,
 *   from the beginning on, if there are any
 */

/**
 * @typedef {object} ListedConversation
 * @property {string} id
 * @property {string} title for people, empty if it has none; it may be a stranger's text
 * @property {string} createdAt when its first message came, RFC 3339 in UTC
 * @property {string} updatedAt when a client last posted something
 * @property {"idle" | "running" | "waiting"} status `waiting` if the client must answer calls
 * @property {string | null} runId the newest run
 * @property {number} owed number of calls that the client must answer
 * @property {string | null} cursor of the last stored event of that run
 */

/**
 * @typedef {{conversations: ListedConversation[], next: string | null}} ConversationPage `next` is
 *   the `after` of the next page; a page may be short, or empty, and not the last one
 */

/**
 * @typedef {{messages: import("./messages.js").Message[], next: number | null, total: number}}
 *   MessagePage
 */

/**
 * @typedef {object} AgentView
 * @property {string} id the `agentId`, empty for an agent without a name
 * @property {{id: string, media: ("image" | "audio" | "file")[]}[]} models its own first; where
 *   others follow, a message may choose one; `media` are the kinds of attachments that it takes
 * @property {{name: string, description: string}[]} commands
 */
/**
 * @typedef {object} ServerAgents
 * @property {AgentView[]} agents the one first that is asked by default
 * @property {{bodyBytes: number, attachmentBytes: number}} limits of a post, and of the inline
 *   media of a message together
 */

/**
 * @typedef {object} RunView the record of a run
 * @property {string} conversationId
 * @property {string} runId
 * @property {"completed" | "handed-back" | "cancelled" | "failed" | null} outcome null: it goes on
 * @property {string | null} reason
 * @property {string | null} beganAt RFC 3339 in UTC
 * @property {string | null} endedAt
 * @property {number} messages number of messages that it has stored
 * @property {string | null} model
 * @property {import("./events.js").Usage} usage of its messages
 * @property {number} tokens of all its model calls, as are the next two
 * @property {number} seconds
 * @property {number} cost in the currency of the server's prices; 0 without a price
 */

/** @template {Record<string, unknown>} [const T={}] the parameters of its tools, by their names */
export class Client {
  #parts;

  /**
   * @param {ClientOptions<T>} [options]
   * @throws {InvalidArgument}
   */
  constructor(options = {}) {
    checkOptions(options);
    const { url = globalThis.location?.origin ?? "", apiKey, tools, approve } = options;
    const fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    const limits = { ...LIMITS, ...defined(options.limits ?? {}) };
    const retry = {
      ...RETRY,
      ...defined(options.retry ?? {}),
      contact: new Contact(options.retry),
    };
    const http = new Http({ url, apiKey, fetch, limits, retry, trace: options.trace });
    const given = /** @type {import("./tools.js").ClientTools | undefined} */ (tools);
    const toolbox = new Toolbox(given, approve, limits, options.unknownTools === "leave");
    const claims = new Claims(http, retry, options.claims === false ? 0 : limits.claimSeconds);
    this.#parts = { http, limits, retry, toolbox, claims };
  }

  /**
   * Post a message and yield the events of all runs that it leads to: calls of this client's tools
   * are run, their results posted, and the next run's events follow, until nothing is owed.
   *
   * @param {string | UserMessage | (UserMessage | ToolMessage)[]} message
   * @param {SendOptions} [options]
   * @returns {Sending}
   */
  send(message, { conversationId = randomId(), after, ...options } = {}) {
    const messages = messagesOf(message);
    // results alone leave the declared tools unchanged: the calls may be of another client's tools
    const declares = messages.some(({ role }) => role !== "tool");
    const tools = declares ? this.#parts.toolbox.declarations : undefined;
    return this.#post(conversationId, { messages, tools, after }, options);
  }

  /**
   * Answer a message again, and yield the events of that answer, as `send` does. The earlier
   * answer, and what followed it, stay as another branch.
   *
   * @param {string} conversationId
   * @param {string} after the id of the user's message that is to be answered, or of the last
   *   result of the tool calls
   * @param {RegenerateOptions} [options]
   * @returns {Sending}
   */
  regenerate(conversationId, after, options = {}) {
    const news = { messages: [], tools: this.#parts.toolbox.declarations, after };
    return this.#post(conversationId, news, options);
  }

  /**
   * Decide on calls of the server's tools that wait for approval, and yield the events that follow,
   * as `send` does. The first decision on a call counts. While other calls are owed, only an `owed`
   * event follows.
   *
   * @param {string} conversationId
   * @param {Decision | Decision[]} decision
   * @param {DecideOptions} [options]
   * @returns {Sending}
   */
  decide(conversationId, decision, options = {}) {
    const resume = [decision].flat().map(({ id, ...payload }) => ({ interruptId: id, payload }));
    if (resume.length === 0) throw new InvalidArgument("decide needs at least one decision");
    return this.#post(conversationId, { resume }, options);
  }

  /**
   * Continue a conversation after a reload or on another device: follow the current run, from its
   * start or after `lastEventId`, and answer the calls that are owed. Yield nothing if there is
   * neither.
   *
   * @param {string} conversationId
   * @param {ResumeOptions} [options]
   * @returns {Sending}
   */
  resume(conversationId, { lastEventId = "", runId, include = [], ...options } = {}) {
    const { signal, onDisconnect, onConnection } = options;
    /** @type {import("./sending.js").FirstStep} */
    const first = lastEventId || runId ? { runId: runId ?? null, after: lastEventId } : "current";
    return new Sending(this.#parts, {
      conversationId,
      first,
      include,
      ...defined({ signal, onDisconnect, onConnection }),
    });
  }

  /**
   * Follow a conversation live: yield the events of all its runs, whoever posts, and `posted`, the
   * messages with which each begins. Without `after` it starts with `watching`, then the run in
   * progress from its start, or the next one. It ends after `deleted`. It runs no tools.
   *
   * @param {string} conversationId
   * @param {WatchOptions} [options]
   * @returns {AsyncGenerator<import("./events.js").WatchEvent, void, void>} throws `CursorExpired`
   *   if events after `after` are lost: read the messages again, and watch without it
   */
  watch(
    conversationId,
    { after = "", absent = "refuse", include = [], signal, onConnection } = {},
  ) {
    conversationPath(conversationId);
    const { signal: never } = new AbortController();
    return watchConversation(this.#parts, {
      conversationId,
      after,
      absent,
      include: included(include),
      signal: signal ?? never,
      ...defined({ onConnection }),
    });
  }

  /**
   * Return the state of a conversation.
   *
   * @param {string} conversationId
   * @param {RequestOptions} [options]
   * @returns {Promise<ConversationView>}
   */
  async conversation(conversationId, options) {
    return /** @type {any} */ (await this.#json(conversationPath(conversationId), options));
  }

  /**
   * Return a page of all conversations of the key's owner, the one first that a client changed
   * last.
   *
   * @param {RequestOptions & {after?: string | null, limit?: number, search?: string}} [options]
   *   the `next` of the page before, how many to return, 1 to 100, and what the titles contain, in
   *   upper or lower case
   * @returns {Promise<ConversationPage>}
   */
  async conversations({ after, limit = 20, search = "", ...options } = {}) {
    const query = new URLSearchParams({ limit: String(limit) });
    if (after != null) query.set("after", after);
    if (search !== "") query.set("search", search);
    return /** @type {any} */ (await this.#json(`conversations?${query}`, options));
  }

  /**
   * Give a conversation another title.
   *
   * @param {string} conversationId
   * @param {string} title of 1 to 200 characters
   * @param {RequestOptions} [options]
   * @returns {Promise<ConversationView>} its state
   */
  async rename(conversationId, title, options) {
    const path = conversationPath(conversationId);
    return /** @type {any} */ (
      await this.#json(path, { ...options, method: "PATCH", body: { title } })
    );
  }

  /**
   * Return a page of its messages, oldest first.
   *
   * @param {string} conversationId
   * @param {RequestOptions & {after?: number, limit?: number}} [options] how many messages to skip,
   *   and how many to return
   * @returns {Promise<MessagePage>}
   */
  async messages(conversationId, { after = 0, limit = 100, ...options } = {}) {
    const path = `${conversationPath(conversationId)}/messages?after=${after}&limit=${limit}`;
    return /** @type {any} */ (await this.#json(path, options));
  }

  /**
   * Return the agents of the server, with their models and commands, and the limits of a post.
   *
   * @param {RequestOptions} [options]
   * @returns {Promise<ServerAgents>}
   */
  async agents(options) {
    return /** @type {any} */ (await this.#json("agents", options));
  }

  /**
   * Return the record of a run, which outlives its events.
   *
   * @param {string} conversationId
   * @param {string} runId
   * @param {RequestOptions} [options]
   * @returns {Promise<RunView>}
   * @throws {import("./errors.js").ApiError} `run_not_found`: there is none, or it waits
   */
  async run(conversationId, runId, options) {
    const path = `${conversationPath(conversationId)}/runs/${encodeURIComponent(runId)}`;
    return /** @type {any} */ (await this.#json(path, options));
  }

  /**
   * Find a message of the branch that is read, from its end, and what it follows.
   *
   * @param {string} conversationId
   * @param {string} messageId
   * @param {RequestOptions} [options]
   * @returns {Promise<import("./branches.js").FoundMessage>}
   * @throws {import("./errors.js").ApiError} `message_not_found`: the branch does not have it
   */
  async findMessage(conversationId, messageId, options) {
    return findMessage(this, conversationId, messageId, options);
  }

  /**
   * Read another branch from now on: the one that ends with the newest message behind this one.
   *
   * @param {string} conversationId
   * @param {string} messageId such as one of the `versions` of a place
   * @param {RequestOptions} [options]
   * @returns {Promise<ConversationView>} its state
   * @throws {import("./errors.js").ApiError} `conversation_busy`: there is a run, or one waits
   */
  async switchBranch(conversationId, messageId, options) {
    const path = `${conversationPath(conversationId)}/leaf`;
    const body = { message: messageId };
    return /** @type {any} */ (await this.#json(path, { ...options, method: "POST", body }));
  }

  /**
   * Copy the messages of a branch into a new conversation.
   *
   * @param {string} conversationId
   * @param {RequestOptions & {after?: string, conversationId?: string}} [options] the last message
   *   to copy, of any branch, default: the last one; and the id of the copy, default: a new one
   * @returns {Promise<ConversationView>} the state of the copy
   */
  async fork(conversationId, { after, conversationId: copy = randomId(), ...options } = {}) {
    const path = `${conversationPath(conversationId)}/fork`;
    const body = { after, conversationId: copy };
    return /** @type {any} */ (await this.#json(path, { ...options, method: "POST", body }));
  }

  /**
   * Stop a run: the named one, else the current one, else the first that is queued.
   *
   * @param {string} conversationId
   * @param {RequestOptions & {runId?: string}} [options]
   * @returns {Promise<boolean>} false if no run was named and there is none
   */
  async cancel(conversationId, { runId, ...options } = {}) {
    const query = runId === undefined ? "" : `?runId=${encodeURIComponent(runId)}`;
    const path = `${conversationPath(conversationId)}/cancel${query}`;
    return (await this.#requestOnce(path, "POST", options)).cancelled === true;
  }

  /**
   * Retract a permanent decision (`always`) about a tool of the server: its calls need approval
   * again.
   *
   * @param {string} conversationId
   * @param {string} tool its name
   * @param {RequestOptions} [options]
   */
  async retract(conversationId, tool, options) {
    await this.#requestOnce(
      `${conversationPath(conversationId)}/permissions/${encodeURIComponent(tool)}`,
      "DELETE",
      options,
    );
  }

  /**
   * Delete a conversation.
   *
   * @param {string} conversationId
   * @param {RequestOptions} [options]
   */
  async delete(conversationId, options) {
    await this.#requestOnce(conversationPath(conversationId), "DELETE", options);
  }

  /**
   * @param {string} conversationId
   * @param {Record<string, unknown>} news
   * @param {Omit<SendOptions, "conversationId" | "after">} options
   */
  #post(
    conversationId,
    news,
    {
      signal,
      include = [],
      idempotencyKey = randomId(),
      retryBusy,
      onDisconnect,
      onConnection,
      agentId,
      ...said
    },
  ) {
    if (!/^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/.test(idempotencyKey)) {
      throw new InvalidArgument(
        "idempotencyKey must have 1 to 256 visible ASCII characters, without quotes",
      );
    }
    const { onBusy, structuredData, intent, constraints, instructions, outputSchema, model } = said;
    const context = { structuredData, intent, constraints, instructions, outputSchema, model };
    const body = {
      conversationId,
      ...news,
      ...context,
      onBusy,
      onDisconnect,
      include: included(include),
    };
    const path = agentId === undefined ? undefined : agentPath(agentId);
    const first = { post: { key: idempotencyKey, body, ...defined({ path }) } };
    return new Sending(this.#parts, {
      conversationId,
      first,
      include,
      ...defined({ retryBusy, signal, onDisconnect, onConnection }),
    });
  }

  /**
   * Send a request that may be repeated.
   *
   * @param {string} path
   * @param {RequestOptions & {method?: string, body?: Record<string, unknown>}} [options]
   */
  #json(path, { signal = new AbortController().signal, ...request } = {}) {
    const { http, retry } = this.#parts;
    return withRetry(() => http.json(path, { ...request, signal }), new Backoff(retry, signal));
  }

  /**
   * Send a request that is not idempotent, without retries: the caller decides whether to repeat
   * it.
   *
   * @param {string} path
   * @param {string} method
   * @param {RequestOptions} [options]
   */
  #requestOnce(path, method, { signal = new AbortController().signal } = {}) {
    return this.#parts.http.json(path, { method, signal });
  }
}

/** @param {string | UserMessage | (UserMessage | ToolMessage)[]} message */
function messagesOf(message) {
  if (typeof message === "string") return [{ role: "user", content: message }];
  return Array.isArray(message) ? message : [message];
}

/**
 * @template {object} T
 * @param {T} values
 * @returns {{[K in keyof T]?: Exclude<T[K], undefined>}} the values that are defined
 */
function defined(values) {
  return /** @type {any} */ (
    Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined))
  );
}
