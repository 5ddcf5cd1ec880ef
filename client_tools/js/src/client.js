/** A client of one server. */

import { checkOptions } from "./arguments.js";
import { Claims } from "./claims.js";
import { Contact } from "./contact.js";
import { InvalidArgument } from "./errors.js";
import { Http } from "./http.js";
import { LIMITS, RETRY } from "./limits.js";
import { Backoff, persist } from "./retry.js";
import { Sending } from "./sending.js";
import { Toolbox } from "./tools.js";
import { agentPath, conversationPath, included, randomId } from "./wire.js";

/** @typedef {{type: "text", text: string}} TextPart */
/**
 * @typedef {{type: "image" | "audio" | "file", url: string, mediaType?: string, name?: string}} LinkedPart media by an `http:`,
 *   `https:` or `data:` URL
 */
/** @typedef {{type: "image" | "audio" | "file", data: string, mediaType: string, name?: string}} InlinePart media in base64 */
/** @typedef {{type: "data", data: unknown}} DataPart any JSON */
/**
 * @typedef {TextPart | LinkedPart | InlinePart | DataPart | {type: string & {}, [key: string]: unknown}} Part also the forms of
 *   chat completions, and those of a later server
 */
/** @typedef {{role: "user" | "system", content: string | Part[], id?: string}} UserMessage */
/**
 * @typedef {{role: "tool", toolCallId: string, content: unknown, isError?: boolean}} ToolMessage a result that was
 *   made without this library
 */

/**
 * @typedef {object} ClientOptions
 * @property {string | URL} [url] of the server, default: where the page came from
 * @property {string} [apiKey]
 * @property {import("./tools.js").ClientTools | readonly import("./tools.js").NamedTool[]} [tools] by their names, or a list of tools
 *   with a `name`; declared with each user's message; without it the tools of a conversation stay as they are
 * @property {import("./tools.js").Approve} [approve] asked before calls of tools that need it, the server's included; without
 *   it, an approval of a tool of the server stays owed: `decide`
 * @property {boolean} [claims] whether a call is claimed before it is run, so that no other client runs it too; default: true
 * @property {"refuse" | "leave"} [unknownTools] what becomes of a call of a tool that this client has not: it is answered
 *   with an error (the default), or left to another client
 * @property {import("./trace.js").Trace} [trace] is told what crosses the wire
 * @property {typeof globalThis.fetch} [fetch]
 * @property {Partial<import("./limits.js").Limits>} [limits]
 * @property {Partial<import("./limits.js").Retry>} [retry]
 */

/**
 * @typedef {object} Brief what is said beside the words of a user's message; results alone can have none of it
 * @property {unknown} [structuredData] data to work on, any JSON
 * @property {string} [intent] what the user wants, in the program's words
 * @property {readonly string[]} [constraints] what the agent has to keep to
 * @property {string} [instructions] the program's own, for the answer to this message
 * @property {Record<string, unknown> | string} [outputSchema] the JSON Schema, of type object, that the answer has to fit, also when calls
 *   of tools come first: `Answer` has its `output`
 * @property {string} [model] who answers this message, where the server lets clients choose
 */

/**
 * @typedef {object} PostOptions
 * @property {string} [conversationId] default: a new one
 * @property {string} [agentId] who is asked, where the server has several agents
 * @property {AbortSignal} [signal] stops reading, and running tools, at once; the run goes on at the server
 * @property {("agents" | "context" | "plan" | "progress" | "reasoning" | "usage" | "message-ids" | "output" | (string & {}))[]} [include] more kinds
 *   of events; `output` comes in any case
 * @property {"reject" | "enqueue" | "interrupt" | "rollback"} [onBusy] what the message means while a run goes on
 * @property {"continue" | "cancel"} [onDisconnect] what becomes of the run when nobody follows it
 * @property {string} [idempotencyKey] names the post, so that a later `send` with the same key and content joins its
 *   run; default: a random one
 * @property {boolean} [retryBusy] whether a post is repeated that was refused because a run goes on
 */

/**
 * @typedef {object} Decision
 * @property {string} id of the interrupt, which is the call's
 * @property {boolean} approved
 * @property {string} [reason] what the model is told, when it is not
 * @property {boolean} [always] whether it decides on all later calls of this tool in this conversation; `retract` takes that back
 */

/** @typedef {Brief & PostOptions} SendOptions */

/** @typedef {Omit<PostOptions, "conversationId" | "agentId" | "onBusy">} DecideOptions */

/**
 * @typedef {object} ResumeOptions
 * @property {string} [lastEventId] the cursor behind which to read on
 * @property {string} [runId] the run to follow, from its start
 * @property {AbortSignal} [signal]
 * @property {SendOptions["onDisconnect"]} [onDisconnect] what becomes of the runs that this client's answers begin
 * @property {SendOptions["include"]} [include]
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
 * @property {import("./events.js").Usage} [usage] of all messages together, where the server tells it
 * @property {import("./events.js").PlanEntry[]} [plan] what the agent means to do, where the server tells it
 * @property {number} [cost] of all its model calls, in the currency of the server's prices
 * @property {number} [seconds] for how long runs have worked on it
 * @property {{toolCallId: string, name: string, reason: string}[]} [refusals] the newest calls that were denied; `reason` is what
 *   the model was told
 * @property {{name: string, decision: "allow" | "deny", reason?: string}[]} [permissions] what was decided for good about tools of
 *   the server
 */

/** @typedef {{messages: import("./messages.js").Message[], next: number | null, total: number}} MessagePage */

export class Client {
  #parts;

