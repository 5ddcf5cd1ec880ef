/** The list of conversations, and their titles. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidArgument } from "../../client_tools/js/src/index.js";
import { json, lost, scripted } from "./client-support.mjs";

const PAGE = {
  conversations: [
    {
      id: "a/b",
      title: "<b>A & b</b>",
      createdAt: "2026-01-31T11:58:00.000Z",
      updatedAt: "2026-01-31T12:00:00.000Z",
      status: "waiting",
      runId: "r",
      owed: 2,
      cursor: "r.1-9",
    },
  ],
  next: `1769860800000000-${"0".repeat(32)}`,
};
const NONE = { conversations: [], next: null };
const BUSY = json({ code: "store_unavailable", message: "later" }, 503);

test("a page is read as the server sends it, and the next one after it", async (t) => {
  const { client, requests } = await scripted(t, [json(PAGE), json(NONE), json(NONE)]);
  const one = client();
  const page = await one.conversations();
  assert.deepEqual(page, PAGE);
  const search = "Ä & b=c";
  assert.deepEqual(await one.conversations({ after: page.next, limit: 5, search }), NONE);
  // the end of a list is no place: the list begins
  await one.conversations({ after: null, search: "" });
  assert.deepEqual(
    requests.map(({ method, path, query }) => [method, path, query]),
    [
      ["GET", "/conversations", { limit: "20" }],
      ["GET", "/conversations", { limit: "5", after: PAGE.next, search }],
      ["GET", "/conversations", { limit: "20" }],
    ],
  );
});

test("a list and a new title are asked for again after a cut", async (t) => {
  const named = { id: "a/b", title: "The page" };
  const script = [lost, BUSY, json(NONE), lost, BUSY, json(named)];
  const { client, requests } = await scripted(t, script);
  const one = client();
  assert.deepEqual(await one.conversations(), NONE);
  assert.deepEqual(await one.rename("a/b", " The  page"), named);
  const renames = requests.slice(3);
  assert.equal(renames.length, 3);
  for (const { method, path, body, headers } of renames) {
    assert.deepEqual(
      [method, path, body, headers["content-type"]],
      ["PATCH", "/conversations/a%2Fb", { title: " The  page" }, "application/json"],
    );
  }
});

test("what the server refuses is its error, and an abort stops the request", async (t) => {
  const no = json({ code: "invalid_request", message: "title is empty" }, 422);
  const { client, requests } = await scripted(t, [no, no]);
  const one = client();
  const refused = { code: "invalid_request", status: 422 };
  await assert.rejects(one.rename("c", ""), refused);
  await assert.rejects(one.conversations({ limit: 0 }), refused);
  await assert.rejects(one.rename("..", "x"), InvalidArgument);
  const signal = AbortSignal.abort();
  await assert.rejects(one.conversations({ signal }), { name: "AbortError" });
  await assert.rejects(one.rename("c", "x", { signal }), { name: "AbortError" });
  assert.equal(requests.length, 2);
});

test("the agents of the server, and the record of a run, are read as they are sent", async (t) => {
  const agents = { agents: [{ id: "", models: [], commands: [] }], limits: { bodyBytes: 1 } };
  const record = { conversationId: "a/b", runId: "r/1", cost: 0.5 };
  const { client, requests } = await scripted(t, [BUSY, json(agents), json(record)]);
  const one = client();
  assert.deepEqual(await one.agents(), agents);
  assert.deepEqual(await one.run("a/b", "r/1"), record);
  assert.deepEqual(
    requests.map(({ method, path }) => [method, path]),
    [
      ["GET", "/agents"],
      ["GET", "/agents"],
      ["GET", "/conversations/a%2Fb/runs/r%2F1"],
    ],
  );
});
