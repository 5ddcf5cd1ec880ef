"""Server tools in a run: their results, their progress, and the plan."""

import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from threading import Thread

import anyio
import anyio.to_thread
import pytest
from pydantic import JsonValue
from tests.support import runs as support
from tests.support.killable_worker import Faults
from tests.support.runs import (
    KEY,
    PAINT,
    call_ids,
    events,
    outcome,
    post,
    record,
    reply,
    result,
    says,
    until,
    worker,
)

from passback.agent import Agent
from passback.core.deltas import Finish, ModelDelta, ToolCallChunk
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    PlanUpdated,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnEnded,
    TurnStarted,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Owed,
    PlanEntry,
    RunId,
    RunRef,
    ToolCall,
    ToolMessage,
)
from passback.core.toolsets import ToolContext
from passback.engine.children import CallContext
from passback.engine.ledger import Ledger
from passback.engine.toolbox import ToolSources
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.session import Session
from passback.toolsets.functions import FunctionTool, FunctionTools, tool
from passback.toolsets.plan import PlanTools

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_server_tool_runs_and_the_model_goes_on_in_the_same_run(store: Ledger) -> None:
    model = ScriptedModel([["Let me see. ", *calls(("add", {"a": 2, "b": 3}))], words("5")])
    async with worker(store, model, add) as runs:
        run = await post(runs, support.says())
        seen = await events(runs, run)
        messages = await record(runs)
        turns = [event.message_id for event in seen if isinstance(event, TurnStarted)]
        answer, outcome_of_call, end = messages[1:]
        assert isinstance(answer, AssistantMessage)
        assert isinstance(outcome_of_call, ToolMessage)
        call_id = answer.tool_calls[0].id
        assert seen == [
            RunStarted(run.run_id),
            TurnStarted(turns[0]),
            TextDelta("Let me see. "),
            ToolCallStarted(call_id, "add", client=False),
            ToolCallArguments(call_id, '{"a": 2, "b": 3}'),
            TurnEnded(turns[0], "scripted"),
            ToolCallEnded(call_id),
            ToolBegan(call_id),
            ToolResulted(call_id, "5"),
            TurnStarted(turns[1]),
            TextDelta("5"),
            TurnEnded(turns[1], "scripted"),
            RunFinished(Completed()),
        ]
        assert outcome_of_call == ToolMessage(outcome_of_call.id, call_id, "5")
        assert end == AssistantMessage(turns[1], "5", model="scripted")
    assert model.requests[0].tools == (add.spec,)
    assert model.requests[1].messages == tuple(messages[:-1])


