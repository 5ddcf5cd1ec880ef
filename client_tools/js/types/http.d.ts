/**
 * Requests to one server: with the API key, errors for error statuses, and limits on every body.
 */
import { Aborter } from "./signals.js";
export type Limits = import("./options.js").Limits;
export type Retry = import("./retry.js").Retry;
export type Request = {
    method?: string;
    headers?: Record<string, string>;
    /**
     * sent as JSON
     */
    body?: unknown;
    signal: AbortSignal;
    /**
     * its number in the trace; default: a new one
     */
    exchange?: number;
    /**
     * whether the request outlives the page
     */
    keepalive?: boolean;
};
/** A response whose body is still to be read. */
export declare class Connection {
    #private;
    response: Response;
    /**
     * @param {Response} response
     * @param {Aborter} aborter
     */
    constructor(response: Response, aborter: Aborter);
    /**
     * @param {number} silence milliseconds without a byte after which the connection counts as lost
     * @returns {Promise<Uint8Array | undefined>} undefined at its end, for whatever reason
     */
    read(silence: number): Promise<Uint8Array | undefined>;
    /** Close the connection at once. */
    close(): void;
    /** Let the response end by itself, so that its socket can be reused. */
    finish(): void;
}
export declare class Http {
    #private;
    /**
     * @param {object} options
     * @param {string | URL} options.url
     * @param {string | undefined} options.apiKey
     * @param {typeof globalThis.fetch} options.fetch
     * @param {Limits} options.limits
     * @param {Retry} options.retry
     * @param {import("./trace.js").Trace | undefined} [options.trace]
     */
    constructor({ url, apiKey, fetch, limits, retry, trace }: {
        url: string | URL;
        apiKey: string | undefined;
        fetch: typeof globalThis.fetch;
        limits: Limits;
        retry: Retry;
        trace?: import("./trace.js").Trace | undefined;
    });
    /** @returns {number} a number for requests that belong together */
    newExchange(): number;
    /**
     * @param {number} exchange
     * @param {import("./trace.js").Step} step
     */
    trace(exchange: number, step: import("./trace.js").Step): void;
    /**
     * @param {string} path
     * @param {Request} request
     * @returns {Promise<Connection>} a response with a stream of events
     * @throws {ApiError | ConnectionLost | ProtocolError} or the signal's reason
     */
    stream(path: string, request: Request): Promise<Connection>;
    /**
     * @param {string} path
     * @param {Request} request
     * @returns {Promise<Record<string, unknown>>} the body of the response; empty if it has none
     */
    json(path: string, request: Request): Promise<Record<string, unknown>>;
}
