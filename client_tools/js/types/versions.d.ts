/** The versions of messages and answers, beside the entries that show them. */
export type BranchPoint = import("./branches.js").BranchPoint;
export type AssistantEntry = import("./state.js").AssistantEntry;
export type UserEntry = import("./state.js").UserEntry;
export type Versions = import("./state.js").Versions;
/** @typedef {import("./branches.js").BranchPoint} BranchPoint */
/** @typedef {import("./state.js").AssistantEntry} AssistantEntry */
/** @typedef {import("./state.js").UserEntry} UserEntry */
/** @typedef {import("./state.js").Versions} Versions */
export declare class VersionedEntries {
    #private;
    /** @type {readonly BranchPoint[]} */
    branches: readonly BranchPoint[];
    /**
     * @param {import("./thread.js").Exchange} exchange
     * @returns {(UserEntry | Readonly<AssistantEntry>)[]}
     */
    of({ asked, said, ids }: import("./thread.js").Exchange): (UserEntry | Readonly<AssistantEntry>)[];
    /**
     * Forget the versions of a place, until they are read again.
     *
     * @param {string} id of the message that is sent, or answered, anew
     */
    forget(id: string): void;
}
