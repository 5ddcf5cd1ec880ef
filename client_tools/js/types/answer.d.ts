/** What the runs of one `send` have said so far, without what became void. */
export type Call = import("./calls.js").Call;
export type Event = import("./events.js").Event;
export type Usage = import("./events.js").Usage;
export type UsageEvent = import("./events.js").UsageEvent;
export declare class Answer {
    #private;
    /** @param {number} [maxChars] that it may keep */
    constructor(maxChars?: number);
    /**
     * @param {Event} event
     * @throws {LimitExceeded}
     */
    add(event: Event): void;
    /** All that was said; the runs between which client tools ran are parted by an empty line. */
    get text(): string;
    /** The model's reasoning, for those who asked for it; that of sub-agents is no part of it. */
    get reasoning(): string;
    /** The accepted value, where the answer had to fit an output schema: an object. The text is a draft then. */
    get output(): unknown;
    /** @returns {readonly Call[]} in the order in which they began, those of sub-agents within the calls that these work on;
     *   the same list as long as nothing has changed */
    get calls(): readonly Call[];
    /** @returns {string | undefined} the name of the model that spoke last, sub-agents aside; undefined where none did, or it is not
     *   told */
    get model(): string | undefined;
    /** @returns {readonly UsageEvent[]} what each model call used, sub-agents' included, for those who asked for it
     *   (`include: ["usage"]`) */
    get modelCalls(): readonly UsageEvent[];
    /** @returns {Usage | null} the sum of `modelCalls`; null where there are none, or nothing is told of them */
    get usage(): Usage | null;
}
