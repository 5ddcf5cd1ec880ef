/** The conversations of the key's owner, as far as the page has read them. */

import { asRecord } from "../js/src/json.js";

/** @typedef {import("../js/src/index.js").Client} Client */
/** @typedef {{id: string, title: string, updatedAt: string, status: string}} Listed */

/** Conversations that are read at once. */
const PAGE = 20;
/** The most that the server gives at once. */
const LARGEST = 100;
/** Requests of one reading: the server looks at about 1,000 titles in each. */
const REQUESTS = 10;

export class Listing {
  /** The newest first.
   * @type {readonly Listed[]} */
  entries = [];
  #connect;
  #search = "";
  /** @type {string | null} */
  #next = null;
  #reading = new AbortController();

  /** @param {() => Client} connect */
  constructor(connect) {
    this.#connect = connect;
  }

  /** @returns {boolean} whether the server may have more */
  get hasMore() {
    return this.#next !== null;
  }

  /** @returns {boolean} whether the entries are those of a search */
  get isSearch() {
    return this.#search !== "";
  }

  /**
   * Read from the beginning. An earlier reading that has not ended changes nothing.
   *
   * @param {string} search what the titles contain; "": any
   * @returns {Promise<boolean>} false if a later reading has replaced this one
   */
  async begin(search) {
    this.#search = search;
    return this.#read(null, PAGE);
  }

  /** Read what comes behind the entries, as `begin` does. */
  async more() {
    return this.#read(this.#next, PAGE);
  }

  /** Read the entries again, as `begin` does. */
  async refresh() {
    return this.#read(null, Math.max(PAGE, this.entries.length));
  }

  /** Give up a reading that has not ended. */
  stop() {
    this.#reading.abort();
  }

  /** @param {string} id of a conversation that the server does not have any more */
  remove(id) {
    this.stop();
    this.entries = this.entries.filter((each) => each.id !== id);
  }

  /**
   * @param {string | null} after
   * @param {number} count
   */
  async #read(after, count) {
    this.#reading.abort();
    const { signal } = (this.#reading = new AbortController());
    const [client, search] = [this.#connect(), this.#search];
    /** @type {Map<string, Listed>} */
    const found = new Map(after === null ? [] : this.entries.map((each) => [each.id, each]));
    const wanted = found.size + count;
    let next = after;
    try {
      for (let requests = 0; requests < REQUESTS && found.size < wanted; requests += 1) {
        const limit = Math.min(LARGEST, wanted - found.size);
        const page = await client.conversations({ after: next, limit, search, signal });
        for (const each of page.conversations.map(listed)) found.set(each.id, each);
        next = page.next;
        if (next === null) break;
      }
    } catch (error) {
      if (signal.aborted) return false;
      throw error;
    }
    if (signal.aborted) return false;
    [this.entries, this.#next] = [[...found.values()], next];
    return true;
  }
}

/**
 * @param {unknown} value
 * @returns {Listed}
 */
function listed(value) {
  const { id, title, updatedAt, status } = asRecord(value);
  return {
    id: String(id),
    title: String(title ?? ""),
    updatedAt: String(updatedAt),
    status: String(status),
  };
}
