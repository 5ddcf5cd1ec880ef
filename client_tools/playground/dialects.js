/**
 * The frames of a run as each protocol of the server sends them, whoever began it.
 *
 * The server's OpenAPI document has the address of each protocol that it serves, so what is
 * switched off is not offered. The chat socket is a socket: its messages are read by a connection
 * of its own, from the run's beginning to its `chat:end`.
 */

import { readCursor } from "../js/src/events.js";
import { asRecord, parseJson } from "../js/src/json.js";
import { SseDecoder } from "../js/src/sse.js";

/** @typedef {{name: string, label: string, operation: string, query: string}} Protocol */
/** @typedef {Protocol & {path: string}} Dialect `path` has the conversation as `{…}` */
/**
 * @typedef {object} Wanted
 * @property {string} conversation
 * @property {string} run
 * @property {string} [before] the cursor of the last event before the run, "" if it is not known
 * @property {string} [first] the cursor of the run's first event, "" if it is not known
 * @property {boolean} isNewest whether it is the newest run of the conversation
 */
/**
 * @typedef {{kind: "request", path: string} |
 *   {kind: "response", status: number, headers: Record<string, string>, body: string | null} |
 *   {kind: "frame", id: string, data: string} | {kind: "lost", message: string}} Reading
 */
/** @typedef {{url: string, apiKey: string | null, signal: AbortSignal}} Access */

/** Everything that can be asked for, since this is to show what there is. */
const INCLUDE = [
  ...["agents", "context", "message-ids", "output", "owed", "plan", "progress", "reasoning"],
  ...["rewind", "run", "tools", "usage"],
].join(",");
/** @type {readonly Protocol[]} `operation` is that of the OpenAPI document */
const PROTOCOLS = [
  {
    name: "native",
    label: "/send-message (AG-Kit)",
    operation: "streamRun",
    query: `include=${INCLUDE}&`,
  },
  { name: "ag-ui", label: "AG-UI", operation: "followThread", query: "" },
  { name: "ai-sdk", label: "AI SDK", operation: "resumeChat", query: "" },
  { name: "agent-api", label: "Agent API", operation: "followResponse", query: "" },
  { name: "chat", label: "Chat socket", operation: "listTurns", query: "" },
];
const MAX_CHARS = 16 * 1024 * 1024;
/** Headers of a response that say something about the run. */
const HEADERS = ["content-type", "x-conversation-id", "x-run-id", "x-error-code", "x-request-id"];

/**
 * @param {Access} access
 * @returns {Promise<Dialect[]>} the protocols that the server speaks
 * @throws {Error} the document cannot be read
 */
export async function findDialects({ url, apiKey, signal }) {
  const response = await fetch(`${url}openapi.json`, { headers: headersOf(apiKey), signal });
  if (!response.ok) throw new Error(`the server's OpenAPI document: HTTP ${response.status}`);
  return dialectsOf(await response.json());
}

/**
 * @param {unknown} document an OpenAPI document
 * @returns {Dialect[]}
 */
export function dialectsOf(document) {
  /** @type {Map<unknown, string>} */
  const paths = new Map();
  for (const [path, item] of Object.entries(asRecord(asRecord(document).paths))) {
    paths.set(asRecord(asRecord(item).get).operationId, path);
  }
  return PROTOCOLS.flatMap((protocol) => {
    const path = paths.get(protocol.operation);
    return path === undefined ? [] : [{ ...protocol, path }];
  });
}

/**
 * Read a run, live if it goes on.
 *
 * @param {Dialect} dialect
 * @param {Wanted} wanted
 * @param {Access} access
 * @returns {AsyncGenerator<Reading, void, void>} ends with the run, or where it cannot be read on
 * @throws the signal's reason
 */
export async function* readRun(dialect, wanted, access) {
  try {
    if (dialect.name === "chat") yield* readSocket(wanted, access);
    else yield* readStream(addressOf(dialect, wanted), access);
  } catch (error) {
    access.signal.throwIfAborted();
    yield { kind: "lost", message: error instanceof Error ? error.message : String(error) };
  }
}

/**
 * @param {Dialect} dialect
 * @param {Wanted} wanted
 * @returns {string} path and query
 */
export function addressOf({ path, query }, { conversation, run }) {
  const filled = path.replace(/\{[^}]*\}/, () => encodeURIComponent(conversation));
  return `${filled.replace(/^\//, "")}?${query}runId=${encodeURIComponent(run)}`;
}

/**
 * @param {string} path
 * @param {Access} access
 * @returns {AsyncGenerator<Reading, void, void>}
 */
