/**
 * The times of a run's events.
 *
 * Times are those at which this page received the events, unless the server says more: when a model
 * call began, and how long a tool has worked. Events that were received late, because the page
 * joined the run after them or was cut off, or because the server sent several together, get the
 * time that follows from what surrounds them, and what they begin or end is marked as approximate.
 */

/** @typedef {import("./answers.js").Entry} Entry */

/** Events that come within this time of one another have come together. */
const TOGETHER = 50; // milliseconds

/**
 * @param {readonly Entry[]} entries
 * @returns {number} what is added to a time of the server's clock to have it by this page's
 */
export function clockOffset(entries) {
  const known = entries.flatMap(({ time, started, isLate }) =>
    started === null ? [] : [{ lag: time - started, isLate }],
  );
  const live = known.filter(({ isLate }) => !isLate);
  if (live.length > 0) return Math.min(...live.map(({ lag }) => lag));
  // no event is received before it happens; otherwise the clocks are taken to agree
  return Math.min(0, ...known.map(({ lag }) => lag));
}

/**
 * @param {readonly Entry[]} entries of one run
 * @param {number} offset
 * @returns {{times: number[], isRough: boolean[]}} the time of each, and whether it is approximate
 */
export function timesOf(entries, offset) {
  const times = entries.map(({ time }) => time);
  /** The place of the result of each call.
   * @type {Map<string, number>} */
  const results = new Map();
  /** The place of the beginning that belongs to it.
   * @type {Map<string, number>} */
  const begins = new Map();
  let next = Infinity;
  for (let at = entries.length - 1; at >= 0; at -= 1) {
    const { event, time, started } = /** @type {Entry} */ (entries[at]);
    const known = started === null ? Infinity : started + offset;
    const id = String(event.toolCallId);
    const begun = event.type === "tool-begin" ? beginOf(entries, times, results.get(id)) : known;
    if (event.type === "tool-result") results.set(id, at);
    if (event.type === "tool-begin" && !begins.has(id)) begins.set(id, at);
    // events may come together, long after the first of them
    next = times[at] = Math.min(time, next, begun);
  }
  for (const [id, at] of results) endTogether(entries, times, at, begins.get(id));
  const isRough = entries.map(({ time, isLate, started }, at) => {
    const isMoved = time - (times[at] ?? time) > TOGETHER;
    return started === null && (isLate || isMoved);
  });
  return { times, isRough };
}

/**
 * Let a late result come as soon as its tool has worked for as long as it says: tools that began
 * together end one after the other.
 *
 * @param {readonly Entry[]} entries
 * @param {number[]} times
 * @param {number} result the place of the result
 * @param {number | undefined} begin that of its beginning
 */
function endTogether(entries, times, result, begin) {
  const worked = Number(entries[result]?.event.durationMs);
  if (!entries[result]?.isLate || begin === undefined || begin > result || !(worked >= 0)) return;
  times[result] = Math.min(times[result] ?? 0, (times[begin] ?? 0) + worked);
}

/**
 * @param {readonly Entry[]} entries
 * @param {readonly number[]} times
 * @param {number | undefined} result the place of its result
 * @returns {number} when a tool began that worked for as long as its result says
 */
function beginOf(entries, times, result) {
  if (result === undefined) return Infinity;
  const worked = Number(entries[result]?.event.durationMs);
  return worked >= 0 ? (times[result] ?? Infinity) - worked : Infinity;
}
