"""Calls of reading and writing tools in any order, with any end: concurrency and results."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.provider_rules import refusals_of
from tests.support.runs import (
    PAINT,
    at_once,
    call_ids,
    events,
    outcome,
    park,
    post,
    record,
    reply,
    result,
    worker,
)
from tests.support.runs import says as user
from tests.support.transcript_rules import faults_of
from tests.unit.engine.interleaved_tools import INTERRUPTED, Call, Stage, ending_of, turn

from passback.core.deltas import ModelRequest
from passback.core.events import Cancelled, Completed, HandedBack, ToolCallEnded, ToolResulted
from passback.core.messages import AssistantMessage, CallId, Message, ToolMessage
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, says

CALLS = st.lists(
    st.one_of(
        st.builds(
            Call,
            st.sampled_from(["read", "read", "write"]),
            st.sampled_from(["returns", "returns", "fails", "breaks", "exits", "leaks", "hangs"]),
        ),
        st.builds(Call, st.sampled_from(["paint", "unknown", "broken"])),
    ),
    min_size=1,
    max_size=7,
)
RANKS = st.permutations(range(7))


def asked_in(messages: Sequence[Message]) -> list[CallId]:
    """The calls, in the model's order."""
    [asked] = [m for m in messages if isinstance(m, AssistantMessage) and m.tool_calls]
    return [call.id for call in asked.tool_calls]


def answers_in(request: ModelRequest) -> list[ToolMessage]:
    """Return the results that the model is shown."""
    return [message for message in request.messages if isinstance(message, ToolMessage)]


async def answer_all(runs: RunService) -> None:
    """The client answers what it owes, one after the other."""
    owed = await call_ids(runs)
    for number, call_id in enumerate(owed, 1):
        painted = result(call_id, "painted", f"t{number}")
        if number < len(owed):
            await park(runs, painted)
        else:
            assert await reply(runs, painted) == "so"


# ---------------------------------------------------------------- to their end
@examples(60)
@given(CALLS, RANKS)
@pytest.mark.promise("P1", "P4", "P5")
def test_readers_run_together_writers_alone_and_results_are_in_the_models_order(
    calls: list[Call], ranks: list[int]
) -> None:
    asyncio.run(play(calls, ranks))


async def play(calls: list[Call], ranks: list[int]) -> None:
    stage, model = Stage(calls), ScriptedModel([turn(calls), says("so")])
    async with open_ledger("memory:") as store, worker(store, model, *stage.tools) as runs:
        run = await post(runs, user(), tools=[PAINT])
        async with at_once() as tasks:
            tasks.start_soon(stage.direct, ranks)
        said, ending, owed = await events(runs, run), await outcome(runs, run), await call_ids(runs)
        await answer_all(runs)
        messages = await record(runs)
    assert (stage.clashes, sorted(stage.begun)) == (
        [],
        [at for at, call in enumerate(calls) if call.runs],
    )
    assert isinstance(ending, HandedBack if owed else Completed)
    assert faults_of(messages, running=False) == []
    ids = asked_in(messages)
    assert owed == [ids[at] for at, call in enumerate(calls) if call.kind == "paint"]
    # readers see the end of each call that is made, and of one result of what the server
    # answers
    made = [ids[at] for at, call in enumerate(calls) if call.runs]
    assert [e.call_id for e in said if isinstance(e, ToolCallEnded)] == [*made, *owed]
    resulted = [e.call_id for e in said if isinstance(e, ToolResulted)]
    broken = [ids[at] for at, call in enumerate(calls) if call.kind == "broken"]
    assert sorted(resulted) == sorted([*made, *broken])
    # the model is shown one result for each call, in its own order
    assert [refusals_of(request) for request in model.requests] == [[], []]
    answers = answers_in(model.requests[1])
    assert [answer.call_id for answer in answers] == ids
    for at, (call, answer) in enumerate(zip(calls, answers, strict=True)):
        if call.runs:
            assert (answer.content, answer.is_error) == ending_of(call, at)
        elif call.kind == "paint":
            assert answer.content == "painted"
        else:
            assert answer.synthetic == "invalid"


# ---------------------------------------------------------------- cancelled on the way
@examples(50)
@given(CALLS, RANKS, st.integers(0, 6))
@pytest.mark.promise("P5", "P6", "P7")
def test_a_run_that_is_cancelled_anywhere_among_its_calls_answers_each_once_and_begins_no_more(
    calls: list[Call], ranks: list[int], stop_at: int
) -> None:
    waiting = sum(call.waits for call in calls)
    assume(waiting)
    asyncio.run(cancel(calls, ranks, stop_at % waiting))


async def cancel(calls: list[Call], ranks: list[int], stop_at: int) -> None:
    stage, model = Stage(calls), ScriptedModel([turn(calls), says("again")])
    async with open_ledger("memory:") as store, worker(store, model, *stage.tools) as runs:
        run = await post(runs, user(), tools=[PAINT])
        await stage.direct(ranks, stop_at=stop_at, stop=partial(runs.cancel, run))
        begun = [*stage.begun]
        seen = await events(runs, run)
        assert await outcome(runs, run) == Cancelled()
        assert await call_ids(runs) == []
        messages = await record(runs)
        assert await reply(runs, user("go on", "u2")) == "again"
    assert (stage.clashes, stage.begun, stage.inside) == ([], begun, set())
    assert faults_of(messages, running=False) == []
    assert [refusals_of(request) for request in model.requests] == [[], []]
    ids, answers = asked_in(messages), answers_in(model.requests[1])
    assert [answer.call_id for answer in answers] == ids
    resulted = [event.call_id for event in seen if isinstance(event, ToolResulted)]
    assert len(resulted) == len({*resulted})
    for at, (call, answer) in enumerate(zip(calls, answers, strict=True)):
        if call.runs:
            # what had ended is kept, if it was written down by then
            ended = [ending_of(call, at)] if at in begun else []
            assert (answer.content, answer.is_error) in [INTERRUPTED, *ended]
        else:
            assert answer.is_error
