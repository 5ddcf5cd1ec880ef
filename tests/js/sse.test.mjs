/** The playground's reader of server-sent events, against the vectors that all our clients share. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { SseDecoder, SseOverflow } from "../../client_tools/playground/sse.js";

/**
 * A vector's stream is `text` (UTF-8, fed in every way of cutting it), `chunks` (texts, fed just so) or `hex` (bytes).
 * `lastEventId` is the place to resume after, `retry` the milliseconds that the server asked for.
 */
const vectors = JSON.parse(readFileSync(new URL("../vectors/sse.json", import.meta.url), "utf8"));
const utf8 = new TextEncoder();

/** @param {Iterable<Uint8Array>} chunks */
function decode(chunks) {
  const decoder = new SseDecoder();
  const events = Array.from(chunks, (chunk) => decoder.feed(chunk)).flat();
  return { events, lastEventId: decoder.lastEventId, retry: decoder.retry };
}

/** Whole, byte by byte, and cut in two at each place. */
function* cuts(bytes) {
  yield [bytes];
  yield Array.from(bytes, (byte) => Uint8Array.of(byte));
  for (let place = 0; place <= bytes.length; place += 1) {
    yield [bytes.subarray(0, place), bytes.subarray(place)];
  }
}

function waysToFeed(vector) {
  if (vector.chunks) return [vector.chunks.map((chunk) => utf8.encode(chunk))];
  return cuts(vector.hex ? Buffer.from(vector.hex, "hex") : utf8.encode(vector.text));
}

for (const vector of vectors) {
  test(vector.name, () => {
    const { events, lastEventId, retry = null } = vector;
    for (const chunks of waysToFeed(vector)) {
      assert.deepEqual(decode(chunks), { events, lastEventId, retry });
    }
  });
}

test("an event larger than the limit is refused, in one line or in many", () => {
  for (const line of ["data: 0123456789", "data: 01234\n"]) {
    const decoder = new SseDecoder(64);
    assert.throws(() => {
      for (let count = 0; count < 100; count += 1) decoder.feed(utf8.encode(line));
    }, SseOverflow);
  }
});

test("the limit is one event's, not the stream's", () => {
  const decoder = new SseDecoder(64);
  for (let count = 0; count < 100; count += 1) {
    assert.deepEqual(decoder.feed(utf8.encode("data: 0123456789\n\n")), [
      { id: "", event: "message", data: "0123456789" },
    ]);
  }
});
