/** A real HTTP server that answers by a test's script, request by request. */

import assert from "node:assert/strict";
import { createServer } from "node:http";

import { Client } from "../../client_tools/js/src/index.js";

/** Short delays, for tests that wait for a reconnect. */
export const QUICK = { firstDelay: 1, longestDelay: 1500 };

/**
 * @param {import("node:test").TestContext} t ends the server with the test
 * @param {((response: import("node:http").ServerResponse, request: object) => void)[]} script what
 *   answers the first request, the second ...
 * @param {(response: import("node:http").ServerResponse, request: object) => void} claim answers
 *   the requests that claim a call, or give it back
 * @param {(response: import("node:http").ServerResponse, request: object) => void} watched answers
 *   the requests that follow a conversation
 */
export async function scripted(t, script, claim = granted, watched = unknown) {
  const requests = [];
  const claims = [];
  const watches = [];
  const answers = [...script];
  const server = createServer(async (incoming, response) => {
    let text = "";
    // a character may come in two pieces
    incoming.setEncoding("utf8");
    for await (const piece of incoming) text += piece;
    const { method, headers } = incoming;
    const address = new URL(incoming.url, "http://x");
    const request = {
      method,
      path: address.pathname,
      query: Object.fromEntries(address.searchParams),
      headers,
    };
    request.body = text ? JSON.parse(text) : undefined;
    if (address.pathname.endsWith("/claim")) {
      claims.push(request);
      return claim(response, request);
    }
    if (address.pathname.endsWith("/events")) {
      watches.push(request);
      return watched(response, request);
    }
    requests.push(request);
    const answer =
      answers.shift() ?? json({ code: "unexpected", message: "nobody expected this request" }, 500);
    answer(response, request);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${server.address().port}`;
  const client = (options = {}) =>
    new Client({ url, ...options, retry: { ...QUICK, ...options.retry } });
  return { url, requests, claims, watches, client };
}

/** Nobody else claims anything. */
export function granted(response, request) {
  if (request.method === "DELETE") response.writeHead(204).end();
  else json({ callId: "", claimant: request.body.claimant, expiresAt: "" })(response);
}

/** A server that cannot follow conversations. */
function unknown(response) {
  json({ code: "not_found", message: "no" }, 404)(response);
}

/** An answer of a passback server, which names its request. */
export function json(body, status = 200, headers = {}) {
  return (response) => {
    response.writeHead(status, {
      "Content-Type": "application/json",
      "X-Request-Id": "req_1",
      ...headers,
    });
    response.end(JSON.stringify(status < 400 ? body : { request_id: "req_1", ...body }));
  };
}

/** The connection breaks before an answer. */
export function lost(response) {
  response.destroy();
}

/**
 * A stream.
 *
 * @param {object} options
 * @param {object[]} options.events
 * @param {string} [options.run]
 * @param {number} [options.first] the number of the first event
 * @param {"done" | "cut" | "open"} [options.end]
 * @param {string} [options.tail] raw text behind the events
 */
export function stream({ events, run = "run", first = 1, end = "done", tail = "", headers = {} }) {
  return (response) => {
    response.writeHead(200, {
      "Content-Type": "text/event-stream",
      "X-Conversation-Id": "c",
      "X-Run-Id": run,
      ...headers,
    });
    const all =
      end === "done"
        ? [...events.map((event) => JSON.stringify(event)), "[DONE]"]
        : events.map((event) => JSON.stringify(event));
    const text = all
      .map((data, index) => `id: ${run}.1-${first + index}\ndata: ${data}\n\n`)
      .join("");
    response.write(`: open\n\n${text}${tail}`, () => {
      if (end === "done") response.end();
      else if (end === "cut") response.destroy();
    });
  };
}

export function text(content) {
  return { type: "text", content };
}

/** The events of a run that leaves these calls owed, each `[id, name, arguments]`. */
export function handsBack(...calls) {
  const toolCalls = calls.map(([id, name, args]) => ({
    id,
    name,
    arguments: args,
    kind: "tool_result",
  }));
  return [
    { type: "owed", toolCalls },
    { type: "run-end", outcome: "handed-back" },
  ];
}

/** Reads to the end; gives the events without their places, and the error if there was one. */
export async function collect(sending) {
  const events = [];
  try {
    for await (const { cursor, runId, ...event } of sending) events.push(event);
  } catch (error) {
    return { events, error };
  }
  return { events, error: null };
}

/** A promise, and what fulfils it. */
export function withResolvers() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

/** The entries of a chat's state without the ids of the messages, which each has. */
export function shown({ entries }) {
  return entries.map(({ id, ...entry }) => {
    assert.equal(typeof id, entry.role === "user" ? "string" : "undefined");
    return entry;
  });
}
