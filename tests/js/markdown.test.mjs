/** Markdown as the page shows it: its shapes, whole and while it is being written. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { addressOf, Markdown } from "../../client_tools/playground/markdown.js";
import { withoutUnclear } from "../../client_tools/playground/mending.js";
import { MarkdownStream } from "../../client_tools/playground/stream.js";
import { textParts } from "../../client_tools/playground/textparts.js";

const markdown = new Markdown();

/** A shape on one line: `tag.kind{address}(parts)`. */
function line(part) {
  if (typeof part === "string") return JSON.stringify(part).slice(1, -1);
  if ("code" in part) {
    return `code:${part.language}${part.isWhole ? "" : "..."}(${line(part.code)})`;
  }
  const { tag, kind, href, label, start, parts } = part;
  const name = `${tag}${kind ? `.${kind}` : ""}${href ? `{${href}}` : ""}`;
  const more = `${label ? `'${label}'` : ""}${start ? `#${start}` : ""}`;
  return `${name}${more}(${parts.map(line).join("")})`;
}

function shown(source, isOpen = false) {
  return markdown.parse(source, {}, isOpen).map(({ part }) => line(part));
}

const WHOLE = [
  ["plain\n  text", 'p(plain\\ntext)'],
  ["# One", "h3.level-1(One)"],
  ["###### Six", "h6.level-6(Six)"],
  ["*a* **b** ~~c~~ `d`", "p(em(a) strong(b) s(c) code(d))"],
  ["1) a\n2) b", "ol(li(a)li(b))"],
  ["7. a", "ol#7(li(a))"],
  ["- a\n  - b", "ul(li(aul(li(b))))"],
  ["- a\n\n- b", "ul(li(p(a))li(p(b)))"],
  ["- [ ] a\n- [x] b", "ul(li.task(span.box'To do'()a)li.task(span.box done'Done'()b))"],
  ["- [y] a", "ul(li([y] a))"],
  ["[ ] a", "p([ ] a)"],
  ["> a\n> > b", "blockquote(p(a)blockquote(p(b)))"],
  ["***", "hr()"],
  ["```py title=x\na = 1\n```", "code:py(a = 1\\n)"],
  ["    indented", "code:(indented\\n)"],
  [
    "|a|b|c|\n|-|-:|:-:|\n|1|2|3|",
    "div.table-box'Table'(table(thead(tr(th(a)th.right(b)th.center(c)))" +
      "tbody(tr(td(1)td.right(2)td.center(3)))))",
  ],
  ["[a](https://b.example/c 'd')", "p(a{https://b.example/c}(a))"],
  ["[a][b]\n\n[b]: https://b.example", "p(a{https://b.example/}(a))"],
  ["https://b.example/c.", "p(a{https://b.example/c}(https://b.example/c).)"],
  ["example.com a@b.example", "p(example.com a@b.example)"],
  ["<mailto:a@b.example>", "p(a{mailto:a@b.example}(mailto:a@b.example))"],
  ["![a *b*](https://b.example/c.png)", "p(a.image{https://b.example/c.png}(Image: a b))"],
  ["![](https://b.example/c.png)", "p(a.image{https://b.example/c.png}(Image: b.example))"],
  ["[![a](https://b.example/c)](https://d.example)", "p(a{https://d.example/}(a))"],
  ["<b onclick=x>a</b>", "p(<b onclick=x>a</b>)"],
  ["&lt;b&gt; &copy;", "p(<b> ©)"],
];

for (const [source, expected] of WHOLE) {
  test(`${JSON.stringify(source)} is shown as what it means`, () => {
    assert.deepEqual(shown(source), [expected]);
  });
}

const WORDS = [
  "[a](javascript:b)", "[a](JaVaScRiPt:b)", "[a](java\tscript:b)", "[a](&#106;avascript:b)",
  "[a](data:text/html,b)", "[a](vbscript:b)", "[a](file:///b)",
  "[a](//b.example)", "[a](/b)", "[a](b.html)", "[a](#b)",
  "[a](https:///)", "<javascript:b>", "![a](data:image/png;base64,b)", "[a](ftp://b.example)",
]; // prettier-ignore

