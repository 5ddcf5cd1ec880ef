"""Keeps one connection to a server: opens it, opens it again after it was lost, and knows its tools."""

import logging
import math
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread

from passback.core.errors import PassbackError, ToolsetUnavailable
from passback.toolsets.mcp.catalogue import MOST_TOOLS, Catalogue, catalogue
from passback.toolsets.mcp.session import Connect, LastWords, Lost, McpSession
from passback.toolsets.mcp.targets import Terms

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
"""Seconds before the next attempt. They double; a connection that has lasted so long begins with the first again."""

_BREATHER = 0.2
"""Seconds in which changes of the tools are gathered."""

_LEAVING = 3.0
"""Seconds for the end of a connection; a process has more of its own."""

_jitter = random.SystemRandom()
_one_at_a_time = anyio.CapacityLimiter(1)


class Reconnector:
    """The life of one connection after the other, in a task of its own.

    While the first attempt after a loss goes on the tools are still known, and calls wait; when it fails they are not.

    Args:
        last_words: what the server said of itself in the present attempt.
    """

    def __init__(self, name: str, connect: Connect, terms: Terms, last_words: LastWords) -> None:
        self._name = name
        self._connect = connect
        self._terms = terms
        self._last_words = last_words
        self._said: Sequence[str] = ()  # in the last attempt that failed
        self.catalogue = Catalogue()
        self.trouble: str | None = None
        """Why the last attempt failed; None: there was none, or it did not."""
        self._session: McpSession | None = None
        self._used = False
        """Whether the connection that was lost had been one."""
        self._tried = anyio.Event()
        self._changed = anyio.Event()
        self._leaving = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        failure: PassbackError | None = None
        async with anyio.create_task_group() as tasks:
            ended = anyio.Event()
            tasks.start_soon(self._keep, ended)
            try:
                yield
            except PassbackError as error:
                failure = error  # kept out of the task group, which would wrap it
            finally:
                await self._leave(ended)
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def ready(self) -> Catalogue:
        """The tools, when the first attempt is over. Raises ToolsetUnavailable."""
        await self._tried.wait()
        if self.trouble is not None:
            raise ToolsetUnavailable(
                f"the MCP server {self._name!r} cannot be used: {self.trouble}", said=self._said
            )
        return self.catalogue

    async def session(self, *, but: McpSession | None = None) -> McpSession | None:
        """The connection; another than `but`, which is lost. Waits while it is being made, None: it cannot be now."""
        with anyio.move_on_after(self._terms.start_seconds):
            while self.trouble is None and self._session in (None, but):
                await self._changed.wait()
        return None if self._session is but else self._session

    # ---------------------------------------------------------------- the task
    async def _keep(self, ended: anyio.Event) -> None:
        pause = _FIRST_PAUSE
        while not self._leaving:
            begun = anyio.current_time()
            try:
                await self._live()
            except Lost as lost:
                self._fell(str(lost))
            if anyio.current_time() - begun > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            if not self._leaving:
                await anyio.sleep(_jitter.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)
        ended.set()

    async def _live(self) -> None:
        """One connection, from the attempt to its end. Raises Lost."""
        patience = self._terms.start_seconds
        with anyio.move_on_after(patience) as bound:
            async with self._connect() as session:
                try:
                    while True:
                        self._came(session, await self._look(session))
                        bound.deadline = math.inf
                        await session.news()
                        await anyio.sleep(_BREATHER)
                        bound.deadline = anyio.current_time() + patience
                finally:
                    self._session = None
                    bound.deadline = anyio.current_time() + _LEAVING
        raise Lost(f"it did not answer in {patience:g} s")

    async def _look(self, session: McpSession) -> Catalogue:
        described = await session.tools(MOST_TOOLS)
        choose = partial(
            catalogue,
            self._name,
            described,
            session.instructions,
            trust_hints=self._terms.trust_hints,
        )
        return await anyio.to_thread.run_sync(choose, limiter=_one_at_a_time)

    async def _leave(self, ended: anyio.Event) -> None:
        """Let a connection end in good order, if there is one; an attempt is just given up."""
        self._leaving = True
        if self._session is not None:
            self._session.leave()
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LEAVING):
                await ended.wait()

    # ---------------------------------------------------------------- what is known
    def _came(self, session: McpSession, found: Catalogue) -> None:
        if self.trouble is not None:
            self._log(logging.INFO, "connected again", "toolset_available")
        if found.warnings != self.catalogue.warnings:
            for warning in found.warnings:
                self._log(logging.WARNING, warning, "tools_left_out")
        self.trouble, self.catalogue, self._session = None, found, session
        self._used = True
        self._tell()

    def _fell(self, reason: str) -> None:
        """After a connection that was used another attempt is due before the tools are gone; after an attempt not."""
        if self._leaving:
            return
        if self._used:
            self._log(logging.WARNING, f"lost: {reason}", "toolset_lost")
        elif self.trouble is None:
            self._log(logging.WARNING, f"cannot be used: {reason}", "toolset_unavailable")
        if not self._used:
            self.trouble, self.catalogue = reason, Catalogue()
            self._said = self._last_words.shown()
        self._used = False
        self._tell()

    def _tell(self) -> None:
        self._tried.set()
        event, self._changed = self._changed, anyio.Event()
        event.set()

    def _log(self, level: int, text: str, action: str) -> None:
        logger.log(level, "MCP server %s: %s", self._name, text, extra={"action": action})
