/** Keeps the newest line in view, unless the reader has scrolled up. */

/** Distance from the end that counts as the end. */
const NEAR = 48; // pixels

/**
 * @param {HTMLElement} scroller
 * @param {HTMLElement} jump the button back to the end
 * @returns {{toEnd: () => void, keepPlace: (topOf: () => number, work: () => Promise<void>) =>
 *   Promise<void>}} `toEnd` scrolls to the end; `keepPlace` leaves what `topOf` measures where it
 *   is on the screen, while other messages come in the place of those that are shown
 */
export function keepAtEnd(scroller, jump) {
  let atEnd = true;
  let lastTop = 0;
  let isKept = false;

  const isNear = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;
  const settle = () => {
    if (atEnd && !isKept) scroller.scrollTo({ top: scroller.scrollHeight, behavior: "instant" });
    jump.hidden = atEnd || isNear();
  };
  const toEnd = () => {
    atEnd = true;
    settle();
  };

  const keepPlace = async (
    /** @type {() => number} */ topOf,
    /** @type {() => Promise<void>} */ work,
  ) => {
    const top = topOf();
    isKept = true;
    await work();
    scroller.scrollTop += topOf() - top;
    // the events of this scrolling, and of the new size, come with the next frame
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        isKept = false;
        atEnd = isNear();
        jump.hidden = atEnd;
      }),
    );
  };

  scroller.addEventListener("scroll", () => {
    if (isKept) return;
    // only the reader scrolls up; growing content moves the end down
    if (isNear()) atEnd = true;
    else if (scroller.scrollTop < lastTop) atEnd = false;
    lastTop = scroller.scrollTop;
    jump.hidden = atEnd;
  });
  jump.addEventListener("click", toEnd);
  const sizes = new ResizeObserver(settle);
  sizes.observe(scroller);
  for (const child of scroller.children) sizes.observe(child);
  return { toEnd, keepPlace };
}
