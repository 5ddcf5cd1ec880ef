/**
 * Drives a passback server with the client library and prints what it saw, as one line of JSON.
 *
 * Usage: node client-drive.mjs SCENARIO ARGUMENTS, the arguments as JSON
 */

import { Answer, Client } from "../../client_tools/js/src/index.js";

const [, , name = "", text = "{}"] = process.argv;
const { url, conversationId, ...order } = JSON.parse(text);
const retry = { firstDelay: 5, longestDelay: 2000, attempts: 20 };

/** @type {string[]} */
const runs = [];
let atOnce = 0;
let most = 0;

/** @type {import("../../client_tools/js/src/index.js").ClientTools} */
const tools = {
  "set-color": {
    description: "Set the color",
    parameters: { type: "object", properties: { color: { type: "string" } }, required: ["color"] },
    execute: ({ color }) => ran(`set-color ${color}`, { color }),
  },
  "get-time-zone": { execute: () => ran("get-time-zone", "UTC") },
  "get-moon": { execute: () => ran("get-moon", [{ type: "text", text: "full" }]) },
  "get-mood": { execute: () => ran("get-mood", ["fine", 1]) },
  "break-it": { execute: () => Promise.reject(new Error("it is broken")) },
};

/** Ends only when all calls that came with it run. */
async function ran(what, result) {
  runs.push(what);
  atOnce += 1;
  most = Math.max(most, atOnce);
  await new Promise((resolve) => setImmediate(resolve));
  atOnce -= 1;
  return result;
}

const client = new Client({ url, tools, retry, ...(order.apiKey && { apiKey: order.apiKey }) });

/** What the events of a sending were, and what is left of them. */
async function report(sending, each = async (_event) => {}) {
  const answer = new Answer();
  const types = [];
  const cursors = [];
  let error = null;
  try {
    for await (const event of sending) {
      answer.add(event);
      if (types.at(-1) !== event.type) types.push(event.type);
      if (event.cursor) cursors.push(event.cursor);
      await each(event);
    }
  } catch (raised) {
    error = { name: raised.name, code: raised.code, status: raised.status, retryable: raised.retryable };
  }
  const doubled = cursors.length - new Set(cursors).size;
  return { text: answer.text, calls: answer.calls, types, doubled, runs, most, error, id: sending.conversationId };
}

const scenarios = {
  send: () => report(client.send(order.message, { conversationId, ...order.options })),

  resume: () => report(client.resume(conversationId)),

  /** Two tabs that see the same owed call, and answer it with these. */
  async tabs() {
    const tab = (result) => {
      const own = { "get-time-zone": { execute: () => result } };
      return report(new Client({ url, retry, tools: own }).resume(conversationId));
    };
    const seen = await Promise.all(order.results.map(tab));
    return seen.map(({ text, error }) => error?.code ?? text);
  },

  /** Leaves after the first text, as a page does that is reloaded, and comes back. */
  async reload() {
    let cursor = "";
    let first = "";
    for await (const event of client.send(order.message, { conversationId })) {
      if (event.type !== "text") continue;
      ({ cursor, content: first } = event);
      break;
    }
    const rest = await report(client.resume(conversationId, { lastEventId: cursor }));
    const whole = await report(client.resume(conversationId, { runId: cursor.split(".")[0] }));
    return { whole: whole.text, joined: first + rest.text };
  },

  /** Says that the first text is there, and goes on. */
  async told() {
    let said = false;
    return report(client.send(order.message, { conversationId }), async ({ type }) => {
      if (type === "text" && !said) console.log("text");
      said ||= type === "text";
    });
  },

  async cancel() {
    const sending = client.send(order.message, { conversationId });
    let cancelled = null;
    const seen = await report(sending, async ({ type }) => {
      if (type === "text") cancelled ??= await sending.cancel();
    });
    const { messages } = await client.messages(seen.id);
    return { ...seen, cancelled, partial: messages.at(-1).partial };
  },

  async routes() {
    await client.send("hi", { conversationId }).text();
    const view = await client.conversation(conversationId);
    const page = await client.messages(conversationId, { after: 1, limit: 1 });
    const cancelled = await client.cancel(conversationId);
    await client.delete(conversationId);
    const code = await client.conversation(conversationId).catch((error) => error.code);
    return { status: view.status, roles: page.messages.map(({ role }) => role), total: page.total, cancelled, code };
  },
};

console.log(JSON.stringify(await scenarios[name]()));
