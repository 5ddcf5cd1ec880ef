"""Two processes on one file: posts wait their turn in either, and a kill loses nothing (P8, P10).

This module is also the worker's program: `python -m tests.contract.test_sqlite_workers FILE NAME
POSTS`.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.store_values import change, ending, opening, texts, user, waiting
from tests.support.transcript_rules import said_in

from passback.core.changes import Enqueue, Lease, LoadedConversation
from passback.core.errors import LeaseLost
from passback.core.events import Rewound, RunEvent, RunFinished, RunQueued
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId, RunRef
from passback.core.ports import Store
from passback.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

KEY = ConversationKey(OwnerId("owner"), ConversationId("shared"))
LEASE = 0.5  # seconds
ROOT = Path(__file__).parents[2]


# ---------------------------------------------------------------- a worker
async def work(path: str, name: str, posts: int) -> None:
    """Post messages one by one, and run what waits; print each when it is acknowledged."""
    async with SqliteStore(Path(path)) as store:
        for number in range(posts):
            await post(store, f"{name}-{number}")


def acknowledge(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def post(store: Store, text: str) -> None:
    while True:
        loaded = await store.load(KEY)
        if loaded.status.running or loaded.queue:
            entry = named(waiting(KEY, text, limit=1000), text)
            if await store.enqueue(entry) == "queued":
                acknowledge(text)
                return
        elif held := await begin(store, loaded, text):
            acknowledge(text)
            await run(store, held, text)
            return


def named(entry: Enqueue, text: str) -> Enqueue:
    """Give a queued post a run id that no other process makes."""
    run_id = RunId(f"run-{text}")
    return replace(entry, queued=replace(entry.queued, run_id=run_id), events=(RunQueued(run_id),))


async def begin(
    store: Store, loaded: LoadedConversation, text: str, dequeues: RunId | None = None
) -> Lease | None:
    run_id = RunId(f"run-{text}")
    posted = change(KEY, loaded.status.version, user(text))
    begins = replace(posted, nonce=f"begin-{text}", dequeues=dequeues)
    return await store.begin(begins, run_id, opening(run_id), lease=LEASE)


async def run(store: Store, held: Lease, text: str) -> None:
    """Answer a message, then those that wait."""
    try:
        await store.append([texts(held, 2, "re:")], lease=LEASE)
        waits = await store.commit(ending(held, 0, 3, say=f"re:{text}"), lease=LEASE)
    except LeaseLost:
        return
    if waits:
        await run_next(store)


async def run_next(store: Store) -> None:
    loaded = await store.load(KEY)
    if loaded.queue and not loaded.status.running:
        text = str(said_in(loaded.queue[0].post.messages)[0])
        if held := await begin(store, loaded, text, dequeues=loaded.queue[0].run_id):
            await run(store, held, text)


async def recover(store: Store) -> None:
    """Go on where nobody works any more."""
    for key in await store.take_due(9, lease=LEASE):
        assert key == KEY
        status = (loaded := await store.load(KEY)).status
        if not status.running:
            await run_next(store)
        elif status.lapsed and status.run_id is not None:
            events: tuple[RunEvent, ...] = (Rewound(status.committed),)
            claims = replace(change(KEY, status.version), nonce=f"claim-{status.version}")
            held = await store.take_over(claims, status.run_id, events, lease=LEASE)
            if held:
                await run(store, held, str(said_in(loaded.messages)[-1]))


# ---------------------------------------------------------------- two of them
@contextmanager
def worker(path: Path, name: str, posts: int) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "tests.contract.test_sqlite_workers",
        str(path),
        name,
        str(posts),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: subprocess.Popen[str], lines: int | None = None) -> list[str]:
    """The next lines, or all until its end."""
    assert process.stdout is not None
    if lines is None:
        return process.stdout.read().split()
    return [process.stdout.readline().strip() for _ in range(lines)]


async def assert_whole(store: Store, posted: dict[str, list[str]]) -> None:
    """Check that each acknowledged message is answered once, in order, and each run has one end."""
    loaded = await store.load(KEY)
    record = [*map(str, said_in(loaded.messages))]
    texts, answers = record[::2], record[1::2]
    assert answers == [f"re:{text}" for text in texts]
    assert len(set(texts)) == len(texts)
    for name, texts_of in posted.items():
        theirs = [text for text in texts if text.startswith(f"{name}-")]
        # the last one may have been stored and not acknowledged
        assert theirs[: len(texts_of)] == texts_of
        assert len(theirs) <= len(texts_of) + 1
    for text in texts:
        log = await store.read_log(RunRef(KEY, RunId(f"run-{text}")))
        ends = [isinstance(each.event, RunFinished) for each in log]
        assert ends == [False] * (len(log) - 1) + [True]


@pytest.mark.promise("P8", "P10", "P15")
@pytest.mark.parametrize("lines", [1, 6, 21])
async def test_posts_of_two_processes_are_answered_once_though_one_is_killed(
    tmp_path: Path, lines: int
) -> None:
    path = tmp_path / "conversations.db"
    with ExitStack() as stack:
        killed, other = [stack.enter_context(worker(path, name, 40)) for name in "ab"]
        posted = acknowledged(killed, lines)
        killed.send_signal(signal.SIGKILL)
        posted += acknowledged(killed)
        others = acknowledged(other)
        assert other.wait(10) == 0

    async with SqliteStore(path) as store:
        with anyio.fail_after(20):
            while (status := await store.status(KEY)).running or status.queued:
                await recover(store)
        assert len(others) == 40
        await assert_whole(store, {"a": posted, "b": others})


if __name__ == "__main__":
    anyio.run(work, sys.argv[1], sys.argv[2], int(sys.argv[3]))
