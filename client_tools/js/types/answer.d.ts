/** What the runs of one `send` have said so far, without what became void. */
export type Event = import("./events.js").Event;
export type Call = {
    id: string;
    name: string;
    /**
     * JSON as text, perhaps not whole yet
     */
    arguments: string;
    /**
     * whether the arguments are whole
     */
    complete: boolean;
    /**
     * of the server's tool, or of this client's
     */
    result?: unknown;
    isError?: boolean;
};
export declare class Answer {
    #private;
    /** @param {number} [maxChars] that it may keep */
    constructor(maxChars?: number);
    /**
     * @param {Event} event
     * @throws {LimitExceeded}
     */
    add(event: Event): void;
    /** The text of all runs. */
    get text(): string;
    /** The model's reasoning, for those who asked for it. */
    get reasoning(): string;
    /** @returns {readonly Call[]} in the order in which they began; the same list as long as nothing has changed */
    get calls(): readonly Call[];
}
