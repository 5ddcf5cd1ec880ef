/** The calls of an answer, as a tree: calls of a sub-agent are within the call that it works on. */
export type Entries = import("./state.js").ChatState["entries"];
export type Event = import("./events.js").Event;
export type OwedCall = import("./events.js").OwedCall;
export type Call = {
    id: string;
    /**
     * "" if only events of its sub-agent were seen
     */
    name: string;
    /**
     * JSON as text, perhaps incomplete
     */
    arguments: string;
    /**
     * whether the arguments are complete
     */
    complete: boolean;
    /**
     * of the server's tool or this client's
     */
    result?: unknown;
    isError?: boolean;
    /**
     * why the server wrote the result itself,
     * if no tool returned it
     */
    synthetic?: import("./events.js").Synthetic;
    /**
     * the tool's name for people (`include: ["tools"]`, as the next four)
     */
    title?: string;
    /**
     * what the tool does
     */
    kind?: import("./events.js").ToolKind;
    /**
     * whether a tool of the server has begun to work on it
     */
    began?: boolean;
    /**
     * the files that it is about
     */
    locations?: import("./events.js").Location[];
    /**
     * how long that tool worked
     */
    durationMs?: number;
    /**
     * its progress (`include: ["progress"]`)
     */
    progress?: string;
    /**
     * the text of the sub-agent that works on it (`include: ["agents"]`)
     */
    agentText?: string;
    /**
     * the calls of that sub-agent
     */
    calls?: Call[];
};
export type Known = {
    call: Omit<Call, "calls">;
    parent: string | undefined;
};
export type Results = Map<string, {
    result: unknown;
    isError: boolean;
    synthetic?: import("./events.js").Synthetic;
}>;
export declare class Calls {
    #private;
    /** @param {Map<string, Known>} [known] */
    constructor(known?: Map<string, Known>);
    /** @returns {Calls} an independent copy */
    copy(): Calls;
    /**
     * @param {Event} event
     * @returns {boolean} whether the event is about a call
     */
    feed(event: Event): boolean;
    /** @returns {Call[]} the answer's own calls, with those of sub-agents within them */
    tree(): Call[];
}
/**
 * @param {{synthetic?: import("./events.js").Synthetic}} said fields of a result, in an event or in
 *   the history
 * @returns {{synthetic?: import("./events.js").Synthetic}} the field, if it is there
 */
export declare function syntheticOf({ synthetic }: {
    synthetic?: import("./events.js").Synthetic;
}): {
    synthetic?: import("./events.js").Synthetic;
};
/**
 * @param {Entries} entries
 * @returns {string[]} the complete calls without a result, those of sub-agents included
 */
export declare function unansweredCalls(entries: Entries): string[];
/**
 * Search the history from its end.
 *
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {ReadonlySet<string>} ids of calls
 * @param {AbortSignal} signal
 * @returns {Promise<Results>} the results that were found
 */
export declare function readResults(client: import("./client.js").Client, conversationId: string, ids: ReadonlySet<string>, signal: AbortSignal): Promise<Results>;
/**
 * @param {Entries} entries
 * @param {Results} results
 * @returns {Entries} the entries with the results in their calls
 */
export declare function withResults(entries: Entries, results: Results): Entries;
/**
 * @param {unknown} content of a result in the history
 * @returns {unknown} the value that the tool has returned
 */
export declare function valueOf(content: unknown): unknown;
