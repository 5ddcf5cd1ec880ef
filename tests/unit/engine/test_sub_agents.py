"""Agents that give tasks to others: what these say, what becomes of them, and how they go on."""

import re

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    EXPIRING,
    KEY,
    PAINT,
    approval,
    at_once,
    call_ids,
    denial,
    events,
    let_pass,
    outcome,
    park,
    post,
    record,
    reply,
    result,
    until,
)
from tests.support.runs import says as user
from tests.unit.engine.sub_agents import (
    TASK,
    answers,
    approved,
    deep_call,
    erase,
    helper,
    lead_worker,
    said_by_children,
)

from passback import Agent
from passback.context.prompt import PromptLayers
from passback.core.deltas import Finish, ToolCallChunk, UsageChunk
from passback.core.errors import ModelRejected, ResultConflict, UnknownToolCall
from passback.core.events import (
    Cancelled,
    Completed,
    Failed,
    HandedBack,
    Nested,
    Outcome,
    TextDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    RunRef,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.state import State, total_usage
from passback.core.transcript import SYNTHETIC_TEXT
from passback.engine.agents import AgentSpec, ServedAgent
from passback.engine.ledger import Ledger
from passback.engine.supervisor import Timing
from passback.engine.toolbox import ToolSources
from passback.models.scripted import ScriptedModel, Step, Turn, calls, says
from passback.session import Session
from passback.toolsets.agents import MAX_CONCURRENT_AGENTS, AgentTool, AgentTools
from passback.toolsets.functions import FunctionTools, tool

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- a task, and its answer
async def test_an_agent_gives_a_task_and_gets_the_others_last_words(store: Ledger) -> None:
    lead = ScriptedModel([TASK, says("It is there.")])
    other = ScriptedModel([says("in the cellar")])
    async with lead_worker(store, lead, helper(other)) as runs:
        run = await post(runs, user("where?"))
        seen = await events(runs, run)
        messages = await record(runs)
    assert TextDelta("in the cellar") in said_by_children(seen)
    assert TextDelta("in the cellar") not in seen
    [resulted] = [event for event in seen if isinstance(event, ToolResulted)]
    assert resulted.content == "in the cellar"
    assert answers(messages) == ["in the cellar"]
    [asked] = other.requests
    assert asked.system == "help"
    assert [message.content for message in asked.messages] == ["find it"]
    assert [spec.name for spec in lead.requests[0].tools] == ["helper"]
    # the leading model is never shown what was said within the call
    assert [message.role for message in lead.requests[1].messages] == ["user", "assistant", "tool"]
    children = [message for message in messages if isinstance(message, ChildMessage)]
    assert [type(child.message) for child in children] == [UserMessage, AssistantMessage]


async def test_what_sub_agents_use_counts_also_of_those_that_work_together(store: Ledger) -> None:
    tasks = calls(("helper", {"task": "a"}), ("other", {"task": "b"}))
    lead = ScriptedModel([[UsageChunk(Usage(1)), *tasks], [UsageChunk(Usage(20)), *says("done")]])
    one = ScriptedModel([[UsageChunk(Usage(300)), *says("here")]])
    other = ScriptedModel([[UsageChunk(Usage(4000)), *says("there")]])
    both = helper(one), helper(other, name="other")
    async with lead_worker(store, lead, *both) as runs:
        assert await outcome(runs, await post(runs, user())) == Completed()
        state = (await runs.status(KEY)).state
        assert state == State(usage=Usage(4321), tokens=4321, seconds=state.seconds)
        assert total_usage(await record(runs)) == Usage(4321)


async def test_a_sub_agent_uses_tools_of_its_own(memory: Ledger) -> None:
    @tool(read_only=True)
    def look(where: str) -> str:
        return f"nothing in the {where}"

    other = ScriptedModel([calls(("look", {"where": "cellar"})), says("not there")])
    lead = ScriptedModel([TASK, says("Sorry.")])
    async with lead_worker(memory, lead, helper(other, look)) as runs:
        seen = await events(runs, await post(runs, user()))
    results = [e for e in said_by_children(seen) if isinstance(e, ToolResulted)]
    assert [each.content for each in results] == ["nothing in the cellar"]


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ([ModelRejected("no")], "The agent failed: no"),
        (["half", Finish("length")], "half\n[The agent was stopped before its end.]"),
        (says(""), "The agent is done, and says nothing."),
    ],
)
async def test_the_end_of_a_sub_agent_is_its_result(
    memory: Ledger, turn: Turn, expected: str
) -> None:
    lead = ScriptedModel([TASK, says("ok")])
    async with lead_worker(memory, lead, helper(ScriptedModel([turn]))) as runs:
        assert await reply(runs, user()) == "ok"
        assert answers(await record(runs)) == [expected]


