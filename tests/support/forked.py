"""Programs in processes of their own, forked from one that has the server imported.

Importing takes longer than most of what a test does with a server, and there are hundreds of them.
What runs is what `python -m` runs; only its start is another. As a program, this module is the
process that is forked.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn, TypeAlias

import anyio
import anyio.abc
from typing_extensions import override

IMPORTED = (
    "anyio._backends._asyncio",
    "engineio.async_drivers.asgi",
    "httptools",
    "passback.cli",
    "passback.commands.acp",
    "passback.commands.serve",
    "passback.models.demo",
    "passback.stores.redis",
    "socketio",
    "uvloop",
)
"""Modules that the forked process has; a program imports what else it needs itself."""
ROOT = Path(__file__).parents[2]
_ORDER_BYTES = 1 << 17
_starting = threading.Lock()
_NUMBER = struct.Struct("i")

Output: TypeAlias = int | IO[bytes] | IO[str] | None
"""Where an output goes, as for `subprocess`; None: where that of this process goes."""


# ---------------------------------------------------------------- in the tests
class ForkedProcess(anyio.abc.Process):
    """A process as anyio has them; on leaving it is waited for."""

    def __init__(
        self,
        exit_socket: socket.socket,
        stdin: anyio.abc.ByteSendStream | None,
        stdout: anyio.abc.ByteReceiveStream | None,
        stderr: anyio.abc.ByteReceiveStream | None,
    ) -> None:
        self._pid = _receive_number(exit_socket)
        self._exit = exit_socket
        self._code: int | None = None
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr

    @property
    @override
    def pid(self) -> int:
        return self._pid

    @property
    @override
    def returncode(self) -> int | None:
        if self._code is None:
            try:
                self._code = _receive_number(self._exit, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            self._exit.close()
        return self._code

    @property
    @override
    def stdin(self) -> anyio.abc.ByteSendStream | None:
        return self._stdin

    @property
    @override
    def stdout(self) -> anyio.abc.ByteReceiveStream | None:
        return self._stdout

    @property
    @override
    def stderr(self) -> anyio.abc.ByteReceiveStream | None:
        return self._stderr

    @override
    async def wait(self) -> int:
        while (code := self.returncode) is None:
            # several tasks may wait, which one file descriptor does not allow
            with self._exit.dup() as waited_for:
                await anyio.wait_readable(waited_for)
        return code

    def join(self, seconds: float) -> int:
        """Wait for its end without an event loop; kill it if that does not come in time."""
        if not select.select([self._exit], [], [], seconds)[0]:
            os.kill(self._pid, signal.SIGKILL)
            select.select([self._exit], [], [])
        assert self.returncode is not None
        return self.returncode

    @override
    def send_signal(self, signal: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError(self._pid)
        os.kill(self._pid, signal)

    @override
    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    @override
    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    @override
    async def aclose(self) -> None:
        for stream in (self._stdin, self._stdout, self._stderr):
            if stream is not None:
                await stream.aclose()
        await self.wait()


def fork(
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: Output = None,
    stderr: Output = None,
) -> ForkedProcess:
    """Run `python -m MODULE ARGUMENTS...`; the other arguments are those of `subprocess`.

    `stdin` is either `PIPE` or `DEVNULL`.
    """
    order = {
        "module": module,
        "arguments": arguments,
        "environment": dict(env),
        "cwd": cwd or str(Path.cwd()),
    }
    ours, theirs = socket.socketpair()
    own_stdin, stdin_end = _open_input(stdin)
    own_stdout, stdout_end = _open_output(stdout, 1)
    own_stderr, stderr_end = _open_output(stderr, 2)
    ends = [theirs.fileno(), stdin_end, stdout_end, stderr_end]
    with _starting:
        orders = _forking_process()
    socket.send_fds(orders, [json.dumps(order).encode()], ends)
    theirs.close()
    for end in (stdin_end, stdout_end, stderr_end):
        os.close(end)
    return ForkedProcess(ours, own_stdin, own_stdout, own_stderr)


def _open_input(given: int) -> tuple["_InputPipe | None", int]:
    """Return the end that is written here, if one is, and that for the process."""
    if given == subprocess.PIPE:
        theirs, ours = os.pipe()
        return _InputPipe(ours), theirs
    return None, os.open(os.devnull, os.O_RDONLY)


def _open_output(output: Output, number: int) -> tuple["_Pipe | None", int]:
    """Return the end that is read here, if one is, and that for the process."""
    if output == subprocess.PIPE:
        ours, theirs = os.pipe()
        return _Pipe(ours), theirs
    if output == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_WRONLY)
    if output is None:
        return None, os.dup(number)
    return None, os.dup(output if isinstance(output, int) else output.fileno())


class _InputPipe(anyio.abc.ByteSendStream):
    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    @override
    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        try:
            while rest:
                await anyio.wait_writable(self._file)
                rest = rest[self._file.write(rest) or 0 :]
        except (BrokenPipeError, ValueError) as error:  # its end, or ours, is closed
            raise anyio.BrokenResourceError from error

    @override
    async def aclose(self) -> None:
        self._file.close()


class _Pipe(anyio.abc.ByteReceiveStream):
    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "rb", buffering=0)

    @override
    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.wait_readable(self._file)
        if received := self._file.read(max_bytes):
            return received
        raise anyio.EndOfStream

    @override
    async def aclose(self) -> None:
        self._file.close()


def _receive_number(source: socket.socket, flags: int = 0) -> int:
    number: int = _NUMBER.unpack(source.recv(_NUMBER.size, flags))[0]
    return number


@cache
def _forking_process() -> socket.socket:
    """Return the socket that takes orders. The process ends with this one."""
    environment = os.environ.copy()
    environment.pop("COVERAGE_PROCESS_CONFIG", None)  # nobody would collect what it measures
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno())],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


# ---------------------------------------------------------------- in the process that is forked
def _take_orders(orders: socket.socket) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    # a process that ends would visit, and so copy, all of what it shares with this one
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever watches a program ends unnoticed
    while True:
        text, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 4)
        if not text:
            return
        if os.fork() == 0:
            orders.close()
            _watch(json.loads(text), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(order: Mapping[str, Any], exit_socket: int, *stdio: int) -> None:
    """Start the program, in which this returns at its end; say its id, and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    program = os.fork()
    if program == 0:
        os.close(exit_socket)
        _run(order, *stdio)
    for descriptor in stdio:
        os.close(descriptor)
    os.write(exit_socket, _NUMBER.pack(program))
    _, status = os.waitpid(program, 0)
    os.write(exit_socket, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _run(order: Mapping[str, Any], *stdio: int) -> NoReturn:
    for number, descriptor in enumerate(stdio):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:1] = [order["cwd"], *paths]
    sys.argv[1:] = order["arguments"]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    _take_orders(socket.socket(fileno=int(sys.argv[1])))
