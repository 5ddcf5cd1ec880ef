"""A Redis that may crash and come back with what it has on disk, on the port that it had."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from tests.support.redis_server import RedisServer, free_port, start

if TYPE_CHECKING:
    import subprocess

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
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def server(self) -> RedisServer:
        """As it runs now."""
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
