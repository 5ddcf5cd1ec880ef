/** The bounds of everything that can grow, and of everything that can wait. */
export type Limits = {
    /**
     * one event of a stream
     */
    eventChars: number;
    /**
     * the body of a refusal
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
     * the result of one call, in UTF-8: of a text itself, of everything else as JSON
     */
    resultBytes: number;
    /**
     * levels of arrays and objects in it; a server reads 64 in all that is posted
     */
    resultDepth: number;
    /**
     * what is told to the model of a tool that threw
     */
    errorTextChars: number;
    /**
     * calls that one run may hand back
     */
    owedCalls: number;
    /**
     * posts of results that one `send` may lead to
     */
    rounds: number;
    /**
     * for which a call is claimed at a time, 1 to 600: how long other clients wait for one that died
     */
    claimSeconds: number;
};
/**
 * @typedef {object} Limits
 * @property {number} eventChars one event of a stream
 * @property {number} errorBytes the body of a refusal
 * @property {number} jsonBytes any other body
 * @property {number} argumentChars the arguments of one call
 * @property {number} resultBytes the result of one call, in UTF-8: of a text itself, of everything else as JSON
 * @property {number} resultDepth levels of arrays and objects in it; a server reads 64 in all that is posted
 * @property {number} errorTextChars what is told to the model of a tool that threw
 * @property {number} owedCalls calls that one run may hand back
 * @property {number} rounds posts of results that one `send` may lead to
 * @property {number} claimSeconds for which a call is claimed at a time, 1 to 600: how long other clients wait for one that died
 */
/** @type {Readonly<Limits>} */
export declare const LIMITS: Readonly<Limits>;
export type Retry = {
    /**
     * how many may fail in a row, default: 8
     */
    attempts: number;
    /**
     * the same as long as nobody has answered at all: perhaps nobody is there. Without this and
     * `attempts`, a client whose server has never answered gives up within two seconds
     */
    unanswered: number;
    /**
     * milliseconds before the second attempt, where the server does not say it; doubled each time
     */
    firstDelay: number;
    /**
     * milliseconds; a server that asks for more is not asked again
     */
    longestDelay: number;
    /**
     * milliseconds without a byte after which a connection counts as lost; the server
     * pings every 15 seconds
     */
    silence: number;
};
/**
 * @typedef {object} Retry
 * @property {number} attempts how many may fail in a row, default: 8
 * @property {number} unanswered the same as long as nobody has answered at all: perhaps nobody is there. Without this and
 *   `attempts`, a client whose server has never answered gives up within two seconds
 * @property {number} firstDelay milliseconds before the second attempt, where the server does not say it; doubled each time
 * @property {number} longestDelay milliseconds; a server that asks for more is not asked again
 * @property {number} silence milliseconds without a byte after which a connection counts as lost; the server
 *   pings every 15 seconds
 */
/** @type {Readonly<Retry>} */
export declare const RETRY: Readonly<Retry>;
