/** What crosses the wire, told step by step to the `trace` of a client: for time lines, recordings and bug reports. */

/**
 * @typedef {object} StepPlace what every step has
 * @property {number} time milliseconds since 1970, with fractions; never goes back
 * @property {number} exchange counts from 1 in each client: the same for all that one post, or one run that is followed,
 *   needs of requests, repeats and reconnects included
 */

/**
 * @typedef {{kind: "request", method: string, path: string, headers: Record<string, string>, body: string | null}
 *   & StepPlace} RequestStep a request, without what proves who sends it
 */
/**
 * @typedef {{kind: "response", status: number, headers: Record<string, string>, body: string | null}
 *   & StepPlace} ResponseStep its answer has begun; `body` is there for refusals only
 */
/** @typedef {{kind: "frame", id: string, data: string} & StepPlace} FrameStep a frame of a stream, as it came */
/** @typedef {{kind: "lost", message: string} & StepPlace} LostStep an attempt failed; another one follows after a pause */

/** @typedef {RequestStep | ResponseStep | FrameStep | LostStep} TraceStep */
/** @typedef {Omit<RequestStep, keyof StepPlace> | Omit<ResponseStep, keyof StepPlace> | Omit<FrameStep, keyof StepPlace>
 *   | Omit<LostStep, keyof StepPlace>} Step */

/**
 * @callback Trace is called with each step, at once; what it throws ends what was going on
 * @param {TraceStep} step
 * @returns {void}
 */

/** Of an answer; others may hold secrets, and say nothing about a run. */
const TOLD = [
  "content-type",
  "retry-after",
  "x-conversation-id",
  "x-owed-tool-calls",
  "x-request-id",
  "x-run-id",
];

/** @param {Response} response */
export function toldHeaders(response) {
  return Object.fromEntries(
    TOLD.flatMap((name) => {
      const value = response.headers.get(name);
      return value === null ? [] : [[name, value]];
    }),
  );
}

/** @returns {number} the time of a step */
export function now() {
  return performance.timeOrigin + performance.now();
}
