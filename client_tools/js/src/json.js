/** JSON of others: parsed, and taken for nothing that it is not. */

/**
 * @param {string} text
 * @returns {unknown} undefined when the text is not JSON
 */
export function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * @param {unknown} value
 * @returns {Record<string, unknown>} the value when it is an object, else an empty one
 */
export function asRecord(value) {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? /** @type {Record<string, unknown>} */ (value) : {};
}
