"""A channel over standard input and output: a frame is a line of UTF-8 that ends with LF.

Two threads do the reading and the writing, because an event loop takes no regular file and no
/dev/null, and because it would make the descriptors non-blocking: for all processes that have them,
the terminal's shell among them.
"""

import asyncio
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import anyio

from passback.core.errors import ConfigurationError
from passback.core.messages import OwnerId
from passback.core.signals import Signal
from passback.core.values import value

logger = logging.getLogger(__name__)

LINE_BYTES = 64 * 1024 * 1024
QUEUE_BYTES = 64 * 1024 * 1024

_CHUNK_BYTES = 256 * 1024
_FINAL_SECONDS = 2  # in which a client has to take what is in the queue when the channel ends


@value
class StdioFiles:
    """The descriptors of what was standard input and output. No child process inherits them.

    Args:
        input: to read from.
        output: to write to.
    """

    input: int
    output: int


def take_stdio() -> StdioFiles:
    """Take standard input and output away from everything else in this process, for good.

    From now on standard input is empty, and standard output is standard error, for `print`, for
    C libraries and for child processes. What `sys.stdout` still has in its buffer goes there, too.

    Raises:
        ConfigurationError: one of them is closed.
    """
    try:
        os.fstat(0)
        os.fstat(1)
    except OSError as error:
        raise ConfigurationError(
            "standard input or output is closed: start this command from a program that talks to "
            "it on both"
        ) from error
    try:
        os.fstat(2)
    except OSError:  # the next descriptor that is opened would become standard error
        os.open(os.devnull, os.O_WRONLY)
    taken = StdioFiles(os.dup(0), os.dup(1))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    sys.stdout.flush()  # now that its descriptor is another
    sys.stdout = sys.stderr  # one buffer: what is printed and logged keeps its order
    return taken


class LineSplitter:
    """Splits bytes into lines, in a time that grows with their number and a bounded memory.

    Lines end with LF only; a CR before it does not count as the line's. Blank lines are left out.
    Of a line that is too long one byte more than is allowed comes out, and the rest is skipped.

    Args:
        most: bytes of a line.
    """

    def __init__(self, most: int, /) -> None:
        self._most = most
        self._line = bytearray()
        self._skips = False

    def feed(self, chunk: bytes, /) -> Sequence[bytes]:
        """Return the lines that end in a chunk, and what is too long."""
        *ended, rest = chunk.split(b"\n")
        lines = [line for piece in ended for line in (*self._add(piece), *self.end())]
        return [*lines, *self._add(rest)]

    def end(self) -> Sequence[bytes]:
        """Return the line that is begun, if there is one."""
        line = bytes(self._line.removesuffix(b"\r"))
        self._line, self._skips = bytearray(), False
        return [line] if line and not line.isspace() else []

    def _add(self, piece: bytes) -> Sequence[bytes]:
        """Add to the line that is begun. Return its beginning if it becomes too long."""
        if self._skips:
            return []
        self._line += piece
        if len(self._line) <= self._most:
            return []
        begun = bytes(self._line[: self._most + 1])
        self._line, self._skips = bytearray(), True
        return [begun]


