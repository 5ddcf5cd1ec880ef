"""Transports of MCP sessions: stdio and streamable HTTP, with limits on what is read."""

import json
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio
import httpx2
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter
from typing_extensions import override

from passback.core.text import replace_surrogates
from passback.toolsets.mcp.session import MESSAGE_BYTES, MessageStream
from passback.toolsets.mcp.targets import HttpTarget, StdioTarget, shown_line

logger = logging.getLogger(__name__)

_Message: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[_Message], MemoryObjectSendStream[SessionMessage]
]

# Messages that may wait for the server to read: a cancellation must not block on a server that does
# not read.
_MAX_OUTGOING = 64

_GRACE_SECONDS = (
    1.0,
    2.0,
    2.0,
)  # seconds to exit after stdin was closed, after SIGTERM, after SIGKILL

# Seconds for the last lines of standard error to arrive: a child of the process may keep the pipe
# open for ever.
_OUTPUT_GRACE = 0.5

_POLL_INTERVAL = 0.02  # seconds
_MAX_LOG_LINES = 200  # of standard error; later ones are not logged

# Of a line that is not complete: much more than is shown of it, so that no secret is cut in two at
# the end of the shown part.
_MAX_LINE_BYTES = 16 * 1024


@asynccontextmanager
async def child_streams(
    name: str, child: StdioTarget, stream: MessageStream
) -> AsyncGenerator[Streams]:
    """Start a process; on leaving, end it and every process that it has started.

    Raises:
        OSError: it cannot be started.
    """
    stream.recent_output.clear()
    process = await anyio.open_process(
        child.command,
        env=get_default_environment() | dict(child.env),
        cwd=child.cwd,
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    inbox, received = anyio.create_memory_object_stream[_Message](0)
    outbox, outgoing = anyio.create_memory_object_stream[SessionMessage](_MAX_OUTGOING)
    stderr_done = anyio.Event()
    with inbox, received, outbox, outgoing:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, process, process.stdout, inbox, stream, stderr_done)
            tasks.start_soon(_write_messages, process, process.stdin, outgoing, stream)
            tasks.start_soon(
                _log_stderr, name, process.stderr, child.secrets(), stream, stderr_done
            )
            try:
                yield received, outbox
            finally:
                stream.close()
                with anyio.CancelScope(shield=True):
                    received.close()
                    await _end_process(process, process.stdin)
                tasks.cancel_scope.cancel()


async def _read_messages(
    process: Process,
    stdout: ByteReceiveStream,
    inbox: MemoryObjectSendStream[_Message],
    stream: MessageStream,
    stderr_done: anyio.Event,
) -> None:
    """Read messages to the end of standard output, even if nobody receives them.

    A full pipe would keep the process from exiting.
    """
    rest = bytearray()
    with inbox, suppress(anyio.ClosedResourceError):
        async for chunk in stdout:
            rest += chunk
            if b"\n" in chunk:
                *texts, rest = rest.split(b"\n")
                await _forward_messages(texts, inbox)
            if len(rest) > MESSAGE_BYTES:
                stream.finish(f"it sent a message of more than {MESSAGE_BYTES} bytes")
                rest.clear()
        await _wait_for_exit(process, _GRACE_SECONDS[0])
        with anyio.move_on_after(_OUTPUT_GRACE):
            await stderr_done.wait()
        stream.finish(f"its process ended, with the code {process.returncode}")


async def _forward_messages(
    texts: Sequence[bytearray], inbox: MemoryObjectSendStream[_Message]
) -> None:
    for text in texts:
        message = _parsed_message(bytes(text)) or _parsed_message(_without_surrogates(bytes(text)))
        if message is not None:  # some programs greet people on standard output
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await inbox.send(SessionMessage(message))


def _parsed_message(text: bytes) -> JSONRPCMessage | None:
    with suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    return None


def _without_surrogates(text: bytes) -> bytes:
    """Return the JSON without lone surrogates, which a server may leave where it cut a text."""
    with suppress(ValueError, RecursionError):
        return replace_surrogates(json.dumps(json.loads(text), ensure_ascii=False)).encode()
    return b""


