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
    /** @returns {string[]} the calls that this client has answered, in their order */
    get answered(): string[];
    /**
     * @param {string[]} ids of calls that are answered
     * @returns {Record<string, unknown>} what is to be posted for them
     */
    bodyOf(ids: string[]): Record<string, unknown>;
    /**
     * The server refuses an answer: the model is told so instead.
     *
     * @param {string} id
     * @param {Error} refusal
     * @returns {ClientEvent[]} what this client says of it
     */
    refuse(id: string, refusal: Error): ClientEvent[];
    /**
     * The server has these answers.
     *
     * @param {string[]} ids
     */
    end(ids: string[]): void;
    /**
     * @param {string[]} ids
     * @returns {boolean} whether the server has none of these answers
     */
    waitsWith(ids: string[]): boolean;
    /** Nothing more will be posted: other clients may run the calls that are left. */
    giveBack(): void;
}
