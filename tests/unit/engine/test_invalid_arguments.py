"""A call whose arguments do not fit its tool's schema goes back to the model, and the client never sees its end."""

import json
from collections.abc import Sequence

import pytest
from tests.support.runs import (
    call_ids,
    events,
    outcome,
    post,
    record,
    result,
    says,
    worker,
)

from passback.core.events import (
    Completed,
    Failed,
    HandedBack,
    RunFinished,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
)
from passback.core.messages import AssistantMessage, ToolMessage, ToolSpec
from passback.core.ports import Store
from passback.models import scripted
from passback.models.scripted import ScriptedModel
from passback.toolsets.functions import tool

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P4")]

COLOR = ToolSpec(
    "set-color",
    "",
    {"type": "object", "properties": {"color": {"enum": ["blue", "red"]}}, "required": ["color"]},
)
PINK = ("set-color", {"color": "pink"})
BLUE = ("set-color", {"color": "blue"})
REASON = (
    "Not executed: the arguments do not fit the tool's schema: "
    'at $.color: "pink" is not one of ["blue", "red"]'
)


def _answers(messages: Sequence[object]) -> list[tuple[object, bool, str | None]]:
    return [(m.content, m.is_error, m.synthetic) for m in messages if isinstance(m, ToolMessage)]


async def test_the_model_is_told_what_is_wrong_and_calls_anew(store: Store) -> None:
    model = ScriptedModel([scripted.calls(PINK), scripted.calls(BLUE)])
    async with worker(store, model) as runs:
        run = await post(runs, says(), tools=[COLOR])
        told = await events(runs, run)
        [first, second] = [e.call_id for e in told if isinstance(e, ToolCallStarted)]
        assert await call_ids(runs) == [second]
    shown = [e for e in told if isinstance(e, ToolCallEnded | ToolResulted | RunFinished)]
    refusal = ToolResulted(first, REASON, is_error=True, synthetic="invalid")
    assert shown[:2] == [refusal, ToolCallEnded(second)]
    assert isinstance(shown[2], RunFinished)
    assert isinstance(shown[2].outcome, HandedBack)
    assert ToolCallArguments(first, json.dumps(PINK[1])) in told
    asked = model.requests[1].messages
    assert _answers(asked) == [(REASON, True, "invalid")]
    # the model sees what it asked for
    [call] = [call for m in asked if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert (call.id, call.arguments) == (first, json.dumps(PINK[1]))


async def test_a_valid_call_beside_an_invalid_one_is_handed_back(memory: Store) -> None:
    model = ScriptedModel([scripted.calls(PINK, BLUE), scripted.says("done")])
    async with worker(memory, model) as runs:
        await events(runs, await post(runs, says(), tools=[COLOR]))
        [owed] = await call_ids(runs)
        assert await outcome(runs, await post(runs, result(owed))) == Completed()
    assert _answers(model.requests[1].messages) == [
        (REASON, True, "invalid"),
        ("done", False, None),
    ]


@pytest.mark.promise("P6")
async def test_a_model_that_makes_only_invalid_calls_fails_the_run(memory: Store) -> None:
    model = ScriptedModel([*[scripted.calls(PINK)] * 3, scripted.says("hello again")])
    async with worker(memory, model) as runs:
        ended = await outcome(runs, await post(runs, says(), tools=[COLOR]))
        assert ended == Failed(
            "model_astray", "the model made nothing but invalid tool calls, again and again", True
        )
        assert len(model.requests) == 3
        assert _answers(await record(runs)) == [(REASON, True, "invalid")] * 3
        # the conversation goes on
        assert await outcome(runs, await post(runs, says("hm", "u2"))) == Completed()


async def test_a_valid_call_in_between_counts_anew(memory: Store) -> None:
    @tool
    def look() -> str:
        return "nothing"

    look_turn = scripted.calls(("look", {}))
    pink = scripted.calls(PINK)
    model = ScriptedModel([pink, pink, look_turn, scripted.says("well")])
    async with worker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says(), tools=[COLOR])) == Completed()
    model = ScriptedModel([pink, look_turn, pink, scripted.says("well")])
    async with worker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says("hm", "u2"))) == Completed()


async def test_a_tool_of_the_server_that_did_not_run_for_its_arguments_says_so(
    store: Store,
) -> None:
    @tool
    def add(a: int) -> int:
        return a + 1

    script = [scripted.calls(("add", {"a": "one"}), ("add", {"a": 1})), scripted.says("2")]
    async with worker(store, ScriptedModel(script), add) as runs:
        told = await events(runs, await post(runs, says()))
        [first, second] = [e.call_id for e in told if isinstance(e, ToolCallStarted)]
        why = (
            "The arguments are not valid.\n"
            "a: Input should be a valid integer, unable to parse string as an integer"
        )
        assert [e for e in told if isinstance(e, ToolCallEnded | ToolResulted)] == [
            ToolCallEnded(first),
            ToolCallEnded(second),
            ToolResulted(first, why, is_error=True, synthetic="invalid"),
            ToolResulted(second, "2"),
        ]
        assert _answers(await record(runs)) == [(why, True, "invalid"), ("2", False, None)]


async def test_invalid_calls_of_the_servers_tools_count_too(memory: Store) -> None:
    @tool
    def add(a: int) -> int:
        return a + 1

    model = ScriptedModel([scripted.calls(("add", {"a": "one"}))] * 4)
    async with worker(memory, model, add) as runs:
        ended = await outcome(runs, await post(runs, says()))
    assert isinstance(ended, Failed)
    assert (ended.code, len(model.requests)) == ("model_astray", 3)


async def test_calls_of_unknown_tools_count_too(memory: Store) -> None:
    model = ScriptedModel([scripted.calls(("fly", {}))] * 3)
    async with worker(memory, model) as runs:
        ended = await outcome(runs, await post(runs, says(), tools=[COLOR]))
    assert isinstance(ended, Failed)
    assert ended.code == "model_astray"


@pytest.mark.promise("P11")
async def test_arguments_that_are_too_long_reach_no_tool(memory: Store) -> None:
    long = ("set-color", {"color": "x" * 300_000})
    model = ScriptedModel([scripted.calls(long), scripted.says("well")])
    async with worker(memory, model) as runs:
        assert await outcome(runs, await post(runs, says(), tools=[COLOR])) == Completed()
    answer = "Not executed: the arguments are longer than 262144 characters."
    assert _answers(model.requests[1].messages) == [(answer, True, "invalid")]


async def test_the_tools_of_another_worker_are_checked_too(store: Store) -> None:
    """The schema comes from the store: the post that declared the tool was another worker's."""
    async with worker(store, ScriptedModel([scripted.calls(BLUE)])) as runs:
        await events(runs, await post(runs, says(), tools=[COLOR]))
        [owed] = await call_ids(runs)
    model = ScriptedModel([scripted.calls(PINK), scripted.says("well")])
    async with worker(store, model) as runs:
        assert await outcome(runs, await post(runs, result(owed))) == Completed()
    assert _answers(model.requests[1].messages)[-1] == (REASON, True, "invalid")
