/** The calls of an answer, as a tree: calls of a sub-agent are within the call that it works on. */

/** @typedef {import("./state.js").ChatState["entries"]} Entries */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */

/**
 * @typedef {object} Call
 * @property {string} id
 * @property {string} name "" if only events of its sub-agent were seen
 * @property {string} arguments JSON as text, perhaps incomplete
 * @property {boolean} complete whether the arguments are complete
 * @property {unknown} [result] of the server's tool or this client's
 * @property {boolean} [isError]
 * @property {import("./events.js").Synthetic} [synthetic] why the server wrote the result itself,
 *   if no tool returned it
 * @property {string} [title] the tool's name for people (`include: ["tools"]`, as the next four)
 * @property {import("./events.js").ToolKind} [kind] what the tool does
 * @property {boolean} [began] whether a tool of the server has begun to work on it
 * @property {import("./events.js").Location[]} [locations] the files that it is about
 * @property {number} [durationMs] how long that tool worked
 * @property {string} [progress] its progress (`include: ["progress"]`)
 * @property {string} [agentText] the text of the sub-agent that works on it (`include: ["agents"]`)
 * @property {Call[]} [calls] the calls of that sub-agent
 */

/** @typedef {{call: Omit<Call, "calls">, parent: string | undefined}} Known */

/**
 * @typedef {Map<string, {result: unknown, isError: boolean, synthetic?:
 *   import("./events.js").Synthetic}>} Results by the ids of their calls
 */

/** Messages in one page of the history, and the number of pages that are searched. */
const PAGE = 100;
const PAGES = 5;

export class Calls {
  /** @type {Map<string, Known>} in the order in which they began */
  #known;

  /** @param {Map<string, Known>} [known] */
  constructor(known = new Map()) {
    this.#known = known;
  }

  /** @returns {Calls} an independent copy */
  copy() {
    return new Calls(
      new Map(
        [...this.#known].map(([id, { call, parent }]) => [id, { call: { ...call }, parent }]),
      ),
    );
  }

  /**
   * @param {Event} event
   * @returns {boolean} whether the event is about a call
   */
  feed(event) {
    if (event.type === "owed") for (const each of event.toolCalls) this.#addOwed(each);
    else if (event.type === "interrupt") {
      this.#change(event.payload.toolCallId ?? event.id, { complete: true });
    } else if (event.type === "agent-text") this.#addAgentText(event);
    else if (event.type === "tool-call-start") this.#addCall(event);
    else if ("toolCallId" in event) this.#update(event);
    else return false;
    return true;
  }

  /** @returns {Call[]} the answer's own calls, with those of sub-agents within them */
  tree() {
    /** @type {Map<string, Call>} */
    const calls = new Map([...this.#known].map(([id, { call }]) => [id, { ...call }]));
    /** @type {Call[]} */
    const own = [];
    for (const [id, { parent }] of this.#known) {
      const call = /** @type {Call} */ (calls.get(id));
      const above = parent === undefined ? undefined : calls.get(parent);
      if (above) (above.calls ??= []).push(call);
      else own.push(call);
    }
    return own;
  }

  /** @param {import("./events.js").ToolCallStartEvent} event */
  #addCall({ toolCallId: id, toolCallName: name, title, kind, parentToolCallId }) {
    const shown = { ...(title !== undefined && { title }), ...(kind !== undefined && { kind }) };
    this.#add({ id, name, arguments: "", complete: false, ...shown }, parentToolCallId);
  }

  /**
   * Add an owed call that began before this client followed the run.
   *
   * @param {OwedCall} owed
   */
  #addOwed({ id, name, arguments: text, parentToolCallId }) {
    if (!this.#known.has(id)) {
      this.#add({ id, name, arguments: text, complete: true }, parentToolCallId);
    }
  }

  /** @param {{parentToolCallId: string, delta: string}} event */
  #addAgentText({ parentToolCallId: id, delta }) {
    this.#addPlaceholder(id);
    this.#change(id, { agentText: (this.#known.get(id)?.call.agentText ?? "") + delta });
  }

