"""Interfaces of what a model is shown: its prompt, and policies that fit a transcript into its
context window.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from passback.core.deltas import ModelRequest
from passback.core.events import RunEvent
from passback.core.messages import Message, ModelMessage, RunRef, SummaryMessage, Usage
from passback.core.ports import ModelClient
from passback.core.transcript import MintMessageId, paired_messages
from passback.core.values import value

CountUsage: TypeAlias = Callable[[Usage], None]
"""Called with the usage of each model call that made room, also of one that failed or was
cancelled.
"""


@value
class Fitted:
    """The messages to show to a model.

    Commit `append` and `events` together before the model is asked.
    """

    messages: Sequence[ModelMessage]
    append: tuple[SummaryMessage, ...] = ()
    events: tuple[RunEvent, ...] = ()


class Context(Protocol):
    """The context window of one run.

    It is given the whole transcript each time, which only grows.
    """

    @property
    def estimate(self) -> int:
        """Tokens of a request with the transcript as it was last seen; 0 if unknown."""
        ...

    @property
    def window(self) -> int | None:
        """Tokens of the model's context window; None if unknown."""
        ...

    def at_once(self, messages: Sequence[Message], /) -> Sequence[ModelMessage] | None:
        """Return the messages to show if nothing has to be done before; None: call `fit`."""
        ...

    async def fit(self, messages: Sequence[Message], count: CountUsage, /) -> Fitted:
        """Return messages that fit the window, making room if needed.

        The model may be asked for a summary, at most once.

        Raises:
            ContextTooLarge: the request exceeds the window whatever is left out.
        """
        ...

    async def compact(self, messages: Sequence[Message], count: CountUsage, /) -> Fitted:
        """Summarise, however much room there is.

        `append` is empty if there was nothing to summarise.

        Raises:
            ContextTooLarge: as `fit`.
        """
        ...

    def counted(self, usage: Usage, /) -> None:
        """Correct the estimate by the usage that the service reports for the last request."""
        ...

    def exceeded(self) -> bool:
        """Correct the estimate: the last request was too long. Return whether `fit` may help."""
        ...

    def refuse(self, messages: Sequence[Message], /) -> None:
        """Check that the last of the messages fits the window, whatever else is left out.

        Raises:
            MessageTooLarge: it is larger than the window.
        """
        ...


class ContextPolicy(Protocol):
    """Decides which messages a model is shown when a transcript outgrows its window."""

    def watch(self, model: ModelClient, frame: ModelRequest, mint: MintMessageId, /) -> Context:
        """Begin a run.

        `frame` is a request without messages: what all its requests share. `mint` makes the ids of
        summaries.
        """
        ...

    def is_large(self, messages: Sequence[Message], /) -> bool:
        """Return whether new messages alone may exceed the window: call `Context.refuse` then."""
        ...


class Unbounded:
    """The policy for models whose window is unknown: they are shown everything."""

    @property
    def estimate(self) -> int:
        return 0

    @property
    def window(self) -> None:
        return None

    def watch(self, _model: ModelClient, _frame: ModelRequest, _mint: MintMessageId, /) -> Context:
        return self

    def at_once(self, messages: Sequence[Message], /) -> Sequence[ModelMessage]:
        return paired_messages(messages)

    async def fit(self, messages: Sequence[Message], _count: CountUsage, /) -> Fitted:
        return Fitted(paired_messages(messages))

    async def compact(self, messages: Sequence[Message], _count: CountUsage, /) -> Fitted:
        return Fitted(paired_messages(messages))

    def counted(self, _usage: Usage, /) -> None:
        """Do nothing: there is no estimate."""

    def exceeded(self) -> bool:
        return False

    def is_large(self, _messages: Sequence[Message], /) -> bool:
        return False

    def refuse(self, _messages: Sequence[Message], /) -> None:
        """Accept everything."""


def prompt_section(heading: str, text: str, /) -> str:
    """Return a section of the system prompt; empty if the text is.

    A text that begins with a heading keeps its own.
    """
    has_own = text.startswith("#") and text.lstrip("#").startswith(" ")
    return text if not text or has_own else f"# {heading}\n{text}"


class PromptBuilder(Protocol):
    """Renders messages and instructions of others for the model."""

    def shown(self, message: Message, /) -> Message:
        """Return a message with its `MessageContext` rendered into its text.

        Nothing in it can pass for a part of the prompt. Pure: the same on every worker and in every
        turn.
        """
        ...

    def instructed(self, said: Mapping[str, str], /) -> str:
        """Return the instructions of tool servers, by name, as an uncached part of the prompt."""
        ...


ExtraPrompt: TypeAlias = Callable[[RunRef], Awaitable[str]]
"""Returns text for the prompt of one run; called once by each worker that works on it. If it
raises, the run fails.
"""
