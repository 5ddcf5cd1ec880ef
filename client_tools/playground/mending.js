/**
 * Rules for Markdown that is still being written: its last lines do not change their look with
 * each character that comes.
 */

/** @typedef {import("./vendor/markdown-it.js").Env} Env */
/** @typedef {import("./vendor/markdown-it.js").MarkdownIt} MarkdownIt */
/** @typedef {import("./vendor/markdown-it.js").StateInline} StateInline */

const BACKTICK = 0x60;
const BRACKET = 0x5b;
const EXCLAMATION_MARK = 0x21;
/** The end of a line's markup, and nothing else yet. */
const MARKUP = new RegExp(
  /^[ \t]*(?:>[ \t]*)*/.source +
    `(?:${[
      /[-+*][ \t]*(?:\[[ xX]?\]?[ \t]*)?/, // an item, perhaps with a box
      /\d{1,9}(?:[.)][ \t]*)?/,
      /#{1,6}[ \t]*/,
      /[-=*_ \t]+/, // a line, or what makes a title of the line above
      /`{1,2}|~{1,2}|(?:`{3,}|~{3,})[^`\n]*/,
      /\[[^\]\n]*\]:.*/, // the address of a label
    ]
      .map(({ source }) => source)
      .join("|")})?$`,
);
/** Lines that may become the head of a table. */
const HEAD = /(?:^|\n)[ \t]*\|[^\n]*\n?[ \t|:-]*$/;
/** What waits is no longer than this, so that text which looks so is shown as well. */
const LONGEST = 1000; // characters
/** Delimiters that open or close something at the end of a text only with what follows. */
const LOOSE = "*_~`";

/**
 * Leave out the last line, or two, if it is not clear yet what they become.
 *
 * @param {string} source
 * @returns {string}
 */
export function withoutUnclear(source) {
  const line = source.lastIndexOf("\n") + 1;
  if (line < source.length && source.length - line < LONGEST) {
    if (MARKUP.test(source.slice(line))) return source.slice(0, line);
  }
  const from = source.lastIndexOf("\n", source.lastIndexOf("\n", line - 2) - 1) + 1;
  if (source.length - from > LONGEST) return source;
  const head = HEAD.exec(source.slice(from));
  return head ? source.slice(0, source.length - head[0].trimStart().length) : source;
}

/**
 * Let a parser close what is open at the end of a text, if `env.isMended`.
 *
 * @param {MarkdownIt} parser
 */
export function addMending(parser) {
  parser.inline.ruler.before("backticks", "open_code", takeOpenCode);
  parser.inline.ruler.before("link", "open_link", takeOpenLink);
  parser.inline.ruler2.after("balance_pairs", "open_emphasis", closeEmphasis);
}

/**
 * @param {string} content of the last paragraph
 * @returns {string} without delimiters at its end
 */
export function withoutLooseEnd(content) {
  let end = content.length;
  // an expression that is bound to the end is tried at each delimiter
  while (end > 0 && LOOSE.includes(content.charAt(end - 1))) end -= 1;
  return content.slice(0, end);
}

/**
 * Take code without an end up to the end.
 *
 * @param {StateInline} state
 * @param {boolean} isSilent
 */
function takeOpenCode(state, isSilent) {
  const { src, pos, posMax } = state;
  if (!state.env.isMended || isSilent || src.charCodeAt(pos) !== BACKTICK) return false;
  const marker = /^`+/.exec(src.slice(pos))?.[0] ?? "";
  const rest = src.slice(pos + marker.length, posMax);
  const hasEnd = [...rest.matchAll(/`+/g)].some(([run]) => run.length === marker.length);
  if (!rest || hasEnd) return false;
  state.push("code_inline", "code", 0).content = rest;
  state.pos = posMax;
  return true;
}

/**
 * Take the text of a link or an image whose address is not complete, without the address.
 *
 * @param {StateInline} state
 * @param {boolean} isSilent
 */
function takeOpenLink(state, isSilent) {
  const { src, pos, posMax } = state;
  if (!state.env.isMended || isSilent) return false;
  const isImage = src.charCodeAt(pos) === EXCLAMATION_MARK;
  const start = pos + (isImage ? 1 : 0);
  if (src.charCodeAt(start) !== BRACKET) return false;
  const end = src.lastIndexOf("](");
  if (end < start || end >= posMax || src.includes(")", end)) return false;
  if (state.md.helpers.parseLinkLabel(state, start, !isImage) !== end) return false;
  state.pos = start + 1;
  state.posMax = end;
  state.push("link_open", "a", 1);
  state.md.inline.tokenize(state);
  state.push("link_close", "a", -1);
  state.pos = posMax;
  state.posMax = posMax;
  return true;
}

/**
 * End emphasis that is open at the end of the text.
 *
 * @param {StateInline} state
 */
function closeEmphasis(state) {
  if (!state.env.isMended) return;
  const { delimiters } = state;
  let lastEnd = -1;
  const open = delimiters.filter((delimiter, index) => {
    const isWithin = index < lastEnd;
    lastEnd = Math.max(lastEnd, delimiter.end);
    return delimiter.open && delimiter.end === -1 && !isWithin;
  });
  for (const delimiter of open.reverse()) {
    const { marker, length } = delimiter;
    const token = state.push("text", "", 0);
    token.content = state.tokens[delimiter.token]?.content ?? "";
    delimiter.end = delimiters.length;
    delimiters.push({
      ...{ marker, length, token: state.tokens.length - 1 },
      ...{ end: -1, open: false, close: true },
    });
  }
}
