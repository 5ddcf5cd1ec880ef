/** The server's routes. */
export type Connection = import("./http.js").Connection;
export type Http = import("./http.js").Http;
export type Post = {
    key: string;
    body: Record<string, unknown>;
    /**
     * default: that of the server's first agent
     */
    path?: string;
};
/**
 * @typedef {object} Post a user's message or a round of results; may be sent again unchanged
 * @property {string} key
 * @property {Record<string, unknown>} body
 * @property {string} [path] default: that of the server's first agent
 */
/**
 * @param {Iterable<string>} wanted
 * @returns {string[]} the kinds of events to ask for: the same in each request, so that each event
 *   comes once
 */
export declare function included(wanted: Iterable<string>): string[];
/**
 * @param {Http} http
 * @param {Post} post
 * @param {{after: string, signal: AbortSignal, exchange: number}} options
 * @returns {Promise<Connection>}
 */
export declare function postMessages(http: Http, { key, body, path }: Post, { after, signal, exchange }: {
    after: string;
    signal: AbortSignal;
    exchange: number;
}): Promise<Connection>;
/**
 * @param {Http} http
 * @param {string} conversationId
 * @param {{runId: string | null, after: string, include: string[], signal: AbortSignal, exchange:
 *   number}} options without `runId` and `after`, it follows the newest run
 * @returns {Promise<Connection>}
 */
export declare function openStream(http: Http, conversationId: string, { runId, after, include, signal, exchange }: {
    runId: string | null;
    after: string;
    include: string[];
    signal: AbortSignal;
    exchange: number;
}): Promise<Connection>;
/**
 * @param {Http} http
 * @param {string} conversationId
 * @param {{after: string, absent: "wait" | "refuse", include: string[], signal: AbortSignal,
 *   exchange: number}} options
 * @returns {Promise<Connection>} the events of all runs
 */
export declare function openConversation(http: Http, conversationId: string, { after, absent, include, signal, exchange }: {
    after: string;
    absent: "wait" | "refuse";
    include: string[];
    signal: AbortSignal;
    exchange: number;
}): Promise<Connection>;
/**
 * @param {string} id
 * @returns {string}
 * @throws {InvalidArgument}
 */
export declare function conversationPath(id: string): string;
/**
 * @param {string} agentId
 * @returns {string} the path of posts to this agent
 * @throws {InvalidArgument}
 */
export declare function agentPath(agentId: string): string;
/**
 * @param {Headers} headers of a response
 * @returns {import("./events.js").Left | null} the rest of the limits of conversation and owner
 *   when it began
 */
export declare function readBudgetLeft(headers: Headers): import("./events.js").Left | null;
/** @returns {string} a random UUID, also on pages that are served without TLS */
export declare function randomId(): string;
