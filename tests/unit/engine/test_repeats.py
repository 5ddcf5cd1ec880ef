"""Posts that come twice, together, or in the very instant in which they become possible."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.ledgers import open_ledger
from tests.support.runs import (
    ASK,
    KEY,
    PAINT,
    QUICK,
    at_once,
    call_ids,
    followed,
    let_pass,
    outcome,
    post,
    result,
    says,
    until,
    worker,
)

from passback.core.deltas import Finish, ToolCallChunk
from passback.core.errors import ConversationBusy, ResultConflict, UnknownToolCall
from passback.core.events import Completed, HandedBack, ToolCallEnded, ToolCallStarted
from passback.core.messages import CallId, PostedMessage, RunRef, ToolMessage
from passback.core.posts import Parked, StartRun
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio

TWO_CALLS = calls(("paint", {}), ("ask", {}))


async def tool_messages(runs: RunService) -> list[ToolMessage]:
    page = await runs.messages(KEY, start=0, limit=1000)
    return [message for message in page.messages if isinstance(message, ToolMessage)]


# ---------------------------------------------------------------- equal and other repeats
@pytest.mark.promise("P8", "P9")
async def test_an_equal_repeat_joins_the_run_also_after_later_runs(store: Ledger) -> None:
    model = ScriptedModel([TWO_CALLS, words("one"), words("two")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT, ASK]))
        one, two = await call_ids(runs)
        run = await post(runs, result(one), result(two))
        first = await followed(runs, run)
        assert await post(runs, result(two), result(one)) == run
        await outcome(runs, await post(runs, says("more")))
        assert await post(runs, result(one)) == run
        assert await followed(runs, run) == first
        assert len(await tool_messages(runs)) == 2


async def test_an_answer_keeps_leading_to_a_run_that_failed_without_a_word(memory: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), [], words("again")])
    async with worker(memory, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        run = await post(runs, result(call_id))
        await outcome(runs, run)
        await outcome(runs, await post(runs, says("once more")))
        assert await post(runs, result(call_id)) == run


@pytest.mark.promise("P9")
async def test_the_first_result_wins(store: Ledger) -> None:
    model = ScriptedModel([TWO_CALLS, words("done")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT, ASK]))
        one, two = await call_ids(runs)
        await runs.start(StartRun(KEY, (result(one, "first"),)))
        with pytest.raises(ResultConflict):
            await post(runs, result(one, "second"))
        await outcome(runs, await post(runs, result(two)))
        with pytest.raises(ResultConflict):
            await post(runs, result(one, "second"))
        assert [m.content for m in await tool_messages(runs)] == ["first", "done"]


async def start_many(runs: RunService, *posts: PostedMessage) -> list[RunRef | Parked | str]:
    """Post each message by itself, all at once; an error is its code."""
    answers: list[RunRef | Parked | str] = []

    async def start(message: PostedMessage) -> None:
        try:
            answers.append(await runs.start(StartRun(KEY, (message,))))
        except (ConversationBusy, ResultConflict) as error:
            answers.append(error.code)

    async with at_once() as tasks:
        for message in posts:
            tasks.start_soon(start, message)
    return answers


@pytest.mark.promise("P8")
async def test_equal_results_at_once_are_one_run(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), words("once")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        answers = await start_many(runs, *[result(call_id)] * 8)
        assert len(answers) == 8
        assert len(set(answers)) == 1
        assert isinstance(answers[0], RunRef)
        assert await outcome(runs, answers[0]) == Completed()
        assert len(await tool_messages(runs)) == 1


async def test_partial_results_at_once_start_one_run(store: Ledger) -> None:
    model = ScriptedModel([TWO_CALLS, words("once")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT, ASK]))
        one, two = await call_ids(runs)
        answers = await start_many(runs, result(one), result(two), result(one), result(two))
        started = [answer for answer in answers if isinstance(answer, RunRef)]
        assert len(set(started)) == 1
        assert all(isinstance(answer, RunRef | Parked) for answer in answers)
        assert await outcome(runs, started[0]) == Completed()
        assert len(await tool_messages(runs)) == 2


@pytest.mark.promise("P9")
async def test_of_other_results_at_once_one_wins_and_the_rest_conflict(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), words("once")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        answers = await start_many(runs, *[result(call_id, f"result {n}") for n in range(6)])
        assert answers.count("tool_result_conflict") == 5
        assert len(await tool_messages(runs)) == 1


async def test_one_of_many_messages_at_once_starts_a_run(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")]])
    async with worker(store, model) as runs:
        answers = await start_many(runs, *[says(f"hello {n}") for n in range(6)])
        assert answers.count("conversation_busy") == 5
        gate.set()
        (run,) = [answer for answer in answers if isinstance(answer, RunRef)]
        assert await outcome(runs, run) == Completed()


class AlwaysChanged:
    """A store whose conversation is changed by somebody else whenever a post is to be stored."""

    def __init__(self, store: Ledger) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def begin(self, *_: object, lease: float) -> None:
        return None


async def test_a_post_that_is_overtaken_again_and_again_meets_busy(memory: Ledger) -> None:
    changing: Ledger = AlwaysChanged(memory)  # type: ignore[assignment]  # the rest is looked up
    async with worker(changing, ScriptedModel([])) as runs:
        with pytest.raises(ConversationBusy, match="at once"):
            await post(runs, says())


# ---------------------------------------------------------------- results that come early
@asynccontextmanager
async def two_workers(path: Path, model: ScriptedModel) -> AsyncGenerator[list[RunService]]:
    """Two workers as in two processes: each has its own connection to one file."""
    url = f"sqlite:///{path}/shared.db"
    async with (
        open_ledger(url) as one,
        open_ledger(url) as two,
        worker(one, model) as first,
        worker(two, model) as second,
    ):
        yield [first, second]


async def post_early(runs: RunService, other: RunService, gate: anyio.Event) -> None:
    """Post both results through `other` before the calls are handed back by `runs`."""
    run = await post(runs, says(), tools=[PAINT, ASK])
    begun = await until(other, run, ToolCallStarted)
    assert isinstance(begun.event, ToolCallStarted)
    answers: list[RunRef | Parked] = []

    async def start() -> None:
        assert isinstance(begun.event, ToolCallStarted)
        command = StartRun(KEY, (result(begun.event.call_id), says("go on")))
        answers.append(await other.start(command))

    async with at_once() as tasks:
        tasks.start_soon(start)
        await let_pass(other)
        assert answers == []
        gate.set()
    assert isinstance(await outcome(other, run), HandedBack)
    (answer,) = answers
    assert isinstance(answer, RunRef)
    assert await outcome(other, answer) == Completed()


def early_script(gate: anyio.Event) -> ScriptedModel:
    turn: list[Step] = [ToolCallChunk(0, name="paint"), gate, ToolCallChunk(1, name="ask")]
    return ScriptedModel([[*turn, Finish("tool_calls")], words("done")])


async def test_a_result_before_its_hand_back_waits_and_then_starts_a_run(store: Ledger) -> None:
    gate = anyio.Event()
    async with worker(store, early_script(gate)) as runs:
        await post_early(runs, runs, gate)


async def test_an_early_result_at_another_worker_waits_too(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with two_workers(tmp_path, early_script(gate)) as (first, second):
        await post_early(first, second, gate)


async def test_an_early_result_may_overtake_the_log_of_its_call(memory: Ledger) -> None:
    """The other worker's readers saw the call begin before that was stored."""
    gate, stored = anyio.Event(), anyio.Event()
    owning, asked = Faults(memory), Faults(memory)

    async def look_again() -> None:
        stored.set()
        await owning.until("append", 1)

    async def look() -> None:
        asked.first["read_log"] = look_again

    owning.first["append"] = stored.wait
    asked.first["read_log"] = look
    model = early_script(gate)
    async with worker(owning.store, model) as owner, worker(asked.store, model) as other:
        run = await post(owner, says(), tools=[PAINT, ASK])
        begun = await until(owner, run, ToolCallStarted)
        assert isinstance(begun.event, ToolCallStarted)
        answers: list[RunRef] = []

        async def start(call_id: CallId) -> None:
            answers.append(await post(other, result(call_id), says("go on")))

        async with at_once() as tasks:
            tasks.start_soon(start, begun.event.call_id)
            await stored.wait()
            gate.set()
        assert await outcome(other, answers[0]) == Completed()


