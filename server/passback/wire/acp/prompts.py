"""Prompts of a session while they go on, and runs that were left to it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import anyio

from passback.core.events import START, Position
from passback.core.messages import RunRef


@dataclass(eq=False, slots=True)
class Prompt:
    """A prompt from its arrival to its answer, or a run that is only shown.

    Attributes:
        is_left: nobody waits for its answer: it is what another process, or another client, has
            left when the session was opened.
        cancelled: it is to end, and to be answered as cancelled.
        gives_way: another prompt has come, and what is owed is not answered any more.
        run: its newest run.
        seen: the last event of that run.
        other: the run with which another client went on while the editor was asked.
    """

    is_left: bool = False
    cancelled: bool = False
    gives_way: bool = False
    run: RunRef | None = None
    seen: Position = START
    other: RunRef | None = None
    _waiting: anyio.CancelScope | None = None
    _asks: bool = False

    @contextmanager
    def interruptible(self, *, asks: bool = False) -> Generator[None]:
        """Leave what is done within the context as soon as the prompt is cancelled.

        Where it `asks` the editor, also when the prompt gives way.
        """
        self._asks = asks
        try:
            with anyio.CancelScope() as self._waiting:
                if self.cancelled or (asks and self.gives_way):
                    self._waiting.cancel()
                yield
        finally:
            self._waiting = None

    def leave(self) -> None:
        """Leave what is done within `interruptible`."""
        if self._waiting is not None:
            self._waiting.cancel()

    def cancel(self) -> None:
        self.cancelled = True
        self.leave()

    def give_way(self) -> None:
        self.gives_way = True
        if self._asks:
            self.leave()


class LeftRun(NamedTuple):
    """A run that goes on when a session is opened; what comes after a position is not shown yet."""

    run: RunRef
    after: Position
