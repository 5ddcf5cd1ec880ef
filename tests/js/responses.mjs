/**
 * The published clients of Responses in Node.js, `openai` and the provider `@ai-sdk/openai`, driven
 * by a test: one command a line of standard input, as JSON, and one line of JSON for each with what
 * came of it.
 */

import readline from "node:readline";

import { createOpenAI } from "@ai-sdk/openai";
import { jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

const clientOf = (baseURL) => new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });

/** All that a stream gives. */
async function gathered(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** The AI SDK's functions, each with the output that it has here. */
function toolsOf(results = {}) {
  return Object.fromEntries(
    Object.entries(results).map(([name, output]) => [
      name,
      tool({
        inputSchema: jsonSchema({ type: "object", properties: {} }),
        execute: async () => output,
      }),
    ]),
  );
}

const operations = {
  /** A response as JSON, and the text that the client takes for its own. */
  create: async ({ url, params }) => {
    const response = await clientOf(url).responses.create(params);
    return { response, text: response.output_text };
  },
  /** The events that the helper lets through, and what it has gathered. */
  helper: async ({ url, params }) => {
    const stream = clientOf(url).responses.stream(params);
    const events = await gathered(stream);
    return { events, final: await stream.finalResponse() };
  },
  /** The events of a response that there is. */
  events: async ({ url, id, params }) => {
    const stream = await clientOf(url).responses.retrieve(id, { stream: true, ...params });
    return { events: await gathered(stream) };
  },
  cancel: async ({ url, id }) => ({ response: await clientOf(url).responses.cancel(id) }),
  /** A whole round of the AI SDK, which calls functions and goes on by itself. */
  agent: async ({ url, messages, results, options }) => {
    const errors = [];
    const answer = streamText({
      model: createOpenAI({ baseURL: url, apiKey: "none" }).responses("any"),
      messages,
      tools: toolsOf(results),
      stopWhen: stepCountIs(4),
      maxRetries: 0,
      providerOptions: { openai: options ?? {} },
      onError: ({ error }) => errors.push(String(error)),
    });
    await answer.consumeStream();
    if (errors.length) throw new Error(errors.join("\n"));
    const steps = (await answer.steps).map(({ text, reasoningText, finishReason, usage }) => ({
      text,
      reasoning: reasoningText ?? "",
      finishReason,
      tokens: usage.totalTokens,
    }));
    return { steps, text: await answer.text, messages: (await answer.response).messages };
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { op, ...command } = JSON.parse(line);
  let shown;
  try {
    shown = await operations[op](command);
  } catch (error) {
    const { name, message, status, code, param } = error;
    shown = { error: { class: error.constructor.name, name, message, status, code, param } };
  }
  process.stdout.write(`${JSON.stringify(shown)}\n`);
}
