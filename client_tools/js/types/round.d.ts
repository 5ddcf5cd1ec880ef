/** One round of answers: the calls that a run has handed back, each claimed, run, or left to whoever holds it. */
export type Claim = import("./claims.js").Claim;
export type ClientEvent = import("./events.js").ClientEvent;
export type OwedCall = import("./events.js").OwedCall;
export type Answered = import("./tools.js").Answered;
export declare class Round {
    #private;
    /**
     * @param {import("./sending.js").Parts} parts
     * @param {{conversationId: string, signal: AbortSignal}} where the signal gives the round up
     * @param {OwedCall[]} calls that this client answers
     */
    constructor(parts: import("./sending.js").Parts, { conversationId, signal }: {
        conversationId: string;
        signal: AbortSignal;
    }, calls: OwedCall[]);
    /**
     * Runs the calls; may be iterated once. It ends when each has an answer, here or elsewhere; and, as soon as there are
     * some to be posted, it does not wait for those of other clients.
     *
     * @returns {AsyncGenerator<ClientEvent, void, void>}
     */
    events(): AsyncGenerator<ClientEvent, void, void>;
    /** @returns {Record<string, unknown> | null} what there is to be posted, in the order of the calls */
    get body(): Record<string, unknown> | null;
    /** The server has the answers. */
    end(): void;
    /** Nothing will be posted: other clients may run the calls. */
    giveBack(): void;
}
