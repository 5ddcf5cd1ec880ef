/** Text of a model as a person can judge it: characters that cannot be seen, or that reorder others, are written out. */

/** All that leaves no mark on a screen, but the space. U+2800 is a braille pattern without dots. */
const UNSEEN = /(?! )[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/gu;
/** Of these, what prose does not need: it keeps line breaks, tabs, spaces, joiners, and the selectors behind emoji. */
const UNSEEN_IN_PROSE =
  /(?![\n\t\u200c\u200d\ufe0e\ufe0f]|\r\n)[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
/** The tokens of valid JSON. */
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;
const LINE = 80; // characters of arguments that stay on one line
const DEEPEST_INDENT = 32; // levels; text that is nested deeper must not grow with the square of its depth

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
export function escapeInvisible(text) {
  return text.replace(UNSEEN, escaped);
}

/**
 * Do the same for prose: line breaks, spaces of any width, joiners and emoji selectors stay, since writing needs them.
 *
 * @param {string} text
 * @returns {string}
 */
export function escapeProse(text) {
  return text.replace(UNSEEN_IN_PROSE, escaped);
}

/**
 * Write the arguments of a call anew, so that whoever decides on it reads what the tool gets.
 *
 * @param {unknown} args a call's `arguments`: their JSON, or the value that `approve` is asked with
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
 * @param {(depth: number) => string} newLine what begins each line
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
  /** @type {Set<string>[]} the keys of the objects that are open */
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
