/** Keeps the newest line in sight, unless the reader has scrolled away to read. */

/** Pixels from the end that still count as being there. */
const NEAR = 48;

/**
 * @param {HTMLElement} scroller
 * @param {HTMLElement} jump the button that leads back to the end
 */
export function keepAtEnd(scroller, jump) {
  let atEnd = true;

  const distance = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  const toEnd = () => scroller.scrollTo({ top: scroller.scrollHeight, behavior: "instant" });
  const settle = () => {
    if (atEnd) toEnd();
    jump.hidden = atEnd || distance() < NEAR;
  };

  scroller.addEventListener("scroll", () => {
    atEnd = distance() < NEAR;
    jump.hidden = atEnd;
  });
  jump.addEventListener("click", () => {
    atEnd = true;
    settle();
  });
  const sizes = new ResizeObserver(settle);
  sizes.observe(scroller);
  for (const child of scroller.children) sizes.observe(child);
}
