/** The page's list of conversations: what it reads, and what becomes of readings that overlap. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../client_tools/js/src/index.js";
import { Listing } from "../../client_tools/playground/listing.js";
import { json, scriptedFetch } from "./playground-support.mjs";
import { withResolvers } from "./client-support.mjs";

/** A page with conversations of these ids. */
function page(ids, next = null) {
  return json({ conversations: [...ids].map(entry), next });
}

function entry(id) {
  return { id, title: id.toUpperCase(), updatedAt: "2026-01-31T12:00:00.000Z", status: "idle" };
}

/** A list that reads these pages. */
function listing(...pages) {
  const { fetch, requests } = scriptedFetch({ "GET /conversations": pages });
  const list = new Listing(
    () => new Client({ url: "http://host", fetch, retry: { attempts: 1, unanswered: 1 } }),
  );
  const asked = () => requests.map(({ query }) => Object.fromEntries(query));
  return { list, asked, ids: () => list.entries.map(({ id }) => id).join("") };
}

test("pages follow each other, and a conversation that has moved is there once", async () => {
  const { list, asked, ids } = listing(page("dc", "1"), page("cb", "2"), page("a"));
  // a short page is not the last one
  assert.equal(await list.begin(""), true);
  assert.deepEqual([ids(), list.hasMore], ["dcba", false]);
  assert.deepEqual(list.entries[0], entry("d"));
  assert.deepEqual(asked(), [
    { limit: "20" },
    { limit: "18", after: "1" },
    { limit: "17", after: "2" },
  ]);
});

const MANY = Array.from({ length: 20 }, (_, index) => String.fromCharCode(97 + index));

test("more is read on request, and a refresh reads as much as there is", async () => {
  const { list, asked, ids } = listing(
    page(MANY, "1"),
    page("yz", null),
    page(["z", ...MANY], "3"),
    page("y"),
  );
  await list.begin("");
  assert.deepEqual([ids(), list.hasMore], [MANY.join(""), true]);
  await list.more();
  assert.deepEqual([ids(), list.hasMore], [`${MANY.join("")}yz`, false]);
  await list.refresh();
  assert.equal(ids(), `z${MANY.join("")}y`);
  assert.deepEqual(asked().slice(1), [
    { limit: "20", after: "1" },
    { limit: "22" },
    { limit: "1", after: "3" },
  ]);
});

test("a search that finds nothing for long stops, and goes on when it is asked to", async () => {
  const empty = Array.from({ length: 10 }, (_, index) => page("", String(index)));
  const { list, asked, ids } = listing(...empty, page("a"));
  await list.begin("Ä");
  assert.deepEqual([ids(), list.hasMore, list.isSearch], ["", true, true]);
  await list.more();
  assert.deepEqual([ids(), list.hasMore], ["a", false]);
  assert.deepEqual(asked().at(-1), { limit: "20", after: "9", search: "Ä" });
});

test("a reading that a later one replaces changes nothing, also if it fails", async () => {
  for (const late of [page("old"), json({ code: "store_unavailable", message: "no" }, 500)]) {
    const held = withResolvers();
    const { list, ids } = listing(async () => (await held.promise, late()), page("n"));
    const first = list.begin("o");
    const second = list.begin("n");
    held.resolve();
    assert.deepEqual([await first, await second, ids()], [false, true, "n"]);
  }
});

test("an error leaves what was read before, and the next reading goes on", async () => {
  const broken = json({ code: "internal", message: "no" }, 500);
  const { list, ids } = listing(page("ab", null), broken, broken, page("c"));
  await list.begin("");
  await assert.rejects(list.refresh(), { code: "internal" });
  await assert.rejects(list.more(), { code: "internal" });
  assert.equal(ids(), "ab");
  await list.refresh();
  assert.equal(ids(), "c");
});

test("a deleted conversation does not come back with a reading that began before", async () => {
  const held = withResolvers();
  const { list, ids } = listing(page("ab"), async () => (await held.promise, page("ab")()));
  await list.begin("");
  const reading = list.refresh();
  list.remove("a");
  held.resolve();
  assert.deepEqual([await reading, ids()], [false, "b"]);
});

test("an entry that lacks something is text all the same", async () => {
  const { list } = listing(json({ conversations: [{ id: 7, title: null }], next: null }));
  await list.begin("");
  const [{ id, title }] = list.entries;
  assert.deepEqual([id, title], ["7", ""]);
});
