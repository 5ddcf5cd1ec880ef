/** Text of a model as a person can judge it: characters that cannot be seen, or that reorder others, are written out. */
export type ShownArguments = {
    /**
     * JSON with the same strings, numbers and keys, in which every character can be seen; on one line
     * where it is short
     */
    text: string;
    /**
     * false: the arguments are no JSON, so no tool gets them
     */
    valid: boolean;
    /**
     * keys that one object has more than once; a tool gets the last value of each
     */
    repeated: string[];
};
/**
 * @typedef {object} ShownArguments
 * @property {string} text JSON with the same strings, numbers and keys, in which every character can be seen; on one line
 *   where it is short
 * @property {boolean} valid false: the arguments are no JSON, so no tool gets them
 * @property {string[]} repeated keys that one object has more than once; a tool gets the last value of each
 */
/**
 * Write the characters of a name, an id or a literal that cannot be seen, or that reorder others, as `\uXXXX`.
 *
 * @param {string} text
 * @returns {string}
 */
export declare function escapeInvisible(text: string): string;
/**
 * Do the same for prose: line breaks, spaces of any width, joiners and emoji selectors stay, since writing needs them.
 *
 * @param {string} text
 * @returns {string}
 */
export declare function escapeProse(text: string): string;
/**
 * Write the arguments of a call anew, so that whoever decides on it reads what the tool gets.
 *
 * @param {unknown} args a call's `arguments`: their JSON, or the value that `approve` is asked with
 * @returns {ShownArguments}
 */
export declare function formatArguments(args: unknown): ShownArguments;
