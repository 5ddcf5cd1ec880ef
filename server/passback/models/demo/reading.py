"""How the demo model reads: which tools the user's words name, and what arguments they give.

Everything here is a guess by plain rules, good enough to try a tool out and never an error: what cannot be found
in the words is made up from the schema.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

from pydantic import JsonValue

from passback.core.messages import MediaPart, ToolSpec
from passback.core.values import value

MOST_LISTED = 20
"""Attachments that are described; of more, how many."""

_NAMES: Final = {"image": "an image", "audio": "a sound", "file": "a file"}
_CHARS = 200  # of a name or an address
_HEAD = 400  # characters of a data: URL in which its data begin


def listed(media: Sequence[MediaPart], /) -> str:
    """Describe them, such as `an image (image/png, 68 bytes) and a file at https://example.com/a.pdf`."""
    texts = [described(part) for part in media[:MOST_LISTED]]
    if len(media) > len(texts):
        texts.append(f"{len(media) - len(texts)} more")
    *before, last = texts
    return f"{', '.join(before)} and {last}" if before else last


def described(part: MediaPart, /) -> str:
    """Describe one: what is inline by its type and its bytes, what is elsewhere by its address."""
    name = f' "{_cut(part.name)}"' if part.name else ""
    if part.url.startswith("data:"):
        media_type, size = _inline(part)
        return f"{_NAMES[part.type]}{name} ({media_type}, {size} bytes)"
    known = f" ({part.media_type})" if part.media_type else ""
    return f"{_NAMES[part.type]}{name} at {_cut(part.url)}{known}"


def _inline(part: MediaPart) -> tuple[str, int]:
    """The type and the bytes of what the part holds itself, in base64. Nothing is copied: it may have millions."""
    comma = part.url.find(",", 0, _HEAD)
    declared = part.url[len("data:") : max(comma, 0)].partition(";")[0]
    size = (len(part.url) - comma - 1) * 3 // 4 - part.url[-2:].count("=")
    return part.media_type or declared or "text/plain", size


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[:_CHARS]}..."


Schema: TypeAlias = Mapping[str, JsonValue]

MAX_DEPTH = 5
"""Levels of nested schemas that are filled in; what lies deeper is left empty."""

_DESCRIPTION_CHARACTERS = 4000  # of a description, that are searched for values

# Words of a tool's name that say nothing about what it is for, as long as others do.
_WEAK = frozenset(
    """
    a an at by for in my me of on the to tool user with
    ask change create delete do fetch find get list make open put read run search send set show tell update
    """.split()  # noqa: SIM905 - a list of words reads better so
)
_CONNECTORS = re.compile(
    r"^(?:[\s:,=.?!]|(?:to|is|as|be|that|with|about|for|of|in|into|whether|if|me|please)\b)+",
    re.IGNORECASE,
)
_NO_WORDS = frozenset({"no", "not", "never", "off", "false", "disable", "without", "stop", "don't"})
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_TOKEN = re.compile(r"\w+")
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?")
# An opening mark ends the search that the one before it began, so that many of them are not searched to the end each.
_QUOTED = re.compile(r'"([^"]*)"|“([^“”]*)”|«([^«»]*)»|「([^「」]*)」')
# "blue, red, or green" in a description: the values that a tool understands. A list begins where a word begins, and what
# was read of a word is not given back: so each word is read a bounded number of times.
_LISTED = re.compile(r"(?<![^\W_])(?:[^\W_]++, ){2,}(?:(?:or|and) )?[^\W_]+")


# ---------------------------------------------------------------- the words
class SearchedText:
    """A text in which many words are looked up: it is read once, and no pattern is made of a word."""

    def __init__(self, text: str) -> None:
        self.words = frozenset(word.casefold() for word in _WORD.findall(text))
        self._lower = _lowered(text)
        self._spans: dict[str, tuple[int, int]] = {}
        for match in _TOKEN.finditer(self._lower):
            self._spans.setdefault(match[0], match.span())

    def find(self, keyword: str, /) -> tuple[int, int] | None:
        """Return where a keyword stands first, also in plural, as a word of its own; anywhere if it is no ASCII word."""
        keyword = _lowered(keyword)
        if keyword.isascii() and keyword.isalnum():
            forms = (keyword, f"{keyword}s", f"{keyword}es")
            return min((self._spans[form] for form in forms if form in self._spans), default=None)
        start = self._lower.find(keyword) if keyword else -1
        return None if start < 0 else (start, start + len(keyword))


def _lowered(text: str) -> str:
    """The text in lower case, each character where it was."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(one if len(one) == 1 else each for each in text for one in (each.lower(),))


# ---------------------------------------------------------------- which tools
@value
class NamedTool:
    """A tool that the words name: `end` is where its name ends in them."""

    spec: ToolSpec
    keywords: frozenset[str]
    start: int
    end: int


def named_tools(words: str, tools: Iterable[ToolSpec], /) -> list[NamedTool]:
    """The tools that the user's words name, in the order of their mention.

    Of tools whose names mean the same here, or less than another's, only one is taken: "time zone" is not "time".
    """
    named: dict[frozenset[str], NamedTool] = {}
    searched = SearchedText(words)
    for spec in tools:
        tool = _find(spec, searched)
        if tool and _likeness(tool, searched) > _likeness(named.get(tool.keywords), searched):
            named[tool.keywords] = tool
    chosen = [tool for key, tool in named.items() if not any(key < other for other in named)]
    return sorted(chosen, key=lambda tool: tool.start)