async def test_an_early_result_waits_only_so_long(memory: Ledger) -> None:
    gate = anyio.Event()
    short_wait = replace(QUICK, early_result=0.01)
    async with worker(memory, early_script(gate), timing=short_wait) as runs:
        begun = await until(runs, await post(runs, says(), tools=[PAINT]), ToolCallStarted)
        assert isinstance(begun.event, ToolCallStarted)
        with pytest.raises(ConversationBusy, match="still running"):
            await post(runs, result(begun.event.call_id))


@tool
def look() -> str:
    """A server tool."""
    return "seen"


async def test_a_result_for_no_client_call_is_unknown(memory: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[*calls(("look", {}))[:-1], gate, Finish("tool_calls")], words("x")])
    async with worker(memory, model, look) as runs:
        run = await post(runs, says(), tools=[PAINT])
        begun = await until(runs, run, ToolCallStarted)
        assert isinstance(begun.event, ToolCallStarted)
        for call_id in (CallId("never"), begun.event.call_id):
            with pytest.raises(UnknownToolCall):
                await post(runs, result(call_id))
        gate.set()
        assert await outcome(runs, run) == Completed()


async def test_a_result_whose_call_turns_out_to_be_void_is_unknown(memory: Ledger) -> None:
    """The model's answer breaks off after readers saw the call begin."""
    gate = anyio.Event()
    model = ScriptedModel([[ToolCallChunk(0, name="paint"), gate]])
    async with worker(memory, model) as runs:
        begun = await until(runs, await post(runs, says(), tools=[PAINT]), ToolCallStarted)
        assert isinstance(begun.event, ToolCallStarted)

        async def start() -> None:
            assert isinstance(begun.event, ToolCallStarted)
            with pytest.raises(UnknownToolCall):
                await post(runs, result(begun.event.call_id))

        async with at_once() as tasks:
            tasks.start_soon(start)
            await let_pass(runs)
            gate.set()


