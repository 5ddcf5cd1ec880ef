/**
 * Drives AG-UI with the published client `@ag-ui/client`, whose verifier looks at every stream.
 *
 * Orders come on stdin, one JSON object a line; each is answered with one line. With `bridged`, a
 * request of the client is a line, too: `{"post": {...}}`, which the next line of stdin answers
 * with `{"status", "type", "body"}`.
 *
 * Orders: `{"op": "open", "threadId", "url", "bridged", "headers"}`, `{"op": "run", ...}` as `run`
 * below, `{"op": "set", "messages"}`, `{"op": "close"}`.
 */

import readline from "node:readline";

/** The first argument may name another package than `@ag-ui/client`. */
const { HttpAgent } = await import(process.argv[2] ?? "@ag-ui/client");

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** @param {unknown} value */
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

async function nextLine() {
  const { value, done } = await lines.next();
  return done ? null : JSON.parse(value);
}

/** @type {string[]} */
let warnings = [];
for (const level of ["warn", "error", "log"])
  console[level] = (...said) => warnings.push(said.map(String).join(" "));

/** The client's request, answered by the test itself. */
async function bridgedFetch(_url, request) {
  print({ post: JSON.parse(request.body) });
  const { status, type, body } = await nextLine();
  return new Response(body, { status, headers: { "content-type": type } });
}

/**
 * Cuts each answer after so many events, and goes on by the server's own route.
 *
 * @param {number[]} cuts one for each connection; after the last one nothing is cut
 */
function resumingFetch(cuts) {
  return async (url, request) => {
    const { threadId, runId } = JSON.parse(request.body);
    const follow = `${url}/threads/${encodeURIComponent(threadId)}/stream?runId=${runId}`;
    let answer = await fetch(url, request);
    if (!answer.ok) return answer;
    let seen = "";
    async function* frames() {
      for (let turn = 0; ; turn++) {
        let left = cuts[turn] ?? Infinity;
        let text = "";
        const decoder = new TextDecoder();
        for await (const bytes of answer.body) {
          text += decoder.decode(bytes, { stream: true });
          for (let end; left > 0 && (end = text.indexOf("\n\n")) >= 0; ) {
            const frame = text.slice(0, end + 2);
            text = text.slice(end + 2);
            seen = /^id: (.*)$/m.exec(frame)?.[1] ?? seen;
            if (/^data: /m.test(frame)) left -= 1;
            yield new TextEncoder().encode(frame);
          }
          if (left <= 0) break;
        }
        if (cuts[turn] === undefined) return;
        answer = await fetch(follow, { headers: seen ? { "Last-Event-ID": seen } : {} });
      }
    }
    return new Response(ReadableStream.from(frames()), { headers: answer.headers });
  };
}

/** @type {HttpAgent} */
let agent;

/**
 * Add messages, and run the agent.
 *
 * @param {object} order `messages` to add, `parameters` of `runAgent`, `state`, `cuts`, and what to
 *   do at the first event of a type: `abortAt`, or `cancelAt` with the `cancelUrl` to post to
 */
async function run({ messages = [], parameters = {}, state, cuts, abortAt, cancelAt, cancelUrl }) {
  for (const message of messages) agent.addMessage(message);
  if (state !== undefined) agent.setState(state);
  if (cuts) agent.fetch = resumingFetch(cuts);
  warnings = [];
  const events = [];
  let end = null;
  let done = false;
  const subscriber = {
    onEvent({ event }) {
      events.push(event);
      if (done || ![abortAt, cancelAt].includes(event.type)) return;
      done = true;
      if (cancelUrl) void fetch(cancelUrl, { method: "POST" });
      else agent.abortRun();
    },
    onRunFinishedEvent: ({ outcome, pendingToolCallIds, interrupts, result }) => {
      end = { outcome, pendingToolCallIds, interrupts, result };
    },
    onRunErrorEvent: ({ event }) => {
      end = { outcome: "error", code: event.code, message: event.message };
    },
  };
  let error = null;
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (failure) {
    error = { text: failure.message, status: failure.status, payload: failure.payload };
  }
  return {
    error,
    end,
    events,
    warnings: warnings.filter((each) => !each.startsWith("Agent execution failed")),
    messages: agent.messages,
    state: agent.state,
    interrupts: agent.pendingInterrupts,
  };
}

for (let order; (order = await nextLine()) && order.op !== "close"; ) {
  if (order.op === "open") {
    const { threadId, url, bridged, headers } = order;
    agent = new HttpAgent({ threadId, url, headers, ...(bridged && { fetch: bridgedFetch }) });
    print({ done: true });
  } else if (order.op === "set") {
    agent.setMessages(order.messages);
    print({ done: true });
  } else {
    print({ done: await run(order) });
  }
}
process.exit(0);
