"""The embedded demo model: rules that answer in streams, without a key and a network."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import chain
from typing import Final, TypeAlias

import anyio
from pydantic import JsonValue

from passback.core.deltas import (
    Finish,
    ModelDelta,
    ModelRequest,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from passback.core.errors import ConfigurationError
from passback.core.messages import (
    AssistantMessage,
    Content,
    MediaPart,
    ModelMessage,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    as_text,
)
from passback.core.titles import TITLE_PROMPT
from passback.core.values import value

WORD_DELAY = 0.03  # seconds between two pieces, slow enough to see the stream
MAX_QUOTE = 2000  # characters of a message or a tool's result that an answer repeats
MAX_COUNT = 1000
MAX_DESCRIBED = 20  # attachments; the rest are counted

_MAX_MESSAGE_READ = 4000  # characters of a message
_CALL_PIECE = 24  # characters of a call's arguments that are sent at once
# The server puts such a block before a user's words; the words cannot have such a tag.
_CONTEXT = re.compile(r"<user_context>\n.*?\n</user_context>\n*", re.DOTALL)
_INSTRUCTIONS = "<instructions>\n"  # likewise, behind them
_PIECE = re.compile(r"\s*\S{1,24}|\s+")
_COUNT_TO = re.compile(r"\bcount to (\d{1,6})\b", re.IGNORECASE)
_GREETING = re.compile(r"\W*(hi|hello|hey|hallo|good (morning|evening|afternoon))\b", re.IGNORECASE)
_MEDIA_NAMES: Final = {"image": "an image", "audio": "a sound", "file": "a file"}
_MAX_LABEL = 200  # characters of a name or an address
_MAX_URL_HEAD = 400  # characters of a data: URL before its data


class DemoModel:
    """A model of a few rules.

    It greets, counts, calls the tools that the user's words name, quotes their results, and lists
    the attachments that it got.

    Args:
        delay: seconds between two pieces of an answer.
    """

    def __init__(self, *, delay: float = WORD_DELAY) -> None:
        self._delay = delay

    @property
    def name(self) -> str:
        return "demo" if self._delay else "demo:fast"

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        async def read_slowly() -> AsyncGenerator[Sequence[ModelDelta]]:
            for delta in answer_deltas(request):
                await anyio.sleep(self._delay)
                yield (delta,)

        async with aclosing(read_slowly()) as batches:
            yield batches

    def refuses(self, part: MediaPart, /) -> str | None:
        return None

    async def check(self) -> None:
        """Do nothing: rules are always available."""

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def create(
    name: str,
    /,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
) -> DemoModel:
    """Make the model for a setting: `demo`, or `demo:fast` for one that does not pause.

    Raises:
        ConfigurationError: there is a base URL or a key, which only a real model can use.
    """
    del timeout  # it never waits
    if base_url or api_key:
        raise ConfigurationError(
            "the demo model takes no base URL and no key: name a model such as openai:NAME"
        )
    return DemoModel(delay=0 if name == "fast" else WORD_DELAY)


def answer_deltas(request: ModelRequest, /) -> list[ModelDelta]:
    """Return the deltas of the answer to a request; equal requests get equal answers."""
    words, media = _last_words(request.messages)
    results = _last_results(request.messages)
    tools = [] if results else named_tools(words, request.tools)
    pieces: list[ModelDelta] = []
    for slot, tool in enumerate(tools):
        given = _ArgumentReader(tool, words).read_object(tool.spec.parameters, 0)
        arguments = json.dumps(given, ensure_ascii=False)
        # The first piece ends within the JSON, so that a client sees arguments arrive in parts.
        cut = arguments.find(":") + 1 or 1
        pieces.append(ToolCallChunk(slot, provider_id=f"demo_{slot}", name=tool.spec.name))
        pieces.append(ToolCallChunk(slot, arguments=arguments[:cut]))
        pieces.extend(
            ToolCallChunk(slot, arguments=arguments[start : start + _CALL_PIECE])
            for start in range(cut, len(arguments), _CALL_PIECE)
        )
    if not tools:
        quotes = [
            f"{name} {'failed' if result.is_error else 'answered'}: "
            f'"{_shorten_quote(_plain_text(result.content))}".'
            for name, result in results
        ]
        text = " ".join(["Done.", *quotes]) if quotes else _reply_text(words, media, request)
        pieces = [TextChunk(piece) for piece in _PIECE.findall(text)]
    read = sum(
        len(_without_context(_plain_text(message.content)).split()) for message in request.messages
    )
    usage = Usage(input_tokens=read, output_tokens=len(pieces))
    return [*pieces, UsageChunk(usage), Finish("tool_calls" if tools else "stop")]


def _reply_text(words: str, media: Sequence[MediaPart], request: ModelRequest) -> str:
    if request.system == TITLE_PROMPT:
        return "A talk with the demo model"
    received = f"I got {describe_media(media)}. " if media else ""
    if counted := _COUNT_TO.search(words):
        numbers = range(1, min(int(counted[1]), MAX_COUNT) + 1)
        return (
            f"{received}{' '.join(str(number) for number in numbers)} - counted by the demo model."
        )
    if received and not words.strip():
        opening = "I am only passback's demo model and cannot look at it."
    elif _GREETING.match(words) or not words.strip():
        opening = "Hello! I am passback's demo model: a few rules, no artificial intelligence."
    else:
        opening = (
            f'You said: "{_shorten_quote(words)}". '
            "I am only passback's demo model and cannot think."
        )
    hint = "Ask me to count to 20, or declare a tool and name it in a message: I will call it."
    if request.tools:
        names = ", ".join(tool.name for tool in request.tools[:8])
        hint = f"Name one of your tools and I will call it: {names}."
    return f"{received}{opening} {hint}"


def _last_words(messages: Sequence[ModelMessage]) -> tuple[str, Sequence[MediaPart]]:
    """Return the text and the attachments of the user's last message."""
    asked = (message.content for message in reversed(messages) if isinstance(message, UserMessage))
    content = next(asked, "")
    media: list[MediaPart] = []
    if not isinstance(content, str):
        media = [part for part in content if isinstance(part, MediaPart)]
        content = tuple(part for part in content if not isinstance(part, MediaPart))
    return _without_context(_plain_text(content))[:_MAX_MESSAGE_READ], media


