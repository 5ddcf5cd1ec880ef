"""One connection to a server: opened, opened again after a loss, and the tools that it offers."""

import logging
import math
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread

from passback.core.errors import PassbackError, ToolsetUnavailable
from passback.toolsets.mcp.catalogue import MAX_TOOLS, Catalogue, build_catalogue
from passback.toolsets.mcp.session import Connect, ConnectionLost, McpSession, RecentOutput
from passback.toolsets.mcp.targets import ServerOptions

logger = logging.getLogger(__name__)

_FIRST_DELAY = 0.5  # seconds before the next attempt; the delay doubles with each failure

# Seconds; the longest delay. A connection that lasted longer than this resets the delay.
_MAX_DELAY = 30.0

_CHANGE_DELAY = 0.2  # seconds in which changes of the tools are gathered

_CLOSE_TIMEOUT = (
    3.0  # seconds for closing a connection; the transport's process has more of its own
)

_jitter = random.SystemRandom()
_catalogue_limiter = anyio.CapacityLimiter(1)


class Reconnector:
    """Connects to a server, again and again, in a background task.

    During the first attempt after a loss the tools stay offered, and calls wait. If that attempt
    fails, the tools are withdrawn.

    Args:
        recent_output: the output of the server's process in the current attempt.
    """

    def __init__(
        self, name: str, connect: Connect, options: ServerOptions, recent_output: RecentOutput
    ) -> None:
        self._name = name
        self._connect = connect
        self._options = options
        self._recent_output = recent_output
        self._failed_output: Sequence[str] = ()  # the process's output in the last failed attempt
        self.catalogue = Catalogue()
        self.trouble: str | None = None
        """The reason why the last attempt failed; None: it did not, or there was none."""
        self._session: McpSession | None = None
        self._was_connected = False  # the attempt that ended had reached a session
        self._tried = anyio.Event()
        self._changed = anyio.Event()
        self._closing = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep the server connected while the context is open."""
        failure: PassbackError | None = None
        async with anyio.create_task_group() as tasks:
            ended = anyio.Event()
            tasks.start_soon(self._reconnect_until_closed, ended)
            try:
                yield
            except PassbackError as error:
                failure = error  # the task group would wrap it in an exception group
            finally:
                await self._close_session(ended)
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def ready(self) -> Catalogue:
        """Wait for the end of the first attempt and return the tools. Raises ToolsetUnavailable."""
        await self._tried.wait()
        if self.trouble is not None:
            raise ToolsetUnavailable(
                f"the MCP server {self._name!r} cannot be used: {self.trouble}",
                said=self._failed_output,
            )
        return self.catalogue

    async def session(self, *, but: McpSession | None = None) -> McpSession | None:
        """Wait for a session other than `but`, which is lost, and return it.

        None: there is no connection within `start_seconds`, or the last attempt failed.
        """
        with anyio.move_on_after(self._options.start_seconds):
            while self.trouble is None and self._session in (None, but):
                await self._changed.wait()
        return None if self._session is but else self._session

    async def _reconnect_until_closed(self, ended: anyio.Event) -> None:
        pause = _FIRST_DELAY
        while not self._closing:
            begun = anyio.current_time()
            try:
                await self._run_session()
            except ConnectionLost as lost:
                self._on_lost(str(lost))
            if anyio.current_time() - begun > _MAX_DELAY:
                pause = _FIRST_DELAY
            if not self._closing:
                await anyio.sleep(_jitter.uniform(pause / 2, pause))
            pause = min(2 * pause, _MAX_DELAY)
        ended.set()

    async def _run_session(self) -> None:
        """Open one connection and follow its changes until it ends. Raises ConnectionLost."""
        timeout = self._options.start_seconds
        with anyio.move_on_after(timeout) as scope:
            async with self._connect() as session:
                try:
                    while True:
                        self._on_connected(session, await self._fetch_catalogue(session))
                        scope.deadline = math.inf  # a session may be quiet for any time
                        await session.wait_for_change()
                        await anyio.sleep(_CHANGE_DELAY)
                        scope.deadline = anyio.current_time() + timeout
                finally:
                    self._session = None
                    scope.deadline = anyio.current_time() + _CLOSE_TIMEOUT
        raise ConnectionLost(f"it did not answer in {timeout:g} s")

    async def _fetch_catalogue(self, session: McpSession) -> Catalogue:
        described = await session.list_tools(MAX_TOOLS)
        choose = partial(
            build_catalogue,
            self._name,
            described,
            session.instructions,
            trust_hints=self._options.trust_hints,
        )
        return await anyio.to_thread.run_sync(choose, limiter=_catalogue_limiter)

    async def _close_session(self, ended: anyio.Event) -> None:
        """Close an open session in good order; an attempt to connect is just cancelled."""
        self._closing = True
        if self._session is not None:
            self._session.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_TIMEOUT):
                await ended.wait()

    def _on_connected(self, session: McpSession, found: Catalogue) -> None:
        if self.trouble is not None:
            self._log_event(logging.INFO, "connected again", "toolset_available")
        if found.warnings != self.catalogue.warnings:
            for warning in found.warnings:
                self._log_event(logging.WARNING, warning, "tools_left_out")
        self.trouble, self.catalogue, self._session = None, found, session
        self._was_connected = True
        self._wake_waiters()

    def _on_lost(self, reason: str) -> None:
        """Log a loss, and withdraw the tools if it was an attempt to connect that failed.

        After the loss of a session the tools stay until the next attempt fails.
        """
        if self._closing:
            return
        if self._was_connected:
            self._log_event(logging.WARNING, f"lost: {reason}", "toolset_lost")
        elif self.trouble is None:
            self._log_event(logging.WARNING, f"cannot be used: {reason}", "toolset_unavailable")
        if not self._was_connected:
            self.trouble, self.catalogue = reason, Catalogue()
            self._failed_output = self._recent_output.shown()
        self._was_connected = False
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self._tried.set()
        event, self._changed = self._changed, anyio.Event()
        event.set()

    def _log_event(self, level: int, text: str, action: str) -> None:
        logger.log(level, "MCP server %s: %s", self._name, text, extra={"action": action})