async def test_a_task_that_is_none_is_an_error_for_the_model(memory: Ledger) -> None:
    lead = ScriptedModel([calls(("helper", {"order": 1})), says("ok")])
    async with lead_worker(memory, lead, helper(ScriptedModel([]))) as runs:
        assert await reply(runs, user()) == "ok"
        [result] = [each for each in await record(runs) if isinstance(each, ToolMessage)]
    assert result.content == "The arguments have to be a task, as a text."
    assert (result.is_error, result.synthetic) == (True, "invalid")


async def test_agents_call_each_other_only_so_deep(memory: Ledger) -> None:
    deeper = helper(ScriptedModel([says("deepest")]), name="a5")
    for level in (4, 3, 2, 1, 0):
        asks = calls((f"a{level + 1}", {"task": "go"}))
        model = ScriptedModel([asks, says(f"from {level + 1}")])
        deeper = helper(model, name=f"a{level}", agents=[deeper])
    lead = ScriptedModel([calls(("a0", {"task": "go"})), says("ok")])
    async with lead_worker(memory, lead, deeper) as runs:
        assert await reply(runs, user()) == "ok"
        messages = await record(runs)
    innermost = messages
    for _ in range(5):
        innermost = [each.message for each in innermost if isinstance(each, ChildMessage)]
    assert answers(innermost) == ["Too many agents call each other."]


async def test_sub_agents_work_side_by_side_whatever_their_tools_do() -> None:
    """Each tool waits until the other sub-agent has got to it, too."""
    arrived: list[str] = []
    both = anyio.Event()

    def meeting(name: str) -> Agent:
        @tool
        async def meet() -> str:
            arrived.append(name)
            if len(arrived) == 2:
                both.set()
            await both.wait()
            return "met"

        model = ScriptedModel([calls(("meet", {})), says(name)])
        return Agent(model=model, name=name, description="Meets.", tools=[meet])

    tasks = calls(("one", {"task": "go"}), ("two", {"task": "go"}))
    lead = Agent(model=ScriptedModel([tasks, says("ok")]), agents=[meeting("one"), meeting("two")])
    with anyio.fail_after(5):
        async with Session(lead) as session:
            seen = [event async for event in session.submit("go")]
            messages = await session.messages()
    assert sorted(map(str, answers(messages))) == ["one", "two"]
    # events of both come in between each other, each with its own call
    parents = [event.call_id for event in seen if isinstance(event, Nested)]
    begun = [event.call_id for event in seen if isinstance(event, ToolCallStarted)]
    assert {*parents} == {*begun}
    texts = {
        event.call_id: event.event.text
        for event in seen
        if isinstance(event, Nested) and isinstance(event.event, TextDelta)
    }
    assert [texts[call_id] for call_id in begun] == ["one", "two"]