async function* readStream(path, { url, apiKey, signal }) {
  yield { kind: "request", path: `/${path}` };
  const headers = { ...headersOf(apiKey), Accept: "text/event-stream" };
  const response = await fetch(url + path, { headers, signal, cache: "no-store" });
  const shown = HEADERS.flatMap((name) => {
    const value = response.headers.get(name);
    return value === null ? [] : [[name, value]];
  });
  const body = response.ok ? null : (await response.text()).slice(0, MAX_CHARS);
  const { status } = response;
  yield { kind: "response", status, headers: Object.fromEntries(shown), body };
  if (!response.ok || !response.body) return;
  const decoder = new SseDecoder(MAX_CHARS);
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { value } = await reader.read();
      if (!value) return;
      for (const { id, data } of decoder.feed(value)) yield { kind: "frame", id, data };
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// ---------------------------------------------------------------- the chat socket
// numbers of the socket are made of the places of events in a log
const SEQ_BITS = 2 ** 23;
const PLACES = 2 ** 10;

/**
 * @param {string} cursor of an event of a run
 * @returns {number} the greatest number that the socket gives to what that event became
 */
export function sequenceOf(cursor) {
  const place = readCursor(cursor)?.place;
  if (!place) return 0;
  const [epoch, seq] = place;
  return (epoch * SEQ_BITS + Math.min(seq, SEQ_BITS - 1)) * PLACES + PLACES;
}

/**
 * @param {Wanted} wanted
 * @returns {{subscribe: Record<string, unknown>, isWhole: boolean}} how to subscribe, and whether
 *   the first event of the run comes, too
 */
export function subscriptionOf({ conversation, before, first, isNewest }) {
  const of = { session_id: conversation };
  if (isNewest) return { subscribe: { ...of, after_sequence: 0, resume: true }, isWhole: true };
  const after = sequenceOf(before || first || "");
  return { subscribe: { ...of, after_sequence: after }, isWhole: Boolean(before) };
}

/**
 * @param {Wanted} wanted
 * @param {Access} access
 * @returns {AsyncGenerator<Reading, void, void>}
 */
async function* readSocket(wanted, { url, apiKey, signal }) {
  const address = new URL("ws", url);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  const { subscribe } = subscriptionOf(wanted);
  const socket = new Messages(address.href, signal);
  try {
    await socket.opened;
    if (apiKey) socket.send({ event: "auth", data: { token: apiKey } });
    const asked = JSON.stringify({ event: "session:subscribe", data: subscribe });
    socket.send({ event: "session:subscribe", data: subscribe, id: 1 });
    yield { kind: "request", path: `${address.pathname} ${asked}` };
    for await (const data of socket) {
      const { event, data: body } = asRecord(parseJson(data));
      const said = asRecord(body);
      yield { kind: "frame", id: String(said.stream_sequence ?? ""), data };
      if (event === "ack" && said.status === "error") return;
      if (event === "chat:end" && said.chat_run_id === wanted.run) return;
    }
    if (socket.reason !== "") yield { kind: "lost", message: socket.reason };
  } finally {
    socket.close();
  }
}

/** The messages of a WebSocket, in their order. */
class Messages {
  reason = "";
  #socket;
  /** @type {string[]} */
  #waiting = [];
  #isOver = false;
  #wake = () => {};

  /**
   * @param {string} address
   * @param {AbortSignal} signal closes it
   */
  constructor(address, signal) {
    const socket = (this.#socket = new WebSocket(address));
    this.opened = new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = () => reject(new Error("the chat socket cannot be reached"));
      signal.addEventListener("abort", () => reject(signal.reason));
    });
    socket.onmessage = ({ data }) => {
      this.#waiting.push(String(data));
      this.#wake();
    };
    socket.onclose = ({ reason }) => {
      this.#isOver = true;
      this.reason = reason || "the socket was closed";
      this.#wake();
    };
    signal.addEventListener("abort", () => this.close());
  }

  /** @param {object} message */
  send(message) {
    this.#socket.send(JSON.stringify(message));
  }

  close() {
    const socket = this.#socket;
    // a browser complains about a socket that is closed while it opens
    if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close();
    else socket.close();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      yield* this.#waiting.splice(0);
      if (this.#waiting.length > 0) continue;
      if (this.#isOver) return;
      await new Promise((resolve) => {
        this.#wake = () => resolve(undefined);
      });
    }
  }
}

/**
 * @param {string | null} apiKey
 * @returns {Record<string, string>}
 */
function headersOf(apiKey) {
  return apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
}