@pytest.mark.promise("P1")
async def test_server_calls_run_before_client_calls_are_handed_back(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {}), ("add", {"a": 1, "b": 1})), words("done")])
    async with worker(store, model, add) as runs:
        run = await post(runs, support.says(), tools=[PAINT])
        seen = await events(runs, run)
        (call_id,) = await call_ids(runs)
        server_id = next(e.call_id for e in seen if isinstance(e, ToolResulted))
        assert seen[-5:] == [
            ToolCallEnded(server_id),
            ToolBegan(server_id),
            ToolResulted(server_id, "2"),
            ToolCallEnded(call_id),
            RunFinished(HandedBack((Owed(call_id, "paint", "{}"),))),
        ]
        assert await reply(runs, result(call_id)) == "done"
    shown = [m.call_id for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert shown == [call_id, server_id]


async def test_invalid_calls_are_answered_and_the_model_retries(store: Ledger) -> None:
    bad: list[ModelDelta] = [
        ToolCallChunk(0, name="paint", arguments="{"),
        ToolCallChunk(1, name="fly", arguments="{}"),
        Finish("tool_calls"),
    ]
    model = ScriptedModel([bad, words("Sorry.")])
    async with worker(store, model) as runs:
        seen = await events(runs, await post(runs, support.says(), tools=[PAINT]))
        messages = await record(runs)
    started = next(e for e in seen if isinstance(e, ToolCallStarted))
    reason = "Not executed: the arguments are not a JSON object: {"
    assert [e for e in seen if isinstance(e, ToolCallStarted | ToolCallEnded | ToolResulted)] == [
        started,
        ToolResulted(started.call_id, reason, is_error=True, synthetic="invalid"),
    ]
    answers = [m for m in messages if isinstance(m, ToolMessage)]
    assert [(m.content, m.is_error, m.synthetic) for m in answers] == [
        (reason, True, "invalid"),
        ("Not executed: there is no tool named 'fly'.", True, "invalid"),
    ]
    assert seen[-1] == RunFinished(Completed())


async def test_an_invalid_call_beside_a_client_call_is_not_owed(memory: Ledger) -> None:
    mixed: list[ModelDelta] = [
        ToolCallChunk(0, name="paint", arguments="{"),
        ToolCallChunk(1, name="paint", arguments="{}"),
        Finish("tool_calls"),
    ]
    async with worker(memory, ScriptedModel([mixed])) as runs:
        ending = await outcome(runs, await post(runs, support.says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
    assert ending == HandedBack((Owed(call_id, "paint", "{}"),))


async def test_a_run_has_so_many_turns_and_no_more(memory: Ledger) -> None:
    model = ScriptedModel([calls(("add", {"a": n, "b": 1})) for n in range(4)])
    async with worker(memory, model, add) as runs:
        assert await outcome(runs, await post(runs, support.says())) == Completed("max_turns")
        assert isinstance((await record(runs))[-1], ToolMessage)


def _waiting(asked: list[str], *, together: int) -> FunctionTool:
    """A tool whose calls only read if so many of them are asked about at the same time."""
    gate = threading.Barrier(together)

    def reads(command: str) -> bool:
        asked.append(command)
        gate.wait()  # the call's own deadline bounds it
        return True

    @tool(read_only=reads)
    def shell(command: str) -> str:
        """Run a command."""
        return command

    return shell


def _made(*commands: str) -> list[ToolCall]:
    arguments = [json.dumps({"command": command}) for command in commands]
    return [ToolCall(CallId(text), "shell", text) for text in arguments]


async def test_what_only_reads_by_its_arguments_is_asked_about_all_calls_at_once() -> None:
    asked: list[str] = []
    toolbox = await ToolSources([FunctionTools([_waiting(asked, together=3)])]).build_toolbox()
    made = _made("ls", "cat", "pwd")
    with anyio.fail_after(10):
        assert await toolbox.batch_calls(made) == [made]
    assert sorted(asked) == ["cat", "ls", "pwd"]


@pytest.mark.promise("P10")
async def test_who_takes_over_asks_about_each_call_once_and_at_once() -> None:
    asked: list[str] = []
    toolbox = await ToolSources([FunctionTools([_waiting(asked, together=3)])]).build_toolbox()
    with anyio.fail_after(10):
        assert await toolbox.perhaps_begun(_made("ls", "cat", "pwd")) == []
    assert sorted(asked) == ["cat", "ls", "pwd"]


# ---------------------------------------------------------------- progress
def progress_in(seen: Sequence[RunEvent]) -> list[str]:
    return [event.text for event in seen if isinstance(event, ToolProgressed)]


async def said_while(store: Ledger, does: FunctionTool) -> list[str]:
    """Return the events of readers while a model calls the tool."""
    script = ScriptedModel([calls((does.spec.name, {})), words("done")])
    async with worker(store, script, does) as runs:
        return progress_in(await events(runs, await post(runs, says())))


async def test_a_function_in_a_thread_tells_of_its_progress(memory: Ledger) -> None:
    @tool
    def count(context: ToolContext) -> str:
        """Count."""
        context.progress("one \ud83d")
        context.progress("two, at once")
        return "counted"

    assert await said_while(memory, count) == ["one \ufffd"]


@pytest.mark.parametrize("value", ["half \ud83d", ["half \ud83d"]])
async def test_progress_and_results_have_the_same_for_half_a_character(
    memory: Ledger, value: object
) -> None:
    @tool
    async def halve() -> AsyncIterator[object]:
        """Halve a character, twice."""
        yield value
        yield value

    script = ScriptedModel([calls(("halve", {})), words("done")])
    async with worker(memory, script, halve) as runs:
        seen = await events(runs, await post(runs, says()))
    results = [event.content for event in seen if isinstance(event, ToolResulted)]
    mended = "half \ufffd" if isinstance(value, str) else '["half \ufffd"]'
    assert (progress_in(seen), results) == ([mended], [mended])


async def test_words_have_a_length(memory: Ledger) -> None:
    @tool
    async def read(context: ToolContext) -> str:
        """Read."""
        context.progress("a" * 2000)
        return "read"

    assert await said_while(memory, read) == ["a" * 1000]


@pytest.mark.promise("P11")
async def test_progress_that_a_generator_yields_has_the_same_bounds(memory: Ledger) -> None:
    @tool
    async def count() -> AsyncIterator[str]:
        """Count, and never wait."""
        for number in range(1000):
            yield f"number {number}"
        yield "counted"

    @tool
    def count_in_a_thread() -> Iterator[str]:
        """Count there."""
        for number in range(20_000):
            yield f"number {number}"
        yield "counted"

    script = ScriptedModel([calls(("count", {}), ("count_in_a_thread", {})), words("done")])
    async with worker(memory, script, count, count_in_a_thread) as runs:
        seen = await events(runs, await post(runs, says()))
    results = [event for event in seen if isinstance(event, ToolResulted)]
    assert [(event.content, event.is_error) for event in results] == [("counted", False)] * 2
    steps = progress_in(seen)
    assert steps.count("number 0") == 2
    assert len(steps) < 200


async def test_after_its_end_a_call_tells_nothing(memory: Ledger) -> None:
    kept: list[ToolContext] = []

    @tool
    async def leave(context: ToolContext) -> str:
        """Leave the context to others."""
        kept.append(context)
        return "left"

    @tool
    async def use_foreign_context() -> str:
        """Use the context of the other call."""
        kept[0].progress("from here")
        await anyio.to_thread.run_sync(kept[0].progress, "from a thread")
        return "meddled"

    script = ScriptedModel([calls(("leave", {}), ("use_foreign_context", {})), words("done")])
    async with worker(memory, script, leave, use_foreign_context) as runs:
        assert progress_in(await events(runs, await post(runs, says()))) == []


async def test_progress_that_comes_after_the_end_of_the_call_is_dropped(memory: Ledger) -> None:
    @tool
    async def hurry(context: ToolContext) -> str:
        """Tell from a thread, and be over before that is heard."""
        thread = Thread(target=context.progress, args=("too late",))
        thread.start()
        while thread.is_alive():
            pass  # the event loop hears nothing meanwhile
        assert isinstance(context, CallContext)
        context.ended()
        return "hurried"

    assert await said_while(memory, hurry) == []


async def test_progress_during_the_write_of_a_result_comes_behind_it(memory: Ledger) -> None:
    faults = Faults(memory)
    storing, heard = anyio.Event(), anyio.Event()

    async def the_result() -> None:
        storing.set()
        await heard.wait()

    async def the_turn() -> None:
        faults.first["commit"] = the_result

    faults.first["commit"] = the_turn

    @tool(read_only=True)
    async def quick() -> str:
        """Be done at once."""
        return "done"

    @tool(read_only=True)
    async def slow(context: ToolContext) -> str:
        """Tell of it while the other one's result is on its way to the store."""
        await storing.wait()
        context.progress("meanwhile")
        heard.set()
        return "done, too"

    script = ScriptedModel([calls(("quick", {}), ("slow", {})), words("so")])
    async with worker(faults.store, script, quick, slow) as runs:
        seen = await events(runs, await post(runs, says()))
    kinds = [type(event) for event in seen if isinstance(event, ToolResulted | ToolProgressed)]
    assert kinds == [ToolResulted, ToolProgressed, ToolResulted]


# ---------------------------------------------------------------- the plan
LOOK: dict[str, JsonValue] = {"content": "look", "priority": "high", "status": "in_progress"}


async def test_a_plan_is_an_event_and_is_kept(store: Ledger) -> None:
    script = [
        calls(("update_plan", {"entries": [LOOK, {"content": "answer"}]})),
        words("so"),
        calls(("update_plan", {"entries": []})),
        words("done"),
    ]
    async with worker(store, ScriptedModel(script), toolsets=[PlanTools()]) as runs:
        run = await post(runs, says())
        seen = await events(runs, run)
        plan = (PlanEntry("look", "high", "in_progress"), PlanEntry("answer"))
        assert [event for event in seen if isinstance(event, PlanUpdated)] == [PlanUpdated(plan)]
        assert (await runs.status(KEY)).state.plan == plan
        assert await outcome(runs, await post(runs, says("go on", "u2"))) == Completed()
        assert (await runs.status(KEY)).state.plan == ()


def plans(*entries: str) -> list[Step]:
    """A turn that says what is meant to be done."""
    planned: list[JsonValue] = [{"content": each} for each in entries]
    return calls(("update_plan", {"entries": planned}))


def plan_of(*entries: str) -> tuple[PlanEntry, ...]:
    return tuple(map(PlanEntry, entries))


@pytest.mark.parametrize("before", [("first",), ()], ids=["a plan before", "none"])
async def test_a_plan_is_taken_back_with_its_run(store: Ledger, before: tuple[str, ...]) -> None:
    half: list[Step] = ["half", anyio.Event()]
    cut = [plans("second"), plans("third"), half]
    model = ScriptedModel([plans(*before), words("so"), *cut, words("as before"), words("more")])
    async with (
        worker(store, model, toolsets=[PlanTools()]) as runs,
        worker(store, model, toolsets=[PlanTools()]) as elsewhere,
    ):
        await outcome(runs, await post(runs, says()))
        first = await post(runs, says("wrong", "u2"))
        await until(runs, first, TextDelta)
        assert (await runs.status(KEY)).state.plan == plan_of("third")
        second = await post(elsewhere, says("right", "u3"), on_busy="rollback")
        shown = await events(elsewhere, second)
        assert await outcome(runs, first) == Cancelled()
        # readers get an event, because they have seen the other one
        taken_back = PlanUpdated(plan_of(*before))
        assert shown[:3] == [RunQueued(second.run_id), RunStarted(second.run_id), taken_back]
        assert (await runs.status(KEY)).state.plan == plan_of(*before)
        later = await events(runs, await post(runs, says("go on", "u4")))
        assert not any(isinstance(each, PlanUpdated) for each in later)
        assert (await runs.status(KEY)).state.plan == plan_of(*before)


async def test_a_plan_stays_when_a_run_without_one_is_taken_back(store: Ledger) -> None:
    model = ScriptedModel([plans("first"), words("so"), ["half", anyio.Event()], words("done")])
    async with worker(store, model, toolsets=[PlanTools()]) as runs:
        await outcome(runs, await post(runs, says()))
        await until(runs, await post(runs, says("wrong", "u2")), TextDelta)
        second = await post(runs, says("right", "u3"), on_busy="rollback")
        assert not any(isinstance(each, PlanUpdated) for each in await events(runs, second))
        assert (await runs.status(KEY)).state.plan == plan_of("first")


async def test_a_plan_stays_when_its_run_is_interrupted(store: Ledger) -> None:
    model = ScriptedModel([plans("first"), ["half", anyio.Event()], words("done")])
    async with worker(store, model, toolsets=[PlanTools()]) as runs:
        await until(runs, await post(runs, says()), TextDelta)
        second = await post(runs, says("right", "u3"), on_busy="interrupt")
        assert await outcome(runs, second) == Completed()
        assert (await runs.status(KEY)).state.plan == plan_of("first")
        assert (await runs.status(KEY)).state.earlier_plan is None


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([{"content": ""}], "entries.0.content"),
        ([{"content": "a", "status": "perhaps"}], "entries.0.status"),
        ([{"content": "a"}] * 101, "entries"),
        ("look", "entries"),
    ],
)
async def test_a_bad_plan_is_an_error_for_the_model(
    memory: Ledger, entries: JsonValue, why: str
) -> None:
    script = [calls(("update_plan", {"entries": entries})), words("so")]
    async with worker(memory, ScriptedModel(script), toolsets=[PlanTools()]) as runs:
        seen = await events(runs, await post(runs, says()))
        [resulted] = [event for event in seen if isinstance(event, ToolResulted)]
        assert (resulted.is_error, resulted.synthetic) == (True, "invalid")
        assert f"The plan is not valid: {why}" in str(resulted.content)
        assert (await runs.status(KEY)).state.plan == ()


async def test_an_agent_offers_it_where_its_author_says_so() -> None:
    [tools] = Agent(plan=True).own_toolsets()
    [spec] = await tools.specs()
    assert (spec.name, spec.title, spec.kind) == ("update_plan", "Update the plan", "think")
    assert not tools.is_read_only("update_plan")
    assert tools.is_repeatable("update_plan")
    call = ToolCall(CallId("c"), "update_plan", '{"entries": []}')
    got = await tools.call(call, ToolContext(RunRef(KEY, RunId("r")), call.id))
    assert got is not None
    assert got.plan == ()
    with anyio.fail_after(10):
        async with Session(Agent(model=ScriptedModel([words("hi")]), plan=True)) as session:
            assert [event async for event in session.submit("hi")]
