"""Text that nobody waits for elsewhere is stored less often, what others may depend on is not (P3)."""

import anyio
import pytest
from tests.support.conversations import LONG, begun, new_key, texts

from passback.core.changes import Lease
from passback.core.events import Logged, Nested, Position, RunEvent, TextDelta, ToolCallStarted
from passback.core.messages import CallId
from passback.core.ports import Store
from passback.engine.log import LogWriter, RunLog
from passback.stores.open import open_store

pytestmark = pytest.mark.anyio

SECONDS = 10
CALL = ToolCallStarted(CallId("c"), "pick", client=True)


@pytest.fixture
async def held(store: Store) -> Lease:
    return await begun(store, new_key())


@pytest.fixture
def writer(store: Store) -> LogWriter:
    return LogWriter(store, delay=0.001, lease=LONG, patience=SECONDS)


def log_of(held: Lease, writer: LogWriter, *, continues: bool = False) -> RunLog:
    opening: list[RunEvent] = [TextDelta("stored")]
    return RunLog(held, opening, writer, lambda _: None, continues=continues)


async def said(store: Store, held: Lease) -> list[RunEvent]:
    """What is stored behind the opening."""
    logged: list[Logged] = list(await store.read_log(held.run, after=Position(held.epoch, 1)))
    return [each.event for each in logged]


@pytest.mark.redis
async def test_a_write_says_whether_somebody_waits_for_what_it_brings(redis_url: str) -> None:
    async with open_store(redis_url) as store, open_store(redis_url) as peer:
        held = await begun(store, new_key())
        async with peer.watch(held.run):
            assert await store.renew([held], lease=LONG) == ["held"]
            assert await store.append([texts(held, 2, "a")], lease=LONG) == ["followed"]
            assert await store.append([texts(held, 2, "a")], lease=LONG) == ["held"]  # sent twice
        answer, seq = "followed", 2
        with anyio.fail_after(SECONDS):
            while answer == "followed":
                seq += 1
                [state] = await store.append([texts(held, seq, "b")], lease=LONG)
                answer = str(state)
        assert answer == "held"


async def test_text_that_nobody_waits_for_elsewhere_may_wait_itself(
    store: Store, writer: LogWriter, held: Lease
) -> None:
    log = log_of(held, writer)
    log.append([TextDelta("a")])
    await writer.flush(all_of_it=False)
    assert await said(store, held) == []
    await writer.flush()
    assert await said(store, held) == [TextDelta("a")]


@pytest.mark.parametrize("event", [CALL, Nested(CallId("p"), TextDelta("b"))])
async def test_what_another_post_may_depend_on_takes_the_text_before_it_along(
    store: Store, writer: LogWriter, held: Lease, event: RunEvent
) -> None:
    log = log_of(held, writer)
    log.append([TextDelta("a")])
    log.append([event])
    await writer.flush(all_of_it=False)
    assert await said(store, held) == [TextDelta("a"), event]
    log.append([TextDelta("c")])
    await writer.flush(all_of_it=False)
    assert len(await said(store, held)) == 2


@pytest.mark.redis
async def test_text_that_somebody_waits_for_elsewhere_is_not_held_back(redis_url: str) -> None:
    async with open_store(redis_url) as store, open_store(redis_url) as peer:
        held = await begun(store, new_key())
        writer = LogWriter(store, delay=0.001, lease=LONG, patience=SECONDS)
        log = log_of(held, writer)
        async with peer.watch(held.run):
            log.append([TextDelta("a")])
            await writer.flush()
            log.append([TextDelta("b")])
            await writer.flush(all_of_it=False)
        assert await said(store, held) == [TextDelta("a"), TextDelta("b")]


async def test_a_run_that_was_taken_over_is_thought_to_have_readers_elsewhere(
    store: Store, writer: LogWriter, held: Lease
) -> None:
    log = log_of(held, writer, continues=True)
    log.append([TextDelta("a")])
    assert log.is_urgent
    await writer.flush(all_of_it=False)
    await writer.flush()
    log.append([TextDelta("b")])
    assert not log.is_urgent
