"""The demo model: rules that answer in streams, so that everything around a model can be tried offline."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import anyio

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
    Usage,
    UserMessage,
    as_text,
)
from passback.models.demo.reading import NamedTool, arguments_for, described, listed, named_tools

WORD_DELAY = 0.03
"""Seconds between two pieces: fast enough not to bore, slow enough to see the stream."""

_HEARD = 4000
"""Characters of a message that it looks at."""

MAX_QUOTE = 2000
"""Characters of a user's words or a tool's result that an answer repeats."""

MAX_COUNT = 1000

_CONTEXT = re.compile(r"<user_context>\n.*?\n</user_context>\n*", re.DOTALL)
"""What the application says before the user's words; these cannot have such a tag."""

_PIECE = re.compile(r"\s*\S{1,24}|\s+")
_COUNT_TO = re.compile(r"\bcount to (\d{1,6})\b", re.IGNORECASE)
_GREETING = re.compile(r"\W*(hi|hello|hey|hallo|good (morning|evening|afternoon))\b", re.IGNORECASE)


class DemoModel:
    """Greets, counts, calls the tools that the user's words name, quotes their results, and says which attachments it got.

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
        async with aclosing(self._paced(answer(request))) as batches:
            yield batches

    async def _paced(self, deltas: Sequence[ModelDelta]) -> AsyncGenerator[Sequence[ModelDelta]]:
        for delta in deltas:
            await anyio.sleep(self._delay)
            yield (delta,)

    def refuses(self, part: MediaPart, /) -> str | None:
        return None

    async def check(self) -> None:
        """Rules are always there."""

    async def aclose(self) -> None:
        """Nothing is held."""


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
        ConfigurationError: settings that only a real model can use.
    """
    del timeout  # it never waits
    if base_url or api_key:
        raise ConfigurationError(
            "the demo model takes no base URL and no key: name a model such as openai:NAME"
        )
    return DemoModel(delay=0 if name == "fast" else WORD_DELAY)


def answer(request: ModelRequest, /) -> list[ModelDelta]:
    """The whole answer to a request, piece by piece; equal requests get equal answers."""
    words, media = _last_words(request.messages)
    results = _last_results(request.messages)
    tools = [] if results else named_tools(words, request.tools)
    if tools:
        pieces = _call_pieces(tools, words)
    else:
        text = _quote_results(results) if results else _reply(words, media, request)
        pieces = [TextChunk(piece) for piece in _PIECE.findall(text)]
    usage = Usage(input_tokens=_word_count(request.messages), output_tokens=len(pieces))
    return [*pieces, UsageChunk(usage), Finish("tool_calls" if tools else "stop")]


def _call_pieces(tools: Sequence[NamedTool], words: str) -> list[ModelDelta]:
    pieces: list[ModelDelta] = []
    for slot, tool in enumerate(tools):
        text = json.dumps(arguments_for(tool, words), ensure_ascii=False)
        cut = text.find(":") + 1 or 1
        pieces.append(ToolCallChunk(slot, provider_id=f"demo_{slot}", name=tool.spec.name))
        pieces.append(ToolCallChunk(slot, arguments=text[:cut]))
        pieces.extend(
            ToolCallChunk(slot, arguments=text[start : start + 24])
            for start in range(cut, len(text), 24)
        )
    return pieces


# ---------------------------------------------------------------- what it says
def _reply(words: str, media: Sequence[MediaPart], request: ModelRequest) -> str:
    got = f"I got {listed(media)}. " if media else ""
    if counted := _COUNT_TO.search(words):
        numbers = range(1, min(int(counted[1]), MAX_COUNT) + 1)
        return f"{got}{' '.join(str(number) for number in numbers)} - counted by the demo model."
    if got and not words.strip():
        opening = "I am only passback's demo model and cannot look at it."
    elif _GREETING.match(words) or not words.strip():
        opening = "Hello! I am passback's demo model: a few rules, no artificial intelligence."
    else:
        opening = f'You said: "{_short(words)}". I am only passback\'s demo model and cannot think.'
    return f"{got}{opening} {_offer(request)}"


def _offer(request: ModelRequest) -> str:
    if not request.tools:
        return "Ask me to count to 20, or declare a tool and name it in a message: I will call it."
    names = ", ".join(tool.name for tool in request.tools[:8])
    return f"Name one of your tools and I will call it: {names}."


def _quote_results(results: Sequence[tuple[str, ToolMessage]]) -> str:
    said = (
        f'{name} {"failed" if result.is_error else "answered"}: "{_short(_plain(result.content))}".'
        for name, result in results
    )
    return f"Done. {' '.join(said)}"


# ---------------------------------------------------------------- what was said
def _last_words(messages: Sequence[ModelMessage]) -> tuple[str, Sequence[MediaPart]]:
    """What the user said last, and what was attached to it."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            content = message.content
            if isinstance(content, str):
                return _words_in(_plain(content))[:_HEARD], ()
            words = tuple(part for part in content if not isinstance(part, MediaPart))
            media = [part for part in content if isinstance(part, MediaPart)]
            return _words_in(_plain(words))[:_HEARD], media
    return "", ()


def _words_in(text: str) -> str:
    """A user's message without what the application says before it, such as the time."""
    context = _CONTEXT.match(text)
    return text if context is None else text[context.end() :]


def _last_results(messages: Sequence[ModelMessage]) -> list[tuple[str, ToolMessage]]:
    """The results after the last turn, with the names of their tools; none when the user spoke since."""
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


def _plain(content: Content) -> str:
    text = as_text(content, media=lambda part: f"[{described(part)}]")
    # A lone surrogate could not be sent on as UTF-8.
    return text.encode("utf-8", "replace").decode()


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_QUOTE else f"{text[:MAX_QUOTE]} ..."


def _word_count(messages: Sequence[ModelMessage]) -> int:
    return sum(len(_words_in(_plain(message.content)).split()) for message in messages)
