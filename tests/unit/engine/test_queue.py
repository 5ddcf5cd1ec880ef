"""Posts that wait for a run to end: order, readers, and their fate when workers die."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Fault, Faults, killable_worker
from tests.support.runs import (
    ASK,
    FAILING_LOST,
    KEY,
    OTHER,
    PAINT,
    QUICK,
    RECOVERING,
    at_once,
    call_ids,
    contents,
    events,
    followed,
    outcome,
    over,
    post,
    reading,
    record,
    reply,
    result,
    says,
    until,
    worker,
)
from tests.support.transcript_rules import said_in
from tests.support.waiting import moment
from typing_extensions import override

from passback.core.context import Context, Unbounded
from passback.core.deltas import ModelRequest
from passback.core.errors import ConversationBusy, InvalidCursor, QueueFull, UnknownConversation
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    Position,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
)
from passback.core.messages import JsonObject, RunRef, ToolMessage
from passback.core.ports import ModelClient
from passback.core.posts import StartRun
from passback.core.transcript import SYNTHETIC_TEXT, MintMessageId
from passback.engine.ledger import Ledger
from passback.engine.next_run import LOST_RUN
from passback.engine.reader import CONVERSATION_DELETED
from passback.engine.service import RunService
from passback.engine.supervisor import BROKEN_RUN
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


async def enqueue(runs: RunService, text: str) -> RunRef:
    return await post(runs, says(text, text), on_busy="enqueue")


def gated(*answers: str) -> tuple[anyio.Event, ScriptedModel]:
    """A model whose first answer waits for a gate."""
    gate = anyio.Event()
    first, *others = answers
    return gate, ScriptedModel([[gate, *words(first)], *(words(text) for text in others)])


# ---------------------------------------------------------------- waiting
@pytest.mark.promise("P6")
async def test_posts_that_wait_run_one_after_the_other_in_their_order(store: Ledger) -> None:
    gate, model = gated("one", "two", "three")
    async with worker(store, model) as runs:
        first = await post(runs, says("a"))
        second, third = await enqueue(runs, "b"), await enqueue(runs, "c")
        status = await runs.status(KEY)
        assert (status.run_id, status.queued) == (first.run_id, (second.run_id, third.run_id))
        assert await contents(runs) == ["a"]
        gate.set()
        for run in (third, second, first):
            assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "one", "b", "two", "c", "three"]
        assert (await runs.status(KEY)).queued == ()


@pytest.mark.promise("P3")
async def test_a_reader_of_a_run_that_waits_sees_it_from_the_queue_to_its_end(
    store: Ledger,
) -> None:
    """Here and elsewhere, and from any place of it."""
    gate, model = gated("one", "two")
    async with worker(store, model) as runs, worker(store, model) as other:
        await post(runs, says("a"))
        run = await enqueue(runs, "b")
        async with reading(runs, run) as here, reading(other, run) as there:
            for reader in (here, there):
                await reader.until(RunQueued(run.run_id))
            gate.set()
        whole = await followed(runs, run)
        assert here.seen == there.seen == whole
        assert [one.event for one in whole[:2]] == [RunQueued(run.run_id), RunStarted(run.run_id)]
        assert [one.position for one in whole] == sorted({one.position for one in whole})
        assert whole[-1].event == RunFinished(Completed())
        for cut, last in enumerate(whole, 1):
            assert await followed(other, run, last.position) == whole[cut:]


async def test_a_place_beyond_a_run_that_waits_is_refused(memory: Ledger) -> None:
    gate, model = gated("one", "two")
    async with worker(memory, model) as runs:
        await post(runs, says("a"))
        run = await enqueue(runs, "b")
        queued = await until(runs, run, RunQueued)
        for beyond in (queued.position._replace(seq=2), Position(9, 1)):
            with pytest.raises(InvalidCursor):
                await followed(runs, run, beyond)
        async with reading(runs, run, queued.position) as reader:
            gate.set()
        assert reader.seen == (await followed(runs, run))[1:]


async def test_a_post_that_would_wait_does_not_wait_for_nothing(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([words("one")])) as runs:
        run = await enqueue(runs, "a")
        assert (await events(runs, run))[0] == RunStarted(run.run_id)


@pytest.mark.promise("P12")
async def test_a_post_that_would_not_wait_meets_busy(store: Ledger) -> None:
    gate, model = gated("one", "two")
    async with worker(store, model) as runs:
        await post(runs, says("a"))
        run = await enqueue(runs, "b")
        with pytest.raises(ConversationBusy):
            await post(runs, says("c"))
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "one", "b", "two"]


@pytest.mark.promise("P11")
async def test_no_more_posts_wait_than_the_limit_allows(store: Ledger) -> None:
    gate, model = gated("one", "two", "three", "five")
    async with worker(store, model, timing=replace(QUICK, queue=2)) as runs:
        await post(runs, says("a"))
        await enqueue(runs, "b")
        last = await enqueue(runs, "c")
        before = await runs.status(KEY)
        with pytest.raises(QueueFull) as raised:
            await enqueue(runs, "d")
        assert raised.value.retry_after is not None
        after = await runs.status(KEY)
        assert (after.version, after.queued) == (before.version, before.queued)
        gate.set()
        await outcome(runs, last)
        await outcome(runs, await enqueue(runs, "e"))
        assert await contents(runs) == ["a", "one", "b", "two", "c", "three", "e", "five"]


async def test_the_tools_of_a_post_that_waits_are_declared_when_it_runs(memory: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")], words("two")])
    async with worker(memory, model) as runs:
        await post(runs, says("a"), tools=[PAINT])
        run = await post(runs, says("b"), tools=[ASK], on_busy="enqueue")
        gate.set()
        await outcome(runs, run)
    assert [request.tools for request in model.requests] == [(PAINT,), (ASK,)]


async def test_the_note_of_a_post_that_waits_is_that_of_its_run(store: Ledger) -> None:
    note: JsonObject = {"response": {"nothing": None, "list": [None, {"nothing": None}]}}
    gate, model = gated("one", "two")
    async with worker(store, model) as runs:
        first = await post(runs, says("a"))
        run = await runs.start(StartRun(KEY, (says("b", "b"),), on_busy="enqueue", note=note))
        assert isinstance(run, RunRef)
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert (await runs.run(run)).note == note
        assert (await runs.run(first)).note is None


async def test_posts_to_two_workers_at_once_all_run_once(store: Ledger) -> None:
    model = ScriptedModel([words(f"answer {n}") for n in range(40)])
    roomy = replace(QUICK, queue=100)
    async with worker(store, model, timing=roomy) as one, worker(store, model, timing=roomy) as two:
        ran: list[RunRef] = []

        async def say(runs: RunService, text: str) -> None:
            ran.append(await enqueue(runs, text))

        async with at_once() as tasks:
            for number in range(40):
                tasks.start_soon(say, (one, two)[number % 2], f"post {number}")
        for run in ran:
            assert await outcome(one, run) == Completed()
        texts = await contents(two)
        assert sorted(map(str, texts[::2])) == sorted(f"post {n}" for n in range(40))
        assert texts[1::2] == [f"answer {n}" for n in range(40)]


# ---------------------------------------------------------------- leaving the queue
@pytest.mark.promise("P6", "P7")
async def test_a_run_that_waits_can_be_cancelled_from_any_worker(store: Ledger) -> None:
    gate, model = gated("one", "three")
    async with worker(store, model) as runs, worker(store, model) as other:
        first = await post(runs, says("a"))
        second, third = await enqueue(runs, "b"), await enqueue(runs, "c")
        async with reading(runs, second) as here, reading(other, second) as there:
            await here.until(RunQueued(second.run_id))
            assert await other.cancel(second)
        whole = [RunQueued(second.run_id), RunFinished(Cancelled())]
        assert here.events == there.events == whole
        assert await events(runs, second) == whole
        gate.set()
        assert await outcome(runs, third) == Completed()
        assert await outcome(runs, first) == Completed()
        assert await contents(runs) == ["a", "one", "c", "three"]


@pytest.mark.promise("P6")
async def test_a_deleted_conversation_ends_the_runs_that_wait(store: Ledger) -> None:
    _, model = gated("one")
    anew = ScriptedModel([words("anew")])
    async with worker(store, model) as runs, worker(store, anew) as other:
        await post(runs, says("a"))
        run = await enqueue(runs, "b")
        async with reading(other, run) as reader:
            await reader.until(RunQueued(run.run_id))
            await runs.delete(KEY)
        assert reader.events == [RunQueued(run.run_id), RunFinished(CONVERSATION_DELETED)]
        assert await outcome(other, await enqueue(other, "c")) == Completed()
        assert await contents(other) == ["c", "anew"]


# ---------------------------------------------------------------- while the client owes
@pytest.mark.promise("P1", "P4")
async def test_who_waits_waits_also_for_what_the_client_owes(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *calls(("paint", {}))], words("painted"), words("next")])
    async with worker(store, model) as runs, worker(store, model) as other:
        first = await post(runs, says("a"), tools=[PAINT])
        run = await enqueue(runs, "b")
        async with reading(other, run) as there, reading(runs, run) as here:
            gate.set()
            assert isinstance(await outcome(runs, first), HandedBack)
            status = await other.status(KEY)
            assert (status.running, status.queued) == (False, (run.run_id,))
            (call_id,) = await call_ids(runs)
            answered = await post(other, result(call_id))
        assert there.events == here.events
        assert await outcome(runs, answered) == await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "", "done", "painted", "b", "next"]


@pytest.mark.promise("P5")
async def test_a_message_supersedes_what_queued_posts_wait_for(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *calls(("paint", {}))], words("two"), words("three")])
    async with worker(store, model) as runs:
        first = await post(runs, says("a"), tools=[PAINT])
        second = await enqueue(runs, "b")
        gate.set()
        await outcome(runs, first)
        third = await post(runs, says("c"))
        assert await outcome(runs, third) == await outcome(runs, second) == Completed()
        messages = await record(runs)
        assert said_in([m for m in messages if not isinstance(m, ToolMessage)]) == [
            *("a", "", "b", "two", "c", "three")
        ]
        (closed,) = [message for message in messages if isinstance(message, ToolMessage)]
        assert closed.synthetic == "superseded"


@pytest.mark.promise("P5", "P9")
async def test_a_result_with_a_message_counts_while_others_wait(store: Ledger) -> None:
    """The message comes behind those who wait, the result does not: else it would be superseded."""
    gate = anyio.Event()
    turn = [gate, *calls(("paint", {}), ("ask", {}))]
    model = ScriptedModel([turn, words("two"), words("three")])
    async with worker(store, model) as runs:
        first = await post(runs, says("a"), tools=[PAINT, ASK])
        second = await enqueue(runs, "b")
        gate.set()
        await outcome(runs, first)
        painted, _ = await call_ids(runs)
        third = await post(runs, result(painted, "red"), says("c"))
        assert await outcome(runs, third) == await outcome(runs, second) == Completed()
        messages = await record(runs)
        assert said_in(messages) == [
            *("a", "", "red", SYNTHETIC_TEXT["superseded"], "b", "two", "c", "three")
        ]
        assert await post(runs, result(painted, "red")) == second


# ---------------------------------------------------------------- workers that die and stop
@pytest.mark.promise("P10")
async def test_the_queue_of_a_dead_worker_is_worked_off_by_another(store: Ledger) -> None:
    model = ScriptedModel([words("one"), words("two"), words("three")])
    async with (
        worker(store, model, timing=RECOVERING) as other,
        killable_worker(store, ScriptedModel([["half", anyio.Event()]])) as dying,
    ):
        first = await post(dying.runs, says("a"))
        await until(dying.runs, first, TextDelta)
        second, third = await enqueue(dying.runs, "b"), await enqueue(dying.runs, "c")
        await dying.kill()
        for run in (first, second, third):
            assert await outcome(other, run) == Completed()
        assert await contents(other) == ["a", "one", "b", "two", "c", "three"]


@pytest.mark.parametrize("who", ["reader", "post", "scan"])
@pytest.mark.promise("P10")
async def test_a_worker_may_die_between_two_runs_of_the_queue(store: Ledger, who: str) -> None:
    """Its run has ended, the next has not begun: whoever looks begins it."""
    faults = Faults(store)
    gate, model = gated("one")
    short = replace(QUICK, lease=0.5)
    others = ScriptedModel([words("two"), words("three")])
    async with worker(store, others, timing=RECOVERING if who == "scan" else QUICK) as other:
        async with worker(faults.store, model, timing=short) as dying:
            first = await post(dying, says("a"))
            run = await enqueue(dying, "b")
            faults.plan["load"] = ["refuse"] * 1000
            looks = faults.calls["load"]
            gate.set()
            assert await outcome(dying, first) == Completed()
            await faults.until("load", looks + 1)
        if who == "scan":
            while (await store.status(KEY)).queued or (await store.status(KEY)).running:
                await moment()
        if who == "post":
            assert await outcome(other, await enqueue(other, "c")) == Completed()
        assert await outcome(other, run) == Completed()
        assert (await contents(other))[:4] == ["a", "one", "b", "two"]


async def test_a_reader_of_a_stopped_worker_sees_the_queue_go_on(store: Ledger) -> None:
    gate, model = gated("one")
    others = ScriptedModel([words("two")])
    async with worker(store, others) as other, worker(store, model) as leaving:
        first = await post(leaving, says("a"))
        run = await enqueue(leaving, "b")
        async with reading(leaving, run) as reader:
            await reader.until(RunQueued(run.run_id))
            async with at_once() as tasks:
                tasks.start_soon(leaving.drain, 5)
                await anyio.wait_all_tasks_blocked()
                gate.set()
            assert await outcome(other, first) == Completed()
            assert await outcome(other, run) == Completed()
        assert reader.seen == await followed(other, run)
        assert await contents(other) == ["a", "one", "b", "two"]


async def test_two_workers_never_begin_the_same_waiting_run_twice(store: Ledger) -> None:
    gate, model = gated("one", "two", "three")
    async with worker(store, model) as runs, worker(store, model) as other:
        await post(runs, says("a"))
        waiting = [await enqueue(runs, "b"), await enqueue(other, "c")]
        async with at_once() as tasks:
            for reader in (runs, other) * 3:
                for run in waiting:
                    tasks.start_soon(followed, reader, run)
            gate.set()
        assert await contents(other) == ["a", "one", "b", "two", "c", "three"]
    assert len(model.requests) == 3


async def test_conversations_have_queues_of_their_own(memory: Ledger) -> None:
    gate, model = gated("one", "elsewhere", "two")
    async with worker(memory, model) as runs:
        await post(runs, says("a"))
        run = await enqueue(runs, "b")
        await anyio.wait_all_tasks_blocked()
        assert await outcome(runs, await post(runs, says("z"), key=OTHER)) == Completed()
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert await contents(runs, OTHER) == ["z", "elsewhere"]


# ---------------------------------------------------------------- without readers
async def enqueue_unattended(runs: RunService) -> RunRef:
    return await post(runs, says("b", "b"), on_busy="enqueue")


async def nothing_waits(store: Ledger) -> None:
    while (await store.status(KEY)).queued:
        await moment()


@pytest.mark.promise("P15")
async def test_the_queue_goes_on_when_the_reply_to_the_last_commit_was_lost(store: Ledger) -> None:
    """The heartbeat finds the lease gone before the end is sent again."""
    faults, gate = Faults(store), anyio.Event()
    model = ScriptedModel([[gate, *words("one")], words("two")])
    async with worker(faults.store, model) as runs:
        await post(runs, says("a"))
        run = await enqueue_unattended(runs)
        refused: list[Fault] = ["refuse"] * 9
        faults.plan["commit"] = ["lose reply", *refused]
        gate.set()
        await nothing_waits(store)
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "one", "b", "two"]


@pytest.mark.promise("P10")
async def test_the_queue_goes_on_behind_a_run_that_was_given_up(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([words("two")]), timing=FAILING_LOST) as other,
        killable_worker(store, ScriptedModel([["half", anyio.Event()]])) as dying,
    ):
        first = await post(dying.runs, says("a"))
        run = await enqueue_unattended(dying.runs)
        await dying.kill()
        assert await outcome(other, first) == LOST_RUN
        await nothing_waits(store)
        assert await outcome(other, run) == Completed()
        assert await contents(other) == ["a", "b", "two"]


# ---------------------------------------------------------------- posts of workers that stop
@asynccontextmanager
async def left(store: Ledger, fault: Fault) -> AsyncGenerator[RunService]:
    """A worker whose store was asked to begin a run and has answered after the client had left."""
    faults = Faults(store)
    faults.plan["begin"] = [fault]
    asked, answers = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        asked.set()
        await answers.wait()

    faults.first["begin"] = ask
    async with worker(faults.store, ScriptedModel([words("one"), words("two")])) as runs:
        client = asyncio.create_task(post(runs, says("first", "u1")))
        await asked.wait()
        client.cancel()
        with suppress(asyncio.CancelledError):
            await client
        assert client.cancelled()
        answers.set()
        with anyio.fail_after(10):
            await faults.until("begin", 1)
        yield runs


@pytest.mark.promise("P6")
async def test_the_run_of_a_client_that_left_goes_on(memory: Ledger) -> None:
    async with left(memory, "none") as runs:
        run_id = (await runs.status(KEY)).run_id
        assert run_id is not None
        with anyio.fail_after(10):
            await over(memory, RunRef(KEY, run_id))
        assert await contents(runs) == ["first", "one"]
        assert await reply(runs, says("second", "u2")) == "two"


@pytest.mark.promise("P6")
async def test_a_refused_post_of_a_client_that_left_starts_nothing(memory: Ledger) -> None:
    async with left(memory, "refuse") as runs:
        with pytest.raises(UnknownConversation):
            await runs.status(KEY)
        assert await reply(runs, says("second", "u2")) == "one"
        assert await contents(runs) == ["second", "one"]


@pytest.mark.promise("P6")
async def test_nobody_waits_for_a_worker_that_broke_down(memory: Ledger) -> None:
    faults, asked = Faults(memory), asyncio.Event()

    async def never() -> None:
        asked.set()
        await asyncio.Event().wait()

    faults.first["begin"] = never
    clients: list[asyncio.Task[RunRef]] = []

    async def break_down() -> None:
        async with worker(faults.store, ScriptedModel([])) as runs:
            clients.append(asyncio.create_task(post(runs, says())))
            await asked.wait()
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        await break_down()
    with anyio.fail_after(10):
        await asyncio.wait(clients)
    assert clients[0].cancelled()


class Unwatchable(Unbounded):
    """A policy that breaks when the run begins."""

    @override
    def watch(self, _model: ModelClient, _frame: ModelRequest, _mint: MintMessageId, /) -> Context:
        raise ZeroDivisionError


@pytest.mark.promise("P6")
async def test_a_run_that_cannot_be_set_up_fails_alone(memory: Ledger) -> None:
    async def prompt(_run: RunRef) -> str:
        return ""

    model = ScriptedModel([])
    async with worker(memory, model, context=Unwatchable(), extra_prompt=prompt) as runs:
        for key in (KEY, OTHER, KEY):
            run = await post(runs, says(), key=key)
            assert await outcome(runs, run) == BROKEN_RUN
