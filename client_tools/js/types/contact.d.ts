/**
 * Errors of the first contact: no answer, or the answer of something other than a passback server.
 */
import { ProtocolError } from "./errors.js";
/** Statuses of a gateway or a server that a retry may cure. */
export declare const TRANSIENT_STATUSES: Set<number>;
/** State of the first contact: made by any answer of a passback server. */
export declare class Contact {
    isMade: boolean;
    /** Milliseconds that a request and its retries may take until then. */
    longest: number;
    /**
     * @param {Partial<import("./options.js").Retry>} [given] options of the caller; with a number of
     *   attempts of its own there is no time limit
     */
    constructor({ attempts, unanswered }?: Partial<import("./options.js").Retry>);
}
/**
 * Return the error for an answer that is not a passback server's.
 *
 * @param {string} base the server's address
 * @param {Response} response
 * @param {string} text the part of its body that was read
 * @param {string | undefined} apiKey never quoted
 * @returns {ProtocolError}
 */
export declare function foreignAnswerError(base: string, response: Response, text: string, apiKey: string | undefined): ProtocolError;
/**
 * Return the message for a server that has never answered, with likely causes. A browser hides from
 * scripts that CORS was the reason.
 *
 * @param {string} base the server's address
 * @param {unknown} error of the platform; in Node.js it has the reason
 * @returns {string}
 */
export declare function noAnswerMessage(base: string, error: unknown): string;
/** @param {Response} response */
export declare function isEvents(response: Response): boolean;
/**
 * @param {Response} response
 * @returns {number | null} seconds
 */
export declare function retryAfterOf(response: Response): number | null;
