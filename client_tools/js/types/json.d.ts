/** JSON of others, parsed and taken for nothing that it is not; and our own, such as a server reads it. */
/**
 * @param {string} text
 * @returns {unknown} undefined when the text is not JSON
 */
export declare function parseJson(text: string): unknown;
/**
 * @param {unknown} value
 * @returns {Record<string, unknown>} the value when it is an object, else an empty one
 */
export declare function asRecord(value: unknown): Record<string, unknown>;
/**
 * @param {unknown} value
 * @returns {string | undefined} the value as JSON, with U+FFFD for halves of characters, which no UTF-8 has; undefined for what
 *   JSON has no word for
 * @throws {Error} where it cannot be written
 */
export declare function writeJson(value: unknown): string | undefined;
/**
 * @param {unknown} value as `JSON.parse` gives it
 * @param {number} levels
 * @returns {boolean} whether arrays and objects stand in each other on more levels than these
 */
export declare function isDeeper(value: unknown, levels: number): boolean;
/**
 * @param {unknown} value
 * @returns {string | null} null for everything else than a text
 */
export declare function textOrNull(value: unknown): string | null;
