/**
 * Chats of the published AI SDK (`Chat` of `@ai-sdk/react`, without a page), driven by a test: one
 * command a line of standard input, as JSON, and one line of JSON for each with what the chat has.
 */

import readline from "node:readline";

import { Chat } from "@ai-sdk/react";
import {
  convertToModelMessages,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  validateUIMessages,
} from "ai";

/** A client that posts for ever is stopped here. */
const MOST_REQUESTS = 12;

const chats = new Map();

/** A chat and what was seen of it. */
class Driven {
  constructor({ id, messages, api, body, results = {}, auto = true, short = false, replies }) {
    this.requests = [];
    this.ends = [];
    this.data = [];
    this.waiting = [];
    this.going = Promise.resolve();
    const seen = this;
    this.chat = new Chat({
      id,
      messages,
      transport: new DefaultChatTransport({
        api,
        body,
        fetch: (url, options) => seen.fetch(url, options, replies),
        ...(short ? { prepareSendMessagesRequest: (all) => ({ body: newestOf(all) }) } : {}),
      }),
      sendAutomaticallyWhen: ({ messages: all }) =>
        auto &&
        (lastAssistantMessageIsCompleteWithToolCalls({ messages: all }) ||
          lastAssistantMessageIsCompleteWithApprovalResponses({ messages: all })),
      onToolCall: ({ toolCall }) => {
        const { toolName: tool, toolCallId } = toolCall;
        if (!(tool in results)) return;
        const { error, output } = results[tool];
        const said = error ? { state: "output-error", errorText: error } : { output };
        void seen.chat.addToolOutput({ tool, toolCallId, ...said });
      },
      onData: (part) => seen.data.push(part),
      onFinish: ({ isAbort, isDisconnect, isError, finishReason }) => {
        seen.end({ isAbort, isDisconnect, isError, finishReason });
      },
    });
  }

  end(how) {
    this.ends.push(how);
    for (const wake of this.waiting.splice(0)) wake();
  }

  async fetch(url, options, replies) {
    const body = options.body === undefined ? null : JSON.parse(options.body);
    this.requests.push({ method: options.method, url, body });
    if (this.requests.length > MOST_REQUESTS) throw new Error("it posts for ever");
    if (replies === undefined) {
      const answer = await fetch(url, options);
      if (answer.status === 204) this.end({ nothing: true });
      return answer;
    }
    const reply = replies[this.requests.length - 1];
    if (reply === undefined) throw new Error("one request too many");
    return new Response(reply, { headers: { "content-type": "text/event-stream" } });
  }

  /** Let an answer come while other commands follow. */
  begin(going) {
    this.going = going.then(() => this.settled());
  }

  /** Wait until all requests have ended, also those that the client makes by itself. */
  async settled() {
    for (let quiet = 0; quiet < 3; quiet += 1) {
      while (this.ends.length < this.requests.length) {
        await new Promise((wake) => this.waiting.push(wake));
        quiet = 0;
      }
      await new Promise((wake) => setImmediate(wake));
    }
  }

  /** Wait for a text in the last message. */
  async says(text) {
    const { chat } = this;
    await new Promise((done) => {
      const look = () => JSON.stringify(chat.messages.at(-1) ?? null).includes(text) && done();
      const forget = chat["~registerMessagesCallback"](() => look() === undefined && forget());
      look();
    });
  }

  get state() {
    const { status, error, messages } = this.chat;
    const { requests, ends, data } = this;
    return { status, error: error?.message ?? null, messages, requests, ends, data };
  }
}

/** The body of an app that posts the newest message only. */
function newestOf({ id, messages, trigger, messageId, body }) {
  if (trigger === "regenerate-message") return { ...body, id, trigger, messageId };
  return { ...body, id, trigger, messageId, message: messages.at(-1) };
}

const operations = {
  open: async (driven, command) => {
    chats.set(command.chat, new Driven(command));
  },
  send: ({ chat }, { message }) => chat.sendMessage(message),
  begin: async (driven, { message }) => driven.begin(driven.chat.sendMessage(message)),
  regenerate: ({ chat }, { messageId }) => chat.regenerate({ messageId }),
  resume: ({ chat }) => chat.resumeStream(),
  begin_resume: async (driven) => driven.begin(driven.chat.resumeStream()),
  stop: ({ chat }) => chat.stop(),
  says: (driven, { text }) => driven.says(text),
  ended: (driven) => driven.going,
  approve: ({ chat }, { id, approved, reason }) =>
    chat.addToolApprovalResponse({ id, approved, reason }),
  output: ({ chat }, { answer }) => chat.addToolOutput(answer),
  state: async () => {},
  /** Let the package judge messages from elsewhere. */
  validate: async (driven, { messages }) => {
    await convertToModelMessages(await validateUIMessages({ messages }));
  },
};

const MAKE_REQUESTS = new Set(["send", "regenerate", "resume", "approve", "output"]);

for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let failure = null;
  try {
    const driven = chats.get(command.chat);
    await operations[command.op](driven, command);
    if (MAKE_REQUESTS.has(command.op)) await driven.settled();
  } catch (error) {
    failure = String(error);
  }
  const { state } = chats.get(command.chat);
  process.stdout.write(`${JSON.stringify({ failure, ...state })}\n`);
}
