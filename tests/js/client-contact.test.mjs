/**
 * First contact: a client whose server has never answered fails soon, with likely causes; one whose
 * server has answered retries.
 */

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";

import {
  ApiError,
  Client,
  ConnectionLost,
  ProtocolError,
} from "../../client_tools/js/src/index.js";
import { collect, json, lost, scripted, stream, text } from "./client-support.mjs";

const OURS = json({ code: "invalid_request", message: "no", request_id: "req_1" }, 422);
const PROXY = (response) => response.writeHead(502, { "Retry-After": "3" }).end("<p>");

/** An address of this machine where nobody listens. */
async function deserted() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

test(
  "where nobody listens, the error comes soon, and names the address and the likely causes",
  { timeout: 8000 },
  async () => {
    const url = await deserted();
    const { error } = await collect(new Client({ url }).send("x"));
    assert.ok(error instanceof ConnectionLost);
    assert.match(
      error.message,
      new RegExp(
        `^${url} did not answer \\(.*ECONNREFUSED.*\\). ` +
          "Likely causes: nobody listens there; the address is wrong$",
      ),
    );
    assert.deepEqual([error.code, error.retryable], ["connection_lost", true]);
  },
);

test(
  "every request of such a client ends so, and each may try anew",
  { timeout: 8000 },
  async () => {
    const client = new Client({ url: await deserted(), retry: { firstDelay: 5000 } });
    for (const request of [
      () => client.conversation("c"),
      () => client.messages("c"),
      () => client.cancel("c"),
      () => client.resume("c").text(),
    ]) {
      await assert.rejects(request, /did not answer .* nobody listens there/);
    }
  },
);

/**
 * An answer of something else than a passback server: the status, the headers, the body.
 */
const foreign =
  (status, headers, body = "") =>
  (response) =>
    response.writeHead(status, headers).end(body);
const JSON_TYPE = { "Content-Type": "application/json" };
const EVENTS = { "Content-Type": "text/event-stream" };
const HTML = { "Content-Type": "text/html" };
const CAUSES =
  "Likely causes: the address or the port is wrong; " +
  "a proxy there does not reach the server, or changes its answers";

test(
  "what answers as no passback server does is named at once, with what came and the likely causes",
  { timeout: 8000 },
  async (t) => {
    const gateway = '{"code": 7, "message": "upstream"}';
    const key = "sk-0123456789";
    for (const [answer, what, status] of [
      [
        foreign(200, EVENTS),
        "status 200 and text/event-stream without the header X-Conversation-Id",
        200,
      ],
      [
        foreign(200, EVENTS, "id: run.1-1\ndata: [DONE]\n\n"),
        "status 200 and text/event-stream without the header X-Conversation-Id",
        200,
      ],
      [
        foreign(200, HTML, "<!doctype html>\n  <title>Vite</title>"),
        'status 200 and text/html; it begins with "<!doctype html> <title>Vite</title>"',
        200,
      ],
      [
        foreign(200, { ...JSON_TYPE, "X-Conversation-Id": "c" }, "{}"),
        'status 200 and application/json without the header X-Request-Id; it begins with "{}"',
        200,
      ],
      [
        foreign(404, HTML, "é".repeat(90)),
        `status 404 and text/html; it begins with "${"é".repeat(80)}…"`,
        404,
      ],
      [foreign(502, { "Retry-After": "3" }, "\u0000\u202e"), "status 502 and no Content-Type", 502],
      [
        foreign(503, JSON_TYPE, '{"code": "upstream_down", "message": "no"}'),
        "status 503 and application/json; " +
          'it begins with "{\\"code\\": \\"upstream_down\\", \\"message\\": \\"no\\"}"',
        503,
      ],
      [
        foreign(503, JSON_TYPE, '{"code": "upstream_down", "request_id": 7}'),
        "status 503 and application/json; " +
          'it begins with "{\\"code\\": \\"upstream_down\\", \\"request_id\\": 7}"',
        503,
      ],
      [
        foreign(500, JSON_TYPE, `{"headers": {"authorization": "Bearer ${key}"}}`),
        "status 500 and application/json",
        500,
      ],
      [
        foreign(200, JSON_TYPE, `you sent ${key}`),
        "status 200 and application/json without the header X-Request-Id",
        200,
      ],
      [
        foreign(500, JSON_TYPE, gateway),
        `status 500 and application/json; it begins with ${JSON.stringify(gateway)}`,
        500,
      ],
    ]) {
      const { client, requests, url } = await scripted(t, [answer]);
      const { error } = await collect(
        client({ apiKey: key, retry: { longestDelay: 10_000 } }).send("x"),
      );
      assert.ok(error instanceof ProtocolError);
      assert.equal(error.message, `${url} did not answer as a passback server: ${what}. ${CAUSES}`);
      assert.deepEqual(
        [error.code, error.status, error.retryable, requests.length],
        ["protocol_error", status, status > 501, 1],
      );
    }
  },
);

test(
  "a look at a conversation is no contact, either, where something else answers",
  { timeout: 8000 },
  async (t) => {
    const page = "<!doctype html>";
    for (const [answer, type, body] of [
      [foreign(200, HTML, page), "text/html", page],
      [foreign(200, JSON_TYPE, "{}"), "application/json without the header X-Request-Id", "{}"],
      [foreign(200, { ...JSON_TYPE, "X-Request-Id": "proxy" }, page), "application/json", page],
    ]) {
      const { client, requests, url } = await scripted(t, [answer]);
      await assert.rejects(() => client().conversation("c"), {
        name: "ProtocolError",
        message:
          `${url} did not answer as a passback server: status 200 and ${type}; ` +
          `it begins with ${JSON.stringify(body)}. ${CAUSES}`,
      });
      assert.equal(requests.length, 1);
    }
  },
);

