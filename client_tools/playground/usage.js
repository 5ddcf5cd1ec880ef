/** The tokens and the cost of an answer, in a line below it. */

import { el } from "./dom.js";

/** @typedef {import("../js/src/index.js").Usage} Usage */
/**
 * @typedef {object} Tally
 * @property {number} calls of models
 * @property {number} input tokens, those from a cache included
 * @property {number} output tokens, those of reasoning included
 * @property {number} cached
 * @property {number} reasoning
 * @property {number} within tokens of sub-agents, which the others include
 * @property {boolean} isEstimated whether the provider had not counted some of them
 */

/** Costs that are remembered. */
const MAX_COSTS = 2000;
const NUMBERS = new Intl.NumberFormat("en");
const COSTS = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** @returns {Tally} */
export function emptyTally() {
  const numbers = { calls: 0, input: 0, output: 0, cached: 0, reasoning: 0, within: 0 };
  return { ...numbers, isEstimated: false };
}

/**
 * @param {Tally} tally
 * @param {Partial<Usage>} usage of a call; one without tokens was none
 * @param {boolean} isWithin whether a sub-agent has made it
 */
export function count(tally, usage, isWithin) {
  const [input, output] = [number(usage.inputTokens), number(usage.outputTokens)];
  if (input + output === 0) return;
  tally.calls += 1;
  tally.input += input;
  tally.output += output;
  tally.cached += number(usage.cachedTokens);
  tally.reasoning += number(usage.reasoningTokens);
  tally.within += isWithin ? input + output : 0;
  tally.isEstimated ||= usage.estimated === true;
}

/**
 * @param {readonly Tally[]} tallies
 * @returns {Tally}
 */
export function sum(tallies) {
  const total = emptyTally();
  for (const { isEstimated, ...numbers } of tallies) {
    total.isEstimated ||= isEstimated;
    for (const [name, value] of Object.entries(numbers)) {
      total[/** @type {keyof typeof numbers} */ (name)] += value;
    }
  }
  return total;
}

/**
 * @param {Tally} tally
 * @param {number | null} cost null: not known
 * @returns {{short: string, long: string}} "" if nothing is known
 */
export function describe(tally, cost) {
  const { calls, input, output, cached, reasoning, within, isEstimated } = tally;
  if (calls === 0) return { short: "", long: "" };
  const say = (/** @type {number} */ value) => NUMBERS.format(value);
  const price = cost === null ? "" : COSTS.format(cost);
  const about = isEstimated ? "≈ " : "";
  const short = [
    `${about}${say(input)} in${cached ? ` (${say(cached)} cached)` : ""}`,
    `${say(output)} out${reasoning ? ` (${say(reasoning)} reasoning)` : ""}`,
    ...(price ? [`cost ${price}`] : []),
  ];
  const long = [
    `Tokens of this answer: ${say(input)} of input`,
    cached ? `, of which ${say(cached)} came from a cache` : "",
    `; ${say(output)} of output`,
    reasoning ? `, of which ${say(reasoning)} were reasoning` : "",
    `; in ${calls === 1 ? "one call" : `${say(calls)} calls`} of models.`,
    within ? ` ${say(within)} of them were used by sub-agents.` : "",
    isEstimated ? " Some are estimated: the answer was cut before they were counted." : "",
    price ? ` Cost by the server's prices: ${price}.` : "",
  ];
  return { short: short.join(" · "), long: long.join("") };
}

/** @param {unknown} value */
function number(value) {
  return typeof value === "number" && value > 0 ? value : 0;
}

/** An answer: all that is said between two messages of the user. */
class AnswerUsage {
  element = el("p", { class: "usage" });
  /** @type {Tally[]} one for each run */
  tallies = [];
  /** Whether they have ended, by the ids of its runs.
   * @type {Map<string, boolean>} */
  runs = new Map();
}

/** The lines of all answers that are shown. */
export class UsageLines {
  #answer = new AnswerUsage();
  /** @type {Map<string, number | null>} by the ids of runs; null: not known, or it has no price */
  #costs = new Map();
  #readCost;
  /** @type {WeakMap<Element, AnswerUsage>} */
  #answers = new WeakMap();
  #mayCost = false;
  /** Reads the costs of an answer of the history when its line is seen. */
  #seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const answer = this.#answers.get(target);
      if (isIntersecting && answer && this.#mayCost) void this.#showCost(answer);
    }
  });

  /**
   * @param {(runId: string) => Promise<number>} readCost returns what a run has cost; 0: its models
   *   have no price
   */
  constructor(readCost) {
    this.#readCost = readCost;
  }

  /** Begin with another answer. */
  begin() {
    this.#answer = new AnswerUsage();
  }

  /** Forget what is shown. */
  clear() {
    this.#seen.disconnect();
    this.begin();
  }

  /** @param {boolean} mayCost whether the answers of the history may have a cost */
  set mayCost(mayCost) {
    this.#mayCost = mayCost;
  }

  beginRun() {
    this.#answer.tallies.push(emptyTally());
  }

  /** Forget what the current run has used. */
  dropRun() {
    this.#answer.tallies.pop();
    this.beginRun();
  }

  /**
   * @param {Element | null} place the last message of the answer, if there is one
   * @param {Partial<Usage>} usage of a call
   * @param {{runId: string | null, isWithin: boolean, isPast: boolean}} call `isPast`: its run has
   *   ended
   */
  add(place, usage, { runId, isWithin, isPast }) {
    const { tallies, runs, element } = this.#answer;
    if (tallies.length === 0) this.beginRun();
    if (runId !== null) runs.set(runId, isPast);
    count(/** @type {Tally} */ (tallies.at(-1)), usage, isWithin);
    this.#show(this.#answer);
    // not read out: the log of the chat has it
    element.setAttribute("aria-live", "off");
    if (element.textContent !== "") place?.append(element);
    if (!isPast) return;
    this.#answers.set(element, this.#answer);
    this.#seen.observe(element);
  }

  /** Show what the answer has cost so far: its run has ended. */
  async end() {
    const answer = this.#answer;
    for (const id of answer.runs.keys()) answer.runs.set(id, true);
    await this.#showCost(answer);
  }

  /** @param {AnswerUsage} answer */
  async #showCost(answer) {
    const ended = [...answer.runs].filter(([id, isOver]) => isOver && !this.#costs.has(id));
    await Promise.all(ended.map(([id]) => this.#read(id)));
    this.#seen.unobserve(answer.element);
    this.#show(answer);
  }

  /** @param {string} runId */
  async #read(runId) {
    if (this.#costs.size >= MAX_COSTS) this.#costs.clear();
    const cost = await this.#readCost(runId).catch(() => 0);
    this.#costs.set(runId, cost > 0 ? cost : null);
  }

  /** @param {AnswerUsage} answer */
  #show({ tallies, runs, element }) {
    const costs = [...runs.keys()].map((id) => this.#costs.get(id) ?? null);
    const cost = costs.reduce(
      (total, each) => (total === null || each === null ? null : total + each),
      costs.length > 0 ? 0 : null,
    );
    const { short, long } = describe(sum(tallies), cost);
    if (element.title === long) return;
    element.title = long;
    const visible = el("span", {}, short);
    visible.setAttribute("aria-hidden", "true");
    element.replaceChildren(visible, el("span", { class: "hidden" }, long));
  }
}
