/**
 * Steps of the `trace` of a client: each request, response and frame, for recordings and bug
 * reports.
 */

/**
 * @typedef {object} StepPlace fields of every step
 * @property {number} time milliseconds since 1970, with fractions; never goes back
 * @property {number} exchange counts from 1 in each client; one number for all requests of a post
 *   or of a followed run, retries and reconnects included
 */

/**
 * @typedef {{kind: "request", method: string, path: string, headers: Record<string, string>, body:
 *   string | null} & StepPlace} RequestStep a request, without credentials
 */
/**
 * @typedef {{kind: "response", status: number, headers: Record<string, string>, body: string |
 *   null} & StepPlace} ResponseStep the start of its response; `body` only for errors
 */
/**
 * @typedef {{kind: "frame", id: string, data: string} & StepPlace} FrameStep a frame of a stream,
 *   as received
 */
/**
 * @typedef {{kind: "lost", message: string} & StepPlace} LostStep a failed attempt; another follows
 *   after a pause
 */

/** @typedef {RequestStep | ResponseStep | FrameStep | LostStep} TraceStep */
/**
 * @typedef {Omit<RequestStep, keyof StepPlace> | Omit<ResponseStep, keyof StepPlace> |
 *   Omit<FrameStep, keyof StepPlace> | Omit<LostStep, keyof StepPlace>} Step
 */

/**
 * @callback Trace called with each step, at once; an error that it throws ends the sending
 * @param {TraceStep} step
 * @returns {void}
 */

/** Response headers in the trace; others may be secret, and do not concern the run. */
const TRACED_HEADERS = [
  "content-type",
  "retry-after",
  "x-conversation-id",
  "x-owed-tool-calls",
  "x-request-id",
  "x-run-id",
];

/** @param {Response} response */
export function tracedHeaders(response) {
  return Object.fromEntries(
    TRACED_HEADERS.flatMap((name) => {
      const value = response.headers.get(name);
      return value === null ? [] : [[name, value]];
    }),
  );
}
