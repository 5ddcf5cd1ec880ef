/** Text of a model in visible form: invisible and reordering characters are written as escapes. */

/**
 * All characters that leave no mark on a screen, except the space. U+2800 is a blank braille
 * pattern.
 */
const INVISIBLE = /(?! )[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/gu;
/**
 * Those that prose does not need: not line breaks, tabs, spaces, joiners and emoji selectors. `DI`
 * is short for `Default_Ignorable_Code_Point`.
 */
const INVISIBLE_IN_PROSE =
  /(?![\n\t\u200c\u200d\ufe0e\ufe0f]|\r\n)[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{DI}]/gu;
/** The tokens of valid JSON. */
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;
const LINE = 80; // longest arguments on one line, in characters
// levels; without this limit, deeply nested text grows with the square of its depth
const DEEPEST_INDENT = 32;

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
export function escapeInvisible(text) {
  return text.replace(INVISIBLE, escaped);
}

/**
 * Do the same for prose, which keeps line breaks, spaces of any width, joiners and emoji selectors.
 *
 * @param {string} text
 * @returns {string}
 */
export function escapeProse(text) {
  return text.replace(INVISIBLE_IN_PROSE, escaped);
}

/**
 * Write the arguments of a call anew, so that a person who decides on it reads exactly the
 * arguments that the tool gets.
 *
 * @param {unknown} args a call's `arguments`: their JSON, or the value that `approve` gets
 * @returns {ShownArguments}
 */
export function formatArguments(args) {
  const text = typeof args === "string" ? args : (JSON.stringify(args) ?? "");
  if (!isJson(text || "{}")) {
    return { text: text.split("\n").map(escapeInvisible).join("\n"), valid: false, repeated: [] };
  }
  const tokens = (text.match(TOKENS) ?? []).map((token) => {
    return token.startsWith('"') ? escapeInvisible(JSON.stringify(JSON.parse(token))) : token;
  });
  const short = layOut(tokens, () => "");
  const indented = (/** @type {number} */ depth) =>
    `\n${"  ".repeat(Math.min(depth, DEEPEST_INDENT))}`;
  return {
    text: short.length > LINE ? layOut(tokens, indented) : short,
    valid: true,
    repeated: repeatedKeys(tokens),
  };
}

/** @param {string} found one character */
function escaped(found) {
  return found
    .split("")
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .join("");
}

/** @param {string} text */
function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * @param {string[]} tokens
 * @param {(depth: number) => string} newLine the start of each line
 */
function layOut(tokens, newLine) {
  const one = newLine(0) === "" ? " " : "";
  /** @type {string[]} */
  const parts = [];
  let depth = 0;
  let before = "";
  for (const token of tokens) {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") parts.push(newLine(depth));
    } else if (before === "{" || before === "[") parts.push(newLine(depth));
    else if (before === ",") parts.push(one || newLine(depth));
    else if (before === ":") parts.push(" ");
    parts.push(token);
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return parts.join("");
}

/**
 * @param {string[]} tokens
 * @returns {string[]} each key once
 */
function repeatedKeys(tokens) {
  /** @type {Set<string>} */
  const repeated = new Set();
  /** @type {Set<string>[]} the keys of the open objects */
  const open = [];
  tokens.forEach((token, index) => {
    if (token === "{" || token === "[") open.push(new Set());
    else if (token === "}" || token === "]") open.pop();
    else if (tokens[index + 1] === ":") {
      const keys = open.at(-1);
      if (keys?.has(token)) repeated.add(String(JSON.parse(token)));
      keys?.add(token);
    }
  });
  return [...repeated];
}
