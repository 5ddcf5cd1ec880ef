/** The client's reader of server-sent events, against the vectors that all our clients share. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { LimitExceeded } from "../../client_tools/js/src/errors.js";
import { readEvent } from "../../client_tools/js/src/events.js";
import { SseDecoder } from "../../client_tools/js/src/sse.js";

const LIMIT = 1024 * 1024;
const utf8 = new TextEncoder();

function vectors(name) {
  return JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), "utf8"));
}

function decode(chunks) {
  const decoder = new SseDecoder(LIMIT);
  const events = Array.from(chunks, (chunk) => decoder.feed(chunk)).flat();
  return { events, lastEventId: decoder.lastEventId, retry: decoder.retry };
}

/** Yield a stream whole, byte by byte, and cut in two at each place. */
function* cuts(bytes) {
  yield [bytes];
  yield Array.from(bytes, (byte) => Uint8Array.of(byte));
  for (let place = 0; place <= bytes.length; place += 1) {
    yield [bytes.subarray(0, place), bytes.subarray(place)];
  }
}

function waysToFeed({ chunks, hex, text }) {
  if (chunks) return [chunks.map((chunk) => utf8.encode(chunk))];
  return cuts(hex ? Buffer.from(hex, "hex") : utf8.encode(text));
}

for (const vector of vectors("sse")) {
  test(vector.name, () => {
    const { events, lastEventId, retry = null } = vector;
    for (const chunks of waysToFeed(vector)) {
      assert.deepEqual(decode(chunks), { events, lastEventId, retry });
    }
  });
}

for (const { name, data } of vectors("send_message")) {
  test(`an event of the wire keeps all its fields: ${name}`, () => {
    const place = { cursor: "run_1.1-1", runId: "run_1" };
    for (const each of data.filter((text) => text !== "[DONE]")) {
      assert.deepEqual(readEvent(each, place), { ...JSON.parse(each), ...place });
    }
  });
}

test("an event larger than the limit is refused, in one line or in many", () => {
  for (const line of ["data: 0123456789", "data: 01234\n"]) {
    const decoder = new SseDecoder(64);
    assert.throws(() => {
      for (let count = 0; count < 100; count += 1) decoder.feed(utf8.encode(line));
    }, LimitExceeded);
  }
});

test("the limit is one event's, not the stream's", () => {
  const decoder = new SseDecoder(64);
  for (let count = 0; count < 100; count += 1) {
    const [event] = decoder.feed(utf8.encode("data: 0123456789\n\n"));
    assert.deepEqual(event, { id: "", event: "message", data: "0123456789" });
  }
});
