/**
 * Drives a passback server with the published client `@cloudbase/js-sdk` and prints what that
 * client saw, as one line of JSON.
 *
 * Usage: node cloudbase.mjs http://127.0.0.1:8000
 */

import { createRequire } from "node:module";
import net from "node:net";

const [base] = process.argv.slice(2);

// Without this the SDK asks a cloud's metadata address, at each request, where it runs.
process.env.TENCENTCLOUD = "true";

// Whatever it tries all the same is refused here, and told to the test.
/** @type {string[]} */
const strangers = [];
const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...args) {
  const options = Array.isArray(args[0]) ? args[0][0] : args[0];
  if (options.host === "127.0.0.1") return connect.apply(this, args);
  strangers.push(options.host ?? options.path);
  return this.destroy(new Error("only the server under test may be called"));
};

// The SDK's build for `import` cannot stream on Node.js: it finds no TextDecoder.
const cloudbase = createRequire(import.meta.url)("@cloudbase/js-sdk");
const { bot } = cloudbase
  .init({ env: "test", accessKey: "access-key" })
  .ai({ baseUrl: `${base}/v1` });

/** Post a body to the bot; gives every event of the answer. */
async function send(body) {
  const events = [];
  const answer = await bot.sendMessage({ botId: "bot-1", ...body });
  for await (const event of answer.dataStream) events.push(event);
  return events;
}

/** Post a body to the bot; gives the text that the SDK makes of the answer. */
async function ask(body) {
  let text = "";
  const answer = await bot.sendMessage({ botId: "bot-1", ...body });
  for await (const piece of answer.textStream) text += piece;
  return text;
}

/** The tool of the user of this client. */
const shout = {
  name: "shout",
  description: "Say it louder",
  parameters: JSON.stringify({
    type: "object",
    properties: { words: { type: "string" } },
    required: ["words"],
  }),
};

async function roundTrip(conversationId) {
  const asked = await send({
    conversationId,
    messages: [{ role: "user", content: 'Please shout "hear me"' }],
    tools: [shout],
  });
  const { toolCallId } = asked.find((event) => event.type === "tool-call-end");
  const pieces = asked
    .filter((event) => event.type === "tool-call-args")
    .map((event) => event.delta);
  const { words } = JSON.parse(pieces.join(""));
  const content = `${words.toUpperCase()}!`;
  const answer = await ask({
    conversationId,
    messages: [{ role: "tool", toolCallId, content }],
  });
  return { asked, answer };
}

/** A call that no arguments fit: the server answers it itself. */
async function invalidCall() {
  const properties = { words: { type: "string", enum: [] } };
  const tools = [{ ...shout, parameters: { type: "object", properties, required: ["words"] } }];
  const body = { messages: [{ role: "user", content: 'Please shout "hear me"' }], tools };
  const events = await send({ ...body, conversationId: "sdk-invalid-events" });
  return { events, text: await ask({ ...body, conversationId: "sdk-invalid" }) };
}

async function refusal() {
  try {
    return { events: await send({ messages: [{ role: "nobody", content: "hi" }] }) };
  } catch (error) {
    return { error: error.message };
  }
}

const hello = { messages: [{ role: "user", content: "hi" }] };
const report = {
  version: cloudbase.version,
  events: await send({ ...hello, conversationId: "sdk-events" }),
  text: await ask({ ...hello, conversationId: "sdk-text" }),
  roundTrip: await roundTrip("sdk-tool"),
  invalidCall: await invalidCall(),
  refusal: await refusal(),
  strangers,
};
console.log(JSON.stringify(report));
