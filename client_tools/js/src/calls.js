/** The calls of an answer, in a tree: what a sub-agent does stands within the call that it works on. */

/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */

/**
 * @typedef {object} Call
 * @property {string} id
 * @property {string} name "" where only what a sub-agent does for it was seen
 * @property {string} arguments JSON as text, perhaps not whole yet
 * @property {boolean} complete whether the arguments are whole
 * @property {unknown} [result] of the server's tool, or of this client's
 * @property {boolean} [isError]
 * @property {import("./events.js").Synthetic} [synthetic] why the server wrote the result itself, where no tool gave it
 * @property {string} [progress] how far it is (`include: ["progress"]`)
 * @property {string} [agentText] what the sub-agent says that works on it (`include: ["agents"]`)
 * @property {Call[]} [calls] those of the sub-agent that works on it
 */

/** @typedef {{call: Omit<Call, "calls">, parent: string | undefined}} Known */

export class Calls {
  /** @type {Map<string, Known>} in the order in which they began */
  #known;

  /** @param {Map<string, Known>} [known] */
  constructor(known = new Map()) {
    this.#known = known;
  }

  /** @returns {Calls} the same ones, that change no more with these */
  copy() {
    return new Calls(
      new Map(
        [...this.#known].map(([id, { call, parent }]) => [id, { call: { ...call }, parent }]),
      ),
    );
  }

  /**
   * @param {Event} event
   * @returns {boolean} whether it says something of calls
   */
  feed(event) {
    if (event.type === "owed") for (const each of event.toolCalls) this.#owe(each);
    else if (event.type === "interrupt")
      this.#change(event.payload.toolCallId ?? event.id, { complete: true });
    else if (event.type === "agent-text") this.#say(event);
    else if (event.type === "tool-call-start") this.#begin(event);
    else if ("toolCallId" in event) this.#go(event);
    else return false;
    return true;
  }

  /** @returns {Call[]} the answer's own, with those of sub-agents within them */
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

  /** @param {{toolCallId: string, toolCallName: string, parentToolCallId?: string}} event */
  #begin({ toolCallId: id, toolCallName: name, parentToolCallId }) {
    this.#add({ id, name, arguments: "", complete: false }, parentToolCallId);
  }

  /**
   * Who resumes has not seen how the calls began.
   *
   * @param {OwedCall} owed
   */
  #owe({ id, name, arguments: text, parentToolCallId }) {
    if (!this.#known.has(id))
      this.#add({ id, name, arguments: text, complete: true }, parentToolCallId);
  }

  /** @param {{parentToolCallId: string, delta: string}} event */
  #say({ parentToolCallId: id, delta }) {
    this.#standIn(id);
    this.#change(id, { agentText: (this.#known.get(id)?.call.agentText ?? "") + delta });
  }

  /** @param {Extract<Event, {toolCallId: string}>} event */
  #go(event) {
    const id = event.toolCallId;
    if (event.type === "tool-call-args")
      this.#change(id, { arguments: (this.#known.get(id)?.call.arguments ?? "") + event.delta });
    else if (event.type === "tool-call-end") this.#change(id, { complete: true });
    else if (event.type === "tool-progress") this.#change(id, { progress: event.text });
    else if (event.type === "tool-result")
      this.#change(id, {
        result: event.result,
        ...(event.isError && { isError: true }),
        ...why(event),
      });
    else if (event.type === "client-tool-result")
      this.#change(id, { result: event.content, isError: event.isError, ...why(event) });
  }

  /**
   * @param {string} id
   * @param {Partial<Call>} change of a call whose beginning was not seen, none
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
    if (parent !== undefined) this.#standIn(parent);
    this.#known.set(call.id, { call, parent });
  }

  /** Who resumes in the middle of a sub-agent's work has not seen its call. @param {string} id */
  #standIn(id) {
    if (!this.#known.has(id))
      this.#known.set(id, {
        call: { id, name: "", arguments: "", complete: true },
        parent: undefined,
      });
  }
}

/**
 * @param {{synthetic?: import("./events.js").Synthetic}} said of a result, here or in the history
 * @returns {{synthetic?: import("./events.js").Synthetic}} without what is not there
 */
export function why({ synthetic }) {
  return synthetic === undefined ? {} : { synthetic };
}
