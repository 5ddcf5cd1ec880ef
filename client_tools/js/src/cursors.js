/** Places in a run's log: `<run>.<epoch>-<number>`, with `~<n>` at the end where one event has several frames. */

/**
 * @param {string} cursor
 * @returns {{run: string, place: [number, number, number]} | null} null when it is no cursor
 */
export function readCursor(cursor) {
  const found = /^(.+)\.(\d+)-(\d+)(?:~(\d+))?$/.exec(cursor);
  if (!found) return null;
  const [, run = "", epoch, number, piece = "0"] = found;
  return { run, place: [Number(epoch), Number(number), Number(piece)] };
}

/**
 * @param {string} cursor
 * @param {string} to
 * @returns {boolean} whether the first is of the same run as the second, and behind it
 */
export function isBehind(cursor, to) {
  const [one, other] = [readCursor(cursor), readCursor(to)];
  if (!one || !other || one.run !== other.run) return false;
  const [a, b] = [one.place, other.place];
  const at = a.findIndex((number, index) => number !== b[index]);
  return at >= 0 && (a[at] ?? 0) > (b[at] ?? 0);
}
