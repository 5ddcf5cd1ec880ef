"""A worker dies while sub-agents work side by side: only unfinished turns become void.

Others may have committed since: what these have said stands.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from tests.support.killable_worker import KillableWorker, killable_worker
from tests.support.ledgers import open_ledger
from tests.support.runs import (
    FAILING_LOST,
    KEY,
    PAINT,
    QUICK,
    RECOVERING,
    Reading,
    followed,
    outcome,
    over,
    post,
    reading,
    record,
    standing,
    worker,
)
from tests.support.runs import says as user
from tests.unit.engine.sub_agents import helper

from passback.core.deltas import ToolCallChunk
from passback.core.errors import CursorExpired, ModelIncomplete
from passback.core.events import (
    START,
    Failed,
    Logged,
    Rewound,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolCallStarted,
    ToolResulted,
    TurnStarted,
    innermost_event,
    unwrap_event,
)
from passback.core.messages import AssistantMessage, CallId, Message, RunRef
from passback.core.transcript import unwrap_message
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.supervisor import Timing
from passback.models.scripted import ScriptedModel, Turn, calls, says
from passback.stores.options import StoreOptions
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.functions import FunctionTool, tool

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3", "P10")]

Texts: TypeAlias = dict[tuple[CallId, ...], str]
TASK = {"task": "go"}


@tool
def look() -> str:
    """A tool that two calls."""
    return "seen"


@dataclass
class Agents:
    """Texts of one worker's agents, by name; each turn of `two` waits until `one` was heard.

    `deep`: `one` works for another sub-agent.
    """

    lead: Sequence[Turn] = ()
    one: Sequence[Turn] = ()
    two: Sequence[Turn] = ()
    outer: Sequence[Turn] = ()
    deep: bool = False
    heard: anyio.Event = field(default_factory=anyio.Event)

    @property
    def model(self) -> ScriptedModel:
        return ScriptedModel(self.lead)

    @property
    def helpers(self) -> AgentTools:
        one = helper(ScriptedModel(self.one), name="one")
        two = helper(ScriptedModel([[self.heard, *turn] for turn in self.two]), look, name="two")
        return AgentTools([self._outer(one) if self.deep else one, two])

    def _outer(self, one: AgentTool) -> AgentTool:
        return helper(ScriptedModel(self.outer), name="outer", agents=[one])

    def worker(
        self, store: Ledger, *tools: FunctionTool, timing: Timing = QUICK
    ) -> AbstractAsyncContextManager[RunService]:
        return worker(store, self.model, *tools, timing=timing, toolsets=[self.helpers])

    def killable_worker(
        self, store: Ledger, *tools: FunctionTool
    ) -> AbstractAsyncContextManager[KillableWorker]:
        return killable_worker(store, self.model, *tools, toolsets=[self.helpers])


def half() -> Turn:
    """A turn that is stuck in the middle of a call of the client's tool."""
    return ["half of one ", ToolCallChunk(0, name="paint"), anyio.Event()]


def both(*, deep: bool = False) -> Turn:
    return calls(("outer" if deep else "one", TASK), ("two", TASK))


def dying(*, deep: bool = False) -> Agents:
    """Break off in a turn of `one` that `two` has outlasted: it committed and begins another."""
    two: list[Turn] = [["two looks", *calls(("look", {}))], ["half of two", anyio.Event()]]
    return Agents([both(deep=deep)], [half()], two, [calls(("one", TASK))], deep)


def going_on(*, deep: bool = False) -> Agents:
    agents = Agents([says("ok")], [says("whole of one")], [says(" and says")], [says("out")], deep)
    agents.heard.set()
    return agents


async def half_said(reader: Reading, agents: Agents) -> None:
    """Wait until both have got to where they are stuck."""
    while not any(isinstance(each, ToolCallStarted) and each.client for each in events_of(reader)):
        await anyio.wait_all_tasks_blocked()
    agents.heard.set()
    await until_shown(reader, TextDelta("half of two"))