class StdioChannel:
    """A `streams.jsonrpc.Channel` to the client at the other end of two descriptors.

    It ends when the client closes its end of either, or does not read what is sent while more and
    more is, or the server is about to stop.

    Args:
        files: are not closed.
        stopping: set when the server is about to stop.
        owner: of everything that the client does; None until it has authenticated.
        line_bytes: of a line that is read. More than that is a frame of one byte more.
        queue_bytes: that may wait for the client to read.
    """

    def __init__(
        self,
        files: StdioFiles,
        stopping: Signal,
        /,
        *,
        owner: OwnerId | None,
        line_bytes: int = LINE_BYTES,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self._files = files
        self._stopping = stopping
        self._owner = owner
        self._splitter = LineSplitter(line_bytes)
        self._queue_bytes = queue_bytes
        self._ended = False
        # lines that were read, the end of them, and what wakes `receive`
        self._lines: deque[bytes] = deque()
        self._input_ended = False
        self._arrived = anyio.Event()
        self._taken = threading.Semaphore(0)  # released when all lines that were read are taken
        # what is to be written, shared with the thread that writes
        self._changed = threading.Condition()
        self._queue: list[bytes] = []
        self._unsent = 0  # bytes, with those that are being written
        self._drained: anyio.Event | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Read and write while the context is open. At its end what was sent is written.

        A client that does not read then gets two seconds more.
        """
        self._loop = asyncio.get_running_loop()
        for work in (self._read_lines, self._write_lines):
            # daemons, because nothing ends a thread that reads
            threading.Thread(target=work, name=f"stdio {work.__name__}", daemon=True).start()
        try:
            with self._stopping.telling(self._wake_reader):
                yield
        finally:
            with anyio.move_on_after(_FINAL_SECONDS, shield=True):
                await self.wait_until_sent()
            self._end()

    # ---------------------------------------------------------------- for the wire
    @property
    def owner(self) -> OwnerId | None:
        """The owner; None until the client has authenticated within the protocol."""
        return self._owner

    @property
    def stopping(self) -> bool:
        """The server is about to stop: there is time for a last word."""
        return self._stopping.is_set

    async def receive(self) -> bytes | None:
        """Return the next line; None when the channel has ended, or the server is to stop."""
        while not (self._ended or self.stopping):
            if self._lines:
                line = self._lines.popleft()
                if not self._lines:
                    self._taken.release()
                return line
            if self._input_ended:
                break
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return None

    def send(self, text: str, /) -> bool:
        """Send a line without waiting. Return False if that cannot be done.

        It waits in a queue while the client does not read. When the queue is too long, the channel
        ends. Of what is much, a part is sent before the next by `wait_until_sent`.

        Args:
            text: without a line's end.
        """
        line = text.encode(errors="replace") + b"\n"
        with self._changed:
            if self._ended:
                return False
            is_full = self._unsent and self._unsent + len(line) > self._queue_bytes
            if not is_full:
                self._queue.append(line)
                self._unsent += len(line)
                self._changed.notify()
                return True
        logger.warning("the client does not read: more than %d bytes wait", self._queue_bytes)
        self._end()
        return False

    async def wait_until_sent(self) -> None:
        """Wait until the client has taken what was sent, or the channel has ended."""
        while True:  # more may have been sent meanwhile
            with self._changed:
                if self._ended or not self._unsent:
                    return
                drained = self._drained = self._drained or anyio.Event()
            await drained.wait()

    # ---------------------------------------------------------------- on the event loop
    def _wake_reader(self) -> None:
        self._arrived.set()

    def _take_lines(self, lines: Sequence[bytes]) -> None:
        self._lines.extend(lines)
        self._arrived.set()

    def _end_input(self) -> None:
        self._input_ended = True
        self._arrived.set()

    def _tell_drained(self) -> None:
        with self._changed:
            drained, self._drained = self._drained, None
        if drained is not None:
            drained.set()

    def _end(self) -> None:
        """End the channel: nothing is read or written any more."""
        with self._changed:
            self._ended = True
            self._queue.clear()
            self._changed.notify()
        self._taken.release()
        self._arrived.set()
        self._tell_drained()

    # ---------------------------------------------------------------- in threads
    def _read_lines(self) -> None:
        while not self._ended and (chunk := _read_chunk(self._files.input)):
            if lines := self._splitter.feed(chunk):
                self._call_on_loop(self._take_lines, lines)
                self._taken.acquire()  # no more than a chunk's lines wait to be taken
        if lines := self._splitter.end():
            self._call_on_loop(self._take_lines, lines)
        self._call_on_loop(self._end_input)

    def _write_lines(self) -> None:
        while content := self._next_lines():
            try:
                _write_all(self._files.output, content)
            except OSError:  # the client has closed its end
                self._call_on_loop(self._end)
                return
            with self._changed:
                self._unsent -= len(content)
                is_awaited = not self._unsent and self._drained is not None
            if is_awaited:
                self._call_on_loop(self._tell_drained)

    def _next_lines(self) -> bytes:
        """Return what is in the queue when there is something; nothing at the end."""
        with self._changed:
            while not (self._queue or self._ended):
                self._changed.wait()
            content = b"".join(self._queue)
            self._queue.clear()
            return content

    def _call_on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)


def _read_chunk(descriptor: int) -> bytes:
    """Return what has come, when something has; nothing at the end."""
    while True:
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:  # the client made it non-blocking
            _wait_for(descriptor, select.POLLIN)
        except OSError:  # a connection that broke off
            return b""


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _wait_for(descriptor, select.POLLOUT)


def _wait_for(descriptor: int, event: int) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll()
