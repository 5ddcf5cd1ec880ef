"""Transports of MCP sessions: stdio and streamable HTTP, bounded."""

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

from passback.core.text import mended
from passback.toolsets.mcp.session import MESSAGE_BYTES, MessageStream
from passback.toolsets.mcp.targets import Address, Child, shown_line

logger = logging.getLogger(__name__)

_Said: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[_Said], MemoryObjectSendStream[SessionMessage]]

_WAITING = 64
"""Messages on their way to the server: a word that a call is cancelled must not wait for one that does not read."""

_GRACE = (1.0, 2.0, 2.0)
"""Seconds to end after its input was closed, after SIGTERM, after SIGKILL."""

_LAST_WORDS = 0.5
"""Seconds for what a process has said last to arrive: a child of it may hold the pipe open."""

_POLL = 0.02
_LOG_LINES = 200
"""Of standard error. What a process says there after so many is not logged."""

_LINE_BYTES = 16 * 1024
"""Of a line: what is looked at, lest a secret at the end of what is shown of it is cut in two."""


@asynccontextmanager
async def child_streams(name: str, child: Child, line: MessageStream) -> AsyncGenerator[Streams]:
    """Start a process, and end it on leaving, with all that it has started.

    Raises:
        OSError: it cannot be started.
    """
    line.last_words.clear()
    process = await anyio.open_process(
        child.command,
        env=get_default_environment() | dict(child.env),
        cwd=child.cwd,
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    said, heard = anyio.create_memory_object_stream[_Said](0)
    told, telling = anyio.create_memory_object_stream[SessionMessage](_WAITING)
    silence = anyio.Event()
    with said, heard, told, telling:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_hear, process, process.stdout, said, line, silence)
            tasks.start_soon(_tell, process, process.stdin, telling, line)
            tasks.start_soon(_log, name, process.stderr, child.secrets(), line, silence)
            try:
                yield heard, told
            finally:
                line.close()
                with anyio.CancelScope(shield=True):
                    heard.close()
                    await _end(process, process.stdin)
                tasks.cancel_scope.cancel()


# ---------------------------------------------------------------- messages
async def _hear(
    process: Process,
    stdout: ByteReceiveStream,
    said: MemoryObjectSendStream[_Said],
    line: MessageStream,
    silence: anyio.Event,
) -> None:
    """Read to the end, also when nobody listens any more: a full pipe would keep the process from ending."""
    rest = bytearray()
    with said, suppress(anyio.ClosedResourceError):
        async for chunk in stdout:
            rest += chunk
            if b"\n" in chunk:
                *texts, rest = rest.split(b"\n")
                await _pass_on(texts, said)
            if len(rest) > MESSAGE_BYTES:
                line.finish(f"it sent a message of more than {MESSAGE_BYTES} bytes")
                rest.clear()
        await _exited(process, _GRACE[0])
        with anyio.move_on_after(_LAST_WORDS):
            await silence.wait()
        line.finish(f"its process ended, with the code {process.returncode}")


async def _pass_on(texts: Sequence[bytearray], said: MemoryObjectSendStream[_Said]) -> None:
    for text in texts:
        message = _message(bytes(text)) or _message(_mended(bytes(text)))
        if message is not None:  # else it is a program that greets people on its standard output
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await said.send(SessionMessage(message))


def _message(text: bytes) -> JSONRPCMessage | None:
    with suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    return None


def _mended(text: bytes) -> bytes:
    """The same JSON without lone surrogates, which the halves of a text that was cut may end in."""
    with suppress(ValueError, RecursionError):
        return mended(json.dumps(json.loads(text), ensure_ascii=False)).encode()
    return b""


async def _tell(
    process: Process,
    stdin: ByteSendStream,
    telling: MemoryObjectReceiveStream[SessionMessage],
    line: MessageStream,
) -> None:
    try:
        async for each in telling:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await stdin.send(text.encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        if await _exited(process, _GRACE[0]):
            return  # its output has an end, too
        line.finish("it does not listen any more")


async def _log(
    name: str,
    stderr: ByteReceiveStream,
    secrets: Sequence[str],
    line: MessageStream,
    silence: anyio.Event,
) -> None:
    """What it says of itself, to our log: so many lines, then no more; of a long line its beginning."""
    room = _LOG_LINES
    rest = b""
    try:
        async for chunk in stderr:
            *texts, rest = (rest + chunk).split(b"\n")
            rest = rest[:_LINE_BYTES]
            line.last_words.hear(texts)
            for text in texts[:room]:
                _write(name, shown_line(text, secrets))
            if 0 < room <= len(texts):
                _write(name, "(what follows is not logged)")
            room = max(0, room - len(texts))
    except anyio.ClosedResourceError:
        pass
    finally:  # also of a process that is given up, while a child of it holds the pipe open
        line.last_words.hear([rest])
        silence.set()


def _write(name: str, text: str) -> None:
    if text:
        logger.info("MCP server %s says: %s", name, text, extra={"action": "toolset_says"})


# ---------------------------------------------------------------- the end
async def _end(process: Process, stdin: ByteSendStream) -> None:
    """Close its input, as a server expects; then ask it to end, and its children; then end them."""
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stdin.aclose()
    if not await _exited(process, _GRACE[0]):
        _signal(process, signal.SIGTERM)
        await _exited(process, _GRACE[1])
    _signal(process, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    await _exited(process, _GRACE[2])


async def _exited(process: Process, seconds: float) -> bool:
    """Not by `wait()`: that waits for the pipes too, which a child of the child may hold."""
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(_POLL)
    return process.returncode is not None


def _signal(process: Process, number: signal.Signals) -> None:
    """To the process and to all of its session, which is named after it."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)


_CONNECT_SECONDS = 10.0
_WRITE_SECONDS = 30.0
_SESSION = "mcp-session-id"


class TooLarge(httpx2.StreamError):
    """An answer was larger than may be read."""

    def __init__(self) -> None:
        super().__init__(f"more than {MESSAGE_BYTES} bytes")


def http_client(address: Address, line: MessageStream) -> httpx2.AsyncClient:
    """Calls have deadlines of their own: reading has none, as a stream may be silent for long."""

    async def look(response: httpx2.Response) -> None:
        request = response.request
        if request.method == "POST":
            refused = response.status_code >= 400
            line.refusal = (
                f"it answered with the status {response.status_code}" if refused else None
            )
        if response.status_code == 404 and _SESSION in request.headers:
            line.forget()
        if response.headers.get("content-encoding", "identity") != "identity":
            line.finish("it answered with an encoding that was not asked for")
            raise httpx2.DecodingError("an encoding that was not asked for", request=request)
        stream = response.stream
        kind = response.headers.get("content-type", "")
        if isinstance(stream, httpx2.AsyncByteStream) and not kind.startswith("text/event-stream"):
            response.stream = _Bounded(stream, line)

    return httpx2.AsyncClient(
        # an answer that unpacks to more than it is long could not be bounded
        headers={**address.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None, write=_WRITE_SECONDS),
        event_hooks={"response": [look]},
        # a proxy of the environment would be sent the headers, in which there may be a key
        trust_env=False,
    )


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends when it becomes too large. That of an event stream is bounded event by event."""

    def __init__(self, stream: httpx2.AsyncByteStream, line: MessageStream) -> None:
        self._stream = stream
        self._line = line

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = MESSAGE_BYTES
        async for chunk in self._stream:
            room -= len(chunk)
            if room < 0:
                self._line.finish(f"it sent a message of more than {MESSAGE_BYTES} bytes")
                raise TooLarge
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()