  /**
   * @param {ClientOptions} [options]
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
    const toolbox = new Toolbox(tools, approve, limits, options.unknownTools === "leave");
    const claims = new Claims(http, retry, options.claims === false ? 0 : limits.claimSeconds);
    this.#parts = { http, limits, retry, toolbox, claims };
  }

  /**
   * Posts what is new, and gives the events of all that it leads to: calls of this client's tools are run, their
   * results posted, and the next run's events follow, until nothing is owed.
   *
   * @param {string | UserMessage | (UserMessage | ToolMessage)[]} message
   * @param {SendOptions} [options]
   * @returns {Sending}
   */
  send(message, { conversationId = randomId(), ...options } = {}) {
    const messages = messagesOf(message);
    // results alone leave the tools as they are: they may be answers to another client's
    const declares = messages.some(({ role }) => role !== "tool");
    const tools = declares ? this.#parts.toolbox.declarations : undefined;
    return this.#post(conversationId, { messages, tools }, options);
  }

  /**
   * Decides on calls of the server's tools that wait for it, and gives what comes of that, as `send`. The first decision
   * on a call counts. While other things are owed, nothing more comes of it than an `owed` event.
   *
   * @param {string} conversationId
   * @param {Decision | Decision[]} decision
   * @param {DecideOptions} [options]
   * @returns {Sending}
   */
  decide(conversationId, decision, options = {}) {
    const resume = [decision].flat().map(({ id, ...payload }) => ({ interruptId: id, payload }));
    if (resume.length === 0) throw new InvalidArgument("there is no decision");
    return this.#post(conversationId, { resume }, options);
  }

  /**
   * Goes on with a conversation after a reload, or where another device left it: with the run that goes on, from its start
   * or behind `lastEventId`, and with the calls that are owed. Gives nothing when there is nothing to go on with.
   *
   * @param {string} conversationId
   * @param {ResumeOptions} [options]
   * @returns {Sending}
   */
  resume(conversationId, { lastEventId = "", runId, signal, onDisconnect, include = [] } = {}) {
    /** @type {import("./sending.js").Step} */
    const first =
      lastEventId || runId ? { runId: runId ?? null, after: lastEventId } : "where it stands";
    return new Sending(this.#parts, {
      conversationId,
      first,
      include,
      ...defined({ signal, onDisconnect }),
    });
  }

  /**
   * How a conversation stands.
   *
   * @param {string} conversationId
   * @param {RequestOptions} [options]
   * @returns {Promise<ConversationView>}
   */
  async conversation(conversationId, options) {
    return /** @type {any} */ (await this.#json(conversationPath(conversationId), options));
  }

  /**
   * A page of its messages, oldest first.
   *
   * @param {string} conversationId
   * @param {RequestOptions & {after?: number, limit?: number}} [options] how many to pass over, how many to give
   * @returns {Promise<MessagePage>}
   */
  async messages(conversationId, { after = 0, limit = 100, ...options } = {}) {
    const path = `${conversationPath(conversationId)}/messages?after=${after}&limit=${limit}`;
    return /** @type {any} */ (await this.#json(path, options));
  }

  /**
   * Stops a run: the named one, else the one that goes on, else the first that waits.
   *
   * @param {string} conversationId
   * @param {RequestOptions & {runId?: string}} [options]
   * @returns {Promise<boolean>} false when no run was named, and there is none
   */
  async cancel(conversationId, { runId, ...options } = {}) {
    const query = runId === undefined ? "" : `?runId=${encodeURIComponent(runId)}`;
    const path = `${conversationPath(conversationId)}/cancel${query}`;
    return (await this.#once(path, "POST", options)).cancelled === true;
  }

  /**
   * Takes back what was decided for good (`always`) about a tool of the server: it is asked for again.
   *
   * @param {string} conversationId
   * @param {string} tool its name
   * @param {RequestOptions} [options]
   */
  async retract(conversationId, tool, options) {
    await this.#once(
      `${conversationPath(conversationId)}/permissions/${encodeURIComponent(tool)}`,
      "DELETE",
      options,
    );
  }

  /**
   * Removes a conversation.
   *
   * @param {string} conversationId
   * @param {RequestOptions} [options]
   */
  async delete(conversationId, options) {
    await this.#once(conversationPath(conversationId), "DELETE", options);
  }

  /**
   * @param {string} conversationId
   * @param {Record<string, unknown>} news
   * @param {Omit<SendOptions, "conversationId">} options
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
      agentId,
      ...said
    },
  ) {
    if (!/^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/.test(idempotencyKey)) {
      throw new InvalidArgument(
        "an idempotencyKey is 1 to 256 visible ASCII characters without quotes",
      );
    }
    const { onBusy, structuredData, intent, constraints, instructions, outputSchema, model } = said;
    const brief = { structuredData, intent, constraints, instructions, outputSchema, model };
    const body = {
      conversationId,
      ...news,
      ...brief,
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
      ...defined({ retryBusy, signal, onDisconnect }),
    });
  }

  /**
   * @param {string} path
   * @param {RequestOptions} [options]
   */
  #json(path, { signal = new AbortController().signal } = {}) {
    const { http, retry } = this.#parts;
    return persist(() => http.json(path, { signal }), new Backoff(retry, signal));
  }

  /**
   * Something that would mean another thing, or nothing, the second time: the caller decides whether to repeat it.
   *
   * @param {string} path
   * @param {string} method
   * @param {RequestOptions} [options]
   */
  #once(path, method, { signal = new AbortController().signal } = {}) {
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
 * @returns {{[K in keyof T]?: Exclude<T[K], undefined>}} without those that are undefined
 */
function defined(values) {
  return /** @type {any} */ (
    Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined))
  );
}