# ---------------------------------------------------------------- the instant of the call's end
async def answer_at_once(reader: RunService, run: RunRef) -> RunRef:
    """Post the result while the end of the call is being read."""
    async with reader.follow(run) as batches:
        async for batch in batches:
            for logged in batch:
                if isinstance(logged.event, ToolCallEnded):
                    return await post(reader, result(logged.event.call_id))
    raise AssertionError("the call did not end")


@pytest.mark.promise("P4")
async def test_a_result_at_the_end_of_its_call_is_never_busy(store: Ledger) -> None:
    rounds = 100
    model = ScriptedModel([calls(("paint", {}))] * rounds + [words("done")])
    async with worker(store, model) as runs:
        run = await post(runs, says(), tools=[PAINT])
        for _ in range(rounds):
            run = await answer_at_once(runs, run)
        assert await outcome(runs, run) == Completed()
        assert len(await tool_messages(runs)) == rounds


@pytest.mark.promise("P4")
async def test_nor_does_it_at_another_worker(tmp_path: Path) -> None:
    rounds = 20
    model = ScriptedModel([calls(("paint", {}))] * rounds + [words("done")])
    async with two_workers(tmp_path, model) as workers:
        run = await post(workers[0], says(), tools=[PAINT])
        for turn in range(rounds):
            run = await answer_at_once(workers[(turn + 1) % 2], run)
        assert await outcome(workers[0], run) == Completed()


@pytest.mark.promise("P4", "P8")
async def test_clients_at_two_workers_that_post_the_same_result_share_a_run(tmp_path: Path) -> None:
    rounds = 10
    model = ScriptedModel([calls(("paint", {}))] * rounds + [words("done")])
    async with two_workers(tmp_path, model) as workers:
        runs = {await post(workers[0], says(), tools=[PAINT])}

        async def answer(reader: RunService, run: RunRef) -> None:
            runs.add(await answer_at_once(reader, run))

        for _ in range(rounds):
            run = runs.pop()
            async with at_once() as tasks:
                for reader in workers:
                    tasks.start_soon(answer, reader, run)
            assert len(runs) == 1
        assert await outcome(workers[1], runs.pop()) == Completed()
        assert len(await tool_messages(workers[0])) == rounds
