/** First contact: the errors for an address where something else than a passback server answers, or nobody does. */
import { ProtocolError } from "./errors.js";
/** Statuses of a gateway, or of a server, that may be another one soon. */
export declare const PASSING: Set<number>;
/** Remembers that a passback server has answered a client, be it with a refusal. */
export declare class Contact {
    isMade: boolean;
    /** Milliseconds that one request, with its repeats, may take until then. */
    longest: number;
    /** @param {Partial<import("./limits.js").Retry>} [given] by the caller, whose own count of attempts is kept to */
    constructor({ attempts, unanswered }?: Partial<import("./limits.js").Retry>);
}
/**
 * Returns the error for an answer that no passback server gives.
 *
 * @param {string} base the server's address
 * @param {Response} response
 * @param {string} text what of its body was read
 * @param {string | undefined} apiKey is not quoted
 * @returns {ProtocolError}
 */
export declare function foreignAnswer(base: string, response: Response, text: string, apiKey: string | undefined): ProtocolError;
/**
 * Says why there may never have been an answer. A browser tells a script no more of a refusal by CORS than that there was none.
 *
 * @param {string} base the server's address
 * @param {unknown} error of the platform, of which Node.js tells the reason
 * @returns {string}
 */
export declare function neverAnswered(base: string, error: unknown): string;
/** @param {Response} response */
export declare function isEvents(response: Response): boolean;
/**
 * @param {Response} response
 * @returns {number | null} seconds
 */
export declare function retryAfterOf(response: Response): number | null;
