/**
 * Requests to one server: with the API key, errors for error statuses, and limits on every body.
 */

import { readAddress } from "./options.js";
import { foreignAnswerError, isEvents, noAnswerMessage, retryAfterOf } from "./contact.js";
import {
  ApiError,
  ConnectionLost,
  CursorExpired,
  InvalidArgument,
  LimitExceeded,
  ProtocolError,
} from "./errors.js";
import { asRecord, parseJson, writeJson } from "./json.js";
import { Aborter } from "./signals.js";
import { tracedHeaders } from "./trace.js";

/** @typedef {import("./options.js").Limits} Limits */
/** @typedef {import("./retry.js").Retry} Retry */

/**
 * @typedef {object} Request
 * @property {string} [method]
 * @property {Record<string, string>} [headers]
 * @property {unknown} [body] sent as JSON
 * @property {AbortSignal} signal
 * @property {number} [exchange] its number in the trace; default: a new one
 * @property {boolean} [keepalive] whether the request outlives the page
 */

/** Time for a response to end after its last frame. */
const LINGER = 1000; // milliseconds

/** A response whose body is still to be read. */
export class Connection {
  #aborter;
  /** @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */
  #reader;

  /**
   * @param {Response} response
   * @param {Aborter} aborter
   */
  constructor(response, aborter) {
    this.response = response;
    this.#aborter = aborter;
  }

