/** Requests to one server: the key goes with each, a refusal becomes an error, and no body is read without a bound. */
import { Aborter } from "./signals.js";
export type Limits = import("./limits.js").Limits;
export type Retry = import("./retry.js").Retry;
export type Request = {
    method?: string;
    headers?: Record<string, string>;
    /**
     * is sent as JSON
     */
    body?: unknown;
    signal: AbortSignal;
    /**
     * what it belongs to, for the trace; default: something of its own
     */
    exchange?: number;
    /**
     * outlives the page
     */
    keepalive?: boolean;
};
/** An answer whose body is still to be read. */
export declare class Connection {
    #private;
    response: Response;
    /**
     * @param {Response} response
     * @param {Aborter} aborter
     */
    constructor(response: Response, aborter: Aborter);
    /**
     * @param {number} silence milliseconds after which it counts as lost
     * @returns {Promise<Uint8Array | undefined>} undefined where it ends, whatever ended it
     */
    read(silence: number): Promise<Uint8Array | undefined>;
    /** Ends it at once. */
    close(): void;
    /** Nothing more is expected: let it end by itself, so that its socket can be used again. */
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
    /** @returns {number} for requests that belong together */
    newExchange(): number;
    /**
     * @param {number} exchange
     * @param {import("./trace.js").Step} step
     */
    tell(exchange: number, step: import("./trace.js").Step): void;
    /**
     * @param {string} path
     * @param {Request} request
     * @returns {Promise<Connection>} whose body is a stream of events
     * @throws {ApiError | ConnectionLost | ProtocolError} or the signal's reason
     */
    stream(path: string, request: Request): Promise<Connection>;
    /**
     * @param {string} path
     * @param {Request} request
     * @returns {Promise<Record<string, unknown>>} the body of the answer; empty where it has none
     */
    json(path: string, request: Request): Promise<Record<string, unknown>>;
}
