/** A server in memory for the playground's modules, and a view that records its calls. */

const utf8 = new TextEncoder();
const RUN = { "X-Run-Id": "run", "X-Conversation-Id": "c", "Content-Type": "text/event-stream" };

/**
 * A `fetch` that answers from a script.
 *
 * @param {Record<string, Function[]>} script for "METHOD /path": what answers the first request,
 *   the second ... Each gets the request's body and headers, and gives a Response or throws.
 * @param {(init: RequestInit) => Response} claim answers the requests that claim a call, or give it
 *   back
 * @param {(init: RequestInit) => Response} watched answers the requests that follow the
 *   conversation
 */
export function scriptedFetch(script, claim = granted, watched = json({ code: "no" }, 404)) {
  const requests = [];
  const answers = structuredCloneOfLists(script);
  async function fetch(path, init) {
    const { pathname, searchParams } = new URL(path);
    if (pathname.endsWith("/claim")) return claim(init);
    if (pathname.endsWith("/events")) return watched(init);
    const name = `${init.method ?? "GET"} ${pathname}`;
    const body = init.body ? JSON.parse(init.body) : undefined;
    requests.push({ name, body, headers: init.headers, query: searchParams });
    const answer = answers[name]?.shift();
    if (!answer) throw new Error(`nobody expected a request ${name}`);
    return answer({ body, headers: init.headers });
  }
  return { fetch, requests };
}

/** Nobody else claims anything, unless a test says so. */
function granted({ method }) {
  return method === "DELETE" ? new Response(null, { status: 204 }) : new Response("{}");
}

function structuredCloneOfLists(script) {
  return Object.fromEntries(Object.entries(script).map(([name, list]) => [name, [...list]]));
}

/** @param {unknown} body */
export function json(body, status = 200) {
  return () =>
    new Response(JSON.stringify(status < 400 ? body : { request_id: "req_1", ...body }), {
      status,
      headers: { "X-Request-Id": "req_1" },
    });
}

/** @returns {never} what the browser does when there is no server */
export function unreachable() {
  throw new TypeError("fetch failed");
}

/**
 * A stream of numbered events that ends as a run does.
 *
 * @param {object[]} events
 */
export function ended(events, { first = 1, headers = {} } = {}) {
  return () =>
    new Response(utf8.encode(frames(events, first) + "data: [DONE]\n\n"), {
      headers: { ...RUN, ...headers },
    });
}

/**
 * A stream that breaks off after its events.
 *
 * @param {object[]} events
 */
export function cut(events, { first = 1, tail = "" } = {}) {
  return () => new Response(utf8.encode(frames(events, first) + tail), { headers: RUN });
}

function frames(events, first) {
  return events
    .map((event, index) => `id: run.1-${first + index}\ndata: ${JSON.stringify(event)}\n\n`)
    .join("");
}

/** The events of one call of a client tool. */
export function callEvents(id, name, args) {
  return [
    { type: "tool-call-start", toolCallId: id, toolCallName: name },
    { type: "tool-call-args", toolCallId: id, delta: args.slice(0, 4) },
    { type: "tool-call-args", toolCallId: id, delta: args.slice(4) },
    { type: "tool-call-end", toolCallId: id },
  ];
}

/** The end of a run that leaves these calls owed, each `[id, name, arguments]`. */
export function handsBack(...calls) {
  const toolCalls = calls.map(([id, name, args]) => ({
    id,
    name,
    arguments: args,
    kind: "tool_result",
  }));
  return [
    { type: "owed", toolCalls },
    { type: "run-end", outcome: "handed-back" },
  ];
}

/** @param {string} content */
export function text(content) {
  return { type: "text", content };
}

/**
 * A view that remembers: `log` has all calls but those that only tell how busy the page is, and
 * `unsent` gives the messages that it shows as not sent.
 */
export function recordingView() {
  const log = [];
  const activities = [];
  let unsent = [];
  let again = () => {};
  const record =
    (name) =>
    (...args) =>
      void log.push([name, ...args]);
  const names = [
    "clear",
    "addPast",
    "dropRun",
    "addText",
    "addReasoning",
    "beginCall",
    "addArguments",
    "addAgentText",
    "setProgress",
    "setTitle",
    "setDuration",
    "setPlan",
    "setModel",
    "setCallState",
    "setDecision",
    "settle",
    "setResult",
    "setQueued",
    "supersede",
    "setVersions",
    "showOwed",
    "askToRun",
    "addNote",
  ];
  const view = {
    ...Object.fromEntries(names.map((name) => [name, record(name)])),
    addError(error, repeat) {
      log.push(["addError", error.code ?? error.name]);
      again = repeat;
    },
    setUnsent: (all) => void (unsent = all),
    addUser: (words) => void log.push(["addUser", words]),
    beginAnswer: () => void log.push(["beginAnswer"]),
    cutFrom: (id) => log.push(["cutFrom", id]) > 0,
    cutAfter: (id) => log.push(["cutAfter", id]) > 0,
    setActivity: (activity) => void activities.push(activity),
    beginRun() {},
    addUsage() {},
    endUsage() {},
    showCosts() {},
    accepted() {},
  };
  return { view, log, activities, tryAgain: () => again(), unsent: () => unsent };
}

/** Only what the given names told the view. */
export function told(log, ...names) {
  return log.filter(([name]) => names.includes(name));
}
