"""One server: connected, connected again after a loss, its tools, and calls of them."""

import logging
import math
import random
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread
from pydantic import JsonValue

from passback.core.errors import PassbackError, ToolsetUnavailable
from passback.core.messages import ToolResult
from passback.core.toolsets import ToolContext
from passback.toolsets.mcp.catalogue import MAX_TOOLS, Catalogue, build_catalogue
from passback.toolsets.mcp.connection import McpSession, connect
from passback.toolsets.mcp.targets import ServerOptions, Target, shown_line
from passback.toolsets.mcp.transports import ConnectionLost, SessionForgotten

logger = logging.getLogger(__name__)

_FIRST_DELAY = 0.5  # seconds before the next attempt; the delay doubles with each failure

# Seconds; the longest delay. A connection that lasted longer than this resets the delay.
_MAX_DELAY = 30.0

_CHANGE_DELAY = 0.2  # seconds in which changes of the tools are gathered

# Seconds for closing a connection; the end of a server's process has more of its own.
_CLOSE_TIMEOUT = 3.0

_RECENT_LINES = 5  # of a process's standard error that are shown when it cannot be used

_jitter = random.SystemRandom()
_catalogue_limiter = anyio.CapacityLimiter(1)


class Reconnector:
    """Connects to a server, again and again, in a background task.

    During the first attempt after a loss the tools stay offered, and calls wait. If that attempt
    fails, the tools are withdrawn.
    """

    def __init__(self, name: str, target: Target, options: ServerOptions) -> None:
        self._name = name
        self._target = target
        self._options = options
        self._output: deque[bytes] = deque(maxlen=_RECENT_LINES)  # of the current attempt
        self._failed_output: tuple[str, ...] = ()  # of the last failed attempt
        self.catalogue = Catalogue()
        self._trouble: str | None = None  # the reason why the last attempt failed
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
                self._closing = True
                # an open session is closed in good order; an attempt to connect is just cancelled
                if self._session is not None:
                    self._session.state.finish("it is left")
                    with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_TIMEOUT):
                        await ended.wait()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def ready(self) -> Catalogue:
        """Wait for the end of the first attempt and return the tools. Raises ToolsetUnavailable."""
        await self._tried.wait()
        if self._trouble is not None:
            raise ToolsetUnavailable(
                f"the MCP server {self._name!r} cannot be used: {self._trouble}",
                said=self._failed_output,
            )
        return self.catalogue

    async def call(
        self, name: str, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        """Call a tool; if the server has dropped the session, call it once more by a new one.

        A server that does not know the session has not carried out the call.
        """
        dropped: McpSession | None = None
        for _ in range(2):
            with anyio.move_on_after(self._options.start_seconds):
                while self._trouble is None and self._session in (None, dropped):
                    await self._changed.wait()
            session = self._session
            if session is None or session is dropped:
                break
            tool = self.catalogue.tools.get(name)
            if tool is None:
                text = f"The MCP server {self._name!r} has no such tool any more."
                return ToolResult(text, is_error=True)
            context.begin(())
            try:
                return await session.call(tool.remote, arguments, context.progress)
            except SessionForgotten:
                dropped = session
            except ConnectionLost:
                # no second attempt: the call may have been carried out
                text = (
                    f"The connection to the MCP server {self._name!r} was lost during the call: "
                    "nobody knows whether it was carried out."
                )
                return ToolResult(text, is_error=True)
        reason = f": {self._trouble}" if self._trouble else ""
        text = f"The MCP server {self._name!r} is not connected{reason}. The tool was not called."
        return ToolResult(text, is_error=True)

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
        self._output.clear()
        connection = connect(self._name, self._target, self._options.result_limit, self._output)
        with anyio.move_on_after(timeout) as scope:
            async with connection as session:
                try:
                    while True:
                        await self._offer_tools(session)
                        scope.deadline = math.inf  # a session may be quiet for any time
                        await session.state.wait_for_change()
                        await anyio.sleep(_CHANGE_DELAY)
                        scope.deadline = anyio.current_time() + timeout
                finally:
                    self._session = None
                    scope.deadline = anyio.current_time() + _CLOSE_TIMEOUT
        raise ConnectionLost(f"it did not answer in {timeout:g} s")

    async def _offer_tools(self, session: McpSession) -> None:
        """Fetch the tools of a session, and wake those who wait for it."""
        described = await session.list_tools(MAX_TOOLS)
        choose = partial(
            build_catalogue,
            self._name,
            described,
            session.client.instructions or "",
            trust_hints=self._options.trust_hints,
        )
        found = await anyio.to_thread.run_sync(choose, limiter=_catalogue_limiter)
        if self._trouble is not None:
            self._log_event(logging.INFO, "connected again", "toolset_available")
        if found.warnings != self.catalogue.warnings:
            for warning in found.warnings:
                self._log_event(logging.WARNING, warning, "tools_left_out")
        self._trouble, self.catalogue, self._session = None, found, session
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
        elif self._trouble is None:
            self._log_event(logging.WARNING, f"cannot be used: {reason}", "toolset_unavailable")
        if not self._was_connected:
            self._trouble, self.catalogue = reason, Catalogue()
            secrets = self._target.secrets()
            self._failed_output = tuple(shown_line(line, secrets) for line in self._output)
        self._was_connected = False
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self._tried.set()
        event, self._changed = self._changed, anyio.Event()
        event.set()

    def _log_event(self, level: int, text: str, action: str) -> None:
        logger.log(level, "MCP server %s: %s", self._name, text, extra={"action": action})
