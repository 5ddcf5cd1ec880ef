/** Text of a model in visible form: invisible and reordering characters are written as escapes. */
export type ShownArguments = {
    /**
     * JSON with the same strings, numbers and keys, with every character
     * visible; on one line if it is short
     */
    text: string;
    /**
     * false if the arguments are not JSON, so no tool gets them
     */
    valid: boolean;
    /**
     * keys that an object has more than once; a tool gets the last value
     * of each
     */
    repeated: string[];
};
/**
 * @typedef {object} ShownArguments
 * @property {string} text JSON with the same strings, numbers and keys, with every character
 *   visible; on one line if it is short
 * @property {boolean} valid false if the arguments are not JSON, so no tool gets them
 * @property {string[]} repeated keys that an object has more than once; a tool gets the last value
 *   of each
 */
/**
 * Write invisible and reordering characters of a name, an id or a literal as `\uXXXX`.
 *
 * @param {string} text
 * @returns {string}
 */
export declare function escapeInvisible(text: string): string;
/**
 * Do the same for prose, which keeps line breaks, spaces of any width, joiners and emoji selectors.
 *
 * @param {string} text
 * @returns {string}
 */
export declare function escapeProse(text: string): string;
/**
 * Write the arguments of a call anew, so that a person who decides on it reads exactly the
 * arguments that the tool gets.
 *
 * @param {unknown} args a call's `arguments`: their JSON, or the value that `approve` gets
 * @returns {ShownArguments}
 */
export declare function formatArguments(args: unknown): ShownArguments;
