"""Workers behind three Sentinels go on when the Redis master is killed: nothing that was replicated is lost."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from time import monotonic

import anyio
import pytest
from tests.faults import checkers
from tests.faults.caller import Caller, caller
from tests.faults.fleet import Fleet, fleet
from tests.faults.judgement import Rules, gather, judge
from tests.faults.pace import pause
from tests.faults.records import Operation, Post
from tests.faults.traced_model import TracedModel, order, traced_model
from tests.support.sentinels import Failover, failover
from tests.support.wire import (
    DONE,
    Client,
    Frame,
    Stream,
    client_of,
    keyed,
    merged,
    text_of,
    user,
    without_void,
)

pytestmark = [pytest.mark.anyio, pytest.mark.redis, pytest.mark.nightly, pytest.mark.timeout(180)]

CONVERSATIONS = 4
LEASE = 3
"""Seconds: longer than a failover takes, so that it is not for its length that a run is taken over."""
USABLE = 30.0
"""Seconds: on an idle machine it is some three, but tests share theirs with others."""
REWINDS = ["run", "rewind"]


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncGenerator[Failover]:
    async with failover(tmp_path / "redis") as servers:
        yield servers


@pytest.fixture
async def model() -> AsyncGenerator[TracedModel]:
    async with traced_model() as model:
        yield model


@pytest.fixture
async def workers(servers: Failover, model: TracedModel, tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with fleet(
        2,
        *("--timing", f"lease={LEASE}", "--timing", "ping=1"),
        *("--model", "openai:parrot", "--model-base-url", model.base_url),
        environment={"PASSBACK_MODEL_API_KEY": "sk-faults"},
        folder=tmp_path,
        stores=[servers.url],
    ) as workers:
        yield workers


# ---------------------------------------------------------------- what the replica had
@pytest.mark.promise("P6", "P10")
async def test_under_load_nothing_that_was_replicated_is_lost_and_each_run_ends_once(
    servers: Failover, model: TracedModel, workers: Fleet
) -> None:
    operations: list[Operation] = []

    async def perform(client: Caller, post: Post) -> None:
        operations.append(await client.perform(post, insists=True))

    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        callers = {
            f"conversation-{number}": await stack.enter_async_context(
                caller(workers, Random(number), patience=60, rewinds=number % 2 == 0)
            )
            for number in range(CONVERSATIONS)
        }
        for name, client in callers.items():
            # longer than the failover takes
            tasks.start_soon(perform, client, Post(name, f"first-{name}", words=60, pace=40))
        with anyio.fail_after(USABLE):
            while len(model.asked) < CONVERSATIONS:
                await pause(0.01)
        await servers.replicated()
        servers.master.stop()
        struck = monotonic()
        for name, client in callers.items():
            tasks.start_soon(perform, client, Post(name, f"second-{name}", words=5))
        await servers.promoted()
        await workers.ready()

    evidence = await gather(workers.urls()[0], operations)
    usable = [each.acknowledged and each.acknowledged - struck for each in operations]
    assert judge(operations, evidence, model.seen, Rules(share=1)) == []
    assert checkers.usable(usable, USABLE) == []
    assert [*model.violations, *workers.deaths] == []


# ---------------------------------------------------------------- what it had not
async def read(stream: Stream, count: int) -> None:
    """So many pieces of text."""
    with anyio.fail_after(USABLE):
        for _ in range(count):
            await stream.until("text")


async def read_to_the_end(client: Client, conversation: str, stream: Stream) -> list[Frame]:
    """Come back with the last id until the run has ended."""
    with anyio.fail_after(USABLE):
        frames = [*(await stream.whole()).frames]
        while frames[-1].data != DONE:
            rest = await client.replay(conversation, after=frames[-1].id, include=REWINDS)
            frames += rest.frames
            await pause(0.05)
    return frames


@pytest.mark.promise("P3", "P6", "P10")
async def test_readers_are_told_what_was_lost_and_none_waits_for_it(
    servers: Failover, model: TracedModel, workers: Fleet
) -> None:
    one_url, other_url = workers.urls()
    model.gates["long"] = anyio.Event()
    async with (
        client_of(one_url) as one,
        client_of(other_url) as other,
        one.stream("long", [user(order("long", 40, 40))], include=REWINDS) as stream,
        other.follow("long", include=REWINDS) as followed,
    ):
        await read(stream, 1)
        await read(followed, 1)
        await servers.replicated()
        await servers.cut()
        model.gates["long"].set()
        await read(stream, 5)
        await read(followed, 5)
        lost, key = [user(order("lost", 40, 40))], keyed("lost")
        async with one.stream("lost", lost, headers=key, include=REWINDS) as gone:
            await read(gone, 1)
            servers.master.stop()
            await servers.promoted()
            seen, seen_elsewhere, end = (list[Frame]() for _ in range(3))

            async def finish(client: Client, stream: Stream, into: list[Frame]) -> None:
                into += await read_to_the_end(client, "long", stream)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(finish, one, stream, seen)
                tasks.start_soon(finish, other, followed, seen_elsewhere)
                with anyio.fail_after(USABLE):
                    end += (await gone.whole()).frames
        again = await other.post("lost", *lost, headers=key)
        good = await other.replay(
            "long", after=f"{stream.headers['x-run-id']}.0-0", include=["run"]
        )

    for frames in (seen, seen_elsewhere):
        assert merged(without_void(frames)) == merged(good.frames)
        assert [frame.type for frame in frames].count("run-end") == 1
    assert checkers.torn(good.text) == ""
    assert [frame.type for frame in end][-3:] == ["error", "run-end", DONE]
    assert checkers.torn(text_of(again.frames)) == ""
