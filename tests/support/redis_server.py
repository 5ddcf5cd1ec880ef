"""Real Redis servers of the tests' own, each on a free local port and in a folder of its own."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import redis
from tests.support.programs import program

SLOTS = 16384
STOP_SECONDS = 20

RedisKind: TypeAlias = Literal["redis", "newest"]
"""The server that the system has, or the newest one that can be had."""


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A running server; what it keeps is gone when it ends."""

    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def cluster_url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.port}"

    def command(self, *command: str | int) -> Any:
        """Run a command beside the store that is tested."""
        with redis.Redis(port=self.port, protocol=2) as client:
            return client.execute_command(*command)

    def listeners(self) -> int:
        """The number of subscribed connections."""
        clients: bytes = self.command("CLIENT", "LIST", "TYPE", "PUBSUB")
        return len(clients.splitlines())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def pause(self) -> None:
        """Let it keep its connections and answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server(folder: Path, *options: str, kind: RedisKind = "redis") -> Iterator[RedisServer]:
    """Start a server with more options of its command line; end it on leaving."""
    port = free_port()
    process = start(folder, f"--port {port}", "--save ''", *options, kind=kind)
    server = RedisServer(port, process)
    try:
        yield server
    finally:
        server.resume()
        server.stop()
        if process.stdout:
            process.stdout.close()


@contextmanager
def redis_cluster(folder: Path) -> Iterator[RedisServer]:
    """A cluster of one server, which has all slots."""
    with redis_server(folder, "--cluster-enabled yes") as server:
        server.command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        _await_line(server.process, "Cluster state changed: ok")
        yield server


def start(folder: Path, *options: str, kind: RedisKind = "redis") -> subprocess.Popen[str]:
    """Start a redis-server and wait until it says that it is ready."""
    words = [word for option in options for word in _split(option)]
    process = subprocess.Popen(
        [_program(kind), *words, "--bind", "127.0.0.1", "--dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    _await_line(process, "Ready to accept connections", "+monitor")
    return process


def _await_line(process: subprocess.Popen[str], *signs: str) -> None:
    """Read the server's log to a line with one of the signs."""
    assert process.stdout is not None
    for line in process.stdout:
        if any(sign in line for sign in signs):
            return
    process.stdout.close()
    raise AssertionError(f"redis-server ended with {process.wait(STOP_SECONDS)}")


def free_port() -> int:
    """A port that nobody uses, nor the one 10000 above it, where a cluster's servers talk."""
    for _ in range(100):
        port = _free(0)
        if port + 10000 < 65536 and _free(port + 10000):
            return port
    raise AssertionError("no free port")


def _free(port: int) -> int:
    """The port if it is free, else 0; any for 0."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def _program(kind: RedisKind) -> str:
    if kind == "newest":
        return program("the newest Valkey", variable="TEST_NEWEST_REDIS")
    if "TEST_REDIS_SERVER" in os.environ or not shutil.which("valkey-server"):
        return program("redis-server", variable="TEST_REDIS_SERVER")
    return shutil.which("redis-server") or program("valkey-server")


def _split(option: str) -> list[str]:
    name, _, value = option.partition(" ")
    return [name, value.strip("'")] if value else [name]


DURABLE = ("--appendonly yes", "--appendfsync always")


class StoppableRedis:
    """Use `stoppable_redis`."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.crashes = 0
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        """Return the store's URL for those who reach the server at a port."""
        return f"redis://127.0.0.1:{port}/0"

    @property
    def server(self) -> RedisServer:
        """The server that runs at the moment."""
        assert self._process is not None
        return RedisServer(self.port, self._process)

    async def start(self) -> None:
        """Return when it answers, with all that it had acknowledged."""
        options = (f"--port {self.port}", "--save ''", *DURABLE)
        self._process = await anyio.to_thread.run_sync(lambda: start(self._folder, *options))

    async def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self.crashes += 1
        self._process.kill()
        await self._await_end()

    async def stop(self) -> None:
        """End it as an administrator does."""
        assert self._process is not None
        self._process.terminate()
        await self._await_end()

    async def _await_end(self) -> None:
        assert self._process is not None
        await anyio.to_thread.run_sync(self._process.wait)
        if self._process.stdout:
            self._process.stdout.close()


@asynccontextmanager
async def stoppable_redis(folder: Path) -> AsyncGenerator[StoppableRedis]:
    """A server that writes each change to the disk before it answers; ended on leaving."""
    redis = StoppableRedis(folder, free_port())
    await redis.start()
    try:
        yield redis
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(10):
            await redis.kill()
