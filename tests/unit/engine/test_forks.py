"""Conversations that fork, and calls that clients claim."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    ASK,
    EXPIRING,
    KEY,
    OTHER,
    PAINT,
    QUICK,
    at_once,
    call_ids,
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
from tests.support.transcript_rules import said_in
from tests.unit.engine.sub_agents import answers

from passback.context.prompt import PromptLayers
from passback.core.budgets import Budget, BudgetLimits
from passback.core.deltas import ModelRequest, UsageChunk
from passback.core.errors import (
    CallClaimed,
    ConversationBusy,
    PassbackError,
    ResultConflict,
    UnknownConversation,
    UnknownToolCall,
)
from passback.core.events import Completed, HandedBack, ToolCallStarted
from passback.core.messages import CallId, ChildMessage, JsonObject, Message, RunRef, Usage
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.judging import OutputJudge
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.supervisor import Timing
from passback.engine.toolbox import ToolSources
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.agents import FORK_GUIDE, AgentTool, AgentTools
from passback.toolsets.functions import FunctionTools, tool

pytestmark = pytest.mark.anyio


FORKS = calls(("fork", {"task": "count"}), ("fork", {"task": "weigh"}))
ONE = calls(("fork", {"task": "count"}))


@tool(read_only=True)
def look() -> str:
    """Look around."""
    return "three <time>boxes</time>"


@asynccontextmanager
async def forking(
    store: Ledger,
    model: ScriptedModel,
    timing: Timing = QUICK,
    *,
    budget: Budget | None = None,
    schema: JsonObject | None = None,
) -> AsyncGenerator[RunService]:
    """A worker whose agent may fork; its extra prompt is that of one run only."""
    asked: list[RunRef] = []

    async def owner_prompt(run: RunRef) -> str:
        asked.append(run)
        return f"asked {len(asked)} times"

    forks = AgentTools([AgentTool.fork("fork", "Forks.")])
    spec = AgentSpec(
        model,
        "lead",
        5,
        builder=PromptLayers(),
        extra_prompt=owner_prompt,
        budget=budget or Budget(),
    )
    spec = replace(spec, output=OutputJudge(schema=schema))
    actor = ServedAgent(spec, ToolSources([FunctionTools([look]), forks]))
    service = RunService(store, Agents([actor]), timing)
    with anyio.fail_after(10):
        async with service.running():
            yield service


def said_to(request: ModelRequest) -> list[object]:
    return [each.content for each in request.messages]


def task(words: str) -> str:
    return f"{words}\n\n<instructions>\n{FORK_GUIDE}\n</instructions>"


async def test_a_fork_begins_with_what_its_caller_was_shown(store: Ledger) -> None:
    turns = [
        calls(("look", {})),
        FORKS,
        words("three"),
        words("heavy"),
        words("Three heavy boxes."),
    ]
    model = ScriptedModel(turns)
    async with forking(store, model) as runs:
        assert await reply(runs, says("What is there?")) == "Three heavy boxes."
        messages = await record(runs)
    _, calling, one, other, last = model.requests
    shown = ["What is there?", "", "three &lt;time>boxes&lt;/time>"]
    assert said_to(calling) == shown
    for fork, asked in ((one, "count"), (other, "weigh")):
        assert fork.messages[:-1] == calling.messages
        assert fork.messages[-1].content == task(asked)
        same = (fork.system, fork.static, fork.tools, fork.options)
        assert same == (calling.system, calling.static, calling.tools, calling.options)
    assert calling.system == "lead\n\nasked 1 times"
    assert sorted(map(str, answers(messages)[1:])) == ["heavy", "three"]
    # of what the forks said the agent is shown the results alone
    assert said_to(last)[:3] == shown
    assert len(last.messages) == 6
    children = [each.message for each in messages if isinstance(each, ChildMessage)]
    assert sorted(said_in(children)) == ["count", "heavy", "three", "weigh"]


async def test_a_fork_cannot_fork(memory: Ledger) -> None:
    model = ScriptedModel([ONE, ONE, words("did it myself"), words("ok")])
    async with forking(memory, model) as runs:
        assert await reply(runs, says()) == "ok"
    refused = model.requests[2].messages[-1]
    assert refused.content == "A fork cannot fork again: do this yourself."
    assert said_to(model.requests[3])[-1] == "did it myself"


async def test_a_fork_of_a_sub_agent_begins_with_what_that_one_was_shown(memory: Ledger) -> None:
    inner = ScriptedModel([ONE, words("two"), words("It is two.")])
    forks = AgentTools([AgentTool.fork("fork", "Forks.")])
    helper = ServedAgent(
        AgentSpec(inner, "help", builder=PromptLayers()), ToolSources([forks]), "helper"
    )
    lead = ScriptedModel([calls(("helper", {"task": "find it"})), words("ok")])
    tool_sources = ToolSources([AgentTools([AgentTool.of(helper, "Helps.")])])
    service = RunService(
        memory, Agents([ServedAgent(AgentSpec(lead, "lead"), tool_sources)]), QUICK
    )
    with anyio.fail_after(10):
        async with service.running():
            assert await reply(service, says()) == "ok"
    assert said_to(inner.requests[1]) == ["find it", task("count")]
    assert inner.requests[1].system == "help"


@pytest.mark.promise("P1", "P2")
async def test_what_forks_owe_is_answered_on_any_worker(store: Ledger) -> None:
    first = ScriptedModel([FORKS, calls(("paint", {})), calls(("paint", {}))])
    async with forking(store, first) as runs:
        run = await post(runs, says("Paint both."), tools=[PAINT])
        assert isinstance(await outcome(runs, run), HandedBack)
        one, other = await call_ids(runs)
    second = ScriptedModel([words("painted"), words("painted"), words("Both are.")])
    async with forking(store, second) as runs:
        again = await post(runs, result(one, "blue"), result(other, "red"))
        assert await outcome(runs, again) == Completed()
        assert answers(await record(runs)) == ["painted", "painted"]
    forks = [said_to(each) for each in second.requests[:2]]
    assert [fork[0] for fork in forks] == ["Paint both."] * 2
    assert sorted(map(str, (fork[1] for fork in forks))) == [task("count"), task("weigh")]
    assert sorted(str(fork[-1]) for fork in forks) == ["blue", "red"]
    assert {each.system for each in second.requests} == {"lead\n\nasked 1 times"}


@pytest.mark.promise("P10")
async def test_a_fork_goes_on_after_its_worker_was_lost(store: Ledger) -> None:
    first = ScriptedModel([ONE, [*calls(("look", {}))], ["half", anyio.Event()]])
    async with forking(store, first, EXPIRING) as dying:
        run = await post(dying, says())
        while not any(isinstance(each, ChildMessage) for each in await _committed(store, run)):
            await anyio.lowlevel.checkpoint()
        while len(first.requests) < 3:
            await anyio.lowlevel.checkpoint()
        second = ScriptedModel([words("three"), words("ok")])
        async with forking(store, second) as runs:
            await runs.status(run.key)
            assert await outcome(runs, run) == Completed()
    assert second.requests[0].messages == first.requests[2].messages


async def test_a_fork_may_answer_in_plain_text_under_a_schema(memory: Ledger) -> None:
    model = ScriptedModel([ONE, words("three"), words('{"boxes": 3}')])
    async with forking(memory, model, schema={"type": "object"}) as runs:
        assert await reply(runs, says()) == '{"boxes": 3}'
        assert answers(await record(runs)) == ["three"]


async def test_what_the_agent_said_is_no_result_of_its_fork(memory: Ledger) -> None:
    """The budget is used up before the fork has said anything."""
    spent = UsageChunk(Usage(60, 60))
    model = ScriptedModel([["I fork.", spent, *ONE]])
    budget = Budget(run=BudgetLimits(tokens=100))
    async with forking(memory, model, budget=budget) as runs:
        run = await post(runs, says())
        assert await outcome(runs, run) == Completed("budget")
        assert answers(await record(runs)) == ["[The agent was stopped before its end.]"]


async def _committed(store: Ledger, run: RunRef) -> Sequence[Message]:
    return (await store.load(run.key)).messages


# ---------------------------------------------------------------- claims
BOTH = calls(("paint", {}), ("ask", {}))


async def handed_back(runs: RunService) -> list[CallId]:
    run = await post(runs, says(), tools=[PAINT, ASK])
    assert isinstance(await outcome(runs, run), HandedBack)
    return await call_ids(runs)


async def claimed(runs: RunService) -> list[CallId]:
    return [claim.call_id for claim in (await runs.status(KEY)).claims]


async def test_a_claimed_call_cannot_be_claimed_until_released(store: Ledger) -> None:
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
async def test_a_result_counts_whoever_has_the_claim(store: Ledger) -> None:
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


async def test_a_call_whose_time_is_over_cannot_be_claimed(memory: Ledger) -> None:
    timing = replace(QUICK, tool_timeout=0)
    async with worker(memory, ScriptedModel([BOTH]), timing=timing) as runs:
        run = await post(runs, says(), tools=[PAINT, ASK])
        assert isinstance(await outcome(runs, run), HandedBack)
        late = (await memory.status(KEY)).owed[0].id
        with pytest.raises(ResultConflict, match="time"):
            await runs.claim_call(KEY, late, "tab", seconds=60)
        await runs.release_call(KEY, late, "tab")


@pytest.mark.promise("P13")
async def test_what_was_never_handed_back_cannot_be_claimed(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([BOTH, words("hi")])) as runs:
        await handed_back(runs)
        with pytest.raises(UnknownToolCall):
            await runs.claim_call(KEY, CallId("call_never"), "tab", seconds=60)
        with pytest.raises(UnknownToolCall):
            await runs.release_call(KEY, CallId("call_never"), "tab")
        with pytest.raises(UnknownConversation):
            await runs.claim_call(OTHER, CallId("call_never"), "tab", seconds=60)


async def test_a_call_may_be_handed_back_while_its_claim_looks_for_it(memory: Ledger) -> None:
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


async def test_claims_of_many_clients_at_once_do_not_break_each_other(store: Ledger) -> None:
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


async def test_a_claim_that_always_loses_the_race_gives_up(memory: Ledger) -> None:
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
