"""The part of a transcript that a model is shown, its size, and the cheap steps of compaction.

Steps are taken only at model calls, and follow from the transcript alone: a later run, on any
worker, sends the same bytes again, so that the provider's prompt cache stays valid.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from passback.core.deltas import ModelRequest
from passback.core.events import Compacted, CompactionStep
from passback.core.messages import (
    AssistantMessage,
    Content,
    MediaPart,
    Message,
    ModelMessage,
    SideMessage,
    SummaryMessage,
    ToolMessage,
    Usage,
    as_text,
)
from passback.core.text import text_tokens
from passback.core.transcript import is_command, paired_messages, shown_messages, view_start
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


_RECENT_TURNS: Final = 3  # the newest ones, whose results are never left out

MIN_RESULT_TOKENS: Final = (
    64  # a smaller result is not worth leaving out, and none is shortened to less
)


@value
class Levels:
    """Thresholds of a model's window, in tokens as the provider counts them.

    `window` is the model's limit. Above `stop` the model is not called. At `compact` room is made,
    until at most `warn` is used. At `warn` the user is warned.
    """

    window: int

    @property
    def warn(self) -> int:
        return self.window * 60 // 100

    @property
    def compact(self) -> int:
        return self.window * 80 // 100

    @property
    def stop(self) -> int:
        return self.window * 95 // 100

    @property
    def single(self) -> int:
        """Maximum of tokens in one tool result, once room has to be made."""
        return max(MIN_RESULT_TOKENS, self.window // 16)


@dataclass(slots=True)
class Entry:
    """One message: as stored at index `place` of the transcript, and as shown to the model."""

    place: int
    message: Message
    shown: Message
    tokens: int

    def show(self, message: Message) -> int:
        """Show another form of the message and return the number of tokens that this saves."""
        before, self.shown, self.tokens = self.tokens, message, message_tokens(message)
        return before - self.tokens


class Shown:
    """The messages that the model of one run is shown.

    Args:
        frame: estimated tokens of the prompt and the tools, which all requests have in common.
        levels: thresholds of the model's window.
        automatic: True if room is made before model calls without being asked for.

    Attributes:
        entries: the messages from the last summary on.
        summary: that summary.
        scale: converts estimates to the provider's tokens, as far as is known.
    """

    def __init__(self, frame: int, levels: Levels, *, automatic: bool) -> None:
        self.frame = frame
        self.levels = levels
        self._automatic = automatic
        self.scale = Scale()
        self.entries: list[Entry] = []
        self.summary: SummaryMessage | None = None
        self.estimate = frame
        self._fed_count = 0
        self._omitted_until = self._shortened_until = 0
        self._turn_starts: tuple[int, ...] = ()  # indices into entries

    @property
    def used(self) -> int:
        """The estimated size of a request, in the provider's tokens."""
        return self.scale.used(self.estimate)

    def messages(self) -> tuple[ModelMessage, ...]:
        return paired_messages([entry.shown for entry in self.entries])

    def counted(self, usage: Usage | None, estimate: int) -> None:
        """Adjust the scale by the provider's count for a request of this estimate.

        Usage that passback itself estimated is ignored.
        """
        if usage is not None and usage.input_tokens > 0 and not usage.estimated:
            self.scale = scale_from_count(usage.input_tokens, estimate, self.levels.window)

    def feed(self, messages: Sequence[Message]) -> None:
        """Take the whole transcript; only new messages from the last summary on are processed."""
        fresh = messages[self._fed_count :]
        last = next(
            (n for n in range(len(fresh) - 1, -1, -1) if isinstance(fresh[n], SummaryMessage)), None
        )
        if last is not None:
            self._restart_from_summary(messages[: self._fed_count + last + 1])
            fresh = fresh[last + 1 :]
        replayed = self._fed_count == 0
        for place, message in enumerate(fresh, len(messages) - len(fresh)):
            if replayed and isinstance(message, AssistantMessage) and not message.command:
                # repeats the steps of the model call that gave this message: it wrote no summary
                if self._automatic:
                    self.ease()
                    self.tighten()
                self.counted(message.usage, self.estimate)
            self._add_entry(place, message)
        self._fed_count = len(messages)

    def _restart_from_summary(self, messages: Sequence[Message]) -> None:
        """Start anew from a transcript whose last message is a summary."""
        self.entries.clear()
        self._turn_starts = ()
        self.estimate, self._omitted_until, self._shortened_until = self.frame, 0, 0
        summary = messages[-1]
        self.summary = None
        if isinstance(summary, SummaryMessage) and not summary.is_blank:
            self.summary = summary
        for message in shown_messages(messages[-1:]):
            self._add_entry(len(messages) - 1, message)
        for place in range(view_start(messages), len(messages) - 1):
            if not isinstance(messages[place], SummaryMessage):
                self._add_entry(place, messages[place])

    def _add_entry(self, place: int, message: Message) -> None:
        if is_command(message):
            return
        if isinstance(message, AssistantMessage):
            self._turn_starts = (*self._turn_starts, len(self.entries))[-_RECENT_TURNS:]
        tokens = message_tokens(message)
        self.entries.append(Entry(place, message, message, tokens))
        self.estimate += tokens

    def ease(self) -> list[Compacted]:
        """Take the cheap steps in order until there is enough room, and return those taken."""
        before = self.used
        if before < self.levels.compact:
            return []
        # replace large results before the newest turns by a stub
        recent = self._turn_starts[0] if len(self._turn_starts) == _RECENT_TURNS else 0
        for entry in self.entries[self._omitted_until : recent]:
            result = entry.message
            if isinstance(result, ToolMessage) and entry.tokens > MIN_RESULT_TOKENS:
                length = len(plain_text(result.content))
                stub = f"[An older result, left out to save room: {length} characters]"
                self.estimate -= entry.show(replace(result, content=stub))
        self._omitted_until = max(self._omitted_until, recent)
        taken = self._step_taken("snip", before)
        before = self.used
        if before > self.levels.warn:
            # shorten every result above the limit for a single one
            for entry in self.entries[self._shortened_until :]:
                self._shorten_result(entry, self.levels.single)
            self._shortened_until = len(self.entries)
            taken += self._step_taken("micro", before)
        return taken

    def tighten(self) -> list[Compacted]:
        """Shorten results more and more until the model can be called."""
        before, single = self.used, self.levels.single
        while self.used > self.levels.stop and single > MIN_RESULT_TOKENS:
            single = max(MIN_RESULT_TOKENS, single // 4)
            for entry in self.entries:
                self._shorten_result(entry, single)
        return self._step_taken("micro", before)

    def _step_taken(self, step: CompactionStep, before: int) -> list[Compacted]:
        return [Compacted(step, before, self.used)] if self.used < before else []

    def _shorten_result(self, entry: Entry, tokens: int) -> None:
        result = entry.message
        if isinstance(result, ToolMessage) and entry.tokens > tokens:
            text = shortened(plain_text(result.content), tokens - MIN_RESULT_TOKENS // 4)
            self.estimate -= entry.show(replace(result, content=text))
