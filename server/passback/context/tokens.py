"""Tokens, estimated without a tokenizer: from lengths, corrected by what the provider counts."""

import json
import math
from typing import Final, Literal

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    Aside,
    AssistantMessage,
    Content,
    MediaPart,
    Message,
    Part,
    Reasoning,
    SummaryMessage,
    ToolCall,
    as_text,
)
from passback.core.values import value

_MESSAGE: Final = 4
_CALL: Final = 8
_TOOL: Final = 12
"""Tokens around the words of each."""

_MEDIA: Final[dict[Literal["image", "audio", "file"], int]] = {
    "image": 1_500,
    "audio": 2_000,
    "file": 4_000,
}
"""Whatever their size: no provider counts the bytes."""


# ---------------------------------------------------------------- estimates
def text_tokens(text: str, /) -> int:
    """Four ASCII characters are a token; others count by their bytes: about one token for a Chinese character."""
    length = len(text)
    if text.isascii():
        return (length + 3) // 4
    bytes_more = len(text.encode("utf-8", "surrogatepass")) - length
    return (length + 2 * bytes_more + 3) // 4


def message_tokens(message: Message, /) -> int:
    """What a message adds to a request; nothing where no model is shown it."""
    if isinstance(message, Aside | SummaryMessage):
        return 0
    tokens = _MESSAGE + _content_tokens(message.content)
    if isinstance(message, AssistantMessage):
        tokens += sum(map(_call_tokens, message.tool_calls))
        tokens += sum(map(_reasoning_tokens, message.reasoning))
    return tokens


def frame_tokens(frame: ModelRequest, /) -> int:
    """What every request of a run has in common: the prompt and the tools."""
    tools = sum(
        _TOOL
        + text_tokens(spec.name)
        + text_tokens(spec.description)
        + text_tokens(json.dumps(dict(spec.parameters), ensure_ascii=False))
        for spec in frame.tools
    )
    return _MESSAGE + text_tokens(frame.system) + tools


def request_tokens(request: ModelRequest, /) -> int:
    """A whole request."""
    return frame_tokens(request) + sum(map(message_tokens, request.messages))


def _content_tokens(content: Content) -> int:
    return text_tokens(content) if isinstance(content, str) else sum(map(_part_tokens, content))


def _part_tokens(part: Part) -> int:
    return _MEDIA[part.type] if isinstance(part, MediaPart) else text_tokens(plain((part,)))


def _call_tokens(call: ToolCall) -> int:
    return _CALL + text_tokens(call.name) + text_tokens(call.arguments)


def _reasoning_tokens(reasoning: Reasoning) -> int:
    """Only what can be sent back counts."""
    return text_tokens(reasoning.text) if reasoning.opaque is not None else 0


# ---------------------------------------------------------------- texts that take less room
def plain(content: Content, /) -> str:
    """Content as a text; what it has of media is named, with the words that it is left out."""
    return as_text(content, media=_named)


def _named(part: MediaPart) -> str:
    name = " ".join(filter(None, (part.type, part.name)))
    return f"[{name}, left out to save room]"


def shortened(text: str, tokens: int, /) -> str:
    """The text's beginning and its end, with a mark between them, in about so many tokens.

    It has never more, but for the mark itself. A text that is small enough stays as it is.
    """
    kept, measure, shorter = len(text), text_tokens(text), text
    while measure > tokens and kept > 0:
        kept = max(0, min(kept - 1, kept * tokens // measure))
        head, tail = (kept + 1) // 2, kept // 2
        mark = f"\n[... {len(text) - kept} characters left out to save room ...]\n"
        shorter = text[:head] + mark + text[len(text) - tail :]
        measure = text_tokens(shorter)
    return shorter


# ---------------------------------------------------------------- what an estimate means
_EVIDENCE: Final = 2_000
"""Estimated tokens of a request from which its count says more than what was believed before."""

_RATIOS: Final = (0.5, 4.0)
"""What can be believed of a service's count, and what cannot."""


@value
class Scale:
    """How the provider's tokens follow from estimated ones: `offset + ratio * estimate`."""

    ratio: float = 1.0
    offset: float = 0.0

    def used(self, estimate: int, /) -> int:
        return math.ceil(self.offset + self.ratio * estimate)

    def room(self, used: float, /) -> int:
        """The largest estimate that is no more than so many of the provider's tokens; 0 at least."""
        return max(0, math.floor((used - self.offset) / self.ratio))


def measured(reported: int, estimate: int, window: int, /) -> Scale:
    """What a provider's count of a request says.

    A small request says little of how texts are counted: what the service itself adds to each request is most of it.
    """
    low, high = _RATIOS
    ratio = (reported + _EVIDENCE) / (estimate + _EVIDENCE)
    ratio = min(max(ratio, low), high)
    return Scale(ratio, min(max(reported - ratio * estimate, 0.0), window / 8))
