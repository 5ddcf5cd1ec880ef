/** The runs whose frames may be shown. */

/** @typedef {import("./answers.js").AnswerLog} AnswerLog */
/** @typedef {import("./dialects.js").Wanted} Wanted */

/**
 * @param {AnswerLog} log
 * @param {{conversation: string, newest: string | null}} shown the conversation that is shown
 * @returns {Map<string, Wanted>} by their names for people, the newest first
 */
export function runsOf({ answers }, { conversation, newest }) {
  const wanted = answers.flatMap(({ number, conversation: id, runs }) =>
    runs.map(({ id: run, entries, last }, index) => ({
      name: runs.length > 1 ? `Answer ${number}, run ${index + 1}` : `Answer ${number}`,
      conversation: id,
      run,
      first: entries[0]?.cursor ?? "",
      last,
    })),
  );
  /** @type {Map<string, Wanted>} */
  const found = new Map();
  if (newest !== null && !wanted.some(({ run }) => run === newest)) {
    found.set("Newest run", { conversation, run: newest, isNewest: true });
  }
  for (const [index, { name, last, ...each }] of [...wanted.entries()].reverse()) {
    const before = wanted.slice(0, index).findLast((one) => one.conversation === each.conversation);
    const isNewest = each.run === newest;
    found.set(name, { ...each, before: before?.last ?? "", isNewest });
  }
  return found;
}