async def _write_messages(
    process: Process,
    stdin: ByteSendStream,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    stream: MessageStream,
) -> None:
    try:
        async for each in outgoing:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await stdin.send(text.encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        if await _wait_for_exit(process, _GRACE_SECONDS[0]):
            return  # the reader of its output reports the end
        stream.finish("it does not listen any more")


async def _log_stderr(
    name: str,
    stderr: ByteReceiveStream,
    secrets: Sequence[str],
    stream: MessageStream,
    stderr_done: anyio.Event,
) -> None:
    """Log the first `_MAX_LOG_LINES` lines of standard error; of a long line, the beginning."""
    room = _MAX_LOG_LINES
    rest = b""
    try:
        async for chunk in stderr:
            *texts, rest = (rest + chunk).split(b"\n")
            rest = rest[:_MAX_LINE_BYTES]
            stream.recent_output.extend(texts)
            for text in texts[:room]:
                _log_line(name, shown_line(text, secrets))
            if 0 < room <= len(texts):
                _log_line(name, "(what follows is not logged)")
            room = max(0, room - len(texts))
    except anyio.ClosedResourceError:
        pass
    finally:  # even if this is cancelled, because a child of the process keeps the pipe open
        stream.recent_output.extend([rest])
        stderr_done.set()


def _log_line(name: str, text: str) -> None:
    if text:
        logger.info("MCP server %s says: %s", name, text, extra={"action": "toolset_says"})


async def _end_process(process: Process, stdin: ByteSendStream) -> None:
    """Close standard input, then terminate the process and its children, then kill them.

    The order is that of the protocol's specification for stdio.
    """
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stdin.aclose()
    if not await _wait_for_exit(process, _GRACE_SECONDS[0]):
        _signal_session(process, signal.SIGTERM)
        await _wait_for_exit(process, _GRACE_SECONDS[1])
    _signal_session(process, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    await _wait_for_exit(process, _GRACE_SECONDS[2])


async def _wait_for_exit(process: Process, seconds: float) -> bool:
    """Wait for the process to exit and return True if it did.

    `Process.wait()` also waits for the pipes, which a child of the process may keep open.
    """
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(_POLL_INTERVAL)
    return process.returncode is not None


def _signal_session(process: Process, number: signal.Signals) -> None:
    """Send a signal to the process and to all others of its session, of which it is the leader."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)


_CONNECT_SECONDS = 10.0
_WRITE_SECONDS = 30.0
_SESSION_HEADER = "mcp-session-id"


class TooLarge(httpx2.StreamError):
    """A response was larger than `MESSAGE_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"more than {MESSAGE_BYTES} bytes")


def http_client(address: HttpTarget, stream: MessageStream) -> httpx2.AsyncClient:
    """Create an HTTP client that bounds responses and reports refusals to the stream.

    Reading has no timeout, as an event stream may be silent for long; calls have their deadlines.
    """

    async def inspect_response(response: httpx2.Response) -> None:
        request = response.request
        if request.method == "POST":
            refused = response.status_code >= 400
            stream.refusal = (
                f"it answered with the status {response.status_code}" if refused else None
            )
        # a 404 to a request with a session id means that the session is gone (MCP, Streamable HTTP)
        if response.status_code == 404 and _SESSION_HEADER in request.headers:
            stream.drop_session()
        if response.headers.get("content-encoding", "identity") != "identity":
            stream.finish("it answered with an encoding that was not asked for")
            raise httpx2.DecodingError("an encoding that was not asked for", request=request)
        body = response.stream
        kind = response.headers.get("content-type", "")
        if isinstance(body, httpx2.AsyncByteStream) and not kind.startswith("text/event-stream"):
            response.stream = _BoundedBody(body, stream)

    return httpx2.AsyncClient(
        # a compressed response could unpack to any size
        headers={**address.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None, write=_WRITE_SECONDS),
        event_hooks={"response": [inspect_response]},
        # a proxy from the environment would see the headers, which may hold a key
        trust_env=False,
    )


class _BoundedBody(httpx2.AsyncByteStream):
    """A response body that ends when it becomes too large.

    Event streams are bounded event by event instead.
    """

    def __init__(self, body: httpx2.AsyncByteStream, stream: MessageStream) -> None:
        self._body = body
        self._stream = stream

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = MESSAGE_BYTES
        async for chunk in self._body:
            room -= len(chunk)
            if room < 0:
                self._stream.finish(f"it sent a message of more than {MESSAGE_BYTES} bytes")
                raise TooLarge
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._body.aclose()
