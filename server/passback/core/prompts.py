"""The doors through which the engine learns what a model is told beside the words of the transcript."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from passback.core.messages import Message, RunRef


def section(heading: str, text: str, /) -> str:
    """A section of the system prompt: nothing, if there is no text; a text that begins with a heading keeps its own."""
    has_own = text.startswith("#") and text.lstrip("#").startswith(" ")
    return text if not text or has_own else f"# {heading}\n{text}"


class PromptBuilder(Protocol):
    """Says how a model is shown the words of others, and what was posted beside them."""

    def shown(self, message: Message, /) -> Message:
        """The message with its `Brief` as a part of its words, in which nothing passes for a part of the prompt.

        Pure: the same on every worker, and in every turn.
        """
        ...

    def instructed(self, said: Mapping[str, str], /) -> str:
        """What servers of tools say of their use, by the servers' names, as a part of the prompt that is not cached."""
        ...


RunContext: TypeAlias = Callable[[RunRef], Awaitable[str]]
"""What the model is told in one run only; asked for once by each worker that works on it. What it raises, fails the run."""