def _find(spec: ToolSpec, words: SearchedText) -> NamedTool | None:
    parts = [part.casefold() for part in _NAME_PART.findall(spec.name)]
    keywords = [part for part in parts if part not in _WEAK] or parts
    spans = [words.find(keyword) for keyword in keywords]
    if not keywords or None in spans:
        spans = [words.find(spec.name), words.find("".join(keywords))]
    found = [span for span in spans if span]
    if not found:
        return None
    start, end = min(start for start, _ in found), max(end for _, end in found)
    return NamedTool(spec, frozenset(keywords), start, end)


def _likeness(tool: NamedTool | None, words: SearchedText) -> int:
    """How many parts of the tool's name the words have; a missing tool has fewer than any."""
    if tool is None:
        return -1
    return sum(part.casefold() in words.words for part in _NAME_PART.findall(tool.spec.name))


# ---------------------------------------------------------------- which arguments
def arguments_for(tool: NamedTool, words: str, /) -> dict[str, JsonValue]:
    """Arguments for a tool by its schema, as far as the words give them."""
    return _Reader(tool, words).object(tool.spec.parameters, 0)


class _Reader:
    """Takes values out of the words: each number and each quotation is used once."""

    def __init__(self, tool: NamedTool, words: str) -> None:
        self._tool = tool
        self._words = words
        self._all = SearchedText(words)
        self._outside = SearchedText(f"{words[: tool.start]}\n{words[tool.end :]}")
        self._listed = next(self._mentioned(_listed(tool.spec.description)), None)
        self._numbers = iter(_NUMBER.findall(words))
        self._quoted = (match[match.lastindex or 0] for match in _QUOTED.finditer(words))

    def object(self, schema: Schema, depth: int) -> dict[str, JsonValue]:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or depth > MAX_DEPTH:
            return {}
        required = schema.get("required")
        names = set(required) if isinstance(required, Sequence) else set[JsonValue]()
        return {
            name: self.value(_schema(inner), depth + 1)
            for name, inner in properties.items()
            if name in names or self._speaks_of(_schema(inner))
        }

    def _speaks_of(self, schema: Schema) -> bool:
        """Whether an optional value is given in so many words: one of its `enum`."""
        return any(True for _ in self._mentioned(_texts(schema.get("enum"))))

    def value(self, schema: Schema, depth: int) -> JsonValue:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        options = schema.get("enum")
        if isinstance(options, list) and options:
            return next(self._mentioned_values(options), schema.get("default", options[0]))
        return self._of_type(_type(schema), schema, depth)

    def _of_type(self, kind: JsonValue, schema: Schema, depth: int) -> JsonValue:
        match kind:
            case "object":
                return self.object(schema, depth)
            case "array":
                return self._array(_schema(schema.get("items")), depth)
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return _NO_WORDS.isdisjoint(self._all.words)
            case "null":
                return None
            case _:
                return self._text(schema)

    def _resolved(self, schema: Schema) -> Schema:
        """A schema with its own type: follows a local `$ref`, takes the first of several alternatives."""
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if isinstance(reference, str) and reference.startswith("#"):
                target: JsonValue = dict(self._tool.spec.parameters)
                for step in filter(None, reference[1:].split("/")):
                    target = target.get(step) if isinstance(target, dict) else None
                schema = _schema(target)
                continue
            branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
            if not isinstance(branches, list) or not branches:
                break
            schema = _schema(branches[0])
        return schema

    def _array(self, items: Schema, depth: int) -> list[JsonValue]:
        if depth > MAX_DEPTH:
            return []
        options = items.get("enum")
        if isinstance(options, list) and options:
            return list(self._mentioned_values(options)) or [options[0]]
        return [self.value(items, depth + 1)]

    def _number(self, schema: Schema, *, whole: bool) -> JsonValue:
        text = next(self._numbers, None)
        if text is None:
            return schema.get("default", schema.get("minimum", 0))
        return int(float(text)) if whole else float(text)

    def _text(self, schema: Schema) -> str:
        quoted = next(self._quoted, None)
        if quoted is not None:
            return quoted
        own = next(self._mentioned(_listed(schema.get("description"))), None)
        return own or self._listed or self._remainder

    @cached_property
    def _remainder(self) -> str:
        """What is said after the tool's name, or else all of it."""
        rest = _CONNECTORS.sub("", self._words[self._tool.end :]).strip()
        return rest.rstrip(".!") or self._words.strip()

    def _mentioned_values(self, options: Iterable[JsonValue]) -> Iterator[JsonValue]:
        return (option for option in options if any(self._mentioned([str(option)])))

    def _mentioned(self, options: Iterable[str]) -> Iterator[str]:
        return (option for option in options if self._outside.find(option))


def _listed(description: JsonValue) -> Iterator[str]:
    """Each word of the lists in a description."""
    if isinstance(description, str):
        for run in _LISTED.finditer(description[:_DESCRIPTION_CHARACTERS]):
            yield from _WORD.findall(run[0])


def _schema(value: JsonValue) -> Schema:
    return value if isinstance(value, dict) else {}


def _texts(value: JsonValue) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _type(schema: Schema) -> JsonValue:
    """The type a value should have; of several the first that is not null."""
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return next((kind for kind in kinds if kind != "null"), "null")
    return kinds or ("object" if "properties" in schema else "string")
