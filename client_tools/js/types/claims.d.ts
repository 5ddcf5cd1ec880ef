/**
 * Claims of owed calls: only one client runs a call. A result is accepted with or without a claim.
 */
import { Aborter } from "./signals.js";
export type Http = import("./http.js").Http;
export type Retry = import("./retry.js").Retry;
export type Claimed = CallClaim | {
    left: number;
} | "settled";
export declare class Claims {
    #private;
    /**
     * @param {Http} http
     * @param {Retry} retry
     * @param {number} seconds until a claim expires unless it is renewed; 0: claim nothing
     */
    constructor(http: Http, retry: Retry, seconds: number);
    /**
     * @param {string} conversationId
     * @param {string} callId
     * @param {AbortSignal} signal aborts; a claim made by then is released
     * @returns {Promise<Claimed>}
     * @throws {import("./errors.js").PassbackError} or the signal's reason
     */
    claimCall(conversationId: string, callId: string, signal: AbortSignal): Promise<Claimed>;
}
/** The right to run one call. */
export declare class CallClaim {
    #private;
    /** Aborted when the claim ends. */
    renewing: Aborter;
    /** True once another client has answered the call. */
    isSettled: boolean;
    /** Called when another client has answered the call. */
    onSettled: () => void;
    /** @param {() => void} [release] releases it on the server, if it was claimed there */
    constructor(release?: () => void);
    settle(): void;
    /** Let another client run the call. */
    release(): void;
    /** Stop renewing: the call is answered. */
    end(): void;
}
