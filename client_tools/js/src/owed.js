/** The calls that people owe an answer, event by event. */

/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */

/** @param {OwedCall} call */
export function isForPerson({ kind }) {
  return kind === "approval" || kind === "question";
}

/**
 * @param {readonly OwedCall[]} owed to people
 * @param {Event} event
 */
export function owedAfter(owed, event) {
  if (event.type === "run-start") return [];
  if (event.type === "owed") return event.toolCalls.filter(isForPerson);
  if (event.type !== "client-tool-result" && event.type !== "client-decision") return owed;
  return owed.filter(({ id }) => id !== event.toolCallId);
}

/**
 * @param {readonly OwedCall[]} calls
 * @param {readonly OwedCall[]} others
 * @returns {readonly OwedCall[]} the calls that are in both lists; `calls` itself if all are
 */
export function common(calls, others) {
  const left = calls.filter(({ id }) => others.some((other) => other.id === id));
  return left.length === calls.length ? calls : left;
}
