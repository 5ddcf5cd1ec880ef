/** What this tab remembers between reloads. A browser may forbid storage; the page then simply forgets. */

const PREFIX = "passback.";

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
