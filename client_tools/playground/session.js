/** What this tab remembers between reloads. A browser may forbid storage; the page then simply forgets. */

const PREFIX = "passback.";

/**
 * @param {string} name
 * @returns {string | null}
 */
export function recall(name) {
  try {
    return sessionStorage.getItem(PREFIX + name);
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {string | null} value null forgets it
 */
export function remember(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(PREFIX + name);
    else sessionStorage.setItem(PREFIX + name, value);
  } catch {
    // Storage is blocked or full: nothing depends on it but comfort.
  }
}

/** @returns {string} a random UUID, also on pages that are served without TLS */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