@pytest.mark.parametrize(
    ("order", "batches"),
    [
        ("a b", "a+b"),
        ("a a", "a+a"),
        ("read a b read", "read+a+b+read"),
        ("a write b", "a write b"),
        ("a b alone alone read", "a+b alone alone read"),
        ("gone gone a write", "gone+gone+a write"),
    ],
)
async def test_writing_tools_run_alone_except_sub_agents(order: str, batches: str) -> None:
    model = ScriptedModel([])
    agents = [helper(model, name="a"), helper(model, name="b")]
    agents.append(helper(model, name="alone", concurrent=False))
    functions = [
        tool(name=name, read_only=name == "read")(lambda: "") for name in ("read", "write")
    ]
    tool_sources = ToolSources([AgentTools(agents), FunctionTools(functions)])
    toolbox = await tool_sources.build_toolbox()
    made = [ToolCall(CallId(""), name, "{}") for name in order.split()]
    together = ["+".join(call.name for call in batch) for batch in await toolbox.batch_calls(made)]
    assert together == batches.split()


@pytest.mark.promise("P11")
async def test_only_so_many_sub_agents_work_at_once(memory: Ledger) -> None:
    gate = anyio.Event()
    other = ScriptedModel([[gate, *says("done")]] * (MAX_CONCURRENT_AGENTS + 2))
    tasks = calls(*[("helper", {"task": "go"})] * (MAX_CONCURRENT_AGENTS + 2))
    async with lead_worker(memory, ScriptedModel([tasks, says("ok")]), helper(other)) as runs:
        run = await post(runs, user())
        while other.open_streams < MAX_CONCURRENT_AGENTS:
            await anyio.lowlevel.checkpoint()
        await let_pass(runs)
        assert other.open_streams == MAX_CONCURRENT_AGENTS
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert answers(await record(runs)) == ["done"] * (MAX_CONCURRENT_AGENTS + 2)


async def test_a_sub_agent_gets_the_same_time_in_every_turn(memory: Ledger) -> None:
    @tool
    def look() -> str:
        return "seen"

    inner = ScriptedModel([calls(("look", {})), says("ok")])
    spec = AgentSpec(inner, "help", builder=PromptLayers(), tells_time=True)
    actor = ServedAgent(spec, ToolSources([FunctionTools([look])]), "helper")
    async with lead_worker(
        memory, ScriptedModel([TASK, says("ok")]), AgentTool.of(actor, "")
    ) as runs:
        assert await reply(runs, user()) == "ok"
    first, second = (str(request.messages[0].content) for request in inner.requests)
    assert first == second
    assert re.fullmatch(
        r"<user_context>\n<time>\S+\+00:00</time>\n</user_context>\n\nfind it", first
    )


async def test_an_early_result_waits_for_another_sub_agents_commit(store: Ledger) -> None:
    seen, gate = anyio.Event(), anyio.Event()
    tasks = calls(("painter", {"task": "paint"}), ("other", {"task": "look"}))
    begun: Turn = [ToolCallChunk(0, name="paint"), gate, Finish("tool_calls")]
    painter = helper(ScriptedModel([begun, says("painted")]), name="painter")
    other = helper(ScriptedModel([[seen, *says("looked")]]), name="other")
    lead = ScriptedModel([tasks, says("done")])
    answered: list[RunRef] = []
    async with lead_worker(store, lead, painter, other) as runs:
        run = await post(runs, user(), tools=[PAINT])
        call_id = await deep_call(runs, run)
        seen.set()
        await until(runs, run, ToolResulted)

        async def start() -> None:
            answered.append(await post(runs, result(call_id)))

        async with anyio.create_task_group() as group:
            group.start_soon(start)
            await let_pass(runs)
            assert answered == []
            gate.set()
        assert await outcome(runs, answered[0]) == Completed()


# ---------------------------------------------------------------- ends and crashes
@pytest.mark.promise("P5", "P6")
async def test_a_cancelled_run_takes_its_sub_agents_along(memory: Ledger) -> None:
    other = ScriptedModel([["thinking", anyio.Event()]])
    lead = ScriptedModel([TASK, says("Fine.")])
    async with lead_worker(memory, lead, helper(other)) as runs:
        run = await post(runs, user())
        await until(runs, run, Nested)
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert other.open_streams == 0
        assert await reply(runs, user("go on", "u2")) == "Fine."


