"""Transports of MCP sessions: stdio and streamable HTTP, with limits on what is read."""

import json
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import anyio
import httpx2
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter
from typing_extensions import override

from passback.core.text import replace_surrogates
from passback.toolsets.mcp.targets import HttpTarget, StdioTarget, shown_line

logger = logging.getLogger(__name__)

_Message: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[_Message], MemoryObjectSendStream[SessionMessage]
]

MESSAGE_BYTES: Final = 4 * 1024 * 1024  # the largest message that is read from a server
_TOO_LARGE: Final = f"it sent a message of more than {MESSAGE_BYTES} bytes"


class ConnectionLost(Exception):
    """The connection is over; the text says why, and has nothing of the server's own text."""


class SessionForgotten(ConnectionLost):
    """The server does not know the session any more, so it has not carried out the request."""


class ConnectionState:
    """The state of one connection: its transport reports to it, its session waits for it.

    Args:
        output: gets the last lines that the server's process writes to standard error.
    """

    def __init__(self, output: deque[bytes]) -> None:
        self.output = output
        self.refusal: str | None = None
        """The status that refused the last request: used as a reason if there is no better."""
        self.end: str | None = None
        """The reason for the end of the connection; None: more messages may come."""
        self.left = False
        """True once the transport is left: no end that is reported then is the server's."""
        self._forgotten = False
        self._changed = anyio.Event()

    def finish(self, reason: str, *, forgotten: bool = False) -> None:
        """Mark the connection as over; a later reason is ignored as a consequence.

        forgotten: the server does not know the session any more.
        """
        if self.end is None and not self.left:
            self.end, self._forgotten = reason, forgotten
        self._changed.set()

    def notify_change(self) -> None:
        """Wake the waiter: the tools may have changed."""
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until the tools may have changed. Raises ConnectionLost at the connection's end."""
        if self.end is None:
            await self._changed.wait()
        self._changed = anyio.Event()
        self.check()

    def check(self) -> None:
        """Raise ConnectionLost if the connection is over."""
        if self.end is not None or self.left:
            lost = SessionForgotten if self._forgotten else ConnectionLost
            raise lost(self.end or "the connection was closed")


# ---------------------------------------------------------------- stdio
# Messages that may wait for the server to read: a cancellation must not block on a server that does
# not read.
_MAX_OUTGOING = 64

_EXIT_SECONDS = 1.0  # to exit after standard input was closed
_SIGNAL_SECONDS = 2.0  # to exit after SIGTERM, and after SIGKILL
_POLL_INTERVAL = 0.02  # seconds

# Seconds for the last lines of standard error to arrive: a child of the process may keep the pipe
# open for ever.
_LAST_LINES_TIMEOUT = 0.5
_MAX_LOG_LINES = 200  # of standard error; later ones are not logged

# Of a line that is not complete: much more than is shown of it, so that no secret is cut in two at
# the end of the shown part.
_MAX_LINE_BYTES = 16 * 1024


@asynccontextmanager
async def child_streams(
    name: str, target: StdioTarget, state: ConnectionState
) -> AsyncGenerator[Streams]:
    """Start a process; on leaving, end it and every process that it has started.

    The package's own `stdio_client` keeps a line of any length in memory, tells nobody the exit
    code, and leaves the children of a process that has ended by itself.

    Raises:
        OSError: it cannot be started.
    """
    process = await anyio.open_process(
        target.command,
        env=get_default_environment() | dict(target.env),
        cwd=target.cwd,
        start_new_session=True,
    )
    inbox, received = anyio.create_memory_object_stream[_Message](0)
    outbox, outgoing = anyio.create_memory_object_stream[SessionMessage](_MAX_OUTGOING)
    logged = anyio.Event()
    with inbox, received, outbox, outgoing:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, process, inbox, state)
            tasks.start_soon(_write_messages, process, outgoing, state)
            tasks.start_soon(_log_stderr, name, process, target.secrets(), state.output, logged)
            try:
                yield received, outbox
            finally:
                state.left = True
                with anyio.CancelScope(shield=True):
                    received.close()
                    await _end_process(process)
                    with anyio.move_on_after(_LAST_LINES_TIMEOUT):
                        await logged.wait()
                tasks.cancel_scope.cancel()


async def _read_messages(
    process: Process, inbox: MemoryObjectSendStream[_Message], state: ConnectionState
) -> None:
    """Read messages to the end of standard output, even if nobody receives them.

    A full pipe would keep the process from exiting.
    """
    assert process.stdout
    lines = BufferedByteReceiveStream(process.stdout)
    with inbox:
        try:
            while True:
                line = await lines.receive_until(b"\n", MESSAGE_BYTES)
                message = _parse_message(line)
                if message is not None:  # some programs greet people on standard output
                    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        await inbox.send(message)
        except anyio.DelimiterNotFound:
            state.finish(_TOO_LARGE)
            async for _ in process.stdout:
                pass
        except (anyio.IncompleteRead, anyio.ClosedResourceError):
            await _wait_for_exit(process, _EXIT_SECONDS)
            state.finish(f"its process ended, with the code {process.returncode}")


