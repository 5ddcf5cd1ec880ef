/**
 * Drives a passback server with the client library and prints what it saw, as one line of JSON.
 *
 * Usage: node client-drive.mjs SCENARIO ARGUMENTS, the arguments as JSON
 */

import { Answer, Chat, Client } from "../../client_tools/js/src/index.js";
import { when } from "./watch-support.mjs";

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

const { promise: together, resolve: allRun } = withResolvers();

/** Ends only when as many calls run as the order wants together. */
async function ran(what, result) {
  runs.push(what);
  atOnce += 1;
  most = Math.max(most, atOnce);
  if (atOnce >= (order.together ?? 1)) allRun();
  await together;
  atOnce -= 1;
  return result;
}

const client = new Client({ url, tools, retry, ...(order.apiKey && { apiKey: order.apiKey }) });

/** Collect the events of a sending, and the answer that is left of them. */
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
    error = {
      name: raised.name,
      code: raised.code,
      status: raised.status,
      retryable: raised.retryable,
    };
  }
  const doubled = cursors.length - new Set(cursors).size;
  const { text, calls, output } = answer;
  return {
    text,
    calls,
    output,
    types,
    doubled,
    runs,
    most,
    error,
    id: sending.conversationId,
    left: sending.left,
  };
}

const scenarios = {
  send: () => report(client.send(order.message, { conversationId, ...order.options })),

  resume: () => report(client.resume(conversationId)),

  /** One of the results is larger than the server takes, and the client does not know it. */
  large: () => {
    const large = {
      ...tools,
      "get-moon": { execute: () => ran("get-moon", "x".repeat(1024 * 1024 + 1)) },
    };
    const careless = new Client({
      url,
      retry,
      tools: large,
      limits: { resultBytes: 2 * 1024 * 1024 },
    });
    return report(careless.send(order.message, { conversationId }));
  },

  /** A chat decides what another client has decided before. */
  async late() {
    const chat = new Chat(new Client({ url, retry }), { conversationId });
    await chat.send(order.message);
    const [{ id }] = chat.getSnapshot().owed;
    await new Client({ url, retry }).decide(conversationId, { id, approved: true }).text();
    await chat.decide({ id, approved: false });
    const { owed, error, entries } = chat.getSnapshot();
    return {
      owed,
      error,
      text: entries[1].text,
      results: entries[1].calls.map(({ result }) => result),
    };
  },

  /** A chat whose next message gives up what is owed. */
  async superseded() {
    const chat = new Chat(new Client({ url, retry }), { conversationId });
    await chat.send(order.message);
    await chat.send("{}");
    const { owed, entries } = chat.getSnapshot();
    return { owed, calls: entries[1].calls.map(({ result, isError }) => [result, isError]) };
  },

  /** A chat in which a message is sent during an answer. */
  async meanwhile() {
    const chat = new Chat(new Client({ url, retry }), { conversationId });
    const began = withResolvers();
    const leave = chat.subscribe(() => chat.getSnapshot().entries[1]?.text && began.resolve());
    const first = chat.send(order.message);
    await began.promise;
    await Promise.all([first, chat.send(order.more, { onBusy: order.onBusy })]);
    leave();
    const { entries, error, status } = chat.getSnapshot();
    return { texts: entries.map(({ text: said }) => said), error, status };
  },

  /**
   * Two chats on one conversation: each sends, the second during the first one's answer; then a
   * program rolls an answer back, and deletes the conversation.
   */
  async live() {
    const open = () => new Chat(new Client({ url, retry }), { conversationId });
    // what was said before the chats began is there, too
    const texts = (chat) => chat.getSnapshot().entries.map(({ text: said }) => said).slice(2);
    await client.send("hi", { conversationId }).text();
    const [one, other] = [open(), open()];
    const ends = (chat, last) =>
      when(chat, ({ status }) => status === "idle" && texts(chat).at(-1) === last);
    const leave = [one, other].map((chat) => chat.subscribe(() => {}));
    await Promise.all([one, other].map((chat) => when(chat, ({ status }) => status === "idle")));
    const [long, short, last, endless] = order.messages;
    const begins = [one, other].map((chat) => when(chat, () => texts(chat)[1]?.includes("1 2")));
    void one.send(long);
    await Promise.all(begins);
    await other.send(short, { onBusy: "enqueue" });
    await Promise.all([one, other].map((chat) => ends(chat, order.answers[1])));
    const seen = [texts(one), texts(other)];
    void one.send(endless);
    await when(other, () => texts(other)[5]?.includes("1 2"));
    await client.send(last, { conversationId, onBusy: "rollback" }).text();
    await Promise.all([one, other].map((chat) => ends(chat, order.answers[2])));
    const rolledBack = [texts(one).slice(4), texts(other).slice(4)];
    const gone = [one, other].map((chat) => when(chat, ({ status }) => status === "deleted"));
    await client.delete(conversationId);
    await Promise.all(gone);
    leave.forEach((each) => each());
    return { seen, rolledBack };
  },

  /**
   * Two tabs that see the same owed call, and answer it with these; with claims, only one of them
   * does.
   */
  async tabs() {
    const tab = (result) => {
      const own = { "get-time-zone": { execute: () => ran("get-time-zone", result) } };
      return report(
        new Client({ url, retry, tools: own, claims: order.claims }).resume(conversationId),
      );
    };
    const seen = await Promise.all(order.results.map(tab));
    return { texts: seen.map(({ text, error }) => error?.code ?? text), runs };
  },

  /** A client that holds a call and is left; another one has to wait for it. */
  async leaves() {
    const started = withResolvers();
    const hangs = {
      "get-time-zone": { execute: () => (started.resolve(), new Promise(() => {})) },
    };
    const leaver = new AbortController();
    const first = report(
      new Client({ url, retry, tools: hangs }).resume(conversationId, { signal: leaver.signal }),
    );
    await started.promise;
    let waited = false;
    const seen = await report(client.resume(conversationId), async ({ type }) => {
      if (type === "call-elsewhere") [waited] = [true, leaver.abort()];
    });
    await first;
    return { waited, text: seen.text, runs };
  },

  /** `approve` decides, as the order says. */
  async approve() {
    const asked = [];
    const approve = (call) => {
      asked.push(call);
      return order.answer;
    };
    const own = new Client({
      url,
      retry,
      approve,
      tools: { ...tools, ask_user: { execute: () => order.said } },
    });
    const seen = await report(own.send(order.message, { conversationId }));
    const again = order.again ? await report(own.send(order.again, { conversationId })) : seen;
    return { ...seen, asked, again: again.calls.map(({ result }) => result) };
  },

  /** The approval stays owed, and a later client decides. */
  async decide() {
    const owed = [];
    await report(client.send(order.message, { conversationId }), async (event) => {
      if (event.type === "interrupt") owed.push(event);
    });
    const [{ id, reason, payload }] = owed;
    const seen = await report(
      new Client({ url, retry }).decide(conversationId, { id, ...order.decision }),
    );
    return { ...seen, reason, payload: { ...payload, toolCallId: payload.toolCallId === id } };
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
    await client.send("one", { conversationId: `${conversationId}-earlier` }).text();
    await client.send("hi", { conversationId }).text();
    const view = await client.conversation(conversationId);
    const page = await client.messages(conversationId, { after: 1, limit: 1 });
    const renamed = await client.rename(conversationId, ` The  page of ${conversationId}`);
    const search = conversationId.toUpperCase();
    const { conversations, next } = await client.conversations({ search });
    const last = await client.conversations({ limit: 1 });
    const rest = await client.conversations({ after: last.next, limit: 100 });
    const cancelled = await client.cancel(conversationId);
    await client.delete(conversationId);
    const code = await client.conversation(conversationId).catch((error) => error.code);
    return {
      status: view.status,
      roles: page.messages.map(({ role }) => role),
      total: page.total,
      titles: [view, renamed, ...conversations].map(({ title }) => title),
      next,
      pages: [last, { conversations: rest.conversations.slice(0, 1) }].map((each) =>
        each.conversations.map(({ title }) => title),
      ),
      cancelled,
      code,
    };
  },
};

function withResolvers() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

console.log(JSON.stringify(await scenarios[name]()));
