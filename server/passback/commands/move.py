"""`passback move`: all conversations of one store into another, with a progress bar."""

import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from time import monotonic
from typing import IO, Final

from passback.backend import named_in_errors
from passback.core.conversation.store import Store
from passback.core.errors import ConfigurationError
from passback.engine.moving import Moved, Named, Phase, move_conversations
from passback.logs import print_warning
from passback.settings import Settings
from passback.stores.open import open_filled_store, open_store
from passback.workers import EXIT_FAILED

FROM: Final = "FROM_URL"
TO: Final = "TO_URL"
_LOOK_AGAIN = 1.0  # seconds between looks at conversations whose runs go on
_MAX_SHOWN = 20  # conversations that are named with the reason why they are not moved
_BAR_WIDTH = 30  # characters
_BAR_PAUSE = 0.1  # seconds between two states of the bar
_LINE_PAUSE = 10.0  # seconds between two lines, where there is no terminal
_WORDS: Final[dict[Phase, str]] = {"list": "found", "copy": "copied", "compare": "compared"}


async def move(source_url: str, target_url: str, settings: Settings, *, wait: bool) -> int:
    """Move conversations, print what came of it, and return the exit code.

    Raises:
        ConfigurationError: a URL that cannot be used; without a password in it.
        StoreError: a store that cannot be used.
    """
    with named_in_errors(FROM):
        source = open_filled_store(source_url, options=settings.store_options)
    with named_in_errors(TO):
        target = _open_target(target_url, settings)
    if source.location == target.location:
        raise ConfigurationError(f"{FROM} and {TO} are the same store: {source.location}")
    print(f"from  {source.location}\nto    {target.location}", flush=True)
    progress = Progress(sys.stdout)
    async with AsyncExitStack() as stack:
        with named_in_errors(FROM):
            await stack.enter_async_context(source)
            await source.check()  # its warnings are about what is written to it
        with named_in_errors(TO):
            await stack.enter_async_context(target)
            for warning in await target.check():
                print_warning(warning, settings.log_format)
        moved = await move_conversations(
            source, target, report=progress.show, wait=_LOOK_AGAIN if wait else None
        )
    progress.end()
    print("\n".join(_describe(moved, waits=wait)))
    return 0 if moved.is_whole else EXIT_FAILED


def _open_target(url: str, settings: Settings) -> Store:
    store = open_store(url, options=settings.store_options)
    if store.location == "memory:":
        raise ConfigurationError("a store in memory belongs to one process: give another one")
    return store


class Progress:
    """The progress of a move: a bar on a terminal, and elsewhere a line from time to time.

    Args:
        out: where it is written.
        clock: returns the seconds that have passed since any time.
    """

    def __init__(self, out: IO[str], clock: Callable[[], float] = monotonic) -> None:
        self._out = out
        self._clock = clock
        self._draws = out.isatty()
        self._shown = clock()
        self._state: tuple[Phase, int, int] | None = None

    def show(self, phase: Phase, done: int, total: int) -> None:
        """Show how many conversations are done, of how many (0: unknown), if it is time."""
        if self._state is not None and self._state[0] != phase:
            self.end()
        self._state = phase, done, total
        now = self._clock()
        if now - self._shown >= (_BAR_PAUSE if self._draws else _LINE_PAUSE):
            self._shown = now
            self._write("" if self._draws else "\n")

    def end(self) -> None:
        """Show the last state of a phase."""
        if self._state is not None:
            self._write("\n")
            self._state = None

    def _write(self, end: str) -> None:
        assert self._state is not None
        phase, done, total = self._state
        text = f"{_WORDS[phase]:<9} {done}{f' of {total}' if total else ''}"
        if self._draws:
            full = _BAR_WIDTH * done // total if total else 0
            bar = f"[{'#' * full}{'-' * (_BAR_WIDTH - full)}] " if total else ""
            text = f"\r\x1b[K{bar}{text}"
        self._out.write(f"{text}{end}")
        self._out.flush()


def _describe(moved: Moved, *, waits: bool) -> Iterable[str]:
    yield f"moved     {moved.copied}; {moved.there} were there before"
    yield (
        f"equal     {moved.equal} of {moved.found} in the source; "
        f"the target has {moved.target} in all"
    )
    if moved.running:
        hint = "" if waits else " (--wait waits for their ends)"
        yield f"left out  {len(moved.running)} whose runs go on{hint}:"
        yield from _some(map(_name, sorted(moved.running, key=_name)))
    if moved.faults:
        yield f"wrong     {len(moved.faults)}:"
        yield from _some(f"{_name(key)}: {why}" for key, why in moved.faults.items())
    if not moved.is_whole:
        yield "Not all is moved. Nothing was overwritten; the same command goes on."


def _some(lines: Iterable[str]) -> Iterable[str]:
    for number, line in enumerate(lines):
        if number == _MAX_SHOWN:
            yield "          ..."
            return
        yield f"          {line}"


def _name(key: Named) -> str:
    if isinstance(key, str):
        return f"the one with the tag {key!a}"
    # escaped: a client has chosen the id
    return f"{key.id!a} of {key.owner!a}"
