/** The server's HTTP routes that this page uses, and what can go wrong with them. */

/**
 * @typedef {object} OutgoingMessage
 * @property {"user" | "tool"} role
 * @property {string} content
 * @property {string} [id] a user's message has one, by which it is found in the history
 * @property {string} [toolCallId]
 * @property {boolean} [isError]
 */

/**
 * @typedef {object} Post what one action of the user, or one round of tools, says
 * @property {string} key names the post: a repeat with the same key is the same post
 * @property {OutgoingMessage[]} messages
 * @property {ToolDeclaration[]} [tools]
 */

/**
 * @typedef {object} ToolDeclaration
 * @property {string} name
 * @property {string} description
 * @property {string} parameters a JSON Schema, as text
 */

/**
 * @typedef {object} OwedCall
 * @property {string} id
 * @property {string} name
 * @property {string} arguments JSON, as text
 */

/**
 * @typedef {object} ConversationInfo
 * @property {{runId: string, firstMessage: number} | null} running `firstMessage`: how many messages there were
 *   before the run
 * @property {string[]} queued the runs of those posts that wait, in their order
 * @property {OwedCall[]} owed
 * @property {number} messageCount
 */

/**
 * @typedef {object} Exchange one line of the wire, for the list of raw events
 * @property {"sent" | "received"} direction
 * @property {string} label
 * @property {string} [id]
 * @property {string} data
 */

/** What this page asks to be told beyond the protocol's own events. */
export const INCLUDE = ["message-ids", "reasoning", "run", "usage"];

/** The server answered with an error. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {{code: string, status: number, requestId?: string | null, retryAfter?: string | null}} facts
   */
  constructor(message, facts) {
    super(message);
    this.name = "ApiError";
    this.code = facts.code;
    this.status = facts.status;
    this.requestId = facts.requestId ?? null;
    this.retryAfter = facts.retryAfter ?? null;
  }
}

/** There was no answer, or it broke off. */
export class NetworkError extends Error {
  /** @param {string} message */
  constructor(message = "the server did not answer") {
    super(message);
    this.name = "NetworkError";
  }
}

export class Api {
  #fetch;
  #key;
  #log;

  /**
   * @param {object} options
   * @param {typeof globalThis.fetch} [options.fetch]
   * @param {() => string | null} [options.key] the API key to send, if there is one
   * @param {(exchange: Exchange) => void} [options.log]
   */
  constructor({ fetch = globalThis.fetch.bind(globalThis), key = () => null, log = () => {} } = {}) {
    this.#fetch = fetch;
    this.#key = key;
    this.#log = log;
  }

  /**
   * @param {string} conversationId
   * @param {Post} post may be sent again, as it is
   * @param {AbortSignal} [signal]
   * @returns {Promise<Response>} the events of the run that the post began, from its start
   */
  sendMessage(conversationId, { key, ...post }, signal) {
    const headers = { "Idempotency-Key": `"${key}"` };
    const body = JSON.stringify({ conversationId, ...post, include: INCLUDE });
    return this.#request("send-message", { method: "POST", headers, body, signal: signal ?? null });
  }

  /**
   * @param {string} conversationId
   * @param {{runId?: string, after?: string, signal?: AbortSignal}} options which run, from its start; or `after`: the
   *   last event id that was seen
   * @returns {Promise<Response>} the run's events, or what of them comes after
   */
  stream(conversationId, { runId, after, signal }) {
    const run = runId ? `&runId=${encodeURIComponent(runId)}` : "";
    const path = `${conversationPath(conversationId)}/stream?include=${INCLUDE.join(",")}${run}`;
    /** @type {Record<string, string>} */
    const headers = { Accept: "text/event-stream" };
    if (after) headers["Last-Event-ID"] = after;
    return this.#request(path, { headers, signal: signal ?? null });
  }

