"""The part of a transcript that a model is shown, its size, and the cheap steps of compaction.

Steps are taken only at model calls, and follow from the transcript alone: a later run, on any
worker, sends the same bytes again, so that the provider's prompt cache stays valid.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from passback.context.tokens import Scale, message_tokens, plain_text, scale_from_count, shortened
from passback.core.events import CompactionStep
from passback.core.messages import (
    AssistantMessage,
    Message,
    ModelMessage,
    SummaryMessage,
    ToolMessage,
    Usage,
)
from passback.core.transcript import is_command, paired_messages, shown_messages, view_start
from passback.core.values import value

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


@value
class TakenStep:
    """A compaction step that made room, with the tokens before and after it."""

    step: CompactionStep
    before: int
    after: int


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

    def ease(self) -> list[TakenStep]:
        """Take the cheap steps in order until there is enough room, and return those taken."""
        taken: list[TakenStep] = []
        if self.used < self.levels.compact:
            return taken
        steps: tuple[tuple[CompactionStep, Callable[[], None]], ...] = (
            ("snip", self._omit_old_results),
            ("micro", self._shorten_large_results),
        )
        for step, make_room in steps:
            before = self.used
            make_room()
            if self.used < before:
                taken.append(TakenStep(step, before, self.used))
            if self.used <= self.levels.warn:
                break
        return taken

    def tighten(self) -> list[TakenStep]:
        """Shorten results more and more until the model can be called."""
        before, single = self.used, self.levels.single
        while self.used > self.levels.stop and single > MIN_RESULT_TOKENS:
            single = max(MIN_RESULT_TOKENS, single // 4)
            for entry in self.entries:
                self._shorten_result(entry, single)
        return [TakenStep("micro", before, self.used)] if self.used < before else []

    def _omit_old_results(self) -> None:
        """Replace large results before the newest turns by a stub."""
        recent = self._turn_starts[0] if len(self._turn_starts) == _RECENT_TURNS else 0
        for entry in self.entries[self._omitted_until : recent]:
            result = entry.message
            if isinstance(result, ToolMessage) and entry.tokens > MIN_RESULT_TOKENS:
                length = len(plain_text(result.content))
                stub = f"[An older result, left out to save room: {length} characters]"
                self.estimate -= entry.show(replace(result, content=stub))
        self._omitted_until = max(self._omitted_until, recent)

    def _shorten_large_results(self) -> None:
        """Shorten every result above the limit for a single one."""
        for entry in self.entries[self._shortened_until :]:
            self._shorten_result(entry, self.levels.single)
        self._shortened_until = len(self.entries)

    def _shorten_result(self, entry: Entry, tokens: int) -> None:
        result = entry.message
        if isinstance(result, ToolMessage) and entry.tokens > tokens:
            text = shortened(plain_text(result.content), tokens - MIN_RESULT_TOKENS // 4)
            self.estimate -= entry.show(replace(result, content=text))
