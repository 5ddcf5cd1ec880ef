/** What the runs of one `send` have said so far, without what became void. */

import { Calls } from "./calls.js";
import { isBehind } from "./cursors.js";
import { LimitExceeded } from "./errors.js";

/** @typedef {import("./calls.js").Call} Call */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").Usage} Usage */
/** @typedef {import("./events.js").UsageEvent} UsageEvent */

const MAX_CHARS = 64 * 1024 * 1024;

export class Answer {
  /** What a rewind may still take back.
   * @type {Event[]} */
  #events = [];
  /** Of the runs that have ended. */
  #settled = {
    text: "",
    reasoning: "",
    output: /** @type {unknown} */ (undefined),
    model: /** @type {string | undefined} */ (undefined),
    calls: new Calls(),
    usages: /** @type {UsageEvent[]} */ ([]),
    chars: 0,
  };
  #text = "";
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

  /** @param {number} [maxChars] that it may keep */
  constructor(maxChars = MAX_CHARS) {
    this.#maxChars = maxChars;
  }

  /**
   * @param {Event} event
   * @throws {LimitExceeded}
   */
  add(event) {
    if (event.type === "rewind") return this.#rewind(event);
    this.#keep(event);
    if (this.#chars > this.#maxChars) throw new LimitExceeded("the answer is too long to be kept");
    this.#events.push(event);
    // a run that has ended is never rewound
    if (event.type === "run-end") this.#settle();
  }

  /** All that was said; the runs between which client tools ran are parted by an empty line. */
  get text() {
    return this.#text;
  }

  /** The model's reasoning, for those who asked for it; that of sub-agents is no part of it. */
  get reasoning() {
    return this.#reasoning;
  }

  /** The accepted value, where the answer had to fit an output schema: an object. The text is a draft then. */
  get output() {
    return this.#output;
  }

  /** @returns {readonly Call[]} in the order in which they began, those of sub-agents within the calls that these work on;
   *   the same list as long as nothing has changed */
  get calls() {
    this.#tree ??= this.#calls.tree();
    return this.#tree;
  }

  /** @returns {string | undefined} the name of the model that spoke last, sub-agents aside; undefined where none did, or it is not
   *   told */
  get model() {
    return this.#model;
  }

  /** @returns {readonly UsageEvent[]} what each model call used, sub-agents' included, for those who asked for it
   *   (`include: ["usage"]`) */
  get modelCalls() {
    return [...this.#usages];
  }

  /** @returns {Usage | null} the sum of `modelCalls`; null where there are none, or nothing is told of them */
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
      text: this.#text,
      reasoning: this.#reasoning,
      output: this.#output,
      model: this.#model,
      chars: this.#chars,
    } = this.#settled);
    this.#calls = this.#settled.calls.copy();
    this.#usages = [...this.#settled.usages];
    this.#tree = null;
    this.#events = kept;
    for (const event of kept) this.#keep(event);
  }

  #settle() {
    this.#events = [];
    const calls = this.#calls.copy();
    const usages = [...this.#usages];
    const said = {
      text: this.#text,
      reasoning: this.#reasoning,
      output: this.#output,
      model: this.#model,
    };
    this.#settled = { ...said, calls, usages, chars: this.#chars };
  }

  /** What stands before the first text of a run. */
  #parting() {
    return this.#text !== "" && this.#text.length === this.#settled.text.length ? "\n\n" : "";
  }

  /** @param {Event} event */
  #keep(event) {
    if (event.type === "text") this.#text += this.#parting() + event.content;
    else if (event.type === "output") this.#output = event.value;
    else if (event.type === "usage") this.#usages.push(event);
    else if (event.type === "reasoning" && event.parentToolCallId === undefined)
      this.#reasoning += event.delta;
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
    case "reasoning":
    case "agent-text":
    case "tool-call-args":
      return event.delta.length;
    default:
      return 0;
  }
}
