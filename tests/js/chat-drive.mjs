/**
 * Drives chats on a passback server and prints what they show, as one line of JSON.
 *
 * Usage: node chat-drive.mjs SCENARIO ARGUMENTS, the arguments as JSON
 */

import { Chat, Client } from "../../client_tools/js/src/index.js";
import { when } from "./watch-support.mjs";

const [, , name = "", text = "{}"] = process.argv;
const { url, conversationId, ...order } = JSON.parse(text);
const retry = { firstDelay: 5, longestDelay: 200, attempts: 20 };
const include = ["agents", "tools", "usage"];
const leaving = [];

const tools = {
  "get-time-zone": { execute: () => "UTC" },
  "get-mood": { execute: () => ["fine", 1] },
  ask_user: { execute: "later" },
};

function clientOf(options = {}) {
  return new Client({ url, tools, retry, ...options });
}

/** A chat that somebody looks at, once it has read its conversation. */
async function open(options = {}, chatOptions = {}) {
  const chat = new Chat(clientOf(options), { conversationId, include, ...chatOptions });
  leaving.push(chat.subscribe(() => {}));
  await rests(chat);
  return chat;
}

function rests(chat) {
  return when(chat, ({ status }) => status === "idle");
}

function lines(chat) {
  return chat.getSnapshot().entries.map(({ role, text: said }) => `${role}: ${said}`);
}

/** The entries without what a stream alone can have. */
function stored(chat) {
  return chat.getSnapshot().entries.map(({ role, id, text: said, calls = [], model }) => ({
    ...{ role, id, text: said, model },
    calls: calls.map(({ id: call, name: tool, arguments: given, result, complete }) => ({
      ...{ call, tool, given, result, complete },
    })),
  }));
}

function versions(chat) {
  return chat.getSnapshot().entries.map(({ versions: all = [] }) =>
    all.map(({ ids, current }) => `${ids.indexOf(current) + 1}/${ids.length}`),
  );
}

/** Begins the conversation with a long history. */
async function tellPast() {
  const messages = Array.from({ length: order.count }, (_, at) => ({
    role: at % 2 ? "assistant" : "user",
    id: `m${at}`,
    content: `${at}`,
  }));
  messages.push({ role: "user", id: "last", content: "hi" });
  await clientOf().send(messages, { conversationId }).text();
}

