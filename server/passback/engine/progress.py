"""What tools tell of their progress, from whatever thread, in bounds."""

import asyncio
from threading import get_ident
from time import monotonic

from passback.core.events import ToolProgressed
from passback.core.messages import CallId
from passback.core.text import mended
from passback.engine.children import Journal

_SHORTEST = 0.05
"""Seconds between two of a call's words; what comes sooner is left out."""

_LONGEST = 1000
"""Characters that are told at once."""


class Progress:
    """Tells readers of one call, until it has ended. To be made where the event loop runs; called anywhere."""

    def __init__(self, journal: Journal, call_id: CallId) -> None:
        self._journal = journal
        self._call_id = call_id
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._last = -_SHORTEST
        self._ended = False

    def end(self) -> None:
        """Tell nothing more."""
        self._ended = True

    def __call__(self, words: str, /) -> None:
        now = monotonic()
        if self._ended or now - self._last < _SHORTEST:
            return
        self._last = now
        if get_ident() == self._thread:
            self._tell(str(words))
        else:
            self._loop.call_soon_threadsafe(self._tell, str(words))

    def _tell(self, words: str) -> None:
        if not self._ended:
            self._journal.append([ToolProgressed(self._call_id, mended(words[:_LONGEST]))])