async def until_shown(reader: Reading, event: RunEvent) -> None:
    while event not in events_of(reader):
        await anyio.wait_all_tasks_blocked()


async def until_answered(reader: Reading, calls: int) -> None:
    """Wait until so many calls of the calling agent have results."""
    while sum(isinstance(event, ToolResulted) for event in reader.events) < calls:
        await anyio.wait_all_tasks_blocked()


def events_of(reader: Reading) -> list[RunEvent]:
    return [innermost_event(event) for event in reader.events]


@asynccontextmanager
async def reading_for_a_while(runs: RunService, run: RunRef) -> AsyncGenerator[Reading]:
    """Follow like `reading`, but leave before the run has ended."""
    reader = Reading()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.follow, runs, run, START)
        yield reader
        tasks.cancel_scope.cancel()


def shown_texts(seen: Sequence[Logged]) -> Texts:
    texts: Texts = {}
    for logged in seen:
        path, event = unwrap_event(logged.event)
        if isinstance(event, TextDelta):
            texts[path] = texts.get(path, "") + event.text
    return texts


def recorded_texts(messages: Sequence[Message]) -> Texts:
    texts: Texts = {}
    for message in messages:
        path, inner = unwrap_message(message)
        if isinstance(inner, AssistantMessage) and inner.content:
            texts[path] = texts.get(path, "") + str(inner.content)
    return texts


async def assert_shown_as_recorded(
    runs: RunService, run: RunRef, *followers: Sequence[Logged]
) -> list[str]:
    """Check that new and resumed readers have what the transcript has. Return the texts."""
    fresh = await followed(runs, run)
    assert not any(isinstance(one.event, Rewound) for one in fresh)
    assert [one.position for one in fresh] == sorted({one.position for one in fresh})
    for seen in followers:
        for count, last in enumerate(seen, 1):
            rest = await followed(runs, run, last.position)
            assert standing([*seen[:count], *rest]) == fresh
    shown = [innermost_event(one.event) for one in fresh]
    begun = [event.call_id for event in shown if isinstance(event, ToolCallStarted)]
    answered = [event.call_id for event in shown if isinstance(event, ToolResulted)]
    assert sorted(begun) == sorted(answered)
    assert shown_texts(fresh) == recorded_texts(await record(runs))
    return sorted(shown_texts(fresh).values())


# ---------------------------------------------------------------- deaths
@pytest.mark.parametrize("deep", [False, True], ids=["children", "grandchildren"])
async def test_half_a_turn_is_void_though_a_sub_agent_beside_it_has_committed(
    store: Ledger, deep: bool
) -> None:
    first, after = dying(deep=deep), going_on(deep=deep)
    async with after.worker(store) as other, first.killable_worker(store) as victim:
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading(other, run) as elsewhere:
            async with reading_for_a_while(victim.runs, run) as reader:
                await half_said(reader, first)
            await half_said(elsewhere, first)
            await victim.kill()
            await other.status(KEY)
        texts = await assert_shown_as_recorded(other, run, reader.seen)
        assert standing(elsewhere.seen) == await followed(other, run)
    whole = ["ok", "out", "two looks and says", "whole of one"]
    assert texts == [each for each in whole if deep or each != "out"]


async def test_nothing_void_is_shown_to_one_who_comes_before_the_take_over(store: Ledger) -> None:
    first = dying()
    async with first.killable_worker(store) as victim:
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading_for_a_while(victim.runs, run) as reader:
            await half_said(reader, first)
        await victim.kill()
    committed = (await store.status(KEY)).committed
    shown = [one for one in await store.read_log(run) if one.position <= committed]
    assert [type(one.event) for one in shown][:2] == [RunStarted, TurnStarted]
    assert shown_texts(shown) == {}


