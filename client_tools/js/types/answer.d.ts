/** The answer of one `send`, over all its runs, without what was rewound. */
export type Call = import("./calls.js").Call;
export type Event = import("./events.js").Event;
export type Usage = import("./events.js").Usage;
export type UsageEvent = import("./events.js").UsageEvent;
/** @typedef {import("./calls.js").Call} Call */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").Usage} Usage */
/** @typedef {import("./events.js").UsageEvent} UsageEvent */
export declare class Answer {
    #private;
    /** @param {number} [maxChars] limit of its texts */
    constructor(maxChars?: number);
    /**
     * @param {Event} event
     * @throws {LimitExceeded}
     */
    add(event: Event): void;
    /** The text of all runs; a blank line separates runs between which client tools ran. */
    get text(): string;
    /** The model's reasoning, if it was included; without that of sub-agents. */
    get reasoning(): string;
    /** The accepted object, if an output schema was given; the text is a draft then. */
    get output(): unknown;
    /**
     * @returns {readonly Call[]} in the order in which they began, with the calls of a sub-agent
     *   within the call that it works on; the same list until something changes
     */
    get calls(): readonly Call[];
    /**
     * @returns {string | undefined} the name of the model that answered last, sub-agents aside;
     *   undefined if there is none or the server does not name it
     */
    get model(): string | undefined;
    /**
     * @returns {readonly UsageEvent[]} the usage of each model call, sub-agents' included, with
     *   `include: ["usage"]`
     */
    get modelCalls(): readonly UsageEvent[];
    /** @returns {Usage | null} the sum of `modelCalls`; null if there are none */
    get usage(): Usage | null;
}
