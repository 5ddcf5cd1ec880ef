"""Many readers of one run, and many that come and go: what they took is given back."""

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
from tests.faults.fleet import Worker
from tests.faults.ordeal import Progress
from tests.faults.pace import pause
from tests.faults.places import tasks_file
from tests.faults.records import Post
from tests.faults.tally import Tally
from tests.faults.world import World
from tests.support.wire import DONE, Frame, FrameReader, client_of, text_of

SECONDS = 60
AT_ONCE = 40
"""Visitors at the same time."""
VISITS_PER_READER = 2
SPARE = {"files": 12, "tasks": 2, "megabytes": 24, "connections": 12}
"""By how much a worker may have grown: pools keep connections, allocators what they once had."""


async def crowds(world: World, points: int, progress: Progress) -> Tally:
    """So many readers of one run at once, then twice as many that come and go; all of it twice, to warm up first."""
    tally = Tally()
    bases: dict[Worker, Taken] = {}
    for _ in ("warm up", "measure"):
        bases = {worker: await _taken(world, worker) for worker in world.fleet.workers}
        async with _held_run(world) as (post, gate):
            tally.faults += await _readers(world, post, gate, points)
        async with _held_run(world) as (post, gate):
            await _visitors(world, post, points * VISITS_PER_READER)
            gate.set()
        tally.points += points * (1 + VISITS_PER_READER)
        progress(tally)
    for worker, base in bases.items():
        tally.faults += await _given_back(world, worker, base)
    return tally


@asynccontextmanager
async def _held_run(world: World) -> AsyncGenerator[tuple[Post, anyio.Event]]:
    """A run that has begun to answer, and goes on when the gate opens; on leaving it is followed to its end."""
    post = Post(world.token("conversation-"), world.token(), words=10)
    gate = world.model.gates[post.token] = anyio.Event()
    async with (
        client_of(world.fleet.urls()[0]) as client,
        client.stream(post.conversation, [post.message]) as stream,
    ):
        await stream.next()
        yield post, gate
        with anyio.fail_after(SECONDS):
            await stream.whole()


# ---------------------------------------------------------------- readers
class Count:
    """Waits until so many have come."""

    def __init__(self) -> None:
        self.value = 0
        self._changed = anyio.Event()

    def add(self) -> None:
        self.value += 1
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def reaches(self, value: int) -> None:
        with anyio.fail_after(SECONDS):
            while self.value < value:
                await self._changed.wait()


async def _readers(world: World, post: Post, gate: anyio.Event, count: int) -> list[str]:
    """All read one run to its end, spread over the workers; all get the same text."""
    texts: list[str] = []
    connected, urls = Count(), cycle(world.fleet.urls())

    async def read(url: str) -> None:
        async with _followed(url, post) as connection:
            body = await connection.receive()
            connected.add()
            with anyio.fail_after(SECONDS):
                async for chunk in connection:
                    body += chunk
        texts.append(_text(_frames(body)))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(read, next(urls))
        await connected.reaches(count)
        gate.set()
    wrong = [text for text in texts if text != texts[0] or not text.endswith(".end")]
    return [f"{len(wrong)} of {count} readers got {wrong[0]!r}"] if wrong else []


async def _visitors(world: World, post: Post, count: int) -> None:
    """Come, read a little, and go."""
    visits, urls = iter(range(count)), cycle(world.fleet.urls())

    async def visit() -> None:
        for _ in visits:
            async with _followed(next(urls), post) as connection:
                with anyio.fail_after(SECONDS):
                    await connection.receive()

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(visit)


@asynccontextmanager
async def _followed(url: str, post: Post) -> AsyncGenerator[anyio.abc.ByteStream]:
    """A connection of its own on which a run comes, as plain as can be: a thousand of them share this process."""
    address = httpx.URL(url)
    head = (
        f"GET /conversations/{post.conversation}/stream HTTP/1.1\r\n"
        f"Host: {address.netloc.decode()}\r\nConnection: close\r\n\r\n"
    )
    async with await anyio.connect_tcp(address.host, address.port or 80) as connection:
        await connection.send(head.encode())
        yield connection


def _frames(response: bytes) -> list[Frame]:
    """Of a whole response whose body is chunked."""
    rest, body = response.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return FrameReader().feed(body)


def _text(frames: list[Frame]) -> str:
    return text_of(frames) if frames and frames[-1].data == DONE else "a stream without [DONE]"


# ---------------------------------------------------------------- what is taken
@dataclass(frozen=True, slots=True)
class Taken:
    """What a worker holds; `connections` are all that Redis has."""

    files: int
    tasks: int
    megabytes: int
    connections: int


async def _taken(world: World, worker: Worker) -> Taken:
    tasks = await _tasks(world, worker)
    return Taken(
        len([one async for one in anyio.Path(f"/proc/{worker.pid}/fd").iterdir()]),
        tasks,
        _resident(worker),
        len(world.redis.server.command("CLIENT", "LIST").splitlines()) if world.redis else 0,
    )


async def _tasks(world: World, worker: Worker) -> int:
    """Ask a worker that was started by `tests.faults.watched`."""
    told = anyio.Path(tasks_file(world.folder, worker.pid))
    await told.unlink(missing_ok=True)
    os.kill(worker.pid, signal.SIGUSR1)
    with anyio.fail_after(SECONDS):
        while not await told.exists():
            await pause(0.02)
    return int(await told.read_text())


def _resident(worker: Worker) -> int:
    [line] = [
        line
        for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    ]
    return int(line.split()[1]) // 1024


async def _given_back(world: World, worker: Worker, base: Taken) -> list[str]:
    """What a worker still holds beyond its base after some time."""
    grown: list[str] = []
    with anyio.move_on_after(15):
        while grown := _grown(base, await _taken(world, worker)):
            await pause(0.2)
    return grown


def _grown(base: Taken, taken: Taken) -> list[str]:
    before, after = asdict(base), asdict(taken)
    return [
        f"a worker holds {after[name]} {name}, before the crowd it were {before[name]}"
        for name, spare in SPARE.items()
        if after[name] > before[name] + spare
    ]
