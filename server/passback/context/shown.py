"""What a model is shown of a transcript, and how large it is: fed as the transcript grows, eased in steps.

The steps are taken where the model is called and nowhere else, and follow from the record alone: a later run, on any
worker, shows the same bytes again, so that what the provider has cached of them stays of use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from passback.context.tokens import Scale, measured, message_tokens, plain, shortened
from passback.core.events import CompactionStep
from passback.core.messages import (
    AssistantMessage,
    Message,
    ModelMessage,
    SummaryMessage,
    ToolMessage,
    Usage,
)
from passback.core.transcript import boundary, paired, unheard, view
from passback.core.values import value

_RECENT: Final = 3
"""Turns whose results are not left out."""

BULK: Final = 64
"""Tokens of a result that is worth to be left out; none is shortened to less."""


@value
class Levels:
    """Tokens of the provider's, from the window on downwards.

    `window` is what the model takes; above `stop` it is not called; from `compact` on room is made, until no more than
    `warn` is used; from there on people are warned.
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
        """What a single result may have, once room has to be made."""
        return max(BULK, self.window // 16)


@dataclass(slots=True)
class Entry:
    """One message: as it is in the record, at `place`, and as it is shown."""

    place: int
    message: Message
    shown: Message
    tokens: int

    def show(self, message: Message) -> int:
        """Show it in another form; gives how many tokens that saves."""
        before, self.shown, self.tokens = self.tokens, message, message_tokens(message)
        return before - self.tokens


@value
class Taken:
    """A step that made room: tokens before and after."""

    step: CompactionStep
    before: int
    after: int


class Shown:
    """What one run's model is shown.

    Args:
        frame: estimated tokens of what all requests have in common.
        levels: of the model's window.

    Attributes:
        entries: what may be shown, from the last summary on.
        summary: that summary.
        scale: what the estimates mean, as far as is known.
    """

    def __init__(self, frame: int, levels: Levels) -> None:
        self.frame = frame
        self.levels = levels
        self.scale = Scale()
        self.entries: list[Entry] = []
        self.summary: SummaryMessage | None = None
        self.estimate = frame
        self._fed = 0
        self._snipped = self._shrunk = 0
        self._turns: tuple[int, ...] = ()  # where the newest ones begin

    @property
    def used(self) -> int:
        """The provider's tokens, by the estimate."""
        return self.scale.used(self.estimate)

    def messages(self) -> tuple[ModelMessage, ...]:
        return paired([entry.shown for entry in self.entries])

    def counted(self, usage: Usage | None, estimate: int) -> None:
        """Learn from what the provider counted for a request of that estimate; an estimate of ours teaches nothing."""
        if usage is not None and usage.input_tokens > 0 and not usage.estimated:
            self.scale = measured(usage.input_tokens, estimate, self.levels.window)

    # ---------------------------------------------------------------- growing
    def feed(self, messages: Sequence[Message]) -> None:
        """Take in the whole record; only what is new costs anything, and of that only what is still shown."""
        fresh = messages[self._fed :]
        last = next(
            (n for n in range(len(fresh) - 1, -1, -1) if isinstance(fresh[n], SummaryMessage)), None
        )
        if last is not None:
            self._begin_again(messages[: self._fed + last + 1])
            fresh = fresh[last + 1 :]
        replayed = self._fed == 0
        for place, message in enumerate(fresh, len(messages) - len(fresh)):
            if replayed and isinstance(message, AssistantMessage) and not message.command:
                self.ease()  # as it was done when the model was asked for this
                self.counted(message.usage, self.estimate)
            self._add(place, message)
        self._fed = len(messages)

    def _begin_again(self, messages: Sequence[Message]) -> None:
        """Show a record whose last message is a summary."""
        self.entries.clear()
        self._turns = ()
        self.estimate, self._snipped, self._shrunk = self.frame, 0, 0
        summary = messages[-1]
        self.summary = None
        if isinstance(summary, SummaryMessage) and not summary.is_blank:
            self.summary = summary
        for message in view(messages[-1:]):
            self._add(len(messages) - 1, message)
        for place in range(boundary(messages), len(messages) - 1):
            if not isinstance(messages[place], SummaryMessage):
                self._add(place, messages[place])

    def _add(self, place: int, message: Message) -> None:
        if unheard(message):
            return
        if isinstance(message, AssistantMessage):
            self._turns = (*self._turns, len(self.entries))[-_RECENT:]
        tokens = message_tokens(message)
        self.entries.append(Entry(place, message, message, tokens))
        self.estimate += tokens

    # ---------------------------------------------------------------- easing
    def ease(self) -> list[Taken]:
        """Take the cheap steps that are due, one after the other until there is enough room."""
        taken: list[Taken] = []
        if self.used < self.levels.compact:
            return taken
        steps: tuple[tuple[CompactionStep, Callable[[], None]], ...] = (
            ("snip", self._snip),
            ("micro", self._shrink),
        )
        for step, take in steps:
            before = self.used
            take()
            if self.used < before:
                taken.append(Taken(step, before, self.used))
            if self.used <= self.levels.warn:
                break
        return taken

    def tighten(self) -> list[Taken]:
        """Shorten results as far as need be, if that is what it takes to call the model."""
        before, single = self.used, self.levels.single
        while self.used > self.levels.stop and single > BULK:
            single = max(BULK, single // 4)
            for entry in self.entries:
                self._shorten(entry, single)
        return [Taken("micro", before, self.used)] if self.used < before else []

    def _snip(self) -> None:
        """Leave out the bulk of results before the last turns."""
        recent = self._turns[0] if len(self._turns) == _RECENT else 0
        for entry in self.entries[self._snipped : recent]:
            result = entry.message
            if isinstance(result, ToolMessage) and entry.tokens > BULK:
                length = len(plain(result.content))
                stub = f"[An older result, left out to save room: {length} characters]"
                self.estimate -= entry.show(replace(result, content=stub))
        self._snipped = max(self._snipped, recent)

    def _shrink(self) -> None:
        """Shorten single large results."""
        for entry in self.entries[self._shrunk :]:
            self._shorten(entry, self.levels.single)
        self._shrunk = len(self.entries)

    def _shorten(self, entry: Entry, tokens: int) -> None:
        result = entry.message
        if isinstance(result, ToolMessage) and entry.tokens > tokens:
            text = shortened(plain(result.content), tokens - BULK // 4)
            self.estimate -= entry.show(replace(result, content=text))
