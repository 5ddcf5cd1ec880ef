/**
 * Turns Markdown into the shapes of a page: CommonMark with tables, task lists and strikethrough.
 *
 * Raw HTML is text. A link has an absolute address of the web or of mail, which is shown; an image
 * is a link to it. Line breaks stay.
 */

import { escapeProse } from "../js/src/visible.js";
import { addMending, withoutLooseEnd } from "./mending.js";
import { textParts } from "./textparts.js";
import MarkdownIt from "./vendor/markdown-it.js";

/** @typedef {import("./vendor/markdown-it.js").MarkdownIt} Parser */
/** @typedef {import("./vendor/markdown-it.js").Token} Token */
/** @typedef {import("./shapes.js").Part} Part */
/** @typedef {import("./shapes.js").Shape} Shape */

/**
 * @typedef {object} Block one at the top level
 * @property {number} line its first line, from 0
 * @property {Part} part
 * @property {number} size the elements and texts in it
 */
/** @typedef {Record<string, {href: string, title: string}>} References addresses by their labels */

const SCHEMES = ["https:", "http:", "mailto:"];
/** Paragraphs whose markup is not read if they are longer: time may grow with the square. */
const LONGEST_PARAGRAPH = 8000; // characters
/** Columns of a table; the parser fills short rows up. */
const MOST_COLUMNS = 200;
/** Elements and texts that a block may have; a larger one is shown as text. */
const MOST_ELEMENTS = 5000;
/** Elements within each other; more are left out, but not their text. */
const DEEPEST = 40;
/** A text that looks like an address, with its host. */
const HOST = /^(?:\w+:\/*)?((?:[\p{L}\p{N}-]+\.)+\p{L}{2,}(?::\d+)?)(?=[/?#]|$)/iu;
const LONGEST_LANGUAGE = 30; // characters

/** @type {ReadonlyMap<string, Shape["tag"]>} */
const TAGS = new Map(
  Object.entries({
    paragraph_open: "p",
    blockquote_open: "blockquote",
    bullet_list_open: "ul",
    ordered_list_open: "ol",
    list_item_open: "li",
    table_open: "table",
    thead_open: "thead",
    tbody_open: "tbody",
    tr_open: "tr",
    th_open: "th",
    td_open: "td",
    em_open: "em",
    strong_open: "strong",
    s_open: "s",
  }),
);
const ALIGNMENTS = new Map([
  ["text-align:right", "right"],
  ["text-align:center", "center"],
]);
/** The page has headings of its own above an answer's. */
const HEADINGS = /** @type {const} */ (["h3", "h4", "h5", "h6", "h6", "h6"]);

export class Markdown {
  #parser = configure(new MarkdownIt({ html: false, linkify: true }));
  #withoutTables = configure(new MarkdownIt({ html: false, linkify: true })).disable("table");

  /**
   * @param {string} source
   * @param {References} references that are known; those of the source are added
   * @param {boolean} [isOpen] whether more of it may come
   * @returns {Block[]} in order
   */
  parse(source, references, isOpen = false) {
    const parser = hasWideLine(source) ? this.#withoutTables : this.#parser;
    const tokens = parser.parse(source, { references, isOpen });
    const lines = source.split(/\r\n?|\n/);
    const last = isOpen ? lastLeaf(tokens) : undefined;
    return topLevel(tokens).map((group) => {
      const [line, end] = group[0]?.map ?? [0, lines.length];
      const builder = new Builder(last);
      const part = builder.build(group);
      if (part === null) return { line, size: 1, part: plain(lines.slice(line, end).join("\n")) };
      return { line, size: builder.size, part };
    });
  }

  /**
   * @param {string} source
   * @param {References} references to which those of the source are added
   */
  readReferences(source, references) {
    this.#parser.parse(source, { references, isUnread: true });
  }
}

/** @param {Parser} parser */
function configure(parser) {
  parser.validateLink = (address) => addressOf(address) !== null;
  parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  addMending(parser);
  parser.core.ruler.at("inline", ({ tokens, md, env, src }) => {
    const paragraphs = tokens.filter(({ type }) => type === "inline");
    const end = env.isOpen && !/\n[ \t]*\n$/.test(src) ? lastLeaf(tokens) : undefined;
    for (const token of paragraphs) {
      token.children = [];
      env.isMended = token === end;
      const content = env.isMended ? withoutLooseEnd(token.content) : token.content;
      if (env.isUnread || content.length > LONGEST_PARAGRAPH) continue;
      md.inline.parse(content, md, env, token.children);
    }
  });
  return parser;
}

/**
 * @param {string} text
 * @returns {string | null} the absolute address that a browser makes of it; null: no link
 */
export function addressOf(text) {
  try {
    const { protocol, username, password, href } = new URL(text);
    // a name before the host is there to look like one
    if (!SCHEMES.includes(protocol) || username || password) return null;
    return href;
  } catch {
    return null;
  }
}

/** @param {string} source */
function hasWideLine(source) {
  let columns = 0;
  for (let at = source.indexOf("|"); at >= 0; at = source.indexOf("|", at + 1)) {
    columns += 1;
    if (columns < MOST_COLUMNS) continue;
    const line = source.slice(source.lastIndexOf("\n", at) + 1, at + 1);
    columns = line.split("|").length - 1;
    if (columns >= MOST_COLUMNS) return true;
  }
  return false;
}

/**
 * @param {readonly Token[]} tokens
 * @returns {Token[][]} those of each block at the top level
 */
function topLevel(tokens) {
  /** @type {Token[][]} */
  const groups = [];
  for (const token of tokens) {
    if (token.level === 0 && token.nesting >= 0) groups.push([]);
    groups.at(-1)?.push(token);
  }
  return groups;
}

/**
 * @param {readonly Token[]} tokens
 * @returns {Token | undefined} the one at the end of the source
 */
function lastLeaf(tokens) {
  return tokens.findLast(({ nesting }) => nesting >= 0);
}

/**
 * @param {Token} token
 * @param {boolean} isWhole
 * @returns {import("./shapes.js").CodeShape}
 */
function codeOf({ content, info }, isWhole) {
  const language = /^[^\s{,:]*/.exec(info.trim())?.[0] ?? "";
  return { code: content, language: language.slice(0, LONGEST_LANGUAGE), isWhole };
}

/**
 * @param {Shape} link
 * @returns {string} the host that it leads to, if its text names another one
 */
function disguised({ href = "", parts }) {
  const text = parts.map(textOf).join("").trim();
  const { host } = new URL(href);
  const named = HOST.exec(text)?.[1];
  return named && host && named.toLowerCase() !== host ? host : "";
}

/**
 * @param {Part} part
 * @returns {string} the text that it shows
 */
function textOf(part) {
  if (typeof part === "string") return part;
  return "code" in part ? part.code : part.parts.map(textOf).join("");
}

/**
 * @param {string} text
 * @returns {Shape}
 */
function plain(text) {
  return { tag: "p", kind: "plain", parts: textParts(text) };
}

/** Builds the shape of one block. */
class Builder {
  /** The shapes that are open, the outermost first; one stands twice where a level is left out.
   * @type {Shape[]} */
  #open = [{ tag: "div", parts: [] }];
  size = 0;
  #links = 0;
  #last;

  /** @param {Token | undefined} last what may become longer */
  constructor(last) {
    this.#last = last;
  }

  /**
   * @param {readonly Token[]} tokens
   * @returns {Part | null} null if it is too large
   */
  build(tokens) {
    for (const [index, token] of tokens.entries()) {
      if (token.type === "inline") this.#addInline(token, tokens[index - 2]);
      else this.#add(token);
      if (this.size > MOST_ELEMENTS) return null;
    }
    return this.#open[0]?.parts[0] ?? null;
  }

  /**
   * @param {Token} token
   * @param {Token | undefined} outer what begins around its paragraph
   */
  #addInline({ content, children }, outer) {
    const inline = [...(children ?? [])];
    const box = outer?.type === "list_item_open" && /^\[[ xX]\]\s/.exec(content)?.[0];
    if (box) this.#addTask(!box.startsWith("[ ]"));
    if (inline.length === 0) {
      for (const part of textParts(box ? content.slice(box.length) : content)) this.#addPart(part);
    }
    for (const [index, token] of inline.entries()) {
      if (index === 0 && box && token.type === "text") {
        this.#addPart(token.content.slice(box.length));
      } else this.#add(token);
    }
  }

  /** @param {boolean} isDone */
  #addTask(isDone) {
    const item = this.#open.findLast(({ tag }) => tag === "li");
    if (item) item.kind = "task";
    const kind = isDone ? "box done" : "box";
    this.#addPart({ tag: "span", kind, role: "img", label: isDone ? "Done" : "To do", parts: [] });
  }

  /** @param {Token} token */
  #add(token) {
    if (token.nesting > 0) return this.#begin(token);
    if (token.nesting < 0) return this.#end(token);
    switch (token.type) {
      case "fence":
      case "code_block":
        return this.#addPart(codeOf(token, token !== this.#last));
      case "code_inline":
        return this.#addPart({ tag: "code", parts: [escapeProse(token.content)] });
      case "hr":
        return this.#addPart({ tag: "hr", parts: [] });
      case "softbreak":
      case "hardbreak":
        return this.#addPart("\n");
      case "image":
        return this.#addImage(token);
      default:
        this.#addPart(this.#links > 0 ? escapeProse(token.content) : token.content);
    }
  }

  /** @param {Token} token */
  #begin(token) {
    const parent = this.#parent;
    const shape = this.#open.length > DEEPEST ? null : this.#shapeOf(token);
    if (token.type === "link_open") this.#links += 1;
    if (shape) this.#addPart(shape);
    this.#open.push(shape ?? parent);
  }

  /** @param {Token} token */
  #end({ type }) {
    const shape = this.#open.pop();
    if (type === "link_close") this.#links -= 1;
    if (!shape || shape === this.#parent) return;
    if (type === "table_close") {
      const wide = { kind: "table-box", role: /** @type {const} */ ("region"), label: "Table" };
      this.#parent.parts.splice(-1, 1, { tag: "div", ...wide, parts: [shape] });
    }
    const host = shape.href ? disguised(shape) : "";
    if (host) this.#addPart({ tag: "span", kind: "address", parts: [` (${host})`] });
  }

  get #parent() {
    return /** @type {Shape} */ (this.#open.at(-1));
  }

  /**
   * @param {Token} token
   * @returns {Shape | null} null if its content stands in its place
   */
  #shapeOf(token) {
    if (token.hidden) return null;
    if (token.type === "heading_open") {
      const level = Number(token.tag.slice(1));
      return { tag: HEADINGS[level - 1] ?? "h6", kind: `level-${level}`, parts: [] };
    }
    if (token.type === "link_open") {
      const href = addressOf(String(token.attrGet("href") ?? ""));
      return href === null ? null : { tag: "a", href, parts: [] };
    }
    const tag = TAGS.get(token.type);
    if (!tag) return null;
    const kind = ALIGNMENTS.get(String(token.attrGet("style") ?? ""));
    const start = tag === "ol" ? Number(token.attrGet("start") ?? 1) : 1;
    return { tag, ...(kind && { kind }), ...(start !== 1 && { start }), parts: [] };
  }

  /** @param {Token} token of an image, which is not loaded */
  #addImage(token) {
    const alternative = (token.children ?? []).map(({ content }) => content).join("");
    const href = addressOf(String(token.attrGet("src") ?? ""));
    // there is no link within a link
    if (href === null || this.#links > 0) return this.#addPart(escapeProse(alternative));
    const text = escapeProse(alternative) || new URL(href).host;
    this.#addPart({ tag: "a", kind: "image", href, parts: [`Image: ${text}`] });
  }

  /** @param {Part} part */
  #addPart(part) {
    this.size += 1;
    const { parts } = this.#parent;
    const last = parts.at(-1);
    if (typeof part === "string" && typeof last === "string") parts[parts.length - 1] = last + part;
    else if (part !== "") parts.push(part);
  }
}