@pytest.mark.promise("P10")
async def test_sub_agents_go_on_after_the_worker_of_both_was_lost(store: Ledger) -> None:
    """Calls that may have been made are not made again."""
    made: list[str] = []

    @tool
    async def pay(what: str) -> str:
        made.append(what)
        await anyio.sleep_forever()
        return "paid"

    tasks = calls(("one", {"task": "go"}), ("two", {"task": "go"}))
    asks = [ScriptedModel([calls(("pay", {"what": name}))]) for name in ("tea", "cake")]
    dead = [helper(model, pay, name=name) for model, name in zip(asks, ("one", "two"), strict=True)]
    async with lead_worker(store, ScriptedModel([tasks]), *dead, timing=EXPIRING) as dying:
        run = await post(dying, user())
        while len(made) < 2:
            await anyio.lowlevel.checkpoint()
        found = ScriptedModel([says("perhaps paid")] * 2)
        alive = [helper(found, pay, name=name) for name in ("one", "two")]
        async with lead_worker(store, ScriptedModel([says("ok")]), *alive) as runs:
            await runs.status(run.key)
            assert await outcome(runs, run) == Completed()
            assert answers(await record(runs)) == ["perhaps paid"] * 2
    assert sorted(made) == ["cake", "tea"]
    shown = [request.messages[-1].content for request in found.requests]
    assert shown == [SYNTHETIC_TEXT["interrupted"]] * 2


@pytest.mark.promise("P10")
async def test_a_sub_agent_goes_on_after_its_worker_was_lost(store: Ledger) -> None:
    """Its call that may have been made is not made again."""
    made: list[str] = []
    gate = anyio.Event()

    @tool
    async def pay() -> str:
        made.append("paid")
        await gate.wait()
        return "paid"

    first = ScriptedModel([calls(("pay", {}))])
    async with lead_worker(
        store, ScriptedModel([TASK]), helper(first, pay), timing=EXPIRING
    ) as dying:
        run = await post(dying, user())
        while not made:
            await anyio.lowlevel.checkpoint()
        second = ScriptedModel([says("perhaps paid")])
        lead = ScriptedModel([says("ok")])
        async with lead_worker(store, lead, helper(second, pay)) as runs:
            await runs.status(run.key)
            assert await outcome(runs, run) == Completed()
            assert answers(await record(runs)) == ["perhaps paid"]
    assert made == ["paid"]
    shown = second.requests[0].messages[-1].content
    assert shown == "This call was stopped before it was answered; it may or may not have run."


