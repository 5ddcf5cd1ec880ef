"""The channel over two descriptors: lines, limits, slow and vanished clients."""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import pause, wait_until

from passback.core.messages import OwnerId
from passback.core.signals import Signal
from passback.streams.stdio import LineSplitter, StdioChannel, StdioFiles

pytestmark = pytest.mark.anyio

OWNER = OwnerId("me")


class Client:
    """The client's ends of two pipes, and the channel between the others."""

    def __init__(self, *, line_bytes: int = 1000, queue_bytes: int = 1000) -> None:
        ours, self.to_server = os.pipe()
        self.from_server, theirs = os.pipe()
        self._open = {ours, theirs, self.to_server, self.from_server}
        self.stopping = Signal()
        self.channel = StdioChannel(
            StdioFiles(ours, theirs),
            self.stopping,
            owner=OWNER,
            line_bytes=line_bytes,
            queue_bytes=queue_bytes,
        )

    def write(self, content: bytes) -> None:
        os.write(self.to_server, content)

    async def read(self) -> bytes:
        """Return what the server has written, when it has written something."""
        return await anyio.to_thread.run_sync(os.read, self.from_server, 2**20)

    def close(self, descriptor: int) -> None:
        self._open.remove(descriptor)
        os.close(descriptor)

    async def close_all(self) -> None:
        for descriptor in tuple(self._open & {self.to_server, self.from_server}):
            self.close(descriptor)
        # its threads use the other ends until they notice
        names = {"stdio _read_lines", "stdio _write_lines"}
        await wait_until(lambda: names.isdisjoint(one.name for one in threading.enumerate()))
        for descriptor in tuple(self._open):
            self.close(descriptor)


@asynccontextmanager
async def client(**sizes: int) -> AsyncGenerator[Client]:
    one = Client(**sizes)
    try:
        with anyio.fail_after(20):
            async with one.channel.running():
                yield one
    finally:
        await one.close_all()


# ---------------------------------------------------------------- lines
def split(chunks: Sequence[bytes], most: int = 1000) -> list[bytes]:
    splitter = LineSplitter(most)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + [*splitter.end()]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\r\nb\rc\r\n"], [b"a", b"b\rc"]),
        ([b"a\r", b"\nb\r\r\n"], [b"a", b"b\r"]),
        ([b"\n\r\n\na\n\n \t \n b\n"], [b"a", b" b"]),
        ([b"a\x0bb\x0cc\xe2\x80\xa8"], [b"a\x0bb\x0cc\xe2\x80\xa8"]),
        ([b"", b"a", b"", b"b"], [b"ab"]),
        ([b"1234567890\n12345678901\nok\n"], [b"1234567890", b"12345678901", b"ok"]),
        ([b"x" * 50, b"y" * 50, b"\n", b"ok"], [b"x" * 11, b"ok"]),
        ([b"x" * 10, b"x", b"x" * 99], [b"x" * 11]),
        ([b"x" * 12 + b"\n" + b"y" * 12 + b"\nok\n"], [b"x" * 11, b"y" * 11, b"ok"]),
    ],
)
def test_lines_end_with_a_line_feed_and_a_long_one_is_cut(
    chunks: list[bytes], lines: list[bytes]
) -> None:
    assert split(chunks, 10) == lines


@given(content=st.binary(max_size=60), cuts=st.lists(st.integers(0, 60)), most=st.integers(1, 20))
def test_the_lines_are_the_same_wherever_the_bytes_are_cut(
    content: bytes, cuts: list[int], most: int
) -> None:
    places = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    chunks = [content[begin:end] for begin, end in pairwise(places)]

    expected = [
        line[: most + 1] if len(line) > most else line.removesuffix(b"\r")
        for line in content.split(b"\n")
    ]
    assert split(chunks, most) == [line for line in expected if line.strip() or len(line) > most]


# ---------------------------------------------------------------- receiving
async def test_lines_are_received_one_by_one_until_the_client_closes_its_end() -> None:
    async with client() as one:
        one.write(b'{"a":\n"\xe2\x80\xa8"}\n')
        assert await one.channel.receive() == b'{"a":'
        one.write(b"un")
        assert await one.channel.receive() == '"\u2028"}'.encode()
        one.write(b"ended")
        one.close(one.to_server)
        assert await one.channel.receive() == b"unended"
        assert await one.channel.receive() is None
        assert await one.channel.receive() is None