def _without_context(text: str) -> str:
    """Return a message without the application's context around it: the time, its instructions."""
    context = _CONTEXT.match(text)
    words, tag, rest = text[context.end() if context else 0 :].rpartition(_INSTRUCTIONS)
    return words.rstrip("\n") if tag else rest


def _last_results(messages: Sequence[ModelMessage]) -> list[tuple[str, ToolMessage]]:
    """Return the results after the last answer with the names of their tools.

    The list is empty if the user has written since.
    """
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results.append(message)
        elif isinstance(message, AssistantMessage):
            names = {call.id: call.name for call in message.tool_calls}
            return [(names.get(result.call_id, "The tool"), result) for result in results[::-1]]
        else:
            break
    return []


def _plain_text(content: Content) -> str:
    text = as_text(content, media=lambda part: f"[{describe_part(part)}]")
    # A lone surrogate could not be sent as UTF-8.
    return text.encode("utf-8", "replace").decode()


def _shorten_quote(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_QUOTE else f"{text[:MAX_QUOTE]} ..."


def describe_media(media: Sequence[MediaPart], /) -> str:
    """Describe attachments, such as `an image (image/png, 68 bytes) and 2 more`."""
    texts = [describe_part(part) for part in media[:MAX_DESCRIBED]]
    if len(media) > len(texts):
        texts.append(f"{len(media) - len(texts)} more")
    *before, last = texts
    return f"{', '.join(before)} and {last}" if before else last


def describe_part(part: MediaPart, /) -> str:
    """Describe an attachment: by type and size if it is inline, else by its address."""
    name = f' "{_shorten_text(part.name)}"' if part.name else ""
    if part.url.startswith("data:"):
        # Only the head is copied: there may be millions of characters.
        comma = part.url.find(",", 0, _MAX_URL_HEAD)
        declared = part.url[len("data:") : max(comma, 0)].partition(";")[0]
        media_type = part.media_type or declared or "text/plain"
        size = (len(part.url) - comma - 1) * 3 // 4 - part.url[-2:].count("=")
        return f"{_MEDIA_NAMES[part.type]}{name} ({media_type}, {size} bytes)"
    known = f" ({part.media_type})" if part.media_type else ""
    return f"{_MEDIA_NAMES[part.type]}{name} at {_shorten_text(part.url)}{known}"


def _shorten_text(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[:_MAX_LABEL]}..."


# ---------------------------------------------------------------- tools and arguments
# Everything here is a guess by plain rules, good enough to try a tool, and never an error: a value
# that is not found in the words is made up from the schema.
Schema: TypeAlias = Mapping[str, JsonValue]

MAX_DEPTH = 5  # levels of nested schemas that are filled in; deeper ones are left empty

_MAX_DESCRIPTION = 4000  # characters of a description that are searched for values

# Words of a tool's name that say nothing about what it is for, as long as others do.
_WEAK_WORDS = frozenset(
    """
    a an at by for in my me of on the to tool user with
    ask change create delete do fetch find get list make open put read run search send set show
    tell update
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
# An opening mark ends the search that the one before it began: otherwise each of many opening
# marks would be searched for its end through the whole text.
_QUOTED = re.compile(r'"([^"]*)"|“([^“”]*)”|«([^«»]*)»|「([^「」]*)」')
# "blue, red, or green" in a description: the values that a tool understands. A list begins where a
# word begins, and `++` does not backtrack, so each word is read a bounded number of times.
_WORD_LIST = re.compile(r"(?<![^\W_])(?:[^\W_]++, ){2,}(?:(?:or|and) )?[^\W_]+")


class SearchedText:
    """An index of the words of a text, made once: no pattern is compiled for a word."""

    def __init__(self, text: str) -> None:
        self.words = frozenset(word.casefold() for word in _WORD.findall(text))
        self._lower = _to_lower(text)
        self._spans: dict[str, tuple[int, int]] = {}
        for match in _TOKEN.finditer(self._lower):
            self._spans.setdefault(match[0], match.span())

    def find(self, keyword: str, /) -> tuple[int, int] | None:
        """Return the first span of a keyword, singular or plural, as a whole word.

        A keyword that is not an ASCII word is found within words, too.
        """
        keyword = _to_lower(keyword)
        if keyword.isascii() and keyword.isalnum():
            forms = (keyword, f"{keyword}s", f"{keyword}es")
            return min((self._spans[form] for form in forms if form in self._spans), default=None)
        start = self._lower.find(keyword) if keyword else -1
        return None if start < 0 else (start, start + len(keyword))


def _to_lower(text: str) -> str:
    """Return the text in lower case, with each character at the same index."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    # A few characters, such as the Turkish capital I with a dot, have two characters in lower case.
    return "".join(one if len(one) == 1 else each for each in text for one in (each.lower(),))


@value
class NamedTool:
    """A tool that the words name, and the span of its name in them."""

    spec: ToolSpec
    keywords: frozenset[str]
    start: int
    end: int


def named_tools(words: str, tools: Iterable[ToolSpec], /) -> list[NamedTool]:
    """Return the tools that the user's words name, in the order of their mention.

    Of tools with the same keywords only the best match is taken, and none whose keywords are a part
    of another's: "time zone" does not name a tool "time".
    """
    named: dict[frozenset[str], NamedTool] = {}
    searched = SearchedText(words)
    for spec in tools:
        parts = [part.casefold() for part in _NAME_PART.findall(spec.name)]
        keywords = [part for part in parts if part not in _WEAK_WORDS] or parts
        spans = [searched.find(keyword) for keyword in keywords]
        if not keywords or None in spans:
            spans = [searched.find(spec.name), searched.find("".join(keywords))]
        if found := [span for span in spans if span]:
            start, end = min(start for start, _ in found), max(end for _, end in found)
            tool = NamedTool(spec, frozenset(keywords), start, end)
            before = named.get(tool.keywords)
            if _name_overlap(tool, searched) > _name_overlap(before, searched):
                named[tool.keywords] = tool
    chosen = [tool for key, tool in named.items() if not any(key < other for other in named)]
    return sorted(chosen, key=lambda tool: tool.start)


def _name_overlap(tool: NamedTool | None, words: SearchedText) -> int:
    """Return the number of parts of a tool's name that are in the words, -1 without a tool."""
    if tool is None:
        return -1
    return sum(part.casefold() in words.words for part in _NAME_PART.findall(tool.spec.name))


class _ArgumentReader:
    """A reader of a tool's arguments from the words, by its schema, as far as these give them.

    Each number and each quotation is used once.
    """

    def __init__(self, tool: NamedTool, words: str) -> None:
        self._tool = tool
        self._all = SearchedText(words)
        self._outside = SearchedText(f"{words[: tool.start]}\n{words[tool.end :]}")
        # where nothing fits better: a word that the tool's description lists, the words after its
        # name, or all words
        rest = _CONNECTORS.sub("", words[tool.end :]).strip().rstrip(".!") or words.strip()
        self._usual_text = next(self._mentioned_texts(tool.spec.description), rest)
        self._numbers = iter(_NUMBER.findall(words))
        self._quoted = (match[match.lastindex or 0] for match in _QUOTED.finditer(words))

    def read_object(self, schema: Schema, depth: int) -> dict[str, JsonValue]:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or depth > MAX_DEPTH:
            return {}
        required = schema.get("required")
        names = set(required) if isinstance(required, Sequence) else set[JsonValue]()
        values: dict[str, JsonValue] = {}
        for name, each in properties.items():
            inner = _as_schema(each)
            options = inner.get("enum")
            texts = map(str, options) if isinstance(options, list) else ()
            if name in names or any(map(self._outside.find, texts)):
                values[name] = self.read_value(inner, depth + 1)
        return values

    def read_value(self, schema: Schema, depth: int) -> JsonValue:
        schema, kind = self._resolve_schema(schema)
        if "const" in schema:
            return schema["const"]
        options = schema.get("enum")
        if isinstance(options, list) and options:
            return next(self._mentioned_values(options), schema.get("default", options[0]))
        value: JsonValue = None
        match kind:
            case "object":
                value = self.read_object(schema, depth)
            case "array":
                value = self._read_array(_as_schema(schema.get("items")), depth)
            case "integer" | "number":
                default = schema.get("default", schema.get("minimum", 0))
                numbers = map(float, self._numbers)
                value = next(map(int, numbers) if kind == "integer" else numbers, default)
            case "boolean":
                value = _NO_WORDS.isdisjoint(self._all.words)
            case "null":
                pass
            case _:
                own = self._mentioned_texts(schema.get("description"))
                value = next(chain(self._quoted, own), self._usual_text)
        return value

    def _resolve_schema(self, schema: Schema) -> tuple[Schema, JsonValue]:
        """Follow local references, take the first alternative, and return it with its type.

        Of several types it is the first that is not null.
        """
        # Bounded, because references may lead in a circle.
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if isinstance(reference, str) and reference.startswith("#"):
                target: JsonValue = dict(self._tool.spec.parameters)
                for step in filter(None, reference[1:].split("/")):
                    target = target.get(step) if isinstance(target, dict) else None
                schema = _as_schema(target)
                continue
            branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
            if not isinstance(branches, list) or not branches:
                break
            schema = _as_schema(branches[0])
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return schema, next((kind for kind in kinds if kind != "null"), "null")
        return schema, kinds or ("object" if "properties" in schema else "string")

    def _read_array(self, items: Schema, depth: int) -> list[JsonValue]:
        if depth > MAX_DEPTH:
            return []
        options = items.get("enum")
        if isinstance(options, list) and options:
            return list(self._mentioned_values(options)) or [options[0]]
        return [self.read_value(items, depth + 1)]

    def _mentioned_values(self, options: Iterable[JsonValue]) -> Iterator[JsonValue]:
        return (option for option in options if self._outside.find(str(option)))

    def _mentioned_texts(self, description: JsonValue) -> Iterator[str]:
        """Yield each word of the lists in a description that the user's words have, too."""
        text = description[:_MAX_DESCRIPTION] if isinstance(description, str) else ""
        for run in _WORD_LIST.finditer(text):
            yield from filter(self._outside.find, _WORD.findall(run[0]))


def _as_schema(value: JsonValue) -> Schema:
    return value if isinstance(value, dict) else {}
