/** The versions of messages and answers, beside the entries that show them. */

/** @typedef {import("./branches.js").BranchPoint} BranchPoint */
/** @typedef {import("./state.js").AssistantEntry} AssistantEntry */
/** @typedef {import("./state.js").UserEntry} UserEntry */
/** @typedef {import("./state.js").Versions} Versions */

export class VersionedEntries {
  /** @type {readonly BranchPoint[]} */
  branches = [];
  /** The entries with their versions: the same ones until something changes.
   * @type {WeakMap<object, {versions: Versions[], entry: any}>} */
  #shown = new WeakMap();

  /**
   * @param {import("./thread.js").Exchange} exchange
   * @returns {(UserEntry | Readonly<AssistantEntry>)[]}
   */
  of({ asked, said, ids }) {
    const questions = asked.map(({ id, entry }) =>
      this.#add(entry, ({ current }) => current === id),
    );
    if (said === null) return questions;
    const question = asked.at(-1)?.id;
    // an answer that was streamed is not known by the ids of its messages
    const isBehind = (/** @type {BranchPoint} */ { after, current }) =>
      after === question && question !== undefined && !asked.some(({ id }) => id === current);
    const answer = this.#add(said, (each) => ids.has(each.current ?? "") || isBehind(each));
    return [...questions, answer];
  }

  /**
   * Forget the versions of a place, until they are read again.
   *
   * @param {string} id of the message that is sent, or answered, anew
   */
  forget(id) {
    this.branches = this.branches.filter(({ after, current }) => after !== id && current !== id);
  }

  /**
   * @template {UserEntry | Readonly<AssistantEntry>} Entry
   * @param {Entry} entry
   * @param {(branch: BranchPoint) => boolean} isOwn
   * @returns {Entry}
   */
  #add(entry, isOwn) {
    if (this.branches.length === 0) return entry;
    const versions = this.branches.flatMap((branch) => {
      const { versions: ids, current } = branch;
      return current !== null && isOwn(branch) ? [{ ids, current }] : [];
    });
    if (versions.length === 0) return entry;
    const known = this.#shown.get(entry);
    if (known && isSame(known.versions, versions)) return known.entry;
    const shown = { ...entry, versions };
    this.#shown.set(entry, { versions, entry: shown });
    return shown;
  }
}

/**
 * @param {readonly Versions[]} some
 * @param {readonly Versions[]} others
 */
function isSame(some, others) {
  return (
    some.length === others.length &&
    some.every(({ ids, current }, index) => {
      const other = others[index];
      return current === other?.current && ids === other.ids;
    })
  );
}
