/** Storage of this tab and this browser. If the browser forbids storage, nothing is kept. */

import { parseJson } from "../js/src/json.js";

const PREFIX = "passback.";
const LIST = `${PREFIX}list`;
const RUNNABLE = `${PREFIX}runnable`;
/** Number of conversations that are stored; for older ones the page asks again. */
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
 * @param {string | null} value null removes it
 * @returns {boolean} whether the browser keeps it
 */
export function remember(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(PREFIX + name);
    else sessionStorage.setItem(PREFIX + name, value);
    return true;
  } catch {
    return false; // storage is blocked or full
  }
}

/** @returns {boolean} whether the list of conversations was left open in this browser */
export function isListOpen() {
  try {
    return localStorage.getItem(LIST) !== null;
  } catch {
    return false;
  }
}

/** @param {boolean} isOpen whether the list of conversations is open */
export function keepListOpen(isOpen) {
  try {
    if (isOpen) localStorage.setItem(LIST, "open");
    else localStorage.removeItem(LIST);
  } catch {
    // storage is blocked or full: the list is closed after a reload
  }
}

/** Conversations whose tools this browser runs: its own, and those that a person has allowed. */
export class RunnableConversations {
  /** Conversations of this page; the only ones if the browser forbids storage.
   * @type {Set<string>} */
  #here = new Set();

  /** @param {string} id of a new conversation, stored once a message is sent there */
  begin(id) {
    this.#here.add(id);
  }

  /** @param {string} id of a conversation that has a message */
  keep(id) {
    if (this.#here.has(id)) this.add(id);
  }

  /** @param {string} id to store for other tabs and after a reload */
  add(id) {
    this.#here.add(id);
    const ids = [...this.#stored().filter((each) => each !== id), id].slice(-MAX_RUNNABLE);
    try {
      localStorage.setItem(RUNNABLE, JSON.stringify(ids));
    } catch {
      // storage is blocked or full: the page asks again after a reload
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