  /** @param {Extract<Event, {toolCallId: string}>} event */
  #update(event) {
    const id = event.toolCallId;
    if (event.type === "tool-call-args") {
      this.#change(id, { arguments: (this.#known.get(id)?.call.arguments ?? "") + event.delta });
    } else if (event.type === "tool-call-end") this.#change(id, { complete: true });
    else if (event.type === "tool-progress") this.#change(id, { progress: event.text });
    else if (event.type === "tool-begin") {
      this.#change(id, { began: true, ...(event.locations && { locations: event.locations }) });
    } else if (event.type === "tool-result") {
      this.#change(id, {
        result: event.result,
        ...(event.isError && { isError: true }),
        ...syntheticOf(event),
        ...(event.durationMs !== undefined && { durationMs: event.durationMs }),
      });
    } else if (event.type === "client-tool-result") {
      this.#change(id, { result: event.content, isError: event.isError, ...syntheticOf(event) });
    }
  }

  /**
   * @param {string} id
   * @param {Partial<Call>} change ignored if the call is unknown
   */
  #change(id, change) {
    const known = this.#known.get(id);
    if (known) Object.assign(known.call, change);
  }

  /**
   * @param {Call} call
   * @param {string | undefined} parent
   */
  #add(call, parent) {
    if (parent !== undefined) this.#addPlaceholder(parent);
    this.#known.set(call.id, { call, parent });
  }

  /** Add a nameless call for a sub-agent whose call began before this client followed the run.
   * @param {string} id */
  #addPlaceholder(id) {
    if (!this.#known.has(id)) {
      this.#known.set(id, {
        call: { id, name: "", arguments: "", complete: true },
        parent: undefined,
      });
    }
  }
}

/**
 * @param {{synthetic?: import("./events.js").Synthetic}} said fields of a result, in an event or in
 *   the history
 * @returns {{synthetic?: import("./events.js").Synthetic}} the field, if it is there
 */
export function syntheticOf({ synthetic }) {
  return synthetic === undefined ? {} : { synthetic };
}

/**
 * @param {Entries} entries
 * @returns {string[]} the complete calls without a result, those of sub-agents included
 */
export function unansweredCalls(entries) {
  const calls = entries.flatMap((entry) =>
    entry.role === "assistant" ? entry.calls.flatMap(withInner) : [],
  );
  return calls.flatMap((call) => (call.complete && !("result" in call) ? [call.id] : []));
}

/**
 * Search the history from its end.
 *
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {ReadonlySet<string>} ids of calls
 * @param {AbortSignal} signal
 * @returns {Promise<Results>} the results that were found
 */
export async function readResults(client, conversationId, ids, signal) {
  /** @type {Results} */
  const results = new Map();
  let { total: end } = await client.messages(conversationId, { limit: 1, signal });
  for (let page = 0; page < PAGES && end > 0 && results.size < ids.size; page += 1) {
    const start = Math.max(0, end - PAGE);
    for (let after = start, count = 1; after < end && count > 0; after += count) {
      const { messages } = await client.messages(conversationId, {
        after,
        limit: end - after,
        signal,
      });
      count = messages.length; // fewer than asked for if they are large
      for (const message of messages.map(innermost)) {
        if (message.role !== "tool" || !ids.has(message.toolCallId)) continue;
        results.set(message.toolCallId, {
          result: valueOf(message.content),
          isError: message.isError === true,
          ...syntheticOf(message),
        });
      }
    }
    end = start;
  }
  return results;
}

/**
 * @param {Entries} entries
 * @param {Results} results
 * @returns {Entries} the entries with the results in their calls
 */
export function withResults(entries, results) {
  /** @param {Call} call @returns {Call} */
  const settled = (call) => ({
    ...call,
    ...results.get(call.id),
    ...(call.calls && { calls: call.calls.map(settled) }),
  });
  return entries.map((entry) =>
    entry.role === "assistant" ? { ...entry, calls: entry.calls.map(settled) } : entry,
  );
}

/**
 * @param {unknown} content of a result in the history
 * @returns {unknown} the value that the tool has returned
 */
export function valueOf(content) {
  const [part, ...others] = Array.isArray(content) ? content : [];
  return part?.type === "data" && others.length === 0 ? part.data : content;
}

/** @param {Call} call @returns {Call[]} */
function withInner(call) {
  return [call, ...(call.calls ?? []).flatMap(withInner)];
}

/**
 * @param {import("./messages.js").Message} message @returns {import("./messages.js").Message} the
 *   message itself, if a sub-agent's is wrapped
 */
function innermost(message) {
  return message.role === "child" ? innermost(message.message) : message;
}
