/** Arguments of a call in visible form: a person reads exactly the arguments that the tool gets. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { escapeInvisible, escapeProse, formatArguments } from "../../client_tools/js/src/index.js";

/** One of each kind, with how it is written out. */
const UNSEEN = {
  "\u0000": "\\u0000",
  "\u007f": "\\u007f",
  "\u0085": "\\u0085",
  "\u00ad": "\\u00ad",
  "\u034f": "\\u034f",
  "\u061c": "\\u061c",
  "\u115f": "\\u115f",
  "\u180e": "\\u180e",
  "\u200b": "\\u200b",
  "\u200e": "\\u200e",
  "\u2028": "\\u2028",
  "\u2029": "\\u2029",
  "\u202a": "\\u202a",
  "\u202e": "\\u202e",
  "\u2066": "\\u2066",
  "\u2069": "\\u2069",
  "\u3164": "\\u3164",
  "\ufeff": "\\ufeff",
  "\ufff9": "\\ufff9",
  "\ud800": "\\ud800",
  "\u{e0041}": "\\udb40\\udc41",
  "\u{e0100}": "\\udb40\\udd00",
  "\u{1d173}": "\\ud834\\udd73",
};
/** Characters that prose needs, and a literal does not. */
const OF_PROSE = {
  "\n": "\\u000a",
  "\t": "\\u0009",
  "\u00a0": "\\u00a0",
  "\u200c": "\\u200c",
  "\u200d": "\\u200d",
  "\ufe0f": "\\ufe0f",
  "\u3000": "\\u3000",
};
const SEEN = "bob pays 1,000 é e\u0301 日本 شكرا שלום 😀 ~ \\u202e";

test("each character that cannot be seen is written out", () => {
  for (const [character, written] of Object.entries(UNSEEN)) {
    assert.equal(escapeInvisible(`a${character}b`), `a${written}b`);
    assert.equal(escapeProse(`a${character}b`), `a${written}b`);
  }
  assert.deepEqual([escapeInvisible(SEEN), escapeProse(SEEN)], [SEEN, SEEN]);
});

test("prose keeps what writing needs", () => {
  for (const [character, written] of Object.entries(OF_PROSE)) {
    assert.equal(escapeProse(`a${character}b`), `a${character}b`);
    assert.equal(escapeInvisible(`a${character}b`), `a${written}b`);
  }
  assert.deepEqual([escapeProse("a\r\nb"), escapeProse("a\rb")], ["a\r\nb", "a\\u000db"]);
});

test("the arguments of an order that reads as another one", () => {
  const shown = formatArguments('{"text":"bob \u202e 000,1 yap"}');
  assert.deepEqual(shown, { text: '{"text": "bob \\u202e 000,1 yap"}', valid: true, repeated: [] });
});

test("keys that come twice are all shown, and named", () => {
  const text =
    '{"to":"alice","amount":1,"\\u0074o":"mallory","amount":9999,' +
    '"a":{"to":1,"a":[{"to":2},{"to":3}]}}';
  const { text: shown, repeated } = formatArguments(text);
  assert.deepEqual(repeated, ["to", "amount"]);
  assert.equal(
    shown,
    '{\n  "to": "alice",\n  "amount": 1,\n  "to": "mallory",\n  "amount": 9999,\n' +
      '  "a": {\n    "to": 1,\n    "a": [\n      {\n' +
      '        "to": 2\n      },\n      {\n        "to": 3\n      }\n    ]\n  }\n}',
  );
});

test("what is shown is the same JSON", () => {
  const values = [
    {},
    { a: [] },
    { a: {} },
    { "": "" },
    { "{": "}", "[": ",", ":": '"' },
    { "\u202e": ["\u0000\n\\", "\\u202e", "\ud800", "😀\u{e0041}"] },
    { deep: [[[{ a: [1, -0.5, 1e21, true, false, null] }]]], long: "x".repeat(200) },
    { __proto__: null, ["__proto__"]: 1 },
  ];
  for (const value of values) {
    for (const given of [value, JSON.stringify(value), JSON.stringify(value, null, "\t")]) {
      const { text, valid, repeated } = formatArguments(given);
      assert.deepEqual(
        [JSON.stringify(JSON.parse(text)), valid, repeated],
        [JSON.stringify(value), true, []],
      );
      assert.equal(
        text.split("\n").every((line) => escapeInvisible(line) === line),
        true,
      );
    }
  }
  assert.equal(formatArguments(JSON.stringify(values[6])).text, JSON.stringify(values[6], null, 2));
});

test("numbers are shown as they were written, however large", () => {
  assert.equal(
    formatArguments('{"id":9007199254740993,"n":1e400,"z":-0}').text,
    '{"id": 9007199254740993, "n": 1e400, "z": -0}',
  );
});

test("what is no JSON is shown as it is, without what cannot be seen", () => {
  assert.deepEqual(formatArguments('{"a":\n "\u202e'), {
    text: '{"a":\n "\\u202e',
    valid: false,
    repeated: [],
  });
  assert.deepEqual(formatArguments(""), { text: "", valid: true, repeated: [] });
  assert.deepEqual(formatArguments(undefined), { text: "", valid: true, repeated: [] });
});

test("large and deep arguments take no more than their size", () => {
  const long = formatArguments(JSON.stringify({ text: '\\"'.repeat(500_000) }));
  assert.equal(JSON.parse(long.text).text.length, 1_000_000);
  const deep = formatArguments(`{"a":${"[".repeat(20_000)}${"]".repeat(20_000)}}`);
  assert.ok(deep.text.length < 20_000 * 2 * 70);
});
