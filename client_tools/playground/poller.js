/** Polls for changes made elsewhere while the page is visible. */

/** Shortest and longest pause, in milliseconds; pauses grow. */
const FIRST = 2000;
const LONGEST = 15_000;

export class Poller {
  #poll;
  #delay = FIRST;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {() => Promise<void>} poll */
  constructor(poll) {
    this.#poll = poll;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.#timer !== undefined) this.begin();
    });
  }

  /** Start polling, less often with time. */
  begin() {
    this.end();
    this.#delay = FIRST;
    this.#next();
  }

  end() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #next() {
    const timer = (this.#timer = setTimeout(async () => {
      if (!document.hidden) await this.#poll();
      if (this.#timer === timer) this.#next();
    }, this.#delay));
    this.#delay = Math.min(LONGEST, 1.5 * this.#delay);
  }
}
