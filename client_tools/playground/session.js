/** What this tab and this browser remember. A browser may forbid storage; the page then simply forgets. */

import { parseJson } from "../js/src/json.js";

const PREFIX = "passback.";
const RUNNABLE = `${PREFIX}runnable`;
/** Conversations that are remembered; older ones are asked about again. */
const MAX_RUNNABLE = 1000;

/**
 * @param {string} name
 * @returns {string | null}
 */
export function recall(name) {
  try {
    return sessionStorage.getItem(PREFIX + name);
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {string | null} value null forgets it
 */
export function remember(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(PREFIX + name);
    else sessionStorage.setItem(PREFIX + name, value);
  } catch {
    // Storage is blocked or full: nothing depends on it but comfort.
  }
}

/** Conversations whose tools this browser runs: those that it has begun, and those for which a person has said so. */
export class RunnableConversations {
  /** Of this page; all that there is where the browser forbids storage.
   * @type {Set<string>} */
  #here = new Set();

  /** @param {string} id that this page has made up: it is remembered when something is said there */
  begin(id) {
    this.#here.add(id);
  }

  /** @param {string} id that somebody has said something in */
  keep(id) {
    if (this.#here.has(id)) this.add(id);
  }

  /** @param {string} id for the other tabs, too, and after a reload */
  add(id) {
    this.#here.add(id);
    const ids = [...this.#stored().filter((each) => each !== id), id].slice(-MAX_RUNNABLE);
    try {
      localStorage.setItem(RUNNABLE, JSON.stringify(ids));
    } catch {
      // Storage is blocked or full: after a reload it is asked again.
    }
  }

  /** @param {string} id */
  has(id) {
    return this.#here.has(id) || this.#stored().includes(id);
  }

  #stored() {
    try {
      const ids = parseJson(localStorage.getItem(RUNNABLE) ?? "");
      return Array.isArray(ids) ? ids : [];
    } catch {
      return [];
    }
  }
}

/** Tells the other tabs of this browser what this one has begun; a browser without channels has tabs that do not know. */
export class Tabs {
  #channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("passback") : null;

  /** @param {(conversationId: string) => void} onNews another tab has begun something there */
  constructor(onNews) {
    this.#channel?.addEventListener("message", ({ data }) => {
      if (typeof data === "string") onNews(data);
    });
  }

  /** @param {string} conversationId */
  tell(conversationId) {
    this.#channel?.postMessage(conversationId);
  }
}
