/** The calls that people owe an answer, event by event. */
export type Event = import("./events.js").Event;
export type OwedCall = import("./events.js").OwedCall;
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/** @param {OwedCall} call */
export declare function isForPerson({ kind }: OwedCall): boolean;
/**
 * @param {readonly OwedCall[]} owed to people
 * @param {Event} event
 */
export declare function owedAfter(owed: readonly OwedCall[], event: Event): readonly import("./events.js").OwedCall[];
/**
 * @param {readonly OwedCall[]} calls
 * @param {readonly OwedCall[]} others
 * @returns {readonly OwedCall[]} the calls that are in both lists; `calls` itself if all are
 */
export declare function common(calls: readonly OwedCall[], others: readonly OwedCall[]): readonly OwedCall[];