for (const source of WORDS) {
  test(`${JSON.stringify(source)} is no link`, () => {
    const [paragraph] = shown(source);
    assert.doesNotMatch(paragraph, /\ba[.{]/);
  });
}

test("only absolute addresses of the web and of mail are addresses", () => {
  assert.equal(addressOf("HTTPS://B.example/\u202ec"), "https://b.example/%E2%80%AEc");
  assert.equal(addressOf(" http:b.example"), "http://b.example/");
  assert.equal(addressOf("https://xn--bcher-kva.example"), "https://xn--bcher-kva.example/");
  assert.equal(addressOf("https://аpple.example"), "https://xn--pple-43d.example/");
  const others = ["", "a", "javascript:a", "data:,a", "https://b@c.example", "blob:https://b"];
  for (const text of others) {
    assert.equal(addressOf(text), null, text);
  }
});

test("a link whose text names another host shows where it leads", () => {
  const leads = (text) => line(markdown.parse(`[${text}](https://b.example/)`, {})[0].part);
  const address = "span.address( (b.example))";
  for (const text of ["https://a.example/login", "a.example", "**a.example**/c", "A.Example:80"]) {
    assert.ok(leads(text).endsWith(`${address})`), leads(text));
  }
  for (const text of ["a", "b.example", "https://B.example/c", "see a.example"]) {
    assert.ok(!leads(text).includes("address"), leads(text));
  }
});

test("what is invisible is written out in links and in code, and nowhere else", () => {
  const [link, words] = shown("[a\u202eb](https://b.example/)\n\n`a\u202eb` a\u202eb");
  assert.equal(link, "p(a{https://b.example/}(a\\\\u202eb))");
  assert.equal(words, "p(code(a\\\\u202eb) a\u202eb)");
});

const OPEN = [
  ["a **b", "p(a strong(b))"],
  ["a **b*", "p(a strong(b))"],
  ["a *b **c", "p(a em(b strong(c)))"],
  ["~~a", "p(s(a))"],
  ["*a ~~b* c", "p(em(a ~~b) c)"],
  ["a `b", "p(a code(b))"],
  ["a ``b` c", "p(a code(b` c))"],
  ["a `b` `", "p(a code(b) )"],
  ["a [b](htt", "p(a b)"],
  ["a ![b](htt", "p(a b)"],
  ["a [b", "p(a [b)"],
  ["a [b](c) [d](e", "p(a [b](c) d)"],
  ["**a\n\n", "p(**a)"],
  ["a\n-", "p(a)"],
  ["a\n==", "p(a)"],
  ["a\n- b", "p(a) ul(li(b))"],
  ["1", ""],
  ["1.", ""],
  ["1 2", "p(1 2)"],
  ["-", ""],
  ["- [", ""],
  ["##", ""],
  ["> ", ""],
  ["| a | b |", ""],
  ["| a | b |\n", ""],
  ["| a | b |\n|--", ""],
  ["| a |\n|---|\n| 1", "div.table-box'Table'(table(thead(tr(th(a)))))"],
  ["a\n| b |\nc", "p(a\\n| b |\\nc)"],
  ["``", ""],
  ["```py", ""],
  ["```py\na", "code:py...(a)"],
  ["```py\na\n``", "code:py...(a\\n)"],
  ["```py\na\n```\n", "code:py...(a\\n)"],
  ["```py\na\n```\nb", "code:py(a\\n) p(b)"],
  ["[a]: http", ""],
  ["| " + "a".repeat(2000), `p(| ${"a".repeat(2000)})`],
];

for (const [source, expected] of OPEN) {
  test(`${JSON.stringify(source.slice(0, 40))} does not jump while it is being written`, () => {
    assert.equal(shown(withoutUnclear(source), true).join(" "), expected);
  });
}

test("limits: depth, columns, elements and the length of a paragraph", () => {
  const depth = (part) =>
    typeof part === "string" ? 0 : 1 + Math.max(0, ...(part.parts ?? []).map(depth));
  for (const source of [`${">".repeat(5000)}a`, "*a **b ".repeat(1000) + "c** d*".repeat(1000)]) {
    const [{ part }] = markdown.parse(source, {});
    assert.ok(depth(part) < 50);
  }
  const wide = `${"|a".repeat(250)}|\n${"|-".repeat(250)}|\n`;
  assert.match(shown(wide)[0], /^p\(\|a\|a/);
  const long = `|a|b|\n|-|-|\n${"|c\n".repeat(20_000)}`;
  assert.match(shown(`${long}\n*d*`)[0], /^p\.plain\(/);
  assert.deepEqual(shown(`${long}\n*d*`).slice(1), ["p(em(d))"]);
  assert.equal(shown("*a* ".repeat(2500))[0], `p(${"*a* ".repeat(2500).trim()})`);
});

const DOCUMENT = `# Title

An intro with **bold**, \`code\` and [a link](https://b.example), [one][r] too
over two lines.
- a
- b

  more of b
    1. x
    2. y

lazy > quote
> quote
continued
#hashtag

| a | b |
|---|---|
| 1 | 2 |
| 3 | 4 |
text after

\`\`\`js
const a = "\`\`";

# no heading
\`\`\`
Setext
======

    code

* * *
- [x] done
-  [ ] not

~~~
open
~~~

[r]: https://c.example "title"
The *last* one.
`;

/** Numbers from 1 on, the same in each run. */
function* random(seed, largest) {
  for (let state = seed; ; ) {
    state = (state * 48271) % 2147483647;
    yield 1 + (state % largest);
  }
}

/** Read a source in pieces; return the blocks at the end, and the number of closed ones. */
function stream(source, sizes) {
  const reader = new MarkdownStream(markdown);
  let blocks = [];
  let closed = 0;
  const take = (isOpen, text) => {
    for (let isDone = false; !isDone; ) {
      const reading = reader.read(text, isOpen);
      blocks = [...blocks.slice(0, closed), ...reading.parts];
      closed += reading.closed;
      isDone = reading.isDone;
    }
  };
  for (let end = 0; end < source.length; ) {
    end += sizes.next().value;
    take(true, source.slice(0, end));
  }
  if (reader.end(source)) closed = 0;
  take(false, source);
  return { blocks: blocks.map(line), closed };
}

for (const [name, source] of [
  ["a document", DOCUMENT],
  ["one with the line ends of Windows", DOCUMENT.replaceAll("\n", "\r\n")],
  ["a long one", DOCUMENT.repeat(40)],
]) {
  test(`${name} that comes in pieces is shown as if it had come at once`, () => {
    const expected = shown(source);
    for (let seed = 1; seed <= (source.length > 5000 ? 2 : 40); seed += 1) {
      const { blocks, closed } = stream(source, random(seed, seed % 2 ? 8 : 400));
      assert.deepEqual(blocks, expected, `seed ${seed}`);
      assert.ok(closed >= expected.length - 2);
    }
  });
}

test("what is not clear yet waits, and a block may be longer than a piece", () => {
  const reader = new MarkdownStream(markdown);
  const read = (source) => reader.read(source, true).parts.map(line);
  assert.deepEqual(read("a\n-"), ["p(a)"]);
  const code = "line\n".repeat(20_000);
  const { blocks } = stream(`\`\`\`\n${code}\`\`\`\n\n*a*\n`, random(1, 30_000));
  assert.deepEqual(blocks, [line({ code, language: "", isWhole: true }), "p(em(a))"]);
});

test("each prefix is shown, and what is closed does not change any more", () => {
  const reader = new MarkdownStream(markdown);
  const source = DOCUMENT.replaceAll("[one][r]", "one");
  const final = shown(source);
  let closed = 0;
  for (let end = 1; end <= source.length; end += 1) {
    const { parts, closed: more } = reader.read(source.slice(0, end), true);
    assert.deepEqual(parts.slice(0, more).map(line), final.slice(closed, closed + more));
    closed += more;
  }
});

test("delimiters at the end of a text take a time that grows with their number", () => {
  const start = process.cpuUsage();
  assert.ok(shown(`${"*".repeat(100_000)}x`, true)[0].endsWith("x))"));
  const { user, system } = process.cpuUsage(start);
  assert.ok(user + system < 4e6, `${(user + system) / 1e6} s`); // an expression needs 14 s
});

test("long text has boxes that end with a line, and no character is lost", () => {
  const lengths = (text) => {
    const parts = textParts(text);
    const texts = parts.map((part) => (typeof part === "string" ? part : part.parts[0]));
    assert.equal(texts.join(""), text);
    assert.ok(parts.length === 1 ? typeof parts[0] === "string" : parts.every(({ tag }) => tag));
    return texts.map(({ length }) => length);
  };
  assert.deepEqual(lengths(""), [0]);
  assert.deepEqual(lengths("a\n".repeat(2000)), [4000]);
  assert.deepEqual(lengths(`${"a".repeat(9)}\n`.repeat(1000)), [4000, 4000, 2000]);
  assert.deepEqual(lengths(`${"a".repeat(9)}\n`.repeat(600) + "b"), [4000, 2001]);
  assert.deepEqual(lengths("a".repeat(30_000)), [30_000]);
  assert.deepEqual(lengths(`${"a".repeat(30_000)}\nb\n`), [30_001, 2]);
  assert.deepEqual(lengths("a".repeat(120_000)), [50_000, 50_000, 20_000]);
  assert.deepEqual(lengths("\n".repeat(10_000)), [4001, 4001, 1998]);
});

test("a text has at most 10,000 elements, whatever is closed", () => {
  const isTooLarge = (source, isOpen) => {
    const reader = new MarkdownStream(markdown);
    for (;;) {
      const reading = reader.read(source, isOpen);
      if (reading.isDone || reading.isTooLarge) return reading.isTooLarge;
    }
  };
  for (const isOpen of [true, false]) {
    assert.equal(isTooLarge("# a\n\n".repeat(5000), isOpen), false);
    assert.equal(isTooLarge("# a\n\n".repeat(5001), isOpen), true);
    assert.equal(isTooLarge("- a\n".repeat(20_000), isOpen), false); // one block, and text
  }
});
