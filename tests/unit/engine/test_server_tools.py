"""Calls that the server answers itself, beside those of the client."""

import json
import threading

import anyio
import pytest
from tests.support import runs as support
from tests.support.runs import (
    PAINT,
    call_ids,
    events,
    outcome,
    post,
    record,
    reply,
    result,
    worker,
)

from passback.core.deltas import (
    Finish,
    ModelDelta,
    ToolCallChunk,
)
from passback.core.events import (
    Completed,
    HandedBack,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnStarted,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Owed,
    ToolCall,
    ToolMessage,
)
from passback.core.ports import Store
from passback.engine.toolbox import ToolSources
from passback.models.scripted import ScriptedModel, calls, says
from passback.toolsets.functions import FunctionTool, FunctionTools, tool

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_server_tool_runs_and_the_model_goes_on_in_the_same_run(store: Store) -> None:
    model = ScriptedModel([["Let me see. ", *calls(("add", {"a": 2, "b": 3}))], says("5")])
    async with worker(store, model, add) as runs:
        run = await post(runs, support.says())
        said = await events(runs, run)
        messages = await record(runs)
        turns = [event.message_id for event in said if isinstance(event, TurnStarted)]
        answer, outcome_of_call, end = messages[1:]
        assert isinstance(answer, AssistantMessage)
        assert isinstance(outcome_of_call, ToolMessage)
        call_id = answer.tool_calls[0].id
        assert said == [
            RunStarted(run.run_id),
            TurnStarted(turns[0]),
            TextDelta("Let me see. "),
            ToolCallStarted(call_id, "add", client=False),
            ToolCallArguments(call_id, '{"a": 2, "b": 3}'),
            ToolCallEnded(call_id),
            ToolResulted(call_id, "5"),
            TurnStarted(turns[1]),
            TextDelta("5"),
            RunFinished(Completed()),
        ]
        assert outcome_of_call == ToolMessage(outcome_of_call.id, call_id, "5")
        assert end == AssistantMessage(turns[1], "5", model="scripted")
    assert model.requests[0].tools == (add.spec,)
    assert model.requests[1].messages == tuple(messages[:-1])


@pytest.mark.promise("P1")
async def test_server_calls_run_before_client_calls_are_handed_back(store: Store) -> None:
    model = ScriptedModel([calls(("paint", {}), ("add", {"a": 1, "b": 1})), says("done")])
    async with worker(store, model, add) as runs:
        run = await post(runs, support.says(), tools=[PAINT])
        said = await events(runs, run)
        (call_id,) = await call_ids(runs)
        server_id = next(e.call_id for e in said if isinstance(e, ToolResulted))
        assert said[-4:] == [
            ToolCallEnded(server_id),
            ToolResulted(server_id, "2"),
            ToolCallEnded(call_id),
            RunFinished(HandedBack((Owed(call_id, "paint", "{}"),))),
        ]
        assert await reply(runs, result(call_id)) == "done"
    shown = [m.call_id for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert shown == [call_id, server_id]


async def test_invalid_calls_are_answered_by_the_server_and_the_model_may_try_again(
    store: Store,
) -> None:
    bad: list[ModelDelta] = [
        ToolCallChunk(0, name="paint", arguments="{"),
        ToolCallChunk(1, name="fly", arguments="{}"),
        Finish("tool_calls"),
    ]
    model = ScriptedModel([bad, says("Sorry.")])
    async with worker(store, model) as runs:
        said = await events(runs, await post(runs, support.says(), tools=[PAINT]))
        messages = await record(runs)
    started = next(e for e in said if isinstance(e, ToolCallStarted))
    reason = "Not executed: the arguments are not a JSON object: {"
    assert [e for e in said if isinstance(e, ToolCallStarted | ToolCallEnded | ToolResulted)] == [
        started,
        ToolResulted(started.call_id, reason, is_error=True, synthetic="invalid"),
    ]
    answers = [m for m in messages if isinstance(m, ToolMessage)]
    assert [(m.content, m.is_error, m.synthetic) for m in answers] == [
        (reason, True, "invalid"),
        ("Not executed: there is no tool named 'fly'.", True, "invalid"),
    ]
    assert said[-1] == RunFinished(Completed())


async def test_an_invalid_call_beside_a_client_call_is_not_owed(memory: Store) -> None:
    mixed: list[ModelDelta] = [
        ToolCallChunk(0, name="paint", arguments="{"),
        ToolCallChunk(1, name="paint", arguments="{}"),
        Finish("tool_calls"),
    ]
    async with worker(memory, ScriptedModel([mixed])) as runs:
        ending = await outcome(runs, await post(runs, support.says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
    assert ending == HandedBack((Owed(call_id, "paint", "{}"),))


async def test_a_run_has_so_many_turns_and_no_more(memory: Store) -> None:
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
    said = [json.dumps({"command": command}) for command in commands]
    return [ToolCall(CallId(text), "shell", text) for text in said]


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
