/**
 * Steps of the `trace` of a client: each request, response and frame, for recordings and bug
 * reports.
 */
export type StepPlace = {
    /**
     * milliseconds since 1970, with fractions; never goes back
     */
    time: number;
    /**
     * counts from 1 in each client; one number for all requests of a post
     * or of a followed run, retries and reconnects included
     */
    exchange: number;
};
export type RequestStep = {
    kind: "request";
    method: string;
    path: string;
    headers: Record<string, string>;
    body: string | null;
} & StepPlace;
export type ResponseStep = {
    kind: "response";
    status: number;
    headers: Record<string, string>;
    body: string | null;
} & StepPlace;
export type FrameStep = {
    kind: "frame";
    id: string;
    data: string;
} & StepPlace;
export type LostStep = {
    kind: "lost";
    message: string;
} & StepPlace;
export type TraceStep = RequestStep | ResponseStep | FrameStep | LostStep;
export type Step = Omit<RequestStep, keyof StepPlace> | Omit<ResponseStep, keyof StepPlace> | Omit<FrameStep, keyof StepPlace> | Omit<LostStep, keyof StepPlace>;
export type Trace = (step: TraceStep) => void;
/** @param {Response} response */
export declare function tracedHeaders(response: Response): {
    [k: string]: string;
};
