/** The agent and the model that the next message is sent to, where there is a choice. */

import { asRecord, parseJson } from "../js/src/json.js";
import { escapeInvisible } from "../js/src/index.js";
import { el, need } from "./dom.js";
import { recall, remember } from "./session.js";

/** @typedef {import("../js/src/index.js").AgentView} AgentView */
/**
 * @typedef {{agentId: string, model: string}} Choice "": the agent that is asked by default, and
 *   the agent's own model
 */

const KEPT = "choice";
/** @type {Choice} */
const DEFAULT = { agentId: "", model: "" };

/**
 * @param {Choice} choice
 * @param {readonly AgentView[]} agents of the server; none: not known
 * @returns {Choice} what of it there is on this server, with "" for what is the default
 */
export function settle({ agentId, model }, agents) {
  if (agents.length === 0) return { agentId, model };
  const found = agents.findIndex(({ id }) => id === agentId);
  const { models } = /** @type {AgentView} */ (agents[Math.max(found, 0)]);
  const isOther = models.slice(1).some(({ id }) => id === model);
  return { agentId: found > 0 ? agentId : "", model: isOther ? model : "" };
}

/**
 * The choice of a conversation: what a person has picked there, or else what its last message used;
 * in a new one, what was picked last in this tab.
 */
export class Chosen {
  /** @type {Choice} */
  #choice = DEFAULT;
  #isPicked = false;

  get choice() {
    return this.#choice;
  }

  /** @param {Choice} choice of a person */
  pick(choice) {
    this.#choice = choice;
    this.#isPicked = true;
    remember(KEPT, JSON.stringify(choice));
  }

  /** Note that a message was sent with the choice. */
  sent() {
    this.#isPicked = false;
  }

  /** @param {{agentId?: string, model?: string}} message of the history */
  follow({ agentId = "", model = "" }) {
    if (!this.#isPicked) this.#choice = { agentId, model };
  }

  /** Begin in another conversation. */
  leave() {
    const kept = asRecord(parseJson(recall(KEPT) ?? ""));
    const textOf = (/** @type {unknown} */ value) => (typeof value === "string" ? value : "");
    this.#choice = { agentId: textOf(kept.agentId), model: textOf(kept.model) };
    this.#isPicked = false;
  }
}

export class Picker {
  #chosen = new Chosen();
  /** @type {readonly AgentView[]} */
  #agents = [];
  #agent = need("#agent", HTMLSelectElement);
  #model = need("#model", HTMLSelectElement);
  #isPlanned = false;
  #onChange;

  /** @param {() => void} onChange called when another agent or model will answer */
  constructor(onChange) {
    this.#onChange = onChange;
    this.#agent.addEventListener("change", () => {
      const { model } = this.#chosen.choice;
      this.#pick({ agentId: this.#agent.value, model });
    });
    this.#model.addEventListener("change", () => {
      this.#pick({ agentId: this.#agent.value, model: this.#model.value });
    });
    this.#chosen.leave();
  }

  /** @param {readonly AgentView[]} agents of the server */
  set agents(agents) {
    this.#agents = agents;
    this.#show();
  }

  /** What a post says of it. */
  get options() {
    const { agentId, model } = settle(this.#chosen.choice, this.#agents);
    return { ...(agentId && { agentId }), ...(model && { model }) };
  }

  /** The model that will answer; null: not known. */
  get model() {
    const { models = [] } = this.#current ?? {};
    const { model } = settle(this.#chosen.choice, this.#agents);
    return models.find(({ id }) => id === model) ?? models[0] ?? null;
  }

  /** The commands of the agent that will answer. */
  get commands() {
    return this.#current?.commands ?? [];
  }

  /** @returns {AgentView | undefined} */
  get #current() {
    const { agentId } = settle(this.#chosen.choice, this.#agents);
    return this.#agents.find(({ id }) => id === agentId) ?? this.#agents[0];
  }

  /** Note that a message was sent with the choice. */
  sent() {
    this.#chosen.sent();
  }

  /** @param {{agentId?: string, model?: string}} message of the user, as the history has it */
  follow(message) {
    this.#chosen.follow(message);
    this.#showSoon();
  }

  /** Begin in another conversation. */
  leave() {
    this.#chosen.leave();
    this.#show();
  }

  /** @param {Choice} choice of a person */
  #pick(choice) {
    this.#chosen.pick(settle(choice, this.#agents));
    this.#show();
  }

  /** Show it once, after all messages of a history: each time, the page is laid out anew. */
  #showSoon() {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    queueMicrotask(() => {
      this.#isPlanned = false;
      this.#show();
    });
  }

  #show() {
    const { agentId, model } = settle(this.#chosen.choice, this.#agents);
    const agents = this.#agents.map(({ id }, index) => ({ id: index === 0 ? "" : id, name: id }));
    const models = this.#current?.models ?? [];
    fill(this.#agent, agents, agentId);
    fill(
      this.#model,
      models.map(({ id }, index) => ({ id: index === 0 ? "" : id, name: id })),
      model,
    );
    need("#pickers", HTMLElement).hidden = this.#agent.hidden && this.#model.hidden;
    this.#onChange();
  }
}

/**
 * @param {HTMLSelectElement} select hidden if there is no choice
 * @param {readonly {id: string, name: string}[]} choices
 * @param {string} chosen
 */
function fill(select, choices, chosen) {
  select.hidden = choices.length < 2;
  const known = JSON.stringify(choices);
  // what is there stays: the list may be open
  if (select.dataset.choices !== known) {
    select.dataset.choices = known;
    select.replaceChildren(
      ...choices.map(({ id, name }) => {
        const option = el("option", {}, escapeInvisible(name));
        option.value = id;
        return option;
      }),
    );
  }
  if (select.value !== chosen) select.value = chosen;
  select.title = select.selectedOptions[0]?.textContent ?? "";
}
