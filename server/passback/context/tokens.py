"""Token estimates without a tokenizer: from lengths, corrected by the provider's counts."""

import json
import math
from typing import Final, Literal

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    AssistantMessage,
    Content,
    MediaPart,
    Message,
    SideMessage,
    SummaryMessage,
    as_text,
)
from passback.core.values import value

# tokens of the markup around each
_MESSAGE_TOKENS: Final = 4
_CALL_TOKENS: Final = 8
_TOOL_TOKENS: Final = 12

# The size makes no difference: no provider counts the bytes.
_MEDIA_TOKENS: Final[dict[Literal["image", "audio", "file"], int]] = {
    "image": 1_500,
    "audio": 2_000,
    "file": 4_000,
}


def text_tokens(text: str, /) -> int:
    """Estimate the tokens of a text.

    Four ASCII characters are one token. Others count by their bytes: about one token for a Chinese
    character.
    """
    length = len(text)
    if text.isascii():
        return (length + 3) // 4
    bytes_more = len(text.encode("utf-8", "surrogatepass")) - length
    return (length + 2 * bytes_more + 3) // 4


def message_tokens(message: Message, /) -> int:
    """Estimate the tokens that a message adds to a request; 0 if no model is shown it."""
    if isinstance(message, SideMessage | SummaryMessage):
        return 0
    tokens, content = _MESSAGE_TOKENS, message.content
    if isinstance(content, str):
        tokens += text_tokens(content)
    else:
        media = [part for part in content if isinstance(part, MediaPart)]
        tokens += sum(_MEDIA_TOKENS[part.type] for part in media)
        texts = ((part,) for part in content if not isinstance(part, MediaPart))
        tokens += sum(text_tokens(plain_text(text)) for text in texts)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            tokens += _CALL_TOKENS + text_tokens(call.name) + text_tokens(call.arguments)
        # of reasoning only what can be sent back
        tokens += sum(text_tokens(r.text) for r in message.reasoning if r.opaque is not None)
    return tokens


def frame_tokens(frame: ModelRequest, /) -> int:
    """Estimate the tokens of the prompt and the tools, which all requests of a run share."""
    tools = sum(
        _TOOL_TOKENS
        + text_tokens(spec.name)
        + text_tokens(spec.description)
        + text_tokens(json.dumps(dict(spec.parameters), ensure_ascii=False))
        for spec in frame.tools
    )
    return _MESSAGE_TOKENS + text_tokens(frame.system) + tools


def request_tokens(request: ModelRequest, /) -> int:
    """Estimate the tokens of a whole request."""
    return frame_tokens(request) + sum(map(message_tokens, request.messages))


def plain_text(content: Content, /) -> str:
    """Return content as text; a note stands for each media part."""

    def note(part: MediaPart) -> str:
        name = " ".join(filter(None, (part.type, part.name)))
        return f"[{name}, left out to save room]"

    return as_text(content, media=note)


def shortened(text: str, tokens: int, /) -> str:
    """Return the beginning and the end of a text, with a mark between them.

    Without the mark, the result has at most `tokens` tokens. A text that is small enough stays as
    it is.
    """
    kept, measure, shorter = len(text), text_tokens(text), text
    while measure > tokens and kept > 0:
        kept = max(0, min(kept - 1, kept * tokens // measure))
        head, tail = (kept + 1) // 2, kept // 2
        mark = f"\n[... {len(text) - kept} characters left out to save room ...]\n"
        shorter = text[:head] + mark + text[len(text) - tail :]
        measure = text_tokens(shorter)
    return shorter


# The weight of the assumption that estimates are right: a count of a larger request weighs more.
_PRIOR_TOKENS: Final = 2_000

_RATIO_BOUNDS: Final = (0.5, 4.0)  # a service whose counts lie outside is not believed


@value
class Scale:
    """The conversion of estimates to the provider's tokens: `offset + ratio * estimate`."""

    ratio: float = 1.0
    offset: float = 0.0

    def used(self, estimate: int, /) -> int:
        """Return an estimate in the provider's tokens."""
        return math.ceil(self.offset + self.ratio * estimate)

    def estimate_within(self, used: float, /) -> int:
        """Return the largest estimate, at least 0, within this number of the provider's tokens."""
        return max(0, math.floor((used - self.offset) / self.ratio))


def scale_from_count(reported: int, estimate: int, window: int, /) -> Scale:
    """Return the scale that follows from a provider's count of one request.

    A small request says little: most of its count is what the service adds to every request.
    """
    low, high = _RATIO_BOUNDS
    ratio = (reported + _PRIOR_TOKENS) / (estimate + _PRIOR_TOKENS)
    ratio = min(max(ratio, low), high)
    return Scale(ratio, min(max(reported - ratio * estimate, 0.0), window / 8))