test(
  "a page of another origin is told that a proxy may hide the headers",
  { timeout: 8000 },
  async (t) => {
    const { client } = await scripted(t, [foreign(200, EVENTS), foreign(200, JSON_TYPE, "{}")]);
    globalThis.location = {
      origin: "http://page.example",
      protocol: "http:",
      href: "http://page.example/",
    };
    t.after(() => delete globalThis.location);
    const message =
      /a proxy leaves out Access-Control-Expose-Headers, so that .* hides the header \(CORS\)$/;
    const { error } = await collect(client().send("x"));
    assert.match(error.message, message);
    await assert.rejects(() => client().conversation("c"), { message });
  },
);

test("a redirect is not followed, whoever is behind it", { timeout: 8000 }, async (t) => {
  const there = await scripted(t, []);
  for (const status of [302, 307]) {
    const { client, requests } = await scripted(t, [
      foreign(status, { Location: `${there.url}/login` }),
    ]);
    const { error } = await collect(client().send("x"));
    assert.match(
      error.message,
      new RegExp(
        `did not answer as a passback server: status ${status} and no Content-Type. Likely`,
      ),
    );
    assert.deepEqual([requests.length, there.requests.length], [1, 0]);
  }
});

test("a stream that ends before its first event is none", { timeout: 8000 }, async (t) => {
  const { client, requests } = await scripted(t, [stream({ events: [] }), stream({ events: [] })]);
  const one = client();
  const { error } = await collect(one.send("x"));
  assert.deepEqual(
    [error.name, error.message],
    ["ProtocolError", "the stream ends before its first event"],
  );
  // behind a cursor it may have nothing left to say
  const resumed = await collect(one.resume("c", { lastEventId: "run.1-0" }));
  assert.deepEqual([resumed, requests.length], [{ events: [], error: null }, 2]);
});

for (const id of ["", "id: 5\n"]) {
  test(
    `an event of a run without an id of a passback server is none: ${JSON.stringify(id)}`,
    { timeout: 8000 },
    async (t) => {
      const { client, requests } = await scripted(t, [
        (response) => {
          response.writeHead(200, { ...EVENTS, "X-Conversation-Id": "c", "X-Run-Id": "run" });
          response.end(`${id}data: ${JSON.stringify(text("Hi"))}\n\n${id}data: [DONE]\n\n`);
        },
      ]);
      const { events, error } = await collect(client().send("x"));
      assert.deepEqual([events, error.name, requests.length], [[], "ProtocolError", 1]);
      assert.equal(error.message, "an event of the stream has no id of a passback server");
    },
  );
}

for (const [answer, name] of [
  [OURS, "a refusal"],
  [stream({ events: [text("Hi")] }), "an answer"],
]) {
  test(
    `after ${name} the same client goes on trying, and says no more of the address`,
    { timeout: 8000 },
    async (t) => {
      const { client, requests } = await scripted(t, [answer, PROXY]);
      const leaving = new AbortController();
      const pauses = [];
      const trace = (step) => {
        if (step.kind !== "lost") return;
        pauses.push(step.message);
        leaving.abort();
      };
      const one = client({ trace, retry: { longestDelay: 10_000 } });
      await collect(one.send("x"));
      const { error } = await collect(one.send("x", { signal: leaving.signal }));
      assert.deepEqual(
        [error.name, pauses, requests.length],
        ["AbortError", ["the server answered with status 502"], 2],
      );
    },
  );

  test(
    `after ${name} the error of a gateway is one by its status, whatever code that has`,
    { timeout: 8000 },
    async (t) => {
      const { client } = await scripted(t, [
        answer,
        foreign(404, JSON_TYPE, '{"code": "conversation_busy", "message": "no route"}'),
      ]);
      const one = client();
      await collect(one.send("x"));
      const { error } = await collect(one.send("x", { retryBusy: true }));
      assert.ok(error instanceof ApiError);
      assert.deepEqual(
        [error.code, error.status, error.retryable, error.message],
        ["http_404", 404, false, "no route"],
      );
    },
  );
}

test("a stream that gets no further is given up", { timeout: 8000 }, async (t) => {
  const same = stream({ events: [text("Hi")], end: "cut" });
  const { client, requests } = await scripted(
    t,
    Array.from({ length: 20 }, () => same),
  );
  const { error } = await collect(client({ retry: { attempts: 3 } }).send("x"));
  assert.ok(error instanceof ConnectionLost);
  assert.ok(requests.length <= 4, `${requests.length} requests`);
});

test("a count of attempts that the caller gives is kept to", { timeout: 8000 }, async (t) => {
  for (const given of [{ attempts: 3 }, { unanswered: 3 }]) {
    const pauses = [];
    const leaving = new AbortController();
    const { client } = await scripted(t, [PROXY, lost]);
    const trace = (step) => {
      if (step.kind !== "lost") return;
      pauses.push(step.kind);
      leaving.abort();
    };
    await collect(
      client({ trace, retry: { longestDelay: 10_000, ...given } }).send("x", {
        signal: leaving.signal,
      }),
    );
    assert.deepEqual(pauses, ["lost"]);
  }
});
