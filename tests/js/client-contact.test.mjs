/** A client whose server has never answered says so soon, and what may be wrong; one whose server has goes on trying. */

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";

import { Client, ConnectionLost } from "../../client_tools/js/src/index.js";
import { collect, json, lost, scripted, stream, text } from "./client-support.mjs";

const OURS = json({ code: "invalid_request", message: "no" }, 422);
const PROXY = (response) => response.writeHead(502, { "Retry-After": "3" }).end("<p>");

/** An address of this machine where nobody listens. */
async function deserted() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

test("where nobody listens, the error comes soon, and names the address and the likely causes", { timeout: 8000 }, async () => {
  const url = await deserted();
  const { error } = await collect(new Client({ url }).send("x"));
  assert.ok(error instanceof ConnectionLost);
  assert.match(error.message, new RegExp(`^${url} did not answer \\(.*ECONNREFUSED.*\\). Likely causes: nobody listens there; the address is wrong$`));
  assert.deepEqual([error.code, error.retryable], ["connection_lost", true]);
});

test("every request of such a client ends so, and each may try anew", { timeout: 8000 }, async () => {
  const client = new Client({ url: await deserted(), retry: { firstDelay: 5000 } });
  for (const request of [() => client.conversation("c"), () => client.messages("c"), () => client.cancel("c"), () => client.resume("c").text()]) {
    await assert.rejects(request, /did not answer .* nobody listens there/);
  }
});

test("what is no passback server's answer is none", { timeout: 8000 }, async (t) => {
  const { client, requests, url } = await scripted(t, [PROXY]);
  const { error } = await collect(client({ retry: { longestDelay: 10_000 } }).send("x"));
  assert.deepEqual([error.code, error.status, requests.length], ["http_502", 502, 1]);
  assert.ok(error.message.startsWith(`${url} answered with status 502, not as a passback server: the address is wrong`));
});

for (const [answer, name] of [[OURS, "a refusal"], [stream({ events: [text("Hi")] }), "an answer"]]) {
  test(`after ${name} the same client goes on trying, and says no more of the address`, { timeout: 8000 }, async (t) => {
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
    assert.deepEqual([error.name, pauses, requests.length], ["AbortError", ["the server answered with status 502"], 2]);
  });
}

for (const id of ["", "id: 5\n"]) {
  test(`a stream that gets no further is given up${id && ", also where its events have ids of another kind"}`, { timeout: 8000 }, async (t) => {
    const foreign = (response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.end(`${id}data: ${JSON.stringify(text("Hi"))}\n\n`);
    };
    const { client, requests } = await scripted(t, Array.from({ length: 20 }, () => foreign));
    const { error } = await collect(client({ retry: { attempts: 3 } }).send("x"));
    assert.ok(error instanceof ConnectionLost);
    assert.ok(requests.length <= 4, `${requests.length} requests`);
  });
}

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
    await collect(client({ trace, retry: { longestDelay: 10_000, ...given } }).send("x", { signal: leaving.signal }));
    assert.deepEqual(pauses, ["lost"]);
  }
});
