/** Reading untrusted JSON, and writing JSON that the server can read. */
/**
 * @param {string} text
 * @returns {unknown} undefined if the text is not JSON
 */
export declare function parseJson(text: string): unknown;
/**
 * @param {unknown} value
 * @returns {Record<string, unknown>} the value if it is an object, else an empty one
 */
export declare function asRecord(value: unknown): Record<string, unknown>;
/**
 * @param {unknown} value
 * @returns {string | undefined} the value as JSON, with U+FFFD for lone surrogates, which UTF-8
 *   cannot encode; undefined for a value that JSON does not have
 * @throws {Error} if it cannot be written
 */
export declare function writeJson(value: unknown): string | undefined;
/**
 * @param {unknown} value as `JSON.parse` returns it
 * @param {number} levels
 * @returns {boolean} whether arrays and objects are nested deeper than these levels
 */
export declare function isDeeper(value: unknown, levels: number): boolean;
/**
 * @param {unknown} value
 * @returns {string | null} null for anything but a text
 */
export declare function textOrNull(value: unknown): string | null;
