/** Calls of a chat that were answered elsewhere, or given up: the stream does not say so, the history does. */
export type Call = import("./calls.js").Call;
export type Entries = import("./chat.js").ChatState["entries"];
export type Results = Map<string, {
    result: unknown;
    isError: boolean;
    synthetic?: import("./events.js").Synthetic;
}>;
/**
 * @param {Entries} entries
 * @returns {string[]} the calls without a result, those of sub-agents included
 */
export declare function unanswered(entries: Entries): string[];
/**
 * Looks from the end of the history.
 *
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {ReadonlySet<string>} ids of calls
 * @param {AbortSignal} signal
 * @returns {Promise<Results>} what there is for them
 */
export declare function pastResults(client: import("./client.js").Client, conversationId: string, ids: ReadonlySet<string>, signal: AbortSignal): Promise<Results>;
/**
 * @param {Entries} entries
 * @param {Results} results
 * @returns {Entries} with the results at their calls
 */
export declare function withResults(entries: Entries, results: Results): Entries;
