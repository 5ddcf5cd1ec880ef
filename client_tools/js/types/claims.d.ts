/** Claims: of the clients that see an owed call, one runs it. The server keeps them; a result counts with or without one. */
import { Aborter } from "./signals.js";
export type Http = import("./http.js").Http;
export type Retry = import("./retry.js").Retry;
export type Claimed = Claim | {
    left: number;
} | "settled";
export declare class Claims {
    #private;
    /**
     * @param {Http} http
     * @param {Retry} retry
     * @param {number} seconds that a claim lasts without being renewed; 0: no call is claimed
     */
    constructor(http: Http, retry: Retry, seconds: number);
    /**
     * @param {string} conversationId
     * @param {string} callId
     * @param {AbortSignal} signal gives up; what was claimed by then is given back
     * @returns {Promise<Claimed>}
     * @throws {import("./errors.js").PassbackError} or the signal's reason
     */
    take(conversationId: string, callId: string, signal: AbortSignal): Promise<Claimed>;
}
/** The right to run one call. */
export declare class Claim {
    #private;
    /** Ends with the claim. */
    renewing: Aborter;
    /** Whether somebody else has answered the call. */
    isSettled: boolean;
    /** Is called when somebody else has. */
    onSettled: () => void;
    /** @param {() => void} [drop] tells the server; without it, there is nothing to tell */
    constructor(drop?: () => void);
    settle(): void;
    /** Nobody runs the call: another client may. */
    giveBack(): void;
    /** The call is answered. */
    end(): void;
}
