/** The messages and answers of a chat in their order, by the runs of which they are. */
import { Answer } from "./answer.js";
export type AssistantEntry = import("./state.js").AssistantEntry;
export type UserEntry = import("./state.js").UserEntry;
export type Event = import("./events.js").Event;
export type Message = import("./messages.js").Message;
export type ShownRun = {
    id: string;
    /**
     * position of its first message; null: not known yet
     */
    first: number | null;
    /**
     * whether its events come from a `send`, not from watching; null:
     * neither has begun to read it
     */
    isOwn: boolean | null;
    /**
     * whether more of its events follow
     */
    isOpen: boolean;
    /**
     * the answer before this run
     */
    before: Readonly<AssistantEntry> | null;
};
export type Exchange = {
    asked: {
        id: string;
        entry: UserEntry;
    }[];
    answer: Answer;
    /**
     * the answer so far
     */
    said: Readonly<AssistantEntry> | null;
    /**
     * of the messages of the answer, as far as they are known
     */
    ids: Set<string>;
    runs: ShownRun[];
    /**
     * whether this chat sends it, and no run of it has begun
     */
    isWaiting: boolean;
    /**
     * whether this chat reads its answer
     */
    isReading: boolean;
    /**
     * the id of the message that it takes the place of, with all
     * behind that, as soon as its run begins
     */
    replaces: string | null;
};
/** @typedef {import("./state.js").AssistantEntry} AssistantEntry */
/** @typedef {import("./state.js").UserEntry} UserEntry */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./messages.js").Message} Message */
/**
 * @typedef {object} ShownRun
 * @property {string} id
 * @property {number | null} first position of its first message; null: not known yet
 * @property {boolean | null} isOwn whether its events come from a `send`, not from watching; null:
 *   neither has begun to read it
 * @property {boolean} isOpen whether more of its events follow
 * @property {Readonly<AssistantEntry> | null} before the answer before this run
 */
/**
 * @typedef {object} Exchange what a user has said, and the answer, over all its runs
 * @property {{id: string, entry: UserEntry}[]} asked
 * @property {Answer} answer
 * @property {Readonly<AssistantEntry> | null} said the answer so far
 * @property {Set<string>} ids of the messages of the answer, as far as they are known
 * @property {ShownRun[]} runs
 * @property {boolean} isWaiting whether this chat sends it, and no run of it has begun
 * @property {boolean} isReading whether this chat reads its answer
 * @property {string | null} replaces the id of the message that it takes the place of, with all
 *   behind that, as soon as its run begins
 */
export declare class Thread {
    #private;
    /** Whether something has taken the place of what was shown, so that there are new versions. */
    isRewritten: boolean;
    /** @returns {readonly (UserEntry | Readonly<AssistantEntry>)[]} */
    get entries(): readonly (UserEntry | Readonly<AssistantEntry>)[];
    /** @param {readonly import("./branches.js").BranchPoint[]} branches of what is shown */
    set branches(branches: readonly import("./branches.js").BranchPoint[]);
    /** @returns {Exchange} the last one that has an answer, which may continue */
    get last(): Exchange;
    clear(): void;
    /**
     * @param {Exchange["asked"]} asked messages that this chat sends
     * @param {string | null} [replaces]
     * @returns {Exchange}
     */
    begin(asked: Exchange["asked"], replaces?: string | null): Exchange;
    /**
     * @param {string} id
     * @returns {Exchange["asked"]} the message of a user, if it is shown
     */
    find(id: string): Exchange["asked"];
    /**
     * Let an exchange take the place of the message that it replaces; those that wait stay.
     *
     * @param {Exchange} own
     */
    replace(own: Exchange): void;
    /** @param {Exchange} exchange whose message was refused */
    remove(exchange: Exchange): void;
    /**
     * Note who reads a run: the first one to ask does, for the whole run.
     *
     * @param {string} id
     * @param {Exchange | null} own where a `send` reads it; null: it is watched
     * @returns {boolean} whether this reader is the one
     */
    claim(id: string, own: Exchange | null): boolean;
    /** @param {string} id of a run that a `send` has left before its end: it has to be read again */
    release(id: string): void;
    /**
     * @param {string} id
     * @returns {boolean} whether the watch has come to this run
     */
    isReached(id: string): boolean;
    /**
     * @param {Event} event
     * @param {Exchange} [exchange] default: that of its run
     */
    add(event: Event, exchange?: Exchange): void;
    /**
     * Take the messages with which a run begins: they replace all from their position on.
     *
     * @param {import("./events.js").PostedEvent} event
     */
    post({ runId, first, messages }: import("./events.js").PostedEvent): void;
    /**
     * @param {Message[]} messages with which a run of another client begins
     * @returns {boolean} whether they have answers that are not shown, or results that are: of
     *   another branch
     */
    isOfOtherBranch(messages: Message[]): boolean;
    /**
     * Show the newest messages of the history. The older ones that are shown stay if they are those
     * before these.
     *
     * @param {number} first
     * @param {Message[]} messages
     * @returns {boolean} whether older ones stay
     */
    load(first: number, messages: Message[]): boolean;
    /**
     * Show messages before the first one.
     *
     * @param {number} first
     * @param {Message[]} messages
     */
    prepend(first: number, messages: Message[]): void;
    /**
     * Show messages of the history behind those that are shown.
     *
     * @param {number} first
     * @param {Message[]} messages
     * @param {ReadonlySet<string>} shown messages of users that are shown otherwise
     * @returns {Exchange[]}
     */
    append(first: number, messages: Message[], shown: ReadonlySet<string>): Exchange[];
    /** @param {import("./calls.js").Results} results of calls that are shown */
    addResults(results: import("./calls.js").Results): void;
}
