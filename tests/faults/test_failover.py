"""Workers behind three Sentinels, whose Redis master is killed: no replicated data is lost."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from time import monotonic

import anyio
import pytest
from tests.faults import checkers
from tests.faults.checkers import Expectations
from tests.faults.evidence import Operation, Post, read_final_state
from tests.faults.mock_model import MockModel, mock_model, prompt
from tests.faults.retrying_client import ClientOptions, RetryingClient, retrying_client
from tests.faults.workers import WorkerConfig, Workers, running_workers
from tests.support.sentinels import Failover, failover
from tests.support.waiting import pause
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
"""Seconds: longer than a failover takes, so that no run is taken over because of its length."""
RECOVERY_LIMIT = 30.0
"""Seconds: on an idle machine it takes some three, but tests share theirs with others."""
REWINDS = ["run", "rewind"]


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncGenerator[Failover]:
    async with failover(tmp_path / "redis") as servers:
        yield servers


@pytest.fixture
async def model() -> AsyncGenerator[MockModel]:
    async with mock_model() as model:
        yield model


@pytest.fixture
async def workers(servers: Failover, model: MockModel, tmp_path: Path) -> AsyncGenerator[Workers]:
    config = WorkerConfig(
        arguments=[
            *("--timing", f"lease={LEASE}", "--timing", "ping=1"),
            *("--model", "openai:mock", "--model-base-url", model.base_url),
        ],
        environment={"PASSBACK_MODEL_API_KEY": "sk-faults"},
        folder=tmp_path,
        stores=[servers.url],
    )
    async with running_workers(2, config) as workers:
        yield workers


# ---------------------------------------------------------------- with a complete replica
@pytest.mark.promise("P6", "P10")
async def test_under_load_nothing_that_was_replicated_is_lost_and_each_run_ends_once(
    servers: Failover, model: MockModel, workers: Workers
) -> None:
    operations: list[Operation] = []

    async def perform(client: RetryingClient, post: Post) -> None:
        operations.append(await client.perform(post, retry_busy=True))

    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        clients: dict[str, RetryingClient] = {}
        for number in range(CONVERSATIONS):
            options = ClientOptions(timeout=60, accepts_rewinds=number % 2 == 0)
            opening = retrying_client(workers, Random(number), options)
            clients[f"conversation-{number}"] = await stack.enter_async_context(opening)
        for name, client in clients.items():
            # longer than the failover takes
            tasks.start_soon(perform, client, Post(name, f"first-{name}", words=60, delay=40))
        with anyio.fail_after(RECOVERY_LIMIT):
            while len(model.call_counts) < CONVERSATIONS:
                await pause(0.01)
        await servers.replicated()
        servers.master.stop()
        killed_at = monotonic()
        for name, client in clients.items():
            tasks.start_soon(perform, client, Post(name, f"second-{name}", words=5))
        await servers.promoted()
        await workers.wait_until_ready()

    state = await read_final_state(workers.urls()[0], operations)
    recovery_times = [each.acknowledged and each.acknowledged - killed_at for each in operations]
    expected = Expectations(acknowledged_share=1)
    assert checkers.check_all(operations, state, model.tokens_shown, expected) == []
    assert checkers.check_recovery_times(recovery_times, RECOVERY_LIMIT) == []
    assert [*model.violations, *workers.unexpected_exits] == []


# ---------------------------------------------------------------- with a replica that was cut off
async def read_text(stream: Stream, count: int) -> None:
    """Read so many pieces of text."""
    with anyio.fail_after(RECOVERY_LIMIT):
        for _ in range(count):
            await stream.until("text")


async def read_to_the_end(client: Client, conversation: str, stream: Stream) -> list[Frame]:
    """Resume with the last id until the run has ended."""
    with anyio.fail_after(RECOVERY_LIMIT):
        frames = [*(await stream.whole()).frames]
        while frames[-1].data != DONE:
            rest = await client.replay(conversation, after=frames[-1].id, include=REWINDS)
            frames += rest.frames
            await pause(0.05)
    return frames


@pytest.mark.promise("P3", "P6", "P10")
async def test_readers_are_told_what_was_lost_and_none_waits_for_it(
    servers: Failover, model: MockModel, workers: Workers
) -> None:
    one_url, other_url = workers.urls()
    model.gates["long"] = anyio.Event()
    async with (
        client_of(one_url) as one,
        client_of(other_url) as other,
        one.stream("long", [user(prompt("long", 40, 40))], include=REWINDS) as stream,
        other.follow("long", include=REWINDS) as followed,
    ):
        await read_text(stream, 1)
        await read_text(followed, 1)
        await servers.replicated()
        await servers.cut()
        model.gates["long"].set()
        await read_text(stream, 5)
        await read_text(followed, 5)
        lost, key = [user(prompt("lost", 40, 40))], keyed("lost")
        async with one.stream("lost", lost, headers=key, include=REWINDS) as lost_stream:
            await read_text(lost_stream, 1)
            servers.master.stop()
            await servers.promoted()
            seen, seen_elsewhere, end = (list[Frame]() for _ in range(3))

            async def finish(client: Client, stream: Stream, into: list[Frame]) -> None:
                into += await read_to_the_end(client, "long", stream)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(finish, one, stream, seen)
                tasks.start_soon(finish, other, followed, seen_elsewhere)
                with anyio.fail_after(RECOVERY_LIMIT):
                    end += (await lost_stream.whole()).frames
        again = await other.post("lost", *lost, headers=key)
        good = await other.replay(
            "long", after=f"{stream.headers['x-run-id']}.0-0", include=["run"]
        )

    for frames in (seen, seen_elsewhere):
        assert merged(without_void(frames)) == merged(good.frames)
        assert [frame.type for frame in frames].count("run-end") == 1
    assert checkers.find_answer_defect(good.text) == ""
    assert [frame.type for frame in end][-3:] == ["error", "run-end", DONE]
    assert checkers.find_answer_defect(text_of(again.frames)) == ""
