"""Take-over of a dead worker's run: from the last committed turn, nothing lost or doubled (P10)."""

from collections.abc import Sequence

import anyio
import pytest
from tests.support.killable_worker import killable_worker
from tests.support.runs import (
    EXPIRING_FLUSHED,
    KEY,
    PAINT,
    call_ids,
    contents,
    events,
    followed,
    outcome,
    post,
    reading,
    record,
    reply,
    result,
    says,
    standing,
    until,
    worker,
)

from passback.core.errors import InvalidCursor
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    Logged,
    Position,
    Rewound,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import RunRef
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    """A server tool."""
    return "seen"


def never() -> anyio.Event:
    return anyio.Event()


def rewinds(seen: Sequence[Logged]) -> list[Rewound]:
    return [one.event for one in seen if isinstance(one.event, Rewound)]


def assert_good(seen: Sequence[Logged]) -> None:
    """A stream as a reader sees it that comes fresh: only what stands, in order, with one end."""
    assert rewinds(seen) == []
    assert [one.position for one in seen] == sorted({one.position for one in seen})
    assert [type(one.event) for one in (seen[0], seen[-1])] == [RunStarted, RunFinished]
    assert sum(isinstance(one.event, RunFinished) for one in seen) == 1


async def seen_until(runs: RunService, run: RunRef, event: RunEvent) -> list[Logged]:
    """Return what a reader sees that leaves after an event."""
    seen: list[Logged] = []
    async with runs.follow(run) as batches:
        while event not in [one.event for one in seen]:
            seen += await anext(batches)
    return seen


# ---------------------------------------------------------------- moments of a death
@pytest.mark.promise("P6", "P10")
async def test_a_run_whose_worker_dies_in_its_first_turn_is_done_by_another(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([words("whole ", "answer")])) as other,
        killable_worker(store, ScriptedModel([["half", never()]])) as dying,
    ):
        run = await post(dying.runs, says())
        async with reading(other, run) as reader:
            await reader.until(TextDelta("half"))
            await dying.kill()
            assert (await other.status(KEY)).attempt == 2
        fresh = await followed(other, run)
        assert_good(fresh)
        assert rewinds(reader.seen) == [Rewound(Position(1, 1))]
        assert standing(reader.seen) == fresh
        assert "".join(e.text for e in await events(other, run) if isinstance(e, TextDelta)) == (
            "whole answer"
        )
        assert await contents(other) == ["hi", "whole answer"]
        assert not (await other.status(KEY)).running


@pytest.mark.promise("P10")
async def test_what_was_committed_before_the_death_is_not_done_again(store: Ledger) -> None:
    seen: list[str] = []

    @tool
    def note() -> str:
        seen.append("noted")
        return "noted"

    model = ScriptedModel([words("so")])
    async with (
        worker(store, model, note) as other,
        killable_worker(
            store, ScriptedModel([["first ", *calls(("note", {}))], [never()]]), note
        ) as dying,
    ):
        run = await post(dying.runs, says())
        async with reading(other, run) as reader:
            while sum(isinstance(event, TurnStarted) for event in reader.events) < 2:
                await anyio.wait_all_tasks_blocked()
            await dying.kill()
            await other.status(KEY)
        fresh = await followed(other, run)
        assert_good(fresh)
        assert standing(reader.seen) == fresh
        assert TextDelta("first ") in await events(other, run)
        assert len(rewinds(reader.seen)) == 1  # the second turn had begun
    assert seen == ["noted"]
    assert [m.content for m in model.requests[0].messages] == ["hi", "first ", "noted"]
    assert await contents(other) == ["hi", "first ", "noted", "so"]


# ---------------------------------------------------------------- readers
async def void_stream(other: RunService, store: Ledger) -> tuple[RunRef, list[Logged]]:
    """A reader's view of a run of three workers, of which two died in the middle of a turn."""
    first: list[Step] = ["one ", *calls(("look", {}))]
    second: list[Step] = ["void b", *calls(("look", {}))[:-1], never()]
    async with (
        worker(store, ScriptedModel([])) as stopped,
        killable_worker(store, ScriptedModel([first, ["void a", never()]]), look) as one,
        killable_worker(store, ScriptedModel([second]), look) as two,
    ):
        run = await post(one.runs, says())
        await stopped.drain(0)  # its readers do not make it take a run over
        async with reading(stopped, run) as reader:
            await reader.until(TextDelta("void a"))
            await one.kill()
            await two.runs.status(KEY)
            await reader.until(TextDelta("void b"))
            await two.kill()
            await other.status(KEY)
    return run, reader.seen


@pytest.mark.promise("P3", "P10")
async def test_a_stream_cut_in_a_void_part_adds_up(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([words("three")]), look) as other,
        worker(store, ScriptedModel([])) as third,
    ):
        run, seen = await void_stream(other, store)
        fresh = await followed(other, run)
        assert_good(fresh)
        assert len(rewinds(seen)) == 2
        assert standing(seen) == fresh
        assert (await other.status(KEY)).attempt == 3
        for reader in (other, third):
            assert await followed(reader, run) == fresh
            for cut, last in enumerate(seen, 1):
                rest = await followed(reader, run, last.position)
                assert standing([*seen[:cut], *rest]) == fresh
                assert len(rewinds(rest)) <= 1
                assert not [one for one in rest if one in fresh and one.position <= last.position]
    assert await contents(other) == ["hi", "one ", "seen", "three"]


