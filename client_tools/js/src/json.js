/** Reading untrusted JSON, and writing JSON that the server can read. */

/**
 * @param {string} text
 * @returns {unknown} undefined if the text is not JSON
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
 * @returns {Record<string, unknown>} the value if it is an object, else an empty one
 */
export function asRecord(value) {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? /** @type {Record<string, unknown>} */ (value) : {};
}

/** A lone surrogate as `JSON.stringify` escapes it; or an escaped backslash, to step over it. */
const LONE_SURROGATE = /\\(?:\\|ud[89a-f][0-9a-f]{2})/g;

/**
 * @param {unknown} value
 * @returns {string | undefined} the value as JSON, with U+FFFD for lone surrogates, which UTF-8
 *   cannot encode; undefined for a value that JSON does not have
 * @throws {Error} if it cannot be written
 */
export function writeJson(value) {
  return JSON.stringify(value)?.replace(LONE_SURROGATE, (found) =>
    found === "\\\\" ? found : "\ufffd",
  );
}

/**
 * @param {unknown} value as `JSON.parse` returns it
 * @param {number} levels
 * @returns {boolean} whether arrays and objects are nested deeper than these levels
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
 * @returns {string | null} null for anything but a text
 */
export function textOrNull(value) {
  return typeof value === "string" ? value : null;
}
