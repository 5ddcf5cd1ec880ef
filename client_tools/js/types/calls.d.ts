/** The calls of an answer, in a tree: what a sub-agent does stands within the call that it works on. */
export type Event = import("./events.js").Event;
export type OwedCall = import("./events.js").OwedCall;
export type Call = {
    id: string;
    /**
     * "" where only what a sub-agent does for it was seen
     */
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
    /**
     * why the server wrote the result itself, where no tool gave it
     */
    synthetic?: import("./events.js").Synthetic;
    /**
     * how far it is (`include: ["progress"]`)
     */
    progress?: string;
    /**
     * what the sub-agent says that works on it (`include: ["agents"]`)
     */
    agentText?: string;
    /**
     * those of the sub-agent that works on it
     */
    calls?: Call[];
};
export type Known = {
    call: Omit<Call, "calls">;
    parent: string | undefined;
};
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./events.js").OwedCall} OwedCall */
/**
 * @typedef {object} Call
 * @property {string} id
 * @property {string} name "" where only what a sub-agent does for it was seen
 * @property {string} arguments JSON as text, perhaps not whole yet
 * @property {boolean} complete whether the arguments are whole
 * @property {unknown} [result] of the server's tool, or of this client's
 * @property {boolean} [isError]
 * @property {import("./events.js").Synthetic} [synthetic] why the server wrote the result itself, where no tool gave it
 * @property {string} [progress] how far it is (`include: ["progress"]`)
 * @property {string} [agentText] what the sub-agent says that works on it (`include: ["agents"]`)
 * @property {Call[]} [calls] those of the sub-agent that works on it
 */
/** @typedef {{call: Omit<Call, "calls">, parent: string | undefined}} Known */
export declare class Calls {
    #private;
    /** @param {Map<string, Known>} [known] */
    constructor(known?: Map<string, Known>);
    /** @returns {Calls} the same ones, that change no more with these */
    copy(): Calls;
    /**
     * @param {Event} event
     * @returns {boolean} whether it says something of calls
     */
    feed(event: Event): boolean;
    /** @returns {Call[]} the answer's own, with those of sub-agents within them */
    tree(): Call[];
}
/**
 * @param {{synthetic?: import("./events.js").Synthetic}} said of a result, here or in the history
 * @returns {{synthetic?: import("./events.js").Synthetic}} without what is not there
 */
export declare function why({ synthetic }: {
    synthetic?: import("./events.js").Synthetic;
}): {
    synthetic?: import("./events.js").Synthetic;
};
