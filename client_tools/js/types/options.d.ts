/** The options of a client: their defaults, and the check of what a program passes. */
export type Limits = {
    /**
     * one event of a stream
     */
    eventChars: number;
    /**
     * the body of an error
     */
    errorBytes: number;
    /**
     * any other body
     */
    jsonBytes: number;
    /**
     * the arguments of one call
     */
    argumentChars: number;
    /**
     * the result of one call, in UTF-8: a text as it is, any other value
     * as JSON
     */
    resultBytes: number;
    /**
     * levels of arrays and objects in it; a server accepts 64 in a whole
     * post
     */
    resultDepth: number;
    /**
     * the error of a tool, as the model gets it
     */
    errorTextChars: number;
    /**
     * calls that one run may leave owed
     */
    owedCalls: number;
    /**
     * posts of results that one `send` may lead to
     */
    rounds: number;
    /**
     * duration of a claim, 1 to 600: how long other clients wait if
     * this one dies
     */
    claimSeconds: number;
};
/**
 * @typedef {object} Limits
 * @property {number} eventChars one event of a stream
 * @property {number} errorBytes the body of an error
 * @property {number} jsonBytes any other body
 * @property {number} argumentChars the arguments of one call
 * @property {number} resultBytes the result of one call, in UTF-8: a text as it is, any other value
 *   as JSON
 * @property {number} resultDepth levels of arrays and objects in it; a server accepts 64 in a whole
 *   post
 * @property {number} errorTextChars the error of a tool, as the model gets it
 * @property {number} owedCalls calls that one run may leave owed
 * @property {number} rounds posts of results that one `send` may lead to
 * @property {number} claimSeconds duration of a claim, 1 to 600: how long other clients wait if
 *   this one dies
 */
/** @type {Readonly<Limits>} */
export declare const LIMITS: Readonly<Limits>;
export type Retry = {
    /**
     * number that may fail in a row, default: 8
     */
    attempts: number;
    /**
     * the same while there was no answer at all. Without this and
     * `attempts`, a client whose server has never answered gives up within two seconds
     */
    unanswered: number;
    /**
     * milliseconds before the second attempt, unless the server sets the
     * delay; doubled each time
     */
    firstDelay: number;
    /**
     * milliseconds; if the server asks for a longer delay, there is no
     * retry
     */
    longestDelay: number;
    /**
     * milliseconds without a byte after which a connection counts as lost;
     * the server pings every 15 seconds
     */
    silence: number;
};
/**
 * @typedef {object} Retry
 * @property {number} attempts number that may fail in a row, default: 8
 * @property {number} unanswered the same while there was no answer at all. Without this and
 *   `attempts`, a client whose server has never answered gives up within two seconds
 * @property {number} firstDelay milliseconds before the second attempt, unless the server sets the
 *   delay; doubled each time
 * @property {number} longestDelay milliseconds; if the server asks for a longer delay, there is no
 *   retry
 * @property {number} silence milliseconds without a byte after which a connection counts as lost;
 *   the server pings every 15 seconds
 */
/** @type {Readonly<Retry>} */
export declare const RETRY: Readonly<Retry>;
export type Rule = [words: string, fits: (value: unknown) => boolean];
/**
 * Check the names and values of a client's options; undefined ones count as absent.
 *
 * @param {unknown} options
 * @throws {InvalidArgument}
 */
export declare function checkOptions(options: unknown): void;
/**
 * @param {string} name
 * @param {import("./tools.js").ClientTool} tool
 * @throws {InvalidArgument}
 */
export declare function checkTool(name: string, { description, parameters, title, needsApproval }: import("./tools.js").ClientTool): void;
/**
 * @param {unknown} url
 * @returns {string} the address without its query and fragment
 * @throws {InvalidArgument} does not quote the URL, which may contain a password
 */
export declare function readAddress(url: unknown): string;