def _parse_message(text: bytes) -> SessionMessage | None:
    with suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    # a server may leave lone surrogates where it cut a text
    with suppress(ValueError, RecursionError):
        clean = replace_surrogates(json.dumps(json.loads(text), ensure_ascii=False))
        return SessionMessage(jsonrpc_message_adapter.validate_json(clean, by_name=False))
    return None


async def _write_messages(
    process: Process,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    state: ConnectionState,
) -> None:
    assert process.stdin
    try:
        async for each in outgoing:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(text.encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        if not await _wait_for_exit(process, _EXIT_SECONDS):  # or else its reader tells of the end
            state.finish("it does not listen any more")


async def _end_process(process: Process) -> None:
    """Close standard input, then terminate the process and its children, then kill them.

    The order is that of the protocol's specification for stdio.
    """
    assert process.stdin
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    await _wait_for_exit(process, _EXIT_SECONDS)
    if sys.platform == "win32":
        process.kill()
    else:  # also if it has ended: its children may go on
        await terminate_posix_process_tree(process, _SIGNAL_SECONDS)
    await _wait_for_exit(process, _SIGNAL_SECONDS)


async def _wait_for_exit(process: Process, seconds: float) -> bool:
    """Wait for the process to exit and return True if it did.

    `Process.wait()` also waits for the pipes, which a child of the process may keep open.
    """
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(_POLL_INTERVAL)
    return process.returncode is not None


async def _log_stderr(
    name: str, process: Process, secrets: Sequence[str], last: deque[bytes], ended: anyio.Event
) -> None:
    """Log the first `_MAX_LOG_LINES` lines of standard error, and keep the last ones in `last`."""
    assert process.stderr
    room = _MAX_LOG_LINES
    rest = b""
    try:
        async for chunk in process.stderr:
            *read, rest = (rest + chunk).split(b"\n")
            rest = rest[:_MAX_LINE_BYTES]
            lines = [line for line in read if line.strip()]
            last += lines
            for line in lines[:room]:
                _log_line(name, shown_line(line, secrets))
            if 0 < room <= len(lines):
                _log_line(name, "(what follows is not logged)")
            room = max(0, room - len(lines))
    except anyio.ClosedResourceError:
        pass
    finally:  # even if this is cancelled, because a child of the process keeps the pipe open
        if rest.strip():
            last.append(rest)
        ended.set()


def _log_line(name: str, text: str) -> None:
    if text:
        logger.info("MCP server %s says: %s", name, text, extra={"action": "toolset_says"})


# ---------------------------------------------------------------- streamable HTTP
_CONNECT_SECONDS = 10.0
_WRITE_SECONDS = 30.0
_SESSION_HEADER = "mcp-session-id"


def http_client(target: HttpTarget, state: ConnectionState) -> httpx2.AsyncClient:
    """Make an HTTP client that bounds responses and reports refusals.

    Reading has no timeout, as an event stream may be silent for long; calls have their deadlines.
    """

    async def inspect_response(response: httpx2.Response) -> None:
        request = response.request
        if request.method == "POST":
            refused = response.status_code >= 400
            state.refusal = (
                f"it answered with the status {response.status_code}" if refused else None
            )
        # a 404 to a request with a session id means that the session is gone (MCP, Streamable HTTP)
        if response.status_code == 404 and _SESSION_HEADER in request.headers:
            state.finish("the server has forgotten it", forgotten=True)
        if response.headers.get("content-encoding", "identity") != "identity":
            state.finish("it answered with an encoding that was not asked for")
            raise httpx2.DecodingError("an encoding that was not asked for", request=request)
        body = response.stream
        kind = response.headers.get("content-type", "")
        # the package bounds each event of an event stream, but no other response
        if isinstance(body, httpx2.AsyncByteStream) and not kind.startswith("text/event-stream"):
            response.stream = _BoundedBody(body, state)

    return httpx2.AsyncClient(
        # a compressed response could unpack to any size
        headers={**target.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None, write=_WRITE_SECONDS),
        event_hooks={"response": [inspect_response]},
        # a proxy from the environment would see the headers, which may hold a key
        trust_env=False,
    )


class _BoundedBody(httpx2.AsyncByteStream):
    """A response body that ends when it becomes too large."""

    def __init__(self, body: httpx2.AsyncByteStream, state: ConnectionState) -> None:
        self._body = body
        self._state = state

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = MESSAGE_BYTES
        async for chunk in self._body:
            room -= len(chunk)
            if room < 0:
                self._state.finish(_TOO_LARGE)
                raise httpx2.StreamError(_TOO_LARGE)
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._body.aclose()
