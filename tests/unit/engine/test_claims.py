"""Clients claim the calls that they run; the first result counts all the same, whoever posts it."""

from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    ASK,
    KEY,
    OTHER,
    PAINT,
    QUICK,
    at_once,
    call_ids,
    outcome,
    park,
    post,
    result,
    says,
    until,
    worker,
)

from passback.core.errors import (
    CallClaimed,
    ConversationBusy,
    PassbackError,
    ResultConflict,
    UnknownConversation,
    UnknownToolCall,
)
from passback.core.events import Completed, HandedBack, ToolCallStarted
from passback.core.messages import CallId
from passback.core.ports import Store
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

BOTH = calls(("paint", {}), ("ask", {}))


async def handed_back(runs: RunService) -> list[CallId]:
    run = await post(runs, says(), tools=[PAINT, ASK])
    assert isinstance(await outcome(runs, run), HandedBack)
    return await call_ids(runs)


async def claimed(runs: RunService) -> list[CallId]:
    return [claim.call_id for claim in (await runs.status(KEY)).claims]


async def test_another_client_cannot_claim_a_claimed_call_until_it_is_given_back(
    store: Store,
) -> None:
    async with (
        worker(store, ScriptedModel([BOTH])) as one,
        worker(store, ScriptedModel([])) as other,
    ):
        paint, ask = await handed_back(one)
        await one.claim_call(KEY, paint, "tab", seconds=60)
        assert (await other.claim_call(KEY, paint, "tab", seconds=30)).mine
        assert (await other.claim_call(KEY, ask, "phone", seconds=30)).mine
        with pytest.raises(CallClaimed) as raised:
            await other.claim_call(KEY, paint, "phone", seconds=30)
        assert raised.value.retry_after is not None
        assert 0 < raised.value.retry_after <= 30
        with pytest.raises(CallClaimed):
            await other.release_call(KEY, paint, "phone")
        assert await claimed(one) == [paint, ask]
        await one.release_call(KEY, paint, "tab")
        await one.release_call(KEY, paint, "tab")
        assert (await other.claim_call(KEY, paint, "phone", seconds=30)).mine


@pytest.mark.promise("P9")
async def test_a_result_counts_whoever_has_the_claim(store: Store) -> None:
    async with worker(store, ScriptedModel([BOTH, words("thanks")])) as runs:
        paint, ask = await handed_back(runs)
        await runs.claim_call(KEY, paint, "tab", seconds=60)
        await runs.claim_call(KEY, ask, "tab", seconds=60)
        await park(runs, result(paint))
        assert await claimed(runs) == [ask]
        with pytest.raises(ResultConflict):
            await runs.claim_call(KEY, paint, "tab", seconds=60)
        await runs.release_call(KEY, paint, "tab")
        assert await outcome(runs, await post(runs, result(ask))) == Completed()
        assert await claimed(runs) == []


async def test_a_call_whose_time_is_over_cannot_be_claimed(memory: Store) -> None:
    timing = replace(QUICK, tool_timeout=0)
    async with worker(memory, ScriptedModel([BOTH]), timing=timing) as runs:
        run = await post(runs, says(), tools=[PAINT, ASK])
        assert isinstance(await outcome(runs, run), HandedBack)
        late = (await memory.status(KEY)).owed[0].id
        with pytest.raises(ResultConflict, match="time"):
            await runs.claim_call(KEY, late, "tab", seconds=60)
        await runs.release_call(KEY, late, "tab")


@pytest.mark.promise("P13")
async def test_what_was_never_handed_back_cannot_be_claimed(memory: Store) -> None:
    async with worker(memory, ScriptedModel([BOTH, words("hi")])) as runs:
        await handed_back(runs)
        with pytest.raises(UnknownToolCall):
            await runs.claim_call(KEY, CallId("call_never"), "tab", seconds=60)
        with pytest.raises(UnknownToolCall):
            await runs.release_call(KEY, CallId("call_never"), "tab")
        with pytest.raises(UnknownConversation):
            await runs.claim_call(OTHER, CallId("call_never"), "tab", seconds=60)


async def test_a_call_may_be_handed_back_while_its_claim_looks_for_it(memory: Store) -> None:
    faults, gate = Faults(memory), anyio.Event()
    script: list[list[Step]] = [[*calls(("paint", {})), gate]]
    async with (
        worker(memory, ScriptedModel(script)) as owner,
        worker(faults.store, ScriptedModel([])) as other,
    ):
        run = await post(owner, says(), tools=[PAINT])
        begun = (await until(owner, run, ToolCallStarted)).event
        assert isinstance(begun, ToolCallStarted)

        async def hand_back() -> None:
            gate.set()
            assert isinstance(await outcome(owner, run), HandedBack)

        faults.first["load"] = hand_back
        assert (await other.claim_call(KEY, begun.call_id, "tab", seconds=60)).mine


async def test_claims_of_many_clients_at_once_do_not_break_each_other(store: Store) -> None:
    async with worker(store, ScriptedModel([BOTH])) as runs:
        paint, _ = await handed_back(runs)
        answers: list[object] = []

        async def claim(who: str) -> None:
            try:
                answers.append((await runs.claim_call(KEY, paint, who, seconds=60)).mine)
            except PassbackError as error:
                answers.append(error.code)

        async with at_once() as tasks:
            for number in range(8):
                tasks.start_soon(claim, f"tab {number}")
        assert sorted(answers, key=str) == [True, *["call_claimed"] * 7]


async def test_a_claim_that_is_overtaken_for_ever_gives_up(memory: Store) -> None:
    faults = Faults(memory)
    async with (
        worker(memory, ScriptedModel([BOTH])) as one,
        worker(faults.store, ScriptedModel([])) as slow,
    ):
        paint, ask = await handed_back(one)

        async def overtake() -> None:
            await one.claim_call(KEY, ask, "phone", seconds=60)
            faults.first["claim_call"] = overtake

        faults.first["claim_call"] = overtake
        with pytest.raises(ConversationBusy) as raised:
            await slow.claim_call(KEY, paint, "tab", seconds=60)
        assert raised.value.retry_after == 1
        assert await claimed(one) == [ask]