  /**
   * @param {string} conversationId
   * @param {AbortSignal} [signal]
   * @returns {Promise<ConversationInfo>}
   */
  async conversation(conversationId, signal) {
    const body = await this.#json(conversationPath(conversationId), signal);
    return {
      running: readRunning(body.running),
      queued: Array.isArray(body.queued) ? body.queued.map(String) : [],
      owed: Array.isArray(body.owed) ? body.owed.map(readOwed) : [],
      messageCount: Number(body.messageCount) || 0,
    };
  }

  /**
   * @param {string} conversationId
   * @param {{after: number, limit: number, signal?: AbortSignal}} page
   * @returns {Promise<{messages: unknown[], next: number | null}>}
   */
  async messages(conversationId, { after, limit, signal }) {
    const path = `${conversationPath(conversationId)}/messages?after=${after}&limit=${limit}`;
    const body = await this.#json(path, signal);
    return {
      messages: Array.isArray(body.messages) ? body.messages : [],
      next: typeof body.next === "number" ? body.next : null,
    };
  }

  /**
   * @param {string} conversationId
   * @param {string} runId
   */
  async cancel(conversationId, runId) {
    const path = `${conversationPath(conversationId)}/cancel?runId=${encodeURIComponent(runId)}`;
    await this.#request(path, { method: "POST" });
  }

  /**
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @returns {Promise<Record<string, unknown>>}
   */
  async #json(path, signal) {
    const response = await this.#request(path, { signal: signal ?? null });
    try {
      return asRecord(await response.json());
    } catch (error) {
      throw isAbort(error) ? error : new NetworkError("the server's answer is not JSON");
    }
  }

  /**
   * @param {string} path
   * @param {RequestInit} init
   * @returns {Promise<Response>}
   * @throws {ApiError | NetworkError}
   */
  async #request(path, init) {
    const headers = new Headers(init.headers);
    const key = this.#key();
    if (key) headers.set("Authorization", `Bearer ${key}`);
    if (init.body) headers.set("Content-Type", "application/json");
    const method = init.method ?? "GET";
    this.#log({ direction: "sent", label: `${method} /${path}`, data: String(init.body ?? "") });
    const response = await this.#reach(path, { ...init, headers });
    if (!response.ok) throw await this.#failure(response);
    return response;
  }

  /**
   * @param {string} path
   * @param {RequestInit} init
   */
  async #reach(path, init) {
    try {
      return await this.#fetch(path, { ...init, cache: "no-store" });
    } catch (error) {
      throw isAbort(error) ? error : new NetworkError();
    }
  }

  /** @param {Response} response */
  async #failure(response) {
    const text = await response.text().catch(() => "");
    this.#log({ direction: "received", label: `HTTP ${response.status}`, data: text });
    const body = asRecord(parseJson(text));
    const message = typeof body.message === "string" ? body.message : response.statusText;
    return new ApiError(message || "the request failed", {
      code: typeof body.code === "string" ? body.code : `http_${response.status}`,
      status: response.status,
      requestId: typeof body.request_id === "string" ? body.request_id : null,
      retryAfter: response.headers.get("Retry-After"),
    });
  }
}

/** @param {string} id */
function conversationPath(id) {
  return `conversations/${encodeURIComponent(id)}`;
}

/**
 * @param {unknown} value
 * @returns {ConversationInfo["running"]}
 */
function readRunning(value) {
  const { runId, firstMessage } = asRecord(value);
  return typeof runId === "string" ? { runId, firstMessage: Number(firstMessage) || 0 } : null;
}

/**
 * @param {unknown} value
 * @returns {OwedCall}
 */
function readOwed(value) {
  const call = asRecord(value);
  return {
    id: String(call.id ?? ""),
    name: String(call.name ?? ""),
    arguments: typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments ?? {}),
  };
}

/**
 * @param {unknown} error
 * @returns {boolean} whether this page itself gave the request up
 */
export function isAbort(error) {
  return error instanceof Error && error.name === "AbortError";
}

/**
 * @param {string} text
 * @returns {unknown} undefined when the text is not JSON
 */
export function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * @param {unknown} value
 * @returns {Record<string, unknown>} the value when it is an object, else an empty one
 */
export function asRecord(value) {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? /** @type {Record<string, unknown>} */ (value) : {};
}
