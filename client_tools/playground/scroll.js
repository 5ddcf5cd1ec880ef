/** Keeps the newest line in view, unless the reader has scrolled up. */

/** Distance from the end that counts as the end. */
const NEAR = 48; // pixels

/**
 * @param {HTMLElement} scroller
 * @param {HTMLElement} jump the button back to the end
 * @returns {() => void} scrolls to the end
 */
export function keepAtEnd(scroller, jump) {
  let atEnd = true;
  let lastTop = 0;

  const isNear = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;
  const settle = () => {
    if (atEnd) scroller.scrollTo({ top: scroller.scrollHeight, behavior: "instant" });
    jump.hidden = atEnd || isNear();
  };
  const toEnd = () => {
    atEnd = true;
    settle();
  };

  scroller.addEventListener("scroll", () => {
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
  return toEnd;
}
