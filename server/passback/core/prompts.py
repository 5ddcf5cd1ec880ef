"""The doors through which the engine learns what a model is told beside the words of the transcript."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from passback.core.deltas import ModelRequest
from passback.core.messages import RunRef


class PromptBuilder(Protocol):
    """Makes whole what a model is asked."""

    def build(self, request: ModelRequest, context: str, /) -> ModelRequest:
        """The request as the model gets it: without any `Brief`, and with `context`, that of this run.

        Pure: every worker makes the same of the same, and the request of a turn begins as that of the turn before.
        """
        ...


RunContext: TypeAlias = Callable[[RunRef], Awaitable[str]]
"""What the model is told in one run only; asked for once by each worker that works on it. What it raises, fails the run."""