async def test_no_more_than_a_chunk_of_lines_waits_to_be_received() -> None:
    async with client() as one:
        os.set_blocking(one.to_server, False)
        written = 0
        with suppress(BlockingIOError):  # the pipe is full
            while True:
                written += os.write(one.to_server, b"line\n" * 1000)
                await pause(0.002)
        os.set_blocking(one.to_server, True)
        one.close(one.to_server)
        received = 0
        while await one.channel.receive():
            received += 1
        assert received == -(-written // 5)  # the last one was cut
        assert written < 2**20


async def test_a_line_that_is_too_long_is_received_cut() -> None:
    async with client(line_bytes=10) as one:
        one.write(b"x" * 500 + b"\nok\n")
        assert [await one.channel.receive() for _ in range(2)] == [b"x" * 11, b"ok"]


async def test_what_waits_to_be_received_does_when_the_server_is_to_stop() -> None:
    async with client() as one, anyio.create_task_group() as tasks:
        ends: list[bytes | None] = []

        async def receive() -> None:
            ends.append(await one.channel.receive())

        tasks.start_soon(receive)
        await pause(0.01)
        assert not one.channel.stopping
        one.stopping.set()
        await wait_until(lambda: ends == [None])
        assert one.channel.stopping
        one.write(b"late\n")
        assert await one.channel.receive() is None
        assert one.channel.send("last")
        assert await one.read() == b"last\n"


async def test_a_broken_connection_is_an_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        files = StdioFiles(ours.fileno(), ours.fileno())
        channel = StdioChannel(files, Signal(), owner=None)
        async with channel.running():
            # with unread bytes the other side is reset
            channel.send("unread")
            await channel.wait_until_sent()
            theirs.send(b"one\n")
            theirs.close()
            assert await channel.receive() == b"one"
            assert await channel.receive() is None
            assert channel.owner is None


async def test_sockets_serve_also_if_they_do_not_block() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        files = StdioFiles(ours.fileno(), ours.fileno())
        channel = StdioChannel(files, Signal(), owner=None)
        async with channel.running():
            await pause(0.01)  # its thread finds nothing to read
            theirs.send(b"hello\n")
            assert await channel.receive() == b"hello"
            channel.send("x" * 2**21)  # more than the socket takes at once
            size = 0
            while size <= 2**21:
                size += len(await anyio.to_thread.run_sync(theirs.recv, 2**20))
            theirs.close()
            assert await channel.receive() is None


# ---------------------------------------------------------------- sending
async def test_lines_are_sent_in_their_order() -> None:
    async with client() as one:
        for number in range(50):
            assert one.channel.send(str(number))
        await one.channel.wait_until_sent()
        assert (await one.read()).split() == [str(number).encode() for number in range(50)]
        one.channel.send("é\ud800")
        assert await one.read() == "é?\n".encode()
        assert one.channel.owner == OWNER


async def test_waiting_ends_when_a_slow_client_has_read_everything() -> None:
    async with client(queue_bytes=2**22) as one, anyio.create_task_group() as tasks:
        line = "x" * 2**20
        assert one.channel.send(line)
        sent = anyio.Event()

        async def wait() -> None:
            await one.channel.wait_until_sent()
            sent.set()

        tasks.start_soon(wait)
        await pause(0.05)
        one.channel.send(line)
        size = 0
        while size < 2**20 + 1:
            assert not sent.is_set()
            size += len(await one.read())
        while size < 2 * (2**20 + 1):
            size += len(await one.read())
        await sent.wait()
        await one.channel.wait_until_sent()  # there is nothing to wait for


async def test_a_client_that_does_not_read_is_given_up_at_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client(queue_bytes=2**20) as one:
        with caplog.at_level(logging.WARNING):
            assert one.channel.send("x" * 2**21)  # a single line may be longer
            assert not one.channel.send("y")
        assert await one.channel.receive() is None
        await one.channel.wait_until_sent()
        assert not one.channel.send("z")
        assert [record.getMessage() for record in caplog.records] == [
            "the client does not read: more than 1048576 bytes wait"
        ]


async def test_a_client_that_closes_its_end_ends_the_channel() -> None:
    async with client() as one:
        one.close(one.from_server)
        one.channel.send("x")
        assert await one.channel.receive() is None
        await one.channel.wait_until_sent()
        assert not one.channel.send("y")


async def test_all_that_was_sent_is_written_before_the_end() -> None:
    one = Client(queue_bytes=2**22)
    try:
        async with anyio.create_task_group() as tasks:
            size = 0

            async def read_all() -> None:
                nonlocal size
                while size < 2**21 + 1:
                    size += len(await one.read())

            async with one.channel.running():
                one.channel.send("x" * 2**21)
                tasks.start_soon(read_all)
        assert size == 2**21 + 1
    finally:
        await one.close_all()


async def test_the_end_does_not_wait_for_a_client_that_does_not_read() -> None:
    async with client(queue_bytes=2**22) as one:
        one.channel.send("x" * 2**21)


# ---------------------------------------------------------------- taking the descriptors
TAKE = """
import json, os, subprocess, sys
from passback.streams.stdio import take_stdio
print("before")
files = take_stdio()
print("print")
os.write(1, b"descriptor\\n")
subprocess.run([sys.executable, "-c", "import sys; print('child', repr(sys.stdin.read()))"])
inherited = [os.get_inheritable(one) for one in (files.input, files.output)]
found = {"stdin": sys.stdin.read(), "inherited": inherited}
os.write(files.output, os.read(files.input, 100) + json.dumps(found).encode())
"""


def test_what_else_is_written_to_standard_output_goes_to_standard_error() -> None:
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", TAKE],
        env=buffered,
        input=b"input ",
        capture_output=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.startswith(b"input ")
    assert json.loads(done.stdout[6:]) == {"stdin": "", "inherited": [False, False]}
    lines = done.stderr.decode().splitlines()
    assert lines == ["before", "print", "descriptor", "child ''"]


def test_files_may_be_redirected(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"input ")
    taken = TAKE.replace('print("before")', "")
    with (tmp_path / "in").open() as reads, (tmp_path / "out").open("w") as writes:
        subprocess.run(
            [sys.executable, "-c", taken], stdin=reads, stdout=writes, timeout=60, check=True
        )
    assert (tmp_path / "out").read_bytes().startswith(b'input {"stdin"')


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_input_or_output_is_an_error(closed: str) -> None:
    program = "from passback.streams.stdio import take_stdio\ntake_stdio()"
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "ConfigurationError: standard input or output is closed" in done.stderr


def test_a_closed_standard_error_takes_nothing_else_in_its_place() -> None:
    program = (
        "import os\nfrom passback.streams.stdio import take_stdio\nfiles = take_stdio()\n"
        "os.write(2, b'lost'); os.write(1, b'lost'); print('lost')\n"
        "os.write(files.output, b'%d' % min(files.input, files.output))"
    )
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) > 2
