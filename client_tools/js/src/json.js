/** JSON of others, parsed and taken for nothing that it is not; and our own, such as a server reads it. */

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

/** What `JSON.stringify` makes of half a character; or a backslash, which must not be taken for the beginning of one. */
const HALF = /\\(?:\\|ud[89a-f][0-9a-f]{2})/g;

/**
 * @param {unknown} value
 * @returns {string | undefined} the value as JSON, with U+FFFD for halves of characters, which no UTF-8 has; undefined for what
 *   JSON has no word for
 * @throws {Error} where it cannot be written
 */
export function writeJson(value) {
  return JSON.stringify(value)?.replace(HALF, (found) => (found === "\\\\" ? found : "\ufffd"));
}

/**
 * @param {unknown} value as `JSON.parse` gives it
 * @param {number} levels
 * @returns {boolean} whether arrays and objects stand in each other on more levels than these
 */
export function isDeeper(value, levels) {
  let inside = [value];
  for (let level = 0; level <= levels; level += 1) {
    inside = inside.flatMap((each) =>
      typeof each === "object" && each !== null ? [Object.values(each)] : [],
    );
    if (inside.length === 0) return false;
    inside = inside.flat();
  }
  return true;
}

/**
 * @param {unknown} value
 * @returns {string | null} null for everything else than a text
 */
export function textOrNull(value) {
  return typeof value === "string" ? value : null;
}
