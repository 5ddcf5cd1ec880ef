/** Keeps the newest line in sight, unless the reader has scrolled away to read. */

/** Pixels from the end that still count as being there. */
const NEAR = 48;

/**
 * @param {HTMLElement} scroller
 * @param {HTMLElement} jump the button that leads back to the end
 * @returns {() => void} goes to the end, wherever the reader is
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
    // Only a move upwards is the reader's wish: growing content also leaves the end behind.
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