  /**
   * @param {number} silence milliseconds without a byte after which the connection counts as lost
   * @returns {Promise<Uint8Array | undefined>} undefined at its end, for whatever reason
   */
  async read(silence) {
    this.#reader ??= this.response.body?.getReader();
    const timer = setTimeout(() => this.close(), silence);
    try {
      return (await this.#reader?.read())?.value;
    } catch {
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Close the connection at once. */
  close() {
    this.#aborter.close();
  }

  /** Let the response end by itself, so that its socket can be reused. */
  finish() {
    this.read(LINGER).finally(() => this.close());
  }
}

export class Http {
  #base;
  #apiKey;
  #authorization;
  #fetch;
  #limits;
  /** Milliseconds within which a response must begin, and each piece of it arrive. */
  #silence;
  #contact;
  #trace;
  #exchanges = 0;

  /**
   * @param {object} options
   * @param {string | URL} options.url
   * @param {string | undefined} options.apiKey
   * @param {typeof globalThis.fetch} options.fetch
   * @param {Limits} options.limits
   * @param {Retry} options.retry
   * @param {import("./trace.js").Trace | undefined} [options.trace]
   */
  constructor({ url, apiKey, fetch, limits, retry, trace }) {
    this.#base = readAddress(url);
    this.#apiKey = apiKey;
    this.#authorization = apiKey === undefined ? undefined : bearer(apiKey);
    this.#fetch = fetch;
    this.#limits = limits;
    this.#silence = retry.silence;
    this.#contact = retry.contact;
    this.#trace = trace;
  }

  /** @returns {number} a number for requests that belong together */
  newExchange() {
    this.#exchanges += 1;
    return this.#exchanges;
  }

  /**
   * @param {number} exchange
   * @param {import("./trace.js").Step} step
   */
  trace(exchange, step) {
    this.#trace?.({ ...step, exchange, time: performance.timeOrigin + performance.now() });
  }

  /**
   * @param {string} path
   * @param {Request} request
   * @returns {Promise<Connection>} a response with a stream of events
   * @throws {ApiError | ConnectionLost | ProtocolError} or the signal's reason
   */
  async stream(path, request) {
    const connection = await this.#open(path, request);
    const { response } = connection;
    if (!isEvents(response) || !response.headers.has("X-Conversation-Id")) {
      throw await this.#foreignError(connection);
    }
    this.#contact.isMade = true;
    return connection;
  }

  /**
   * @param {string} path
   * @param {Request} request
   * @returns {Promise<Connection>}
   * @throws {ApiError | ConnectionLost | ProtocolError} or the signal's reason
   */
  async #open(
    path,
    {
      method = "GET",
      headers = {},
      body,
      signal,
      exchange = this.newExchange(),
      keepalive = false,
    },
  ) {
    signal.throwIfAborted();
    const text = body === undefined ? null : encode(body);
    this.trace(exchange, { kind: "request", method, path: `/${path}`, headers, body: text });
    const aborter = new Aborter(signal);
    const timer = setTimeout(() => aborter.close(), this.#silence);
    try {
      const response = await this.#fetch(`${this.#base}/${path}`, {
        method,
        headers: this.#headers(headers, text !== null),
        body: text,
        cache: "no-store",
        // a post is for this server alone, and a browser turns some redirected POSTs into GETs
        redirect: "manual",
        keepalive,
        signal: aborter.signal,
      });
      if (!response.ok) throw await this.#refusal(response, exchange);
      this.trace(exchange, {
        kind: "response",
        status: response.status,
        headers: tracedHeaders(response),
        body: null,
      });
      return new Connection(response, aborter);
    } catch (error) {
      aborter.close();
      signal.throwIfAborted();
      if (error instanceof ApiError || error instanceof ProtocolError) throw error;
      throw new ConnectionLost(
        this.#contact.isMade ? "the server did not answer" : noAnswerMessage(this.#base, error),
        error,
      );
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * @param {string} path
   * @param {Request} request
   * @returns {Promise<Record<string, unknown>>} the body of the response; empty if it has none
   */
  async json(path, request) {
    const connection = await this.#open(path, request);
    const { response } = connection;
    // every response of a passback server has a request id
    if (!this.#contact.isMade && !response.headers.has("X-Request-Id")) {
      throw await this.#foreignError(connection);
    }
    const timer = setTimeout(() => connection.close(), this.#silence);
    try {
      const text = await readText(response, this.#limits.jsonBytes);
      const body = text === "" ? {} : parseJson(text);
      if (body === undefined) throw foreignAnswerError(this.#base, response, text, this.#apiKey);
      this.#contact.isMade = true;
      return asRecord(body);
    } catch (error) {
      request.signal.throwIfAborted();
      if (error instanceof ProtocolError || error instanceof LimitExceeded) throw error;
      throw new ConnectionLost("the server's answer broke off", error);
    } finally {
      clearTimeout(timer);
      connection.close();
    }
  }

  /**
   * @param {Record<string, string>} headers
   * @param {boolean} isJson
   */
  #headers(headers, isJson) {
    const all = new Headers(headers);
    if (this.#authorization) all.set("Authorization", this.#authorization);
    if (isJson) all.set("Content-Type", "application/json");
    return all;
  }

  /**
   * Close a response that is not a passback server's, and return the error for it.
   *
   * @param {Connection} connection
   */
  async #foreignError(connection) {
    const { response } = connection;
    const bytes = isEvents(response) ? undefined : await connection.read(LINGER);
    connection.close();
    return foreignAnswerError(this.#base, response, new TextDecoder().decode(bytes), this.#apiKey);
  }

  /**
   * @param {Response} response
   * @param {number} exchange
   * @returns {Promise<ApiError | ProtocolError>}
   */
  async #refusal(response, exchange) {
    const text = await readText(response, this.#limits.errorBytes).catch(() => "");
    const body = asRecord(parseJson(text));
    const { status } = response;
    this.trace(exchange, {
      kind: "response",
      status,
      headers: tracedHeaders(response),
      body: text,
    });
    const kind = status === 410 ? CursorExpired : ApiError;
    // errors of a gateway may have a code, too
    const isOurs = typeof body.code === "string" && typeof body.request_id === "string";
    this.#contact.isMade ||= isOurs;
    if (!this.#contact.isMade) return foreignAnswerError(this.#base, response, text, this.#apiKey);
    return new kind(
      typeof body.message === "string" ? body.message : `the server answered with status ${status}`,
      {
        code: isOurs ? String(body.code) : `http_${status}`,
        status,
        retryable:
          [408, 429, 502, 503, 504].includes(status) ||
          (isOurs && body.code === "conversation_busy"),
        retryAfter: retryAfterOf(response),
        requestId: isOurs ? String(body.request_id) : response.headers.get("X-Request-Id"),
        details: body.details,
      },
    );
  }
}

/**
 * @param {Response} response
 * @param {number} maxBytes
 * @throws {LimitExceeded}
 */
async function readText(response, maxBytes) {
  const reader = response.body?.getReader();
  if (!reader) return "";
  const utf8 = new TextDecoder();
  let text = "";
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + utf8.decode();
    bytes += value.byteLength;
    if (bytes > maxBytes) {
      reader.cancel().catch(() => {});
      throw new LimitExceeded("the body of the server's answer is too large");
    }
    text += utf8.decode(value, { stream: true });
  }
}

/** @param {unknown} body */
function encode(body) {
  try {
    return writeJson(body) ?? null;
  } catch {
    throw new InvalidArgument("the body of the request cannot be written as JSON");
  }
}

/** @param {string} apiKey */
function bearer(apiKey) {
  // the platform's error would quote a key that a header cannot contain
  if (!/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new InvalidArgument("apiKey must have visible ASCII characters only");
  }
  return `Bearer ${apiKey}`;
}
