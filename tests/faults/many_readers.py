"""Many readers of one run, and many that connect and disconnect: they leak no resources."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import anyio
import anyio.abc
import httpx
from tests.faults.deployment import Deployment
from tests.faults.evidence import Post
from tests.faults.results import Progress, Result
from tests.faults.workers import Worker, task_count_file
from tests.support.redis_server import StoppableRedis
from tests.support.waiting import pause
from tests.support.wire import DONE, Frame, FrameReader, client_of, text_of

SECONDS = 60
VISITORS_AT_ONCE = 40
VISITORS_PER_READER = 2
ALLOWED_GROWTH = {"files": 12, "tasks": 2, "megabytes": 24, "connections": 12}
"""Growth of a worker that is no leak: pools keep connections, and allocators their memory."""


async def play_many_readers(deployment: Deployment, points: int, progress: Progress) -> Result:
    """Open so many readers of one run at once, then twice as many that come and go.

    All of it is done twice: the first time warms up, the second is measured.
    """
    result = Result()
    before: dict[Worker, Resources] = {}
    for _ in ("warm up", "measure"):
        before = {
            worker: await read_resources(deployment, worker)
            for worker in deployment.workers.running
        }
        async with _paused_run(deployment) as (post, gate):
            result.violations += await _read_at_once(deployment, post, gate, points)
        async with _paused_run(deployment) as (post, gate):
            await _visit(deployment, post, points * VISITORS_PER_READER)
            gate.set()
        result.points += points * (1 + VISITORS_PER_READER)
        progress(result)
    for worker, resources in before.items():
        result.violations += await find_leaks(deployment, worker, resources)
    return result


@asynccontextmanager
async def _paused_run(deployment: Deployment) -> AsyncGenerator[tuple[Post, anyio.Event]]:
    """Give a run that has begun to answer, and continues when the gate opens; then read its end."""
    post = Post(deployment.new_token("conversation-"), deployment.new_token(), words=10)
    gate = deployment.model.gates[post.token] = anyio.Event()
    async with (
        client_of(deployment.workers.urls()[0]) as client,
        client.stream(post.conversation, [post.message]) as stream,
    ):
        await stream.next()
        yield post, gate
        with anyio.fail_after(SECONDS):
            await stream.whole()


# ---------------------------------------------------------------- readers
class ConnectionCounter:
    """A count that can be waited for."""

    def __init__(self) -> None:
        self.value = 0
        self._changed = anyio.Event()

    def increase(self) -> None:
        self.value += 1
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def wait_for(self, value: int) -> None:
        with anyio.fail_after(SECONDS):
            while self.value < value:
                await self._changed.wait()


async def _read_at_once(
    deployment: Deployment, post: Post, gate: anyio.Event, count: int
) -> list[str]:
    """Read one run to its end many times, spread over the workers, and compare the texts."""
    texts: list[str] = []
    connected, urls = ConnectionCounter(), cycle(deployment.workers.urls())

    async def read(url: str) -> None:
        async with _follow(url, post) as connection:
            body = await connection.receive()
            connected.increase()
            with anyio.fail_after(SECONDS):
                async for chunk in connection:
                    body += chunk
        frames = _parse_response(body)
        ended = bool(frames) and frames[-1].data == DONE
        texts.append(text_of(frames) if ended else "a stream without [DONE]")

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(read, next(urls))
        await connected.wait_for(count)
        gate.set()
    wrong = [text for text in texts if text != texts[0] or not text.endswith(".end")]
    return [f"{len(wrong)} of {count} readers got {wrong[0]!r}"] if wrong else []


async def _visit(deployment: Deployment, post: Post, count: int) -> None:
    """Connect so many times, read a little, and disconnect."""
    visits, urls = iter(range(count)), cycle(deployment.workers.urls())

    async def visit() -> None:
        for _ in visits:
            async with _follow(next(urls), post) as connection:
                with anyio.fail_after(SECONDS):
                    await connection.receive()

    async with anyio.create_task_group() as tasks:
        for _ in range(VISITORS_AT_ONCE):
            tasks.start_soon(visit)


@asynccontextmanager
async def _follow(url: str, post: Post) -> AsyncGenerator[anyio.abc.ByteStream]:
    """Open a plain connection that follows a run: a thousand of them share this process."""
    address = httpx.URL(url)
    head = (
        f"GET /conversations/{post.conversation}/stream HTTP/1.1\r\n"
        f"Host: {address.netloc.decode()}\r\nConnection: close\r\n\r\n"
    )
    async with await anyio.connect_tcp(address.host, address.port or 80) as connection:
        await connection.send(head.encode())
        yield connection


def _parse_response(response: bytes) -> list[Frame]:
    """Return the frames of a complete response whose body is chunked."""
    rest, body = response.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return FrameReader().feed(body)


# ---------------------------------------------------------------- resources
@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a worker holds; `connections` are all that Redis has."""

    files: int
    tasks: int
    megabytes: int
    connections: int


async def read_resources(deployment: Deployment, worker: Worker) -> Resources:
    redis = deployment.store if isinstance(deployment.store, StoppableRedis) else None
    return Resources(
        tasks=await _count_tasks(deployment, worker),
        files=len([one async for one in anyio.Path(f"/proc/{worker.pid}/fd").iterdir()]),
        megabytes=_resident_memory(worker),
        connections=len(redis.server.command("CLIENT", "LIST").splitlines()) if redis else 0,
    )


async def _count_tasks(deployment: Deployment, worker: Worker) -> int:
    """Ask a worker that was started by `SERVE_COUNTING_TASKS`."""
    file = anyio.Path(task_count_file(deployment.folder, worker.pid))
    await file.unlink(missing_ok=True)
    os.kill(worker.pid, signal.SIGUSR1)
    with anyio.fail_after(SECONDS):
        while not await file.exists():
            await pause(0.02)
    return int(await file.read_text())


def _resident_memory(worker: Worker) -> int:
    lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) // 1024


async def find_leaks(deployment: Deployment, worker: Worker, before: Resources) -> list[str]:
    """Say what a worker still holds more than before, after some time."""
    leaks: list[str] = []
    with anyio.move_on_after(15):
        while leaks := _compare(before, await read_resources(deployment, worker)):
            await pause(0.2)
    return leaks


def _compare(before: Resources, after: Resources) -> list[str]:
    old, new = asdict(before), asdict(after)
    return [
        f"a worker holds {new[name]} {name}; it held {old[name]} before the readers came"
        for name, growth in ALLOWED_GROWTH.items()
        if new[name] > old[name] + growth
    ]