async def test_a_store_that_has_no_room_for_a_sub_agent_fails_the_run(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["commit"] = [
        "none",
        "full",
    ]  # the leading agent's turn is stored, the other one's is not
    lead, other = ScriptedModel([TASK, says("Done.")]), ScriptedModel([says("found")])
    async with lead_worker(faults.store, lead, helper(other)) as runs:
        ended = await outcome(runs, await post(runs, user()))
    assert ended == Failed("store_full", "no room in the test", retryable=True)


# ---------------------------------------------------------------- owed calls
@pytest.mark.promise("P1", "P2", "P4")
async def test_a_client_tool_of_a_sub_agent_is_handed_back_and_finds_its_way(store: Ledger) -> None:
    other = ScriptedModel([calls(("paint", {})), says("painted")])
    lead = ScriptedModel([TASK, says("Done.")])
    async with lead_worker(store, lead, helper(other)) as runs:
        run = await post(runs, user(), tools=[PAINT])
        seen = await events(runs, run)
        ended = await outcome(runs, run)
        assert isinstance(ended, HandedBack)
        [owed] = ended.owed
        assert (await runs.status(run.key)).owed == (owed,)
        [parent] = [e.call_id for e in seen if isinstance(e, ToolCallStarted)]
        assert (owed.name, owed.parent_id) == ("paint", parent)
        # the client may act on it: said last, when the lease is free
        assert seen[-2] == Nested(parent, ToolCallEnded(owed.id))
    async with lead_worker(store, lead, helper(other)) as runs:  # another worker
        again = await post(runs, result(owed.id, "blue"))
        assert await outcome(runs, again) == Completed()
        messages = await record(runs)
        assert answers(messages) == ["painted"]
    assert [message.content for message in other.requests[1].messages] == ["find it", "", "blue"]


@pytest.mark.promise("P4")
async def test_a_result_for_a_deep_call_waits_for_its_hand_back(memory: Ledger) -> None:
    gate = anyio.Event()
    paints: list[Step] = [*calls(("paint", {}))[:-1], gate, Finish("tool_calls")]
    inner = helper(ScriptedModel([paints, says("painted")]), name="inner")
    outer = ScriptedModel([calls(("inner", {"task": "go"})), says("passed on")])
    lead = ScriptedModel([TASK, says("Done.")])
    begun: list[RunRef] = []
    async with lead_worker(memory, lead, helper(outer, agents=[inner])) as runs:
        run = await post(runs, user(), tools=[PAINT])
        call = await deep_call(runs, run)

        async def answer() -> None:
            begun.append(await post(runs, result(call, "blue")))

        async with at_once() as tasks:
            tasks.start_soon(answer)
            await let_pass(runs)
            assert begun == []
            gate.set()
        assert await outcome(runs, begun[0]) == Completed()
        assert answers(await record(runs)) == ["passed on"]


@pytest.mark.promise("P4")
async def test_the_end_of_a_deeper_ones_call_is_said_once_and_last(store: Ledger) -> None:
    deepest = helper(ScriptedModel([calls(("paint", {})), says("painted")]), name="deepest")
    asks = [calls(("deepest", {"task": "go"})), says("it is painted")]
    between = helper(ScriptedModel(asks), agents=[deepest])
    async with lead_worker(store, ScriptedModel([TASK, says("Done.")]), between) as runs:
        run = await post(runs, user(), tools=[PAINT])
        seen = await events(runs, run)
        [owed] = (await runs.status(run.key)).owed
        ended = [event for event in seen if f"{ToolCallEnded(owed.id)}" in f"{event}"]
        assert ended == seen[-2:-1]
        again = await post(runs, result(owed.id, "blue"))
        assert await outcome(runs, again) == Completed()
        assert answers(await record(runs)) == ["it is painted"]


async def test_turns_of_a_task_count_together(store: Ledger) -> None:
    """An agent that asks again and again comes to an end, on another worker too."""
    other = ScriptedModel([calls(("paint", {}))] * 9)
    lead = ScriptedModel([TASK, says("Enough.")])
    ended: Outcome = HandedBack(())
    asked = 0
    async with lead_worker(store, lead, helper(other)) as runs:
        run = await post(runs, user(), tools=[PAINT])
        while isinstance(ended := await outcome(runs, run), HandedBack):
            asked += 1
            async with lead_worker(store, lead, helper(other)) as another:
                run = await post(another, result(ended.owed[0].id, "blue"))
                await outcome(another, run)
        contents = answers(await record(runs))
    assert (ended, asked, len(other.requests)) == (Completed(), 3, 3)
    assert contents == ["[The agent was stopped before its end.]"]


async def test_an_approval_of_a_sub_agents_tool(store: Ledger) -> None:
    other = ScriptedModel([calls(("erase", {})), says("gone")])
    lead = ScriptedModel([TASK, says("Done.")])
    async with lead_worker(store, lead, helper(other, erase)) as runs:
        await events(runs, await post(runs, user()))
        [call_id] = await call_ids(runs)
        with pytest.raises(UnknownToolCall):
            await post(runs, result(call_id, "erased"))
        again = await post(runs, approved(call_id))
        seen = said_by_children(await events(runs, again))
        assert [e for e in seen if isinstance(e, ToolResulted)] == [ToolResulted(call_id, "erased")]
        assert answers(await record(runs)) == ["gone"]


async def test_what_a_person_allows_for_good_holds_for_sub_agents_too(store: Ledger) -> None:
    other = ScriptedModel([calls(("erase", {})), says("gone"), calls(("erase", {})), says("gone")])
    lead = ScriptedModel([TASK, says("Done."), TASK, says("Done again.")])
    async with lead_worker(store, lead, helper(other, erase)) as runs:
        await events(runs, await post(runs, user()))
        [call_id] = await call_ids(runs)
        await events(runs, await post(runs, approval(call_id, always=True)))
        assert await reply(runs, user("again", "u2")) == "Done again."
        assert await call_ids(runs) == []


async def test_a_denial_goes_to_the_agent_that_made_the_call(store: Ledger) -> None:
    other = ScriptedModel([calls(("erase", {})), says("left alone")])
    lead = ScriptedModel([TASK, says("Fine.")])
    async with lead_worker(store, lead, helper(other, erase)) as runs:
        await events(runs, await post(runs, user()))
        [call_id] = await call_ids(runs)
        seen = said_by_children(await events(runs, await post(runs, denial(call_id))))
        text = "This call was not allowed."
        assert seen[0] == ToolResulted(call_id, text, is_error=True, synthetic="denied")
        assert answers(await record(runs)) == ["left alone"]


async def test_several_sub_agents_owe_and_are_answered_one_by_one(store: Ledger) -> None:
    asks = [calls(("paint", {})), says("painted")]
    one, two = ScriptedModel(asks), ScriptedModel(asks)
    both = calls(("one", {"task": "go"}), ("two", {"task": "go"}))
    lead = ScriptedModel([both, says("ok")])
    helpers = helper(one, name="one"), helper(two, name="two")
    async with lead_worker(store, lead, *helpers) as runs:
        await events(runs, await post(runs, user(), tools=[PAINT]))
        first, second = await call_ids(runs)
        parked = await park(runs, result(second, "b"))
        assert [each.id for each in parked.owed] == [first]
        again = await post(runs, result(first, "a"))
        assert await outcome(runs, again) == Completed()
        # a repeat of what was parked joins the run that it led to
        assert await post(runs, result(second, "b")) == again
        with pytest.raises(ResultConflict):
            await post(runs, result(second, "c"))
    assert one.requests[1].messages[-1].content == "a"
    assert two.requests[1].messages[-1].content == "b"


@pytest.mark.promise("P5")
async def test_a_message_instead_of_the_answer_closes_the_sub_agents_call(store: Ledger) -> None:
    other = ScriptedModel([calls(("paint", {}))])
    lead = ScriptedModel([TASK, says("Fine.")])
    async with lead_worker(store, lead, helper(other)) as runs:
        await events(runs, await post(runs, user(), tools=[PAINT]))
        [call_id] = await call_ids(runs)
        assert await reply(runs, user("never mind", "u2")) == "Fine."
        assert await call_ids(runs) == []
        [closed] = [m for m in await record(runs) if isinstance(m, ToolMessage)]
        assert closed.synthetic == "superseded"
        with pytest.raises(ResultConflict):
            await post(runs, result(call_id))


async def test_time_that_is_over_goes_to_the_sub_agent(memory: Ledger) -> None:
    other = ScriptedModel([calls(("paint", {})), says("nobody painted")])
    lead = ScriptedModel([TASK, says("A pity.")])
    timing = Timing(lease=30, heartbeat=0.01, log_delay=0.001, scan=0.01, tool_timeout=0.01)
    async with lead_worker(memory, lead, helper(other), timing=timing) as runs:
        run = await post(runs, user(), tools=[PAINT])
        await events(runs, run)
        status = await runs.status(run.key)
        while status.running or status.run_id == run.run_id:
            await anyio.lowlevel.checkpoint()
            status = await runs.status(run.key)
        assert answers(await record(runs)) == ["nobody painted"]
    assert other.requests[1].messages[-1].content == "Nobody answered this call in time."
