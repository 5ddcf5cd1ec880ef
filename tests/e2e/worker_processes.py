"""Several workers behind one address, known by their process ids from the log."""

import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
from tests.support.server import Server, running_server
from tests.support.wire import Client, Stream, client_of, user

SECONDS = 30


@dataclass(slots=True)
class WorkerProcesses:
    """Args:
    server: the keeper.
    pids: the workers that became ready, in that order.
    log: what was read of the standard error of all of them.
    """

    server: Server
    pids: list[int] = field(default_factory=list[int])
    log: str = ""

    async def until_ready(self, count: int) -> None:
        """Wait for so many workers, those of before included."""
        with anyio.fail_after(SECONDS):
            while len(self.pids) < count:
                assert await self._read(), f"they have ended: {self.log}"

    async def until_all_are_gone(self) -> None:
        """Wait for the end of every process that could write to the log."""
        with anyio.fail_after(SECONDS):
            while await self._read():
                pass

    @asynccontextmanager
    async def client_at(self, pid: int, *, key: str | None = None) -> AsyncGenerator[Client]:
        """Connect to that worker, and use the connection for one request after the other."""
        async with client_of(self.server.url, key=key) as client:
            # a frozen worker may hold the file's lock, so nothing is written meanwhile
            async with self._only(pid):
                assert (await client.http.get("/commands")).status_code == 200
            yield client

    @asynccontextmanager
    async def at(
        self, pid: int, ask: Callable[[Client], AbstractAsyncContextManager[Stream]]
    ) -> AsyncGenerator[Stream]:
        """Request on a connection of that worker's."""
        async with self.client_at(pid) as client, ask(client) as stream:
            assert stream.status == 200
            yield stream

    def post(self, pid: int, conversation: str, text: str) -> AbstractAsyncContextManager[Stream]:
        return self.at(pid, lambda client: client.stream(conversation, [user(text)]))

    @asynccontextmanager
    async def _only(self, pid: int) -> AsyncGenerator[None]:
        """No other worker does anything meanwhile."""
        others = [each for each in self.pids if each != pid and _state(each)]
        try:
            with anyio.fail_after(SECONDS):
                for each in others:
                    os.kill(each, signal.SIGSTOP)
                    while _state(each) != "T":
                        await anyio.lowlevel.checkpoint()
            yield
        finally:
            for each in others:
                os.kill(each, signal.SIGCONT)

    async def _read(self) -> bool:
        assert self.server.process.stderr is not None
        try:
            self.log += (await self.server.process.stderr.receive()).decode()
        except anyio.EndOfStream:
            return False
        whole, _, _ = self.log.rpartition("\n")
        self.pids = [int(pid) for pid in re.findall(r"action=worker_ready pid=(\d+)", whole)]
        return True


def _state(pid: int) -> str:
    """Return a process's state by `ps`; empty without such a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def command_line(pid: int) -> str:
    """Return a process's command line by `ps`."""
    return Path(f"/proc/{pid}/cmdline").read_text()


@asynccontextmanager
async def worker_processes(
    count: int, *flags: str, cwd: Path | None = None
) -> AsyncGenerator[WorkerProcesses]:
    """Start so many workers, and wait until all are ready."""
    arguments = ("--workers", str(count), "--log-level", "info", *flags)
    async with running_server(
        *arguments, stderr=subprocess.PIPE, cwd=str(cwd) if cwd else None
    ) as server:
        worker_processes = WorkerProcesses(server)
        await worker_processes.until_ready(count)
        yield worker_processes
