/** JSON of others: parsed, and taken for nothing that it is not. */
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
