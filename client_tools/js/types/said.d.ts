/** The text of an answer, over all its runs, without what was rewound. */
export type Event = import("./events.js").Event;
/** @typedef {import("./events.js").Event} Event */
/** Default limit of the texts of an answer. */
export declare const MAX_CHARS: number;
export declare class SaidText {
    #private;
    /** @param {number} [maxChars] limit of the text */
    constructor(maxChars?: number);
    /** The text of all runs; a blank line separates runs between which client tools ran. */
    get text(): string;
    /**
     * @param {Event} event
     * @throws {LimitExceeded}
     */
    add(event: Event): void;
}
