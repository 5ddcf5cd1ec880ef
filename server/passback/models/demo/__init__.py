"""The embedded demo model: rules that answer in streams, without a key and a network."""

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
from passback.models.demo.reading import (
    arguments_for,
    describe_media,
    describe_part,
    named_tools,
)

WORD_DELAY = 0.03  # seconds between two pieces, slow enough to see the stream
MAX_QUOTE = 2000  # characters of a message or a tool's result that an answer repeats
MAX_COUNT = 1000

_MAX_MESSAGE_READ = 4000  # characters of a message
_CALL_PIECE = 24  # characters of a call's arguments that are sent at once
# The server puts such a block before a user's words; the words cannot have such a tag.
_CONTEXT = re.compile(r"<user_context>\n.*?\n</user_context>\n*", re.DOTALL)
_PIECE = re.compile(r"\s*\S{1,24}|\s+")
_COUNT_TO = re.compile(r"\bcount to (\d{1,6})\b", re.IGNORECASE)
_GREETING = re.compile(r"\W*(hi|hello|hey|hallo|good (morning|evening|afternoon))\b", re.IGNORECASE)


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
        arguments = json.dumps(arguments_for(tool, words), ensure_ascii=False)
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
    """Return a message without the application's context before it, such as the time."""
    context = _CONTEXT.match(text)
    return text if context is None else text[context.end() :]


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