@pytest.mark.promise("P3")
async def test_a_reader_where_the_run_goes_on_reads_the_past_from_the_store_and_the_rest_live(
    store: Ledger,
) -> None:
    """Every event once: from the beginning, from the committed part, and from within the void."""
    gate = anyio.Event()
    script: list[Step] = ["two ", gate, *words("three")]
    first: list[Step] = ["one ", *calls(("look", {}))]
    async with (
        worker(store, ScriptedModel([script]), look) as other,
        killable_worker(store, ScriptedModel([first, ["void", never()]]), look) as dying,
    ):
        run = await post(dying.runs, says())
        early_seen = await seen_until(other, run, TextDelta("void"))
        await dying.kill()
        await other.status(KEY)
        (committed,) = [n for n, one in enumerate(early_seen) if one.position == Position(1, 9)]
        async with (
            reading(other, run) as fresh,
            reading(other, run, early_seen[2].position) as past,
            reading(other, run, early_seen[committed].position) as edge,
            reading(other, run, early_seen[-1].position) as void,
        ):
            for reader in (fresh, past, edge, void):
                await reader.until(TextDelta("two "))
            gate.set()
        assert_good(fresh.seen)
        assert fresh.seen == await followed(other, run)
        assert [*early_seen[:3], *past.seen] == fresh.seen
        assert [*early_seen[: committed + 1], *edge.seen] == fresh.seen
        assert rewinds(void.seen) == [Rewound(Position(1, 9))]
        assert standing([*early_seen, *void.seen]) == fresh.seen


async def test_a_cursor_nobody_was_given_is_refused(memory: Ledger) -> None:
    gate = anyio.Event()
    async with (
        worker(memory, ScriptedModel([[gate, *words("x")]])) as other,
        killable_worker(memory, ScriptedModel([["half", never()]])) as dying,
    ):
        run = await post(dying.runs, says())
        await dying.kill()
        await other.status(KEY)
        for place in (Position(2, 9), Position(3, 1)):
            with pytest.raises(InvalidCursor):
                await followed(other, run, place)
        gate.set()
        assert await outcome(other, run) == Completed()


async def test_a_reader_whose_worker_is_only_asleep_goes_on_elsewhere(store: Ledger) -> None:
    """Readers of the paused worker read its memory until it learns that it lost the run."""
    gate = anyio.Event()
    async with (
        worker(
            store, ScriptedModel([["half", gate, *words("late")]]), timing=EXPIRING_FLUSHED
        ) as paused,
        worker(store, ScriptedModel([words("whole")])) as other,
    ):
        run = await post(paused, says())
        async with reading(paused, run) as saw, reading(other, run) as stored:
            await saw.until(TextDelta("half"))
            await stored.until(TextDelta("whole"))
            gate.set()
        fresh = await followed(other, run)
        for reader in (saw, stored):
            assert standing(reader.seen) == fresh
        assert len(rewinds(saw.seen)) == 1


# ---------------------------------------------------------------- state of the run
async def test_turns_are_counted_over_all_workers(store: Ledger) -> None:
    """Four of them: three of the first worker, one of the second."""
    looks = calls(("look", {}))
    async with (
        worker(store, ScriptedModel([looks, looks]), look) as other,
        killable_worker(
            store, ScriptedModel([looks, looks, looks, ["half", never()]]), look
        ) as dying,
    ):
        run = await post(dying.runs, says())
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        assert await outcome(other, run) == Completed("max_turns")
        assert len(await record(other)) == 9


async def test_turns_of_earlier_runs_do_not_count(store: Ledger) -> None:
    looks = calls(("look", {}))
    async with (
        worker(store, ScriptedModel([words("second")]), look) as other,
        killable_worker(
            store, ScriptedModel([looks, looks, looks, words("first"), ["half", never()]]), look
        ) as dying,
    ):
        await outcome(dying.runs, await post(dying.runs, says()))
        run = await post(dying.runs, says("again"))
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        assert await outcome(other, run) == Completed()


async def test_a_run_that_had_all_its_turns_is_ended_by_the_next_worker(store: Ledger) -> None:
    looks = calls(("look", {}))
    seen: list[anyio.Event] = [anyio.Event() for _ in range(4)]

    @tool(name="look")
    async def stall() -> str:
        if all(event.is_set() for event in seen[:3]):
            seen[3].set()
            await anyio.sleep_forever()
        next(event for event in seen if not event.is_set()).set()
        return "seen"

    async with (
        worker(store, ScriptedModel([]), look) as other,
        killable_worker(store, ScriptedModel([looks] * 4), stall) as dying,
    ):
        run = await post(dying.runs, says())
        await seen[3].wait()
        await dying.kill()
        assert await outcome(other, run) == Completed("max_turns")


@pytest.mark.promise("P10")
async def test_the_run_keeps_its_client_tools_and_may_hand_back(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), words("painted")])
    async with (
        worker(store, model) as other,
        killable_worker(store, ScriptedModel([["half", never()]])) as dying,
    ):
        run = await post(dying.runs, says(), tools=[PAINT])
        await dying.kill()
        assert isinstance(await outcome(other, run), HandedBack)
        (call_id,) = await call_ids(other)
        assert await reply(other, result(call_id)) == "painted"
    assert model.requests[0].tools == (PAINT,)


@pytest.mark.promise("P7")
async def test_the_next_worker_carries_out_a_cancellation_of_a_dead_one(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([["more", never()]])) as other,
        killable_worker(store, ScriptedModel([["half", never()]])) as dying,
    ):
        run = await post(dying.runs, says())
        await until(other, run, TextDelta)
        await dying.kill()
        assert await other.cancel(run)
        assert await outcome(other, run) == Cancelled()


async def test_a_conversation_may_be_deleted_while_its_worker_is_dead(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([words("anew")])) as other,
        killable_worker(store, ScriptedModel([["half", never()]])) as dying,
    ):
        await post(dying.runs, says())
        await dying.kill()
        await other.delete(KEY)
        assert await reply(other, says("again")) == "anew"
        assert await contents(other) == ["again", "anew"]
