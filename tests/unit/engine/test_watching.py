"""Watching a conversation: all its runs, whoever begins them and wherever they go on."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from tests.support.killable_worker import killable_worker
from tests.support.ledgers import open_ledger
from tests.support.runs import (
    KEY,
    OTHER,
    PAINT,
    at_once,
    call_ids,
    let_pass,
    outcome,
    park,
    post,
    record,
    reply,
    result,
    says,
    until,
    worker,
)
from tests.support.store_values import LONG, begin_run, ending, waiting
from tests.support.waiting import moment

from passback.core.errors import CursorExpired, InvalidCursor, UnknownConversation, UnknownRun
from passback.core.events import (
    START,
    Cancelled,
    Completed,
    Cursor,
    Logged,
    Position,
    Rewound,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
)
from passback.core.messages import ConversationKey, MessageId, RunId, RunRef
from passback.core.runs import RunBatch, TakeBatch
from passback.engine.ledger import Ledger
from passback.engine.reader import CONVERSATION_DELETED, Reader, StoredLog
from passback.engine.service import RunService
from passback.engine.watching import ConversationReader
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.stores.options import StoreOptions

pytestmark = pytest.mark.anyio


class Seen(NamedTuple):
    run: RunRef
    logged: Logged

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.run.run_id, self.logged.position)


async def watched(
    runs: RunService, *, after: Cursor | Position | None = None, ends: int | None = None
) -> list[Seen]:
    """Watch until so many runs have ended; without a number, until the conversation is gone."""
    seen = list[Seen]()
    async with runs.watch(KEY, after=after) as batches:
        async for run, batch in batches:
            seen += [Seen(run, logged) for logged in batch]
            if ends == sum(isinstance(each.logged.event, RunFinished) for each in seen):
                break
    return seen


def text_of(seen: list[Seen]) -> str:
    events = [each.logged.event for each in seen]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def starts_of(seen: list[Seen]) -> list[tuple[int, int]]:
    """Return where the messages of each run begin, and how many were posted for it."""
    events = [each.logged.event for each in seen]
    return [(event.first, event.posted) for event in events if isinstance(event, RunStarted)]


async def nothing(_: ConversationKey) -> None:
    """Nothing is to be recovered."""


ANSWERS = [words("one ", "and "), words("two ", "and "), words("three")]


async def test_a_run_that_goes_on_is_seen_from_its_start_behind_a_longer_one(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([words(*"many words"), ["a", gate, *words("b")]])
    async with worker(store, model) as runs:
        first = await post(runs, says(message_id="u0"))
        assert await outcome(runs, first) == Completed()
        seen = list[Seen]()
        async with runs.watch(KEY) as batches:
            second = await post(runs, says(message_id="u1"))
            await until(runs, second, TextDelta)
            with anyio.fail_after(5):
                async for run, batch in batches:
                    seen += [Seen(run, logged) for logged in batch]
                    gate.set()
                    if isinstance(batch[-1].event, RunFinished):
                        break
        assert (starts_of(seen), text_of(seen)) == ([(2, 1)], "ab")


async def test_what_is_taken_within_a_runs_step_is_not_yielded_and_keeps_its_place(
    store: Ledger,
) -> None:
    gates = [anyio.Event(), anyio.Event()]
    answers = [[*words("a"), gate, *words("b", "c")] for gate in gates]
    async with worker(store, ScriptedModel(answers)) as runs:
        first = await post(runs, says(message_id="u0"))
        seen, taken = list[Seen](), list[Seen]()

        def take(batch: RunBatch) -> bool:
            texts = [each for each in batch.events if isinstance(each.event, TextDelta)]
            if len(texts) < len(batch.events):
                return False
            taken.extend(Seen(batch.run, logged) for logged in texts)
            seen.extend(taken[-len(texts) :])
            return True

        async def read(batches: AsyncIterator[RunBatch], run: RunRef) -> None:
            async for batch in batches:
                seen.extend(Seen(batch.run, logged) for logged in batch.events)
                if batch.run == run and isinstance(batch.events[-1].event, RunFinished):
                    return

        async with runs.watch(KEY, after=Cursor(first.run_id, START), take=take) as batches:
            for run, gate in zip((first, None), gates, strict=True):
                begun = run or await post(runs, says(message_id="u1"))
                async with at_once() as tasks:
                    tasks.start_soon(read, batches, begun)
                    await until(runs, begun, TextDelta)
                    await let_pass(runs)
                    gate.set()
        assert seen == await watched(runs, after=Cursor(first.run_id, START), ends=2)
        assert {each.run for each in taken} == {each.run for each in seen}


async def test_runs_of_another_worker_are_seen_one_after_the_other(store: Ledger) -> None:
    gate = anyio.Event()
    async with (
        worker(store, ScriptedModel([["zero ", gate, *words("and ")], *ANSWERS])) as owner,
        worker(store, ScriptedModel([])) as other,
    ):
        first = await post(owner, says(message_id="u0"))
        seen = dict[str, list[Seen]]()

        async def watch(name: str, runs: RunService) -> None:
            seen[name] = await watched(runs, ends=4)

        async with at_once() as tasks:
            tasks.start_soon(watch, "owner", owner)
            tasks.start_soon(watch, "other", other)
            await until(other, first, TextDelta)
            gate.set()
            for number in range(1, 4):
                assert await outcome(owner, first) == Completed()
                first = await post(owner, says(message_id=f"u{number}"))
        assert seen["owner"] == seen["other"]
        assert text_of(seen["owner"]) == "zero and one and two and three"
        positions = [each.logged.position for each in seen["owner"]]
        assert positions == sorted(set(positions))
        assert starts_of(seen["owner"]) == [(0, 1), (2, 1), (4, 1), (6, 1)]


@pytest.mark.promise("P3")
async def test_a_watch_that_begins_anywhere_adds_up_to_the_whole(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel(list(ANSWERS))) as owner,
        worker(store, ScriptedModel([])) as other,
    ):
        begun = [await post(owner, says(message_id="u0"))]
        assert await outcome(owner, begun[0]) == Completed()
        beginning = Cursor(begun[0].run_id, Position(0, 0))
        for number in (1, 2):
            begun.append(await post(owner, says(message_id=f"u{number}")))
            assert await outcome(owner, begun[-1]) == Completed()
        whole = await watched(owner, after=beginning, ends=3)
        assert text_of(whole) == "one and two and three"
        assert list(dict.fromkeys(each.run for each in whole)) == begun
        for cut, last in enumerate(whole[:-1], 1):
            ends = sum(isinstance(each.logged.event, RunFinished) for each in whole[cut:])
            for runs in (owner, other):
                assert await watched(runs, after=last.cursor, ends=ends) == whole[cut:]


@pytest.mark.promise("P3")
async def test_from_a_position_its_run_is_read_from_the_start(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel(list(ANSWERS))) as owner,
        worker(store, ScriptedModel([])) as other,
    ):
        for number in range(3):
            run = await post(owner, says(message_id=f"u{number}"))
            assert await outcome(owner, run) == Completed()
        whole = await watched(owner, after=START, ends=3)
        assert text_of(whole) == "one and two and three"
        for last in whole:
            kept = [
                each for each in whole if each.logged.position.epoch >= last.logged.position.epoch
            ]
            ends = sum(isinstance(each.logged.event, RunFinished) for each in kept)
            for runs in (owner, other):
                assert await watched(runs, after=last.logged.position, ends=ends) == kept


async def test_from_the_end_only_what_comes_is_seen(store: Ledger) -> None:
    async with worker(store, ScriptedModel(list(ANSWERS))) as runs:
        assert await reply(runs, says(message_id="u0")) == "one and "
        async with runs.watch(KEY) as batches:
            run = await post(runs, says(message_id="u1"))
            assert (await anext(batches)).run == run
        status = await runs.status(KEY)
        assert status.run_id == run.run_id
        assert await outcome(runs, run) == Completed()
        end = Cursor(run.run_id, (await runs.status(KEY)).logged)
        async with runs.watch(KEY, after=end) as batches:
            later = await post(runs, says(message_id="u2"))
            assert (await anext(batches)).run == later


async def test_queued_posts_follow_and_what_a_rollback_removes_is_named(store: Ledger) -> None:
    gate = anyio.Event()
    void: list[Step] = ["void ", anyio.Event()]
    script = [["zero ", gate, *words("more ")], words("queued"), void, words("rolled")]
    async with worker(store, ScriptedModel(script)) as runs:
        first = await post(runs, says(message_id="u0"))
        await until(runs, first, TextDelta)
        async with at_once() as tasks:
            seen = list[Seen]()

            async def watch() -> None:
                seen.extend(await watched(runs, ends=4))

            tasks.start_soon(watch)
            await post(runs, says(message_id="u1"), on_busy="enqueue")
            gate.set()
            assert await outcome(runs, first) == Completed()
            third = await post(runs, says(message_id="u2"), on_busy="enqueue")
            await until(runs, third, TextDelta)
            await post(runs, says(message_id="u3"), on_busy="rollback")
        assert starts_of(seen) == [(0, 1), (2, 1), (4, 1), (4, 1)]
        started = [each.logged.event for each in seen if isinstance(each.logged.event, RunStarted)]
        assert [each.rolled_back for each in started] == [False, False, False, True]
        kept = await record(runs)
        assert [message.id for message in kept[4:5]] == [MessageId("u3")]


async def test_it_goes_on_behind_a_run_that_was_taken_out_of_the_queue(store: Ledger) -> None:
    stopped: list[Step] = ["zero ", anyio.Event()]
    async with worker(store, ScriptedModel([stopped, words("one")])) as runs:
        first = await post(runs, says(message_id="u0"))
        await until(runs, first, TextDelta)
        async with at_once() as tasks:
            seen = list[Seen]()

            async def watch() -> None:
                seen.extend(await watched(runs, ends=3))

            tasks.start_soon(watch)
            waiting = await post(runs, says(message_id="u1"), on_busy="enqueue")
            assert await runs.cancel(waiting)
            assert await runs.cancel(first)
            assert await outcome(runs, waiting) == Cancelled()
            assert await outcome(runs, first) == Cancelled()
            last = await post(runs, says(message_id="u2"))
        assert [each.run for each in seen if each.logged.event == RunFinished(Cancelled())] == [
            first,
            waiting,
        ]
        assert (seen[-1].run, seen[-1].logged.event) == (last, RunFinished(Completed()))


async def test_results_that_were_stored_before_a_run_are_named_with_it(store: Ledger) -> None:
    asked = calls(("paint", {}), ("paint", {}))
    async with worker(store, ScriptedModel([asked, words("done")])) as runs:
        first = await post(runs, says(message_id="u0"), tools=[PAINT])
        await outcome(runs, first)
        one, other = await call_ids(runs)
        async with runs.watch(KEY) as batches:
            await park(runs, result(one, message_id="r1"))
            last = await post(runs, result(other, message_id="r2"))
            seen = await anext(batches)
        assert seen.run == last
        assert starts_of([Seen(seen.run, seen.events[0])]) == [(2, 2)]
        assert [message.id for message in (await record(runs))[2:4]] == ["r1", "r2"]


@pytest.mark.promise("P10")
async def test_a_take_over_is_told_and_later_runs_follow(store: Ledger) -> None:
    good = ScriptedModel([words("good "), words("next")])
    async with (
        worker(store, good) as heir,
        killable_worker(store, ScriptedModel([["void", anyio.Event()]])) as dying,
    ):
        run = await post(dying.runs, says(message_id="u0"))
        # text that the store does not have yet is shown by its worker alone
        ahead = Cursor(run.run_id, (await until(dying.runs, run, TextDelta)).position)
        seen = list[Seen]()

        async def watch() -> None:
            seen.extend(await watched(heir, after=ahead, ends=2))

        async with at_once() as tasks:
            tasks.start_soon(watch)
            await dying.kill()
            assert await outcome(heir, run) == Completed()
            await post(heir, says(message_id="u1"))
        assert isinstance(seen[0].logged.event, Rewound)
        assert text_of(seen) == "good next"


@pytest.mark.promise("P3", "P10")
@pytest.mark.parametrize("queues", [False, True])
async def test_from_a_void_position_a_run_goes_on_that_is_not_the_last(
    store: Ledger, queues: bool
) -> None:
    """Its reader comes back when another run has been made, or had waited behind it."""
    async with (
        worker(store, ScriptedModel([words("good "), words("next")])) as heir,
        killable_worker(store, ScriptedModel([["void", anyio.Event()]])) as dying,
    ):
        run = await post(dying.runs, says(message_id="u0"))
        void = (await until(dying.runs, run, TextDelta)).position
        if queues:
            await post(dying.runs, says(message_id="u1"), on_busy="enqueue")
        await dying.kill()
        await heir.status(KEY)
        assert await outcome(heir, run) == Completed()
        if not queues:
            await post(heir, says(message_id="u1"))
        seen = await watched(heir, after=void, ends=2)
        assert isinstance(seen[0].logged.event, Rewound)
        assert (seen[0].run, text_of(seen)) == (run, "good next")
        beyond = Position(void.epoch, 99)
        assert (
            await refusal(heir, (await heir.status(KEY)).logged._replace(seq=99)) is InvalidCursor
        )
        assert (await watched(heir, after=beyond, ends=2)) == seen


async def test_it_ends_with_the_conversation_also_if_that_is_made_anew(store: Ledger) -> None:
    async with worker(store, ScriptedModel([*ANSWERS, words("anew")])) as runs:
        for number in range(2):
            assert await reply(runs, says(message_id=f"u{number}"))
        async with runs.watch(KEY) as idle, runs.watch(KEY) as late:
            await runs.delete(KEY)
            assert await anext(idle, None) is None
            assert await reply(runs, says(message_id="u2")) == "three"
            assert await anext(late, None) is None


async def test_a_deletion_during_a_run_is_told(store: Ledger) -> None:
    async with worker(store, ScriptedModel([["text", anyio.Event()]])) as runs:
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        async with runs.watch(KEY) as batches:
            assert TextDelta("text") in [logged.event for logged in (await anext(batches)).events]
            await runs.delete(KEY)
            [*_, last] = [batch async for batch in batches]
        assert last.events[-1].event == RunFinished(CONVERSATION_DELETED)


async def refusal(runs: RunService, after: Cursor | Position) -> type[Exception]:
    with pytest.raises((CursorExpired, InvalidCursor)) as caught:
        async with runs.watch(KEY, after=after):
            pass
    return caught.type


async def test_places_that_never_were_are_refused(store: Ledger) -> None:
    async with worker(store, ScriptedModel(list(ANSWERS))) as runs:
        with pytest.raises(UnknownConversation):
            async with runs.watch(OTHER):
                pass
        run = await post(runs, says())
        assert await outcome(runs, run) == Completed()
        beyond = Cursor(run.run_id, (await runs.status(KEY)).logged._replace(seq=99))
        assert await refusal(runs, beyond) is InvalidCursor
        for place in (beyond.position, Position(9, 1)):
            assert await refusal(runs, place) is InvalidCursor
        assert await refusal(runs, Cursor(RunId("run_none"), Position(1, 1))) is CursorExpired


async def test_expired_logs_are_told_where_something_is_lost() -> None:
    async with (
        open_ledger("memory:", options=StoreOptions(log_ttl=0.001)) as store,
        worker(store, ScriptedModel(list(ANSWERS))) as runs,
    ):
        run = await post(runs, says(message_id="u0"))
        await until_expired(store, run)
        end = Cursor(run.run_id, (await runs.status(KEY)).logged)
        assert await refusal(runs, end._replace(position=Position(1, 2))) is CursorExpired
        assert await refusal(runs, Position(1, 2)) is CursorExpired
        async with runs.watch(KEY, after=end.position):
            pass
        async with runs.watch(KEY, after=end) as batches:
            later = await post(runs, says(message_id="u1"))
            await until_expired(store, later)
            with pytest.raises(CursorExpired):
                await anext(batches)
            assert await refusal(runs, end.position) is CursorExpired
        assert await refusal(runs, end) is CursorExpired


async def until_expired(store: Ledger, run: RunRef) -> None:
    """Wait until a run has ended and its log is gone."""
    with anyio.fail_after(10):
        while (await store.status(KEY)).running or await store.next_run(KEY, after=START):
            await moment()
    with pytest.raises(UnknownRun):
        await store.read_log(run)


async def test_a_run_is_found_though_its_hint_was_lost(tmp_path: Path) -> None:
    # a write of another process is noticed by looking at the file: here nobody looks in time
    url = f"sqlite:///{tmp_path}/store.db"
    async with (
        open_ledger(url) as one,
        open_ledger(url) as other,
        worker(one, ScriptedModel(list(ANSWERS))) as owner,
        worker(other, ScriptedModel([])) as runs,
    ):
        assert await reply(owner, says(message_id="u0"))
        found = list[RunRef]()

        def follow(run: RunRef, position: Position, take: TakeBatch | None) -> Reader:
            return runs.follow(run, after=position, take=take)

        async def watch() -> None:
            async with ConversationReader(
                other, KEY, None, follow=follow, status=runs.status, recover=nothing, quiet=0.001
            ) as batches:
                found.append((await anext(batches)).run)

        async with at_once() as tasks:
            tasks.start_soon(watch)
            await let_pass(runs)
            run = await post(owner, says(message_id="u1"))
        assert found == [run]


@pytest.mark.parametrize("late", [False, True])
async def test_a_message_that_is_queued_before_an_earlier_one_begins_hides_no_run(
    store: Ledger, *, late: bool
) -> None:
    gates = [anyio.Event() for _ in range(4)]
    answers = [["a", gate, *words(text)] for gate, text in zip(gates, "1234", strict=True)]
    async with worker(store, ScriptedModel(answers)) as runs:
        first = await post(runs, says(message_id="u0"))
        await until(runs, first, TextDelta)
        seen = list[Seen]()

        async def read() -> None:
            seen.extend(await watched(runs, after=Cursor(first.run_id, START), ends=4))

        async with at_once() as tasks:
            if not late:
                tasks.start_soon(read)
                await let_pass(runs)
            second = await post(runs, says(message_id="u1"), on_busy="enqueue")
            third = await post(runs, says(message_id="u2"), on_busy="enqueue")
            gates[0].set()
            await until(runs, second, TextDelta)
            fourth = await post(runs, says(message_id="u3"), on_busy="enqueue")
            gates[1].set()
            for run, gate in ((third, gates[2]), (fourth, gates[3])):
                await until(runs, run, TextDelta)
                gate.set()
            await outcome(runs, fourth)
            with anyio.fail_after(5):
                if late:
                    await read()
        assert text_of(seen) == "a1a2a3a4"


async def test_behind_the_place_where_a_run_was_queued_come_the_runs_that_begin_before_it(
    store: Ledger,
) -> None:
    gates = [anyio.Event(), anyio.Event()]
    script = [["1", gates[0], *words()], ["2", gates[1], *words()], words("3"), words("4")]
    async with worker(store, ScriptedModel(script)) as runs:
        first = await post(runs, says(message_id="u0"))
        await until(runs, first, TextDelta)
        second = await post(runs, says(message_id="u1"), on_busy="enqueue")
        third = await post(runs, says(message_id="u2"), on_busy="enqueue")
        gates[0].set()
        await until(runs, second, TextDelta)
        fourth = await post(runs, says(message_id="u3"), on_busy="enqueue")
        queued = await until(runs, fourth, RunQueued)
        gates[1].set()
        await outcome(runs, fourth)
        with anyio.fail_after(5):
            seen = await watched(runs, after=Cursor(fourth.run_id, queued.position), ends=2)
        assert list(dict.fromkeys(each.run for each in seen)) == [third, fourth]


async def test_a_queue_that_no_worker_begins_is_recovered(memory: Ledger) -> None:
    """Its worker was lost between the end of a run and the beginning of the next one."""
    held = await begin_run(memory, KEY)
    assert await memory.enqueue(waiting(KEY)) == "queued"
    assert await memory.commit(ending(held, 1, 2), lease=LONG)
    recovered = anyio.Event()

    async def recover(key: ConversationKey) -> None:
        assert key == KEY
        recovered.set()

    def follow(run: RunRef, position: Position, take: TakeBatch | None) -> Reader:
        stored = StoredLog(memory, run, nothing, LONG)
        return Reader(stored, run, position, lambda _: None, take=take)

    async with (
        ConversationReader(
            memory, KEY, None, follow=follow, status=memory.status, recover=recover
        ) as batches,
        at_once() as tasks,
    ):
        assert isinstance((await anext(batches)).events[-1].event, RunQueued)
        tasks.start_soon(anext, batches)
        with anyio.fail_after(10):
            await recovered.wait()
        tasks.cancel_scope.cancel()
