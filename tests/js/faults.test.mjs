/** The playground's fault switches, with the client library and a real HTTP server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Answer } from "../../client_tools/js/src/index.js";
import { FaultyFetch, OFF } from "../../client_tools/playground/faults.js";
import { json, scripted, stream, text } from "./client-support.mjs";

const SPELLED = ["a", "b", "c"].map(text);

/** Send a message with these switches on; what the trace and the server have seen of it. */
async function send(t, script, switches, more = {}) {
  const { requests, client } = await scripted(t, script);
  const used = [];
  const faulty = new FaultyFetch(globalThis.fetch, () => used.push(faulty.switches));
  faulty.set(switches);
  const steps = [];
  const trace = ({ kind, status, data }) => {
    if (kind !== "frame") return steps.push(status ?? kind);
    return steps.push(data === "[DONE]" ? "end" : JSON.parse(data).content);
  };
  const speaker = client({ fetch: faulty.fetch, trace, ...more });
  const answer = new Answer();
  let error = null;
  try {
    for await (const event of speaker.send("hi", { conversationId: "c" })) answer.add(event);
  } catch (raised) {
    error = raised;
  }
  return { steps, requests, text: answer.text, error, used, faulty, speaker };
}

const whole = () => stream({ events: SPELLED });
const rest = (count) => stream({ events: SPELLED.slice(count), first: count + 1 });

test("without a switch nothing changes", async (t) => {
  const { steps, text: said, used } = await send(t, [whole()], {});
  assert.deepEqual(steps, ["request", 200, "a", "b", "c", "end"]);
  assert.deepEqual([said, used], ["abc", []]);
});

for (const count of [1, 2, 3]) {
  test(`an answer breaks off after ${count} events, once, and is read to its end`, async (t) => {
    const script = [whole(), rest(count)];
    const { steps, text: said, requests } = await send(t, script, { cutAfter: count });
    const [before, after] = [["a", "b", "c"].slice(0, count), ["a", "b", "c"].slice(count)];
    assert.deepEqual(steps, [
      ...["request", 200, ...before, "lost"],
      ...["request", 200, ...after, "end"],
    ]);
    assert.equal(said, "abc");
    assert.equal(requests[1].headers["last-event-id"], `run.1-${count}`);
  });
}

test("the next answer breaks off, too; one that is shorter does not", async (t) => {
  const script = [whole(), rest(2), stream({ events: SPELLED, run: "other" })];
  const { speaker, steps } = await send(t, script, { cutAfter: 2 });
  steps.length = 0;
  await assert.rejects(speaker.send("again", { conversationId: "c" }).text());
  assert.deepEqual(steps.slice(0, 5), ["request", 200, "a", "b", "lost"]);
  const short = await send(t, [whole()], { cutAfter: 9 });
  assert.deepEqual(short.steps, ["request", 200, "a", "b", "c", "end"]);
});

test("events and the first byte come later, one by one", async (t) => {
  const { steps, text: said } = await send(t, [whole()], { delay: 2, delayFirst: 2 });
  assert.deepEqual(steps, ["request", 200, "a", "b", "c", "end"]);
  assert.equal(said, "abc");
  // a client that gives up meanwhile has not been answered
  const options = { retry: { silence: 2000, attempts: 1 } };
  const late = await send(t, [whole()], { delayFirst: 600_000 }, options);
  assert.deepEqual([late.error.name, late.steps], ["ConnectionLost", ["request"]]);
  const slow = await send(t, [whole()], { delay: 600_000 }, options);
  assert.deepEqual([slow.error.name, slow.steps], ["ConnectionLost", ["request", 200]]);
});

for (const [status, code] of [
  [429, "too_many_runs"],
  [503, "server_busy"],
]) {
  test(`a ${status} refuses the next post, which is then repeated`, async (t) => {
    const switches = { refuse: status, retryAfter: 0 };
    const { steps, text: said, requests, used } = await send(t, [whole()], switches);
    assert.deepEqual(steps, ["request", status, "lost", "request", 200, "a", "b", "c", "end"]);
    assert.deepEqual([said, requests.length, used.length], ["abc", 1, 1]);
    assert.equal(used[0].refuse, 0);
    const refused = await send(t, [], switches, { retry: { attempts: 1 } });
    const { name, code: seen, status: number, retryAfter, requestId } = refused.error;
    assert.deepEqual([name, seen, number, retryAfter], ["ApiError", code, status, 0]);
    assert.match(requestId, /^req_fault_/);
  });
}

test("a 409 is shown, and the server has nothing of the post", async (t) => {
  const { error, requests, speaker } = await send(t, [whole()], { refuse: 409, retryAfter: 3 });
  assert.deepEqual([error.code, error.status, error.retryAfter], ["conversation_busy", 409, 3]);
  assert.equal(requests.length, 0);
  assert.equal(await speaker.send("hi", { conversationId: "c" }).text(), "abc");
});

test("a post whose answer is lost is posted twice, with one key", async (t) => {
  const { steps, text: said, requests, used } = await send(t, [whole(), whole()], { lose: true });
  assert.deepEqual(steps, ["request", "lost", "request", 200, "a", "b", "c", "end"]);
  const [first, second] = requests;
  assert.equal(first.headers["idempotency-key"], second.headers["idempotency-key"]);
  assert.deepEqual([first.body, said, used[0].lose], [second.body, "abc", false]);
});

test("a refusal of the server is not lost: the switch waits for a post that arrives", async (t) => {
  const script = [json({ code: "server_busy" }, 503, { "Retry-After": "0" }), whole(), whole()];
  const { steps, used } = await send(t, script, { lose: true });
  assert.deepEqual(steps.slice(0, 6), ["request", 503, "lost", "request", "lost", "request"]);
  assert.equal(used.length, 1);
});

test("other requests are left alone", async (t) => {
  const { client } = await scripted(t, [json({ id: "c", owed: [] }), json({ cancelled: true })]);
  const faulty = new FaultyFetch(globalThis.fetch, () => assert.fail("nothing is used"));
  faulty.set({ refuse: 503, lose: true, cutAfter: 1, delayFirst: 600_000, delay: 600_000 });
  assert.equal(faulty.count, 5);
  const one = client({ fetch: faulty.fetch });
  assert.equal((await one.conversation("c")).id, "c");
  assert.equal(await one.cancel("c"), true);
  faulty.set(OFF);
  assert.equal(faulty.count, 0);
});

test("a text that is split within a character or a block arrives whole", async (t) => {
  const bytes = new TextEncoder().encode(
    `: open\n\nid: run.1-1\ndata: ${JSON.stringify(text("grün€"))}\n\n` +
      "id: run.1-2\ndata: [DONE]\n\n",
  );
  const bytewise = async (response) => {
    const headers = { "Content-Type": "text/event-stream", "X-Conversation-Id": "c" };
    response.writeHead(200, { ...headers, "X-Run-Id": "run" });
    for (const byte of bytes) {
      await new Promise((resolve) => response.write(Uint8Array.of(byte), resolve));
    }
    response.end();
  };
  const { steps, text: said } = await send(t, [bytewise], { cutAfter: 9 });
  assert.deepEqual([steps, said], [["request", 200, "grün€", "end"], "grün€"]);
});
