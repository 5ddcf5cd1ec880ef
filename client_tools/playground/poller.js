/** Looks now and then whether something has changed elsewhere, as long as somebody sees the page. */

/** Milliseconds; the pauses grow. */
const FIRST = 2000;
const LONGEST = 15_000;

export class Lookout {
  #look;
  #delay = FIRST;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {() => Promise<void>} look */
  constructor(look) {
    this.#look = look;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.#timer !== undefined) this.begin();
    });
  }

  /** Nothing goes on here: look soon, and less often the longer that lasts. */
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
      if (!document.hidden) await this.#look();
      if (this.#timer === timer) this.#next();
    }, this.#delay));
    this.#delay = Math.min(LONGEST, 1.5 * this.#delay);
  }
}