async def test_each_death_voids_what_its_worker_has_left(store: Ledger) -> None:
    first, second, after = dying(), dying(), going_on()
    second.lead, second.two = [], second.two[1:]
    async with after.worker(store) as other, first.killable_worker(store) as victim:
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading_for_a_while(victim.runs, run) as reader:
            await half_said(reader, first)
        await victim.kill()
        async with second.killable_worker(store) as next_victim:
            await next_victim.runs.status(KEY)
            async with reading_for_a_while(next_victim.runs, run) as late:
                await half_said(late, second)
            await next_victim.kill()
        await other.status(KEY)
        texts = await assert_shown_as_recorded(other, run, reader.seen, late.seen)
    assert texts == ["ok", "two looks and says", "whole of one"]


async def test_a_run_that_too_many_have_died_of_ends_without_half_a_turn(store: Ledger) -> None:
    first = dying()
    async with (
        worker(store, ScriptedModel([]), timing=FAILING_LOST) as other,
        first.killable_worker(store) as victim,
    ):
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading_for_a_while(victim.runs, run) as reader:
            await half_said(reader, first)
        await victim.kill()
        await other.status(KEY)
        assert await assert_shown_as_recorded(other, run, reader.seen) == ["two looks"]
        assert isinstance(await outcome(other, run), Failed)


async def test_half_a_turn_is_void_though_a_tool_beside_it_was_answered(store: Ledger) -> None:
    @tool(read_only=True)
    async def peek() -> str:
        await first.heard.wait()
        return "seen"

    first, after = Agents([calls(("one", TASK), ("peek", {}))], [half()]), going_on()
    async with after.worker(store, peek) as other, first.killable_worker(store, peek) as victim:
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading_for_a_while(victim.runs, run) as reader:
            await until_shown(reader, TextDelta("half of one "))
            first.heard.set()
            await until_answered(reader, 1)
        await victim.kill()
        await other.status(KEY)
        texts = await assert_shown_as_recorded(other, run, reader.seen)
    assert texts == ["ok", "whole of one"]


# ---------------------------------------------------------------- other ends
async def test_half_a_turn_is_void_when_its_worker_stops(store: Ledger) -> None:
    first, after = dying(), going_on()
    async with first.worker(store) as leaving, after.worker(store, timing=RECOVERING) as other:
        run = await post(leaving, user(), tools=[PAINT])
        async with reading(leaving, run) as reader:
            await half_said(reader, first)
            await leaving.drain(0)
        texts = await assert_shown_as_recorded(other, run, reader.seen)
        assert (await store.status(KEY)).attempt == 1
    assert texts == ["ok", "two looks and says", "whole of one"]


async def test_a_log_that_has_lost_the_beginning_of_an_open_turn_is_no_gap(tmp_path: Path) -> None:
    first, after, much = dying(), going_on(), "much " * 1000
    first.two = [[much, *calls(("look", {}))], first.two[1]]
    url, options = f"sqlite:///{tmp_path}/store.db", StoreOptions(log_bytes=1000)
    async with (
        open_ledger(url, options=options) as store,
        after.worker(store) as other,
        first.killable_worker(store) as victim,
    ):
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading_for_a_while(victim.runs, run) as reader:
            await half_said(reader, first)
        await victim.kill()
        await other.status(KEY)
        await over(store, run)
        for position in (START, reader.seen[-1].position):
            with pytest.raises(CursorExpired, match="the messages are all there"):
                await followed(other, run, position)
        recorded = recorded_texts(await record(other))
    assert sorted(recorded.values()) == [f"{much} and says", "ok", "whole of one"]


async def test_a_turn_that_failed_is_open_no_more(store: Ledger) -> None:
    """No take-over makes void what is committed after it."""
    failing: list[Turn] = [["half of one ", ModelIncomplete("it broke off")]]
    agents = Agents([both(), [anyio.Event()]], failing, [says("two")])
    agents.heard.set()
    async with agents.killable_worker(store) as victim:
        run = await post(victim.runs, user())
        async with reading_for_a_while(victim.runs, run) as reader:
            await until_answered(reader, 2)
            results = [one.position for one in reader.seen if isinstance(one.event, ToolResulted)]
            assert (await store.status(KEY)).committed == results[-1]
        await victim.kill()
