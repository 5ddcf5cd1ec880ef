/**
 * One round of answers: each call that a run leaves owed is claimed and run, or left to its
 * claimant.
 */
export type CallClaim = import("./claims.js").CallClaim;
export type ClientEvent = import("./events.js").ClientEvent;
export type OwedCall = import("./events.js").OwedCall;
export type CallAnswer = import("./tools.js").CallAnswer;
export declare class Round {
    #private;
    /**
     * @param {import("./sending.js").ClientParts} parts
     * @param {{conversationId: string, signal: AbortSignal}} where the signal ends the round
     * @param {OwedCall[]} calls that this client answers
     */
    constructor(parts: import("./sending.js").ClientParts, { conversationId, signal }: {
        conversationId: string;
        signal: AbortSignal;
    }, calls: OwedCall[]);
    /**
     * Run the calls; may be iterated once. It ends when each call has an answer, here or elsewhere;
     * as soon as there are answers to post, it does not wait for calls of other clients.
     *
     * @returns {AsyncGenerator<ClientEvent, void, void>}
     */
    events(): AsyncGenerator<ClientEvent, void, void>;
    /** @returns {string[]} the calls that this client has answered, in their order */
    get answered(): string[];
    /**
     * @param {string[]} ids of calls that are answered
     * @returns {Record<string, unknown>} the body of the post with their answers
     */
    bodyOf(ids: string[]): Record<string, unknown>;
    /**
     * Replace an answer that the server refused by an error for the model.
     *
     * @param {string} id
     * @param {Error} refusal
     * @returns {ClientEvent[]} the events of the new answer
     */
    refuse(id: string, refusal: Error): ClientEvent[];
    /**
     * End the claims of answers that the server has.
     *
     * @param {string[]} ids
     */
    markPosted(ids: string[]): void;
    /**
     * @param {string[]} ids
     * @returns {boolean} whether none of these answers has been posted
     */
    areUnposted(ids: string[]): boolean;
    /** Release the calls that are left: other clients may run them. */
    release(): void;
}