const scenarios = {
  /** What was live is there again for the one that comes later. */
  async again() {
    const first = await open();
    for (const message of order.messages) await first.send(message);
    const second = await open();
    return { live: stored(first), again: stored(second), status: second.getSnapshot().status };
  },

  /** A long history comes in pages, the newest first. */
  async pages() {
    await tellPast();
    const requests = [];
    const trace = ({ kind, path }) => kind === "request" && requests.push(path);
    const chat = await open({ trace });
    const seen = [];
    const note = () => {
      const { entries, hasOlder } = chat.getSnapshot();
      seen.push([entries[0].text, entries.length, hasOlder]);
    };
    note();
    while (chat.getSnapshot().hasOlder) {
      await Promise.all([chat.loadOlder(), chat.loadOlder()]);
      note();
    }
    await chat.loadOlder();
    const texts = chat.getSnapshot().entries.map(({ text: said }) => said);
    const pages = requests.filter((each) => /messages/.test(each));
    return { seen, texts: texts.slice(0, -1), pages };
  },

  /** Another client writes another branch, far up, while older messages are still to be read. */
  async edited() {
    await tellPast();
    const chat = await open();
    const before = lines(chat).length;
    const edited = { role: "user", id: "new", content: "count to 2" };
    const watched = when(chat, ({ isBusy, entries }) => !isBusy && entries.at(-2)?.id === "new");
    await clientOf().send(edited, { conversationId, after: order.after }).text();
    await watched;
    const { hasOlder } = chat.getSnapshot();
    // no event tells of this one
    if (order.isSwitched) await clientOf().switchBranch(conversationId, "last");
    const shown = lines(chat);
    while (chat.getSnapshot().hasOlder) await chat.loadOlder();
    return { before, hasOlder, shown, all: lines(chat) };
  },

  /** A call that nobody has answered is run by the chat that comes. */
  async owed() {
    const lazy = { unknownTools: "leave", tools: {} };
    const declared = { "get-time-zone": { execute: "later" } };
    await clientOf({ ...lazy, tools: declared })
      .send(order.message, { conversationId })
      .text();
    const watcher = await open(lazy);
    const left = [watcher.getSnapshot().status, lines(watcher).length];
    const chat = await open();
    const isSaid = ({ entries }) => entries.at(-1).text !== "";
    await Promise.all([watcher, chat].map((each) => when(each, isSaid)));
    await Promise.all([watcher, chat].map(rests));
    return { left, shown: stored(chat), watched: stored(watcher), owed: chat.getSnapshot().owed };
  },

  /** A question is there for the chat that comes, which answers it. */
  async question() {
    const first = await open();
    await first.send("use ask_user");
    const chat = await open();
    const { owed } = await when(chat, (state) => state.owed.length > 0);
    await chat.answer(owed[0].id, "Rather not.", { isError: true });
    await when(first, ({ owed: left }) => left.length === 0);
    await Promise.all([rests(first), rests(chat)]);
    return { owed: owed.map(({ kind }) => kind), shown: stored(chat), other: stored(first) };
  },

  /** Nobody has said anything there. */
  async unknown() {
    const chat = await open();
    const { error, entries, hasOlder } = chat.getSnapshot();
    await chat.send("count to 3");
    const other = clientOf();
    const seen = when(chat, (state) => state.entries.length === 4 && state.status === "idle");
    await other.send("count to 2", { conversationId }).text();
    await seen;
    return { error, empty: [entries, hasOlder], shown: lines(chat) };
  },

  /** Edits, other answers, and back; a second chat looks on. */
  async versions() {
    const chat = await open();
    await chat.send({ role: "user", id: "one", content: "count to 2" });
    await chat.regenerate("one");
    await chat.edit("one", "count to 3");
    await when(chat, () => versions(chat)[0].length > 0);
    const edited = [lines(chat), versions(chat)];
    const other = await open();
    const [{ versions: [{ ids }] }] = chat.getSnapshot().entries;
    await chat.switchVersion(ids[0]);
    const back = [lines(chat), versions(chat)];
    const [, { versions: [answers] }] = chat.getSnapshot().entries;
    await chat.switchVersion(answers.ids[0]);
    const first = [lines(chat), versions(chat)];
    const isSame = () => JSON.stringify(versions(other)) === JSON.stringify(versions(chat));
    await when(other, isSame);
    const switched = [lines(other), versions(other)];
    await chat.send("count to 4");
    await when(other, () => lines(other).length === 4);
    const aware = lines(other);
    await chat.switchVersion("nonsense");
    const { error, status } = chat.getSnapshot();
    return {
      ...{ edited, back, first, switched, aware },
      ...{ error: error.code, status, last: lines(chat) },
    };
  },

  /** A message whose answer is lost is not said twice. */
  async lost() {
    let isLost = true;
    const lossy = async (address, init) => {
      const response = await fetch(address, init);
      if (init.method === "POST" && isLost) {
        await response.text();
        throw new TypeError("the connection broke");
      }
      return response;
    };
    const few = { ...retry, attempts: 2 };
    const seen = [];
    const quiet = { conversationId, live: false };
    const chat = new Chat(clientOf({ fetch: lossy, retry: few }), quiet);
    leaving.push(chat.subscribe(() => seen.push(chat.getSnapshot().status)));
    await rests(chat);
    await chat.send("count to 3");
    const { refused, error, entries } = chat.getSnapshot();
    isLost = false;
    if (order.isSentAgain) await chat.send(refused.text);
    else await chat.reload();
    const end = chat.getSnapshot();
    const all = await clientOf().messages(conversationId);
    return {
      ...{ text: refused.text, code: error.code, taken: entries, shown: lines(chat) },
      ...{ left: [end.refused, end.error], total: all.total },
      isReconnecting: seen.includes("reconnecting"),
    };
  },

  /** It was deleted while nobody looked at it. */
  async deleted() {
    const chat = await open();
    await chat.send("count to 2");
    for (const leave of leaving.splice(0)) leave();
    await Promise.resolve();
    await clientOf().delete(conversationId);
    leaving.push(chat.subscribe(() => {}));
    await when(chat, ({ status }) => status === "deleted");
    await chat.send("count to 3");
    return { shown: lines(chat), status: chat.getSnapshot().status };
  },
};

console.log(JSON.stringify(await scenarios[name]()));
for (const leave of leaving) leave();
