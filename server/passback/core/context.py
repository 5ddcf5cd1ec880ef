"""The doors of what a model is shown: a transcript may be larger than its window."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from passback.core.deltas import ModelRequest
from passback.core.events import RunEvent
from passback.core.messages import Message, ModelMessage, SummaryMessage, Usage
from passback.core.ports import ModelClient
from passback.core.transcript import paired
from passback.core.values import value

Count: TypeAlias = Callable[[Usage], None]
"""Is told what each call of the model used that made room, also of one that is cut or comes to nothing."""


@value
class Fitted:
    """What a model is to be shown. `append` and `events` are to be committed together before it is asked."""

    messages: Sequence[ModelMessage]
    append: tuple[SummaryMessage, ...] = ()
    events: tuple[RunEvent, ...] = ()


class Context(Protocol):
    """What one run's model is shown. It is given the whole transcript each time, which only grows from call to call."""

    @property
    def estimate(self) -> int:
        """Tokens of a request as the transcript was last seen; 0: nothing is known of it."""
        ...

    def at_once(self, messages: Sequence[Message], /) -> Sequence[ModelMessage] | None:
        """What the model is shown, where nothing has to be done or told before. None: ask `fit`."""
        ...

    async def fit(self, messages: Sequence[Message], count: Count, /) -> Fitted:
        """Make room, if need be; the model may be asked for a summary, once at most.

        Raises:
            ContextTooLarge: however much is left out, it is more than the window.
        """
        ...

    async def compact(self, messages: Sequence[Message], count: Count, /) -> Fitted:
        """Summarise, however much room there is. Nothing to append: there was nothing to summarise.

        Raises:
            ContextTooLarge: as `fit`.
        """
        ...

    def counted(self, usage: Usage, /) -> None:
        """Learn from what the model's service counted for what was last shown."""
        ...

    def exceeded(self) -> bool:
        """Learn that what was last shown was refused as too long. Whether `fit` may help now."""
        ...

    def refuse(self, messages: Sequence[Message], /) -> None:
        """Return if the last of the messages may be shown, whatever else is left out for it.

        Raises:
            MessageTooLarge: it is more than the window has room for.
        """
        ...


class ContextPolicy(Protocol):
    """Decides what a model is shown when a transcript becomes too large for it."""

    def watch(self, model: ModelClient, frame: ModelRequest, /) -> Context:
        """Begin a run. `frame` is what its requests have in common: all but their messages."""
        ...

    def is_large(self, messages: Sequence[Message], /) -> bool:
        """Return whether new messages alone may be too much for the window, so that `Context.refuse` has to be asked."""
        ...


class Unbounded:
    """A policy for models whose window is not known: they are shown everything."""

    @property
    def estimate(self) -> int:
        return 0

    def watch(self, _model: ModelClient, _frame: ModelRequest, /) -> Context:
        return self

    def at_once(self, messages: Sequence[Message], /) -> Sequence[ModelMessage]:
        return paired(messages)

    async def fit(self, messages: Sequence[Message], _count: Count, /) -> Fitted:
        return Fitted(paired(messages))

    async def compact(self, messages: Sequence[Message], _count: Count, /) -> Fitted:
        return Fitted(paired(messages))

    def counted(self, _usage: Usage, /) -> None:
        """Nothing is estimated here."""

    def exceeded(self) -> bool:
        return False

    def is_large(self, _messages: Sequence[Message], /) -> bool:
        return False

    def refuse(self, _messages: Sequence[Message], /) -> None:
        """Nothing is too large here."""
