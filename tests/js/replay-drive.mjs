/**
 * Records a conversation with a passback server, or has the same conversation with replays of it,
 * and prints what was seen, as one line of JSON.
 *
 * Usage: node replay-drive.mjs SCENARIO ARGUMENTS, the arguments as JSON
 */

import { Answer, Client } from "../../client_tools/js/src/index.js";
import { Recorder } from "../../client_tools/playground/recorder.js";

const [, , name = "", text = "{}"] = process.argv;
const order = JSON.parse(text);
const retry = { firstDelay: 1, longestDelay: 50, attempts: 20 };
const tools = {
  "set-color": {
    description: "Set the color",
    parameters: { type: "object", properties: { color: { type: "string" } }, required: ["color"] },
    execute: ({ color }) => ({ color }),
  },
  "get-time-zone": { execute: () => "UTC" },
  "get-mood": { execute: () => Promise.reject(new Error("no mood")) },
};

/** Have the conversation, and return what is left of each answer. */
async function converse(url, trace) {
  const client = new Client({ url, tools, retry, ...(trace && { trace }) });
  const answers = [];
  for (const message of order.messages) {
    const options = { conversationId: "c", include: order.include, retryBusy: order.retryBusy };
    const answer = new Answer();
    const cursors = [];
    let rewinds = 0;
    let error = null;
    try {
      for await (const event of client.send(message, options)) {
        answer.add(event);
        if (event.cursor) cursors.push(event.cursor);
        rewinds += Number(event.type === "rewind");
      }
    } catch (raised) {
      error = { name: raised.name, code: raised.code, retryAfter: raised.retryAfter };
    }
    const doubled = cursors.length - new Set(cursors).size;
    answers.push({ text: answer.text, calls: answer.calls, doubled, rewinds, error });
  }
  return answers;
}

const scenarios = {
  async record() {
    const recorder = new Recorder(() => {});
    const answers = await converse(order.url, recorder.tracer());
    return { answers, file: recorder.export() };
  },

  async read() {
    const seen = [];
    for (const url of order.urls) seen.push(await converse(url));
    return seen;
  },
};

console.log(JSON.stringify(await scenarios[name]()));
