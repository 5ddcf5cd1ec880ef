/** The messages and answers of a chat in their order, by the runs of which they are. */
import { Answer } from "./answer.js";
export type AssistantEntry = import("./chat.js").AssistantEntry;
export type UserEntry = import("./chat.js").UserEntry;
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
     * whether its events come again, from its start
     */
    isAgain?: boolean;
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
    runs: ShownRun[];
    /**
     * whether this chat sends it, and no run of it has begun
     */
    isWaiting: boolean;
    /**
     * the id of the message that it takes the place of, with all
     * behind that, as soon as its run begins
     */
    replaces: string | null;
};
/** @typedef {import("./chat.js").AssistantEntry} AssistantEntry */
/** @typedef {import("./chat.js").UserEntry} UserEntry */
/** @typedef {import("./events.js").Event} Event */
/** @typedef {import("./messages.js").Message} Message */
/**
 * @typedef {object} ShownRun
 * @property {string} id
 * @property {number | null} first position of its first message; null: not known yet
 * @property {boolean | null} isOwn whether its events come from a `send`, not from watching; null:
 *   neither has begun to read it
 * @property {boolean} isOpen whether more of its events follow
 * @property {boolean} [isAgain] whether its events come again, from its start
 * @property {Readonly<AssistantEntry> | null} before the answer before this run
 */
/**
 * @typedef {object} Exchange what a user has said, and the answer, over all its runs
 * @property {{id: string, entry: UserEntry}[]} asked
 * @property {Answer} answer
 * @property {Readonly<AssistantEntry> | null} said the answer so far
 * @property {ShownRun[]} runs
 * @property {boolean} isWaiting whether this chat sends it, and no run of it has begun
 * @property {string | null} replaces the id of the message that it takes the place of, with all
 *   behind that, as soon as its run begins
 */
export declare class Thread {
    #private;
    /** @returns {readonly (UserEntry | Readonly<AssistantEntry>)[]} */
    get entries(): readonly (UserEntry | Readonly<AssistantEntry>)[];
    /** @returns {Exchange} the last one that has an answer, which may continue */
    get last(): Exchange;
    /** The position from which on all messages are shown, if it is known. */
    get lastFirst(): number | null;
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
    /**
     * Let the watch read the rest of a run that a `send` has left; all of it, if the watch has not
     * come to it yet.
     *
     * @param {string} id
     */
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
     * @param {boolean} isEarly whether those of other clients belong to the history before the chat
     */
    post({ runId, first, messages }: import("./events.js").PostedEvent, isEarly: boolean): void;
    /**
     * Replace all from a position on by messages of the history.
     *
     * @param {number} first
     * @param {Message[]} messages
     */
    load(first: number, messages: Message[]): void;
    /** @param {import("./calls.js").Results} results of calls that are shown */
    addResults(results: import("./calls.js").Results): void;
}
/**
 * @param {{id: string, content: import("./client.js").UserMessage["content"]}} message
 * @returns {UserEntry}
 */
export declare function entryOf({ id, content }: {
    id: string;
    content: import("./client.js").UserMessage["content"];
}): UserEntry;
