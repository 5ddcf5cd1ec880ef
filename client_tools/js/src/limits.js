/** The bounds of everything that can grow, and of everything that can wait. */

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
export const LIMITS = Object.freeze({
  eventChars: 8 * 1024 * 1024,
  errorBytes: 64 * 1024,
  jsonBytes: 64 * 1024 * 1024,
  argumentChars: 1024 * 1024,
  resultBytes: 1024 * 1024,
  resultDepth: 56,
  errorTextChars: 2000,
  owedCalls: 128,
  rounds: 100,
  claimSeconds: 30,
});

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
export const RETRY = Object.freeze({ attempts: 8, unanswered: Infinity, firstDelay: 400, longestDelay: 30_000, silence: 45_000 });
