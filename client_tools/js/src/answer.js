/** The answer of one `send`, over all its runs, without what was rewound. */

import { Calls } from "./calls.js";
import { isBehind } from "./events.js";
import { LimitExceeded } from "./errors.js";
import { MAX_CHARS, SaidText } from "./said.js";

/** @typedef {import("./calls.js").Call} Call */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").Usage} Usage */
/** @typedef {import("./events.js").UsageEvent} UsageEvent */

export class Answer {
  /** Events of the current run, which a rewind may still void.
   * @type {Event[]} */
  #events = [];
  /** State at the end of the last finished run. */
  #committed = {
    reasoning: "",
    output: /** @type {unknown} */ (undefined),
    model: /** @type {string | undefined} */ (undefined),
    calls: new Calls(),
    usages: /** @type {UsageEvent[]} */ ([]),
    chars: 0,
  };
  #said;
  /** @type {unknown} */
  #output;
  /** @type {string | undefined} */
  #model;
  #reasoning = "";
  #calls = new Calls();
  /** @type {Call[] | null} */
  #tree = null;
  /** @type {UsageEvent[]} */
  #usages = [];
  #chars = 0;
  #maxChars;

  /** @param {number} [maxChars] limit of its texts */
  constructor(maxChars = MAX_CHARS) {
    this.#maxChars = maxChars;
    this.#said = new SaidText(maxChars);
  }

  /**
   * @param {Event} event
   * @throws {LimitExceeded}
   */
  add(event) {
    this.#said.add(event);
    if (event.type === "rewind") return this.#rewind(event);
    this.#apply(event);
    if (this.#chars > this.#maxChars) {
      throw new LimitExceeded("the answer is longer than the limit of its texts");
    }
    this.#events.push(event);
    // a run that has ended is never rewound
    if (event.type === "run-end") this.#commitRun();
  }

  /** The text of all runs; a blank line separates runs between which client tools ran. */
  get text() {
    return this.#said.text;
  }

  /** The model's reasoning, if it was included; without that of sub-agents. */
  get reasoning() {
    return this.#reasoning;
  }

  /** The accepted object, if an output schema was given; the text is a draft then. */
  get output() {
    return this.#output;
  }

  /**
   * @returns {readonly Call[]} in the order in which they began, with the calls of a sub-agent
   *   within the call that it works on; the same list until something changes
   */
  get calls() {
    this.#tree ??= this.#calls.tree();
    return this.#tree;
  }

  /**
   * @returns {string | undefined} the name of the model that answered last, sub-agents aside;
   *   undefined if there is none or the server does not name it
   */
  get model() {
    return this.#model;
  }

  /**
   * @returns {readonly UsageEvent[]} the usage of each model call, sub-agents' included, with
   *   `include: ["usage"]`
   */
  get modelCalls() {
    return [...this.#usages];
  }

  /** @returns {Usage | null} the sum of `modelCalls`; null if there are none */
  get usage() {
    if (this.#usages.length === 0) return null;
    /** @param {"inputTokens" | "outputTokens" | "cachedTokens" | "reasoningTokens"} kind */
    const sum = (kind) => this.#usages.reduce((total, each) => total + each[kind], 0);
    const [inputTokens, outputTokens] = [sum("inputTokens"), sum("outputTokens")];
    const [cachedTokens, reasoningTokens] = [sum("cachedTokens"), sum("reasoningTokens")];
    const isEstimated = this.#usages.some(({ estimated }) => estimated);
    return {
      inputTokens,
      outputTokens,
      cachedTokens,
      reasoningTokens,
      ...(isEstimated && { estimated: true }),
    };
  }

  /** @param {import("./events.js").RewindEvent} event */
  #rewind({ to }) {
    const kept = this.#events.filter(({ cursor }) => !isBehind(cursor, to));
    ({
      reasoning: this.#reasoning,
      output: this.#output,
      model: this.#model,
      chars: this.#chars,
    } = this.#committed);
    this.#calls = this.#committed.calls.copy();
    this.#usages = [...this.#committed.usages];
    this.#tree = null;
    this.#events = kept;
    for (const event of kept) this.#apply(event);
  }

  #commitRun() {
    this.#events = [];
    const calls = this.#calls.copy();
    const usages = [...this.#usages];
    this.#committed = {
      reasoning: this.#reasoning,
      output: this.#output,
      model: this.#model,
      calls,
      usages,
      chars: this.#chars,
    };
  }

  /** @param {Event} event */
  #apply(event) {
    if (event.type === "output") this.#output = event.value;
    else if (event.type === "usage") this.#usages.push(event);
    else if (event.type === "reasoning" && event.parentToolCallId === undefined) {
      this.#reasoning += event.delta;
    }
    if (
      event.type === "run-end" ||
      (event.type === "usage" && event.parentToolCallId === undefined)
    ) {
      this.#model = event.model ?? this.#model;
    }
    if (this.#calls.feed(event)) this.#tree = null;
    this.#chars += charsOf(event);
  }
}

/** @param {Event} event */
function charsOf(event) {
  switch (event.type) {
    case "text":
      return event.content.length;
    case "tool-progress":
      return event.text.length;
    case "tool-begin":
      return (event.locations ?? []).reduce((total, { path }) => total + path.length, 0);
    case "reasoning":
    case "agent-text":
    case "tool-call-args":
      return event.delta.length;
    default:
      return 0;
  }
}
