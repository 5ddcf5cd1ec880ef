"""Structured output: the last answer fits the schema, or the run fails."""

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, field_validator
from tests.support.killable_worker import killable_worker
from tests.support.runs import (
    KEY,
    call_ids,
    contents,
    events,
    outcome,
    post,
    reading,
    record,
    result,
    says,
    worker,
)
from tests.unit.engine.budget_agents import serving

from passback.agent import Agent
from passback.core.deltas import Finish, TextChunk
from passback.core.events import (
    Completed,
    Failed,
    HandedBack,
    OutputAccepted,
    RunEvent,
    RunFinished,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
)
from passback.core.messages import (
    AssistantMessage,
    JsonObject,
    MessageContext,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.engine.judging import OutputJudge
from passback.engine.ledger import Ledger
from passback.models import scripted
from passback.models.scripted import ScriptedModel
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"colour": {"enum": ["blue", "red"]}},
    "required": ["colour"],
}
COLOR = ToolSpec("set-color", "", {"type": "object", "properties": {}})
BLUE = '{"colour": "blue"}'
PINK = '{"colour": "pink"}'
AGAIN = "Answer again, with nothing but JSON that fits the output schema."
WRONG = f'Your answer was not accepted: at $.colour: "pink" is not one of ["blue", "red"]\n{AGAIN}'


def asks(schema: JsonObject | None = SCHEMA, name: str = "u") -> UserMessage:
    return replace(says("which?", name), context=MessageContext(output_schema=schema))


def ends(seen: list[RunEvent]) -> list[RunEvent]:
    return [each for each in seen if isinstance(each, OutputAccepted | RunFinished)]


async def test_an_answer_that_fits_is_the_output(store: Ledger) -> None:
    model = ScriptedModel([scripted.says(BLUE)])
    async with worker(store, model) as runs:
        seen = await events(runs, await post(runs, asks()))
        assert ends(seen) == [OutputAccepted({"colour": "blue"}), RunFinished(Completed())]
        assert await contents(runs) == ["which?", BLUE]
    assert model.requests[0].output_schema == SCHEMA


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PINK, 'at $.colour: "pink" is not one of ["blue", "red"]'),
        ("Blue, of course.", "it is not a JSON object"),
        (f"Here: {BLUE}", "it is not a JSON object"),
        ("[1]", "it is not a JSON object"),
        ('{"colour": NaN}', "it is not a JSON object"),
        ("", "it is not a JSON object"),
        (f"{BLUE[:-1]},{' ' * 1024 * 1024}}}", "it is not a JSON object"),
    ],
)
async def test_the_model_gets_an_error_and_answers_again(
    memory: Ledger, text: str, reason: str
) -> None:
    model = ScriptedModel([scripted.says(text), scripted.says(BLUE)])
    async with worker(memory, model) as runs:
        seen = await events(runs, await post(runs, asks()))
        [refused] = [each for each in await record(runs) if isinstance(each, SystemMessage)]
    assert ends(seen) == [OutputAccepted({"colour": "blue"}), RunFinished(Completed())]
    assert "".join(each.text for each in seen if isinstance(each, TextDelta)) == text + BLUE
    text = f"Your answer was not accepted: {reason}\n{AGAIN}"
    assert (refused.content, refused.synthetic) == (text, "invalid")
    assert model.requests[1].messages[-1] == UserMessage(refused.id, text)
    assert model.requests[1].output_schema == SCHEMA


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```\n{}```", "\n {} \n"])
async def test_a_fence_around_the_answer_is_no_part_of_it(memory: Ledger, fence: str) -> None:
    model = ScriptedModel([scripted.says(fence.replace("{}", BLUE))])
    async with worker(memory, model) as runs:
        seen = await events(runs, await post(runs, asks()))
    assert ends(seen)[0] == OutputAccepted({"colour": "blue"})


async def test_an_answer_that_was_cut_off_is_not_accepted(memory: Ledger) -> None:
    cut: list[scripted.Step] = [TextChunk(BLUE), Finish("length")]
    async with worker(memory, ScriptedModel([cut, scripted.says(BLUE)])) as runs:
        seen = await events(runs, await post(runs, asks()))
        [refused] = [each for each in await record(runs) if isinstance(each, SystemMessage)]
    assert ends(seen) == [OutputAccepted({"colour": "blue"}), RunFinished(Completed())]
    assert "too long" in str(refused.content)


async def test_a_model_that_refuses_gives_no_output(memory: Ledger) -> None:
    refusal: list[scripted.Step] = [TextChunk("I will not."), Finish("refusal")]
    async with worker(memory, ScriptedModel([refusal])) as runs:
        seen = await events(runs, await post(runs, asks()))
    assert ends(seen) == [RunFinished(Completed("refusal"))]


@pytest.mark.promise("P6")
async def test_without_a_valid_answer_only_the_run_fails(store: Ledger) -> None:
    model = ScriptedModel([*[scripted.says(PINK)] * 3, scripted.says("hello")])
    async with worker(store, model) as runs:
        seen = await events(runs, await post(runs, asks()))
        failed = Failed(
            "output_invalid",
            "the model's answer did not fit the output schema, again and again",
            True,
        )
        assert ends(seen) == [RunFinished(failed)]
        assert await contents(runs) == ["which?", *[PINK, WRONG] * 3]
        assert await outcome(runs, await post(runs, says("never mind", "u2"))) == Completed()
    assert len(model.requests) == 4
    assert model.requests[3].output_schema is None


async def test_the_schema_counts_until_the_answer_whatever_comes_between(store: Ledger) -> None:
    @tool
    def look() -> str:
        return "seen"

    script = [
        scripted.calls(("look", {})),
        scripted.calls(("set-color", {})),
        scripted.says(PINK),
        scripted.says(BLUE),
    ]
    async with worker(store, ScriptedModel(script), look) as runs:
        seen = await events(runs, await post(runs, asks(), tools=[COLOR]))
        [owed] = await call_ids(runs)
        assert isinstance(seen[-1], RunFinished)
        assert isinstance(seen[-1].outcome, HandedBack)
        seen = await events(runs, await post(runs, result(owed)))
    assert ends(seen) == [OutputAccepted({"colour": "blue"}), RunFinished(Completed())]


@pytest.mark.parametrize(
    ("context", "text", "accepted"),
    [
        (None, PINK, {"colour": "pink"}),
        (MessageContext(intent="x"), PINK, {"colour": "pink"}),
        (MessageContext(output_schema=SCHEMA), BLUE, {"colour": "blue"}),
    ],
)
async def test_the_agents_own_schema_counts_where_a_post_has_none(
    memory: Ledger, context: MessageContext | None, text: str, accepted: Any
) -> None:
    model = ScriptedModel([scripted.says(text)])
    judge = OutputJudge(schema={"type": "object"})
    async with worker(memory, model, output=judge) as runs:
        seen = await events(runs, await post(runs, replace(says(), context=context)))
    assert ends(seen)[0] == OutputAccepted(accepted)


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def even(cls, number: int) -> int:
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError("held up")
        if number % 2:
            raise ValueError("has to be even")
        if number < 0:
            raise OSError("secret")
        return number


async def test_a_pydantic_model_judges_answers_and_the_model_gets_its_error() -> None:
    script = ['{"number": 3}', '{"number": -2}', '{"number": 2}', '{"number": 1}']
    model = ScriptedModel([scripted.says(each) for each in script])
    async with serving(Agent(model=model, output_schema=Even)) as runs:
        seen = await events(runs, await post(runs, says()))
        assert ends(seen) == [OutputAccepted({"number": 2}), RunFinished(Completed())]
        # where a post has a schema, that one alone counts
        seen = await events(runs, await post(runs, asks({"type": "object"}, "u2")))
        assert ends(seen)[0] == OutputAccepted({"number": 1})
    objections = [each.content for each in model.requests[2].messages if each.role == "user"]
    assert objections[1:] == [
        f"Your answer was not accepted: number: has to be even\n{AGAIN}",
        f"Your answer was not accepted: it could not be validated: OSError\n{AGAIN}",
    ]


@pytest.mark.promise("P11")
async def test_a_validation_that_does_not_end_is_bounded(memory: Ledger) -> None:
    end = threading.Event()

    def hang(answer: str) -> None:
        end.wait()

    model = ScriptedModel([scripted.says(BLUE)] * 3)
    judge = OutputJudge(schema={"type": "object"}, author_check=hang, seconds=0.01)
    try:
        async with worker(memory, model, output=judge) as runs:
            ended = await outcome(runs, await post(runs, says()))
    finally:
        end.set()
    assert isinstance(ended, Failed)
    assert ended.code == "output_invalid"
    assert "within 0.01 s" in str(model.requests[-1].messages[-1].content)


@pytest.mark.promise("P10")
async def test_answers_that_another_worker_was_given_count_too(store: Ledger) -> None:
    """A run that goes from worker to worker fails after as many of them as any other."""
    hanging: list[scripted.Step] = [TextChunk("{"), anyio.Event()]
    first = ScriptedModel([scripted.says(PINK), scripted.says(PINK), hanging])
    other = ScriptedModel([scripted.says(PINK)])
    async with worker(store, other) as later, killable_worker(store, first) as dying:
        run = await post(dying.runs, asks())
        async with reading(later, run) as reader:
            await reader.until(TextDelta("{"))
            await dying.kill()
            await later.status(KEY)
        ended = await outcome(later, run)
    assert isinstance(ended, Failed)
    assert ended.code == "output_invalid"
    # it was sent the same as the first worker's model
    assert other.requests[0].messages == first.requests[2].messages
    assert other.requests[0].output_schema == SCHEMA


# ---------------------------------------------------------------- arguments that do not fit
COLOR_TOOL = ToolSpec(
    "set-color",
    "",
    {"type": "object", "properties": {"color": {"enum": ["blue", "red"]}}, "required": ["color"]},
)
PINK_CALL = ("set-color", {"color": "pink"})
BLUE_CALL = ("set-color", {"color": "blue"})
REASON = (
    "Not executed: the arguments do not fit the tool's schema: "
    'at $.color: "pink" is not one of ["blue", "red"]'
)


def _answers(messages: Sequence[object]) -> list[tuple[object, bool, str | None]]:
    return [(m.content, m.is_error, m.synthetic) for m in messages if isinstance(m, ToolMessage)]


@pytest.mark.promise("P4")
async def test_the_model_gets_an_error_and_calls_again(store: Ledger) -> None:
    model = ScriptedModel([scripted.calls(PINK_CALL), scripted.calls(BLUE_CALL)])
    async with worker(store, model) as runs:
        run = await post(runs, says(), tools=[COLOR_TOOL])
        seen = await events(runs, run)
        [first, second] = [e.call_id for e in seen if isinstance(e, ToolCallStarted)]
        assert await call_ids(runs) == [second]
    shown = [e for e in seen if isinstance(e, ToolCallEnded | ToolResulted | RunFinished)]
    refusal = ToolResulted(first, REASON, is_error=True, synthetic="invalid")
    assert shown[:2] == [refusal, ToolCallEnded(second)]
    assert isinstance(shown[2], RunFinished)
    assert isinstance(shown[2].outcome, HandedBack)
    assert ToolCallArguments(first, json.dumps(PINK_CALL[1])) in seen
    asked = model.requests[1].messages
    assert _answers(asked) == [(REASON, True, "invalid")]
    # the model sees what it asked for
    [call] = [call for m in asked if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert (call.id, call.arguments) == (first, json.dumps(PINK_CALL[1]))


@pytest.mark.promise("P4")
async def test_a_valid_call_beside_an_invalid_one_is_handed_back(memory: Ledger) -> None:
    model = ScriptedModel([scripted.calls(PINK_CALL, BLUE_CALL), scripted.says("done")])
    async with worker(memory, model) as runs:
        await events(runs, await post(runs, says(), tools=[COLOR_TOOL]))
        [owed] = await call_ids(runs)
        assert await outcome(runs, await post(runs, result(owed))) == Completed()
    assert _answers(model.requests[1].messages) == [
        (REASON, True, "invalid"),
        ("done", False, None),
    ]


@pytest.mark.promise("P6")
@pytest.mark.promise("P4")
async def test_a_model_that_makes_only_invalid_calls_fails_the_run(memory: Ledger) -> None:
    model = ScriptedModel([*[scripted.calls(PINK_CALL)] * 3, scripted.says("hello again")])
    async with worker(memory, model) as runs:
        ended = await outcome(runs, await post(runs, says(), tools=[COLOR_TOOL]))
        assert ended == Failed(
            "model_astray", "the model made nothing but invalid tool calls, again and again", True
        )
        assert len(model.requests) == 3
        assert _answers(await record(runs)) == [(REASON, True, "invalid")] * 3
        # the conversation goes on
        assert await outcome(runs, await post(runs, says("hm", "u2"))) == Completed()


@pytest.mark.promise("P4")
async def test_a_valid_call_in_between_counts_anew(memory: Ledger) -> None:
    @tool
    def look() -> str:
        return "nothing"

    look_turn = scripted.calls(("look", {}))
    pink = scripted.calls(PINK_CALL)
    model = ScriptedModel([pink, pink, look_turn, scripted.says("well")])
    async with worker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says(), tools=[COLOR_TOOL])) == Completed()
    model = ScriptedModel([pink, look_turn, pink, scripted.says("well")])
    async with worker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says("hm", "u2"))) == Completed()


@pytest.mark.promise("P4")
async def test_a_server_tool_with_bad_arguments_says_so(store: Ledger) -> None:
    @tool
    def add(a: int) -> int:
        return a + 1

    script = [scripted.calls(("add", {"a": "one"}), ("add", {"a": 1})), scripted.says("2")]
    async with worker(store, ScriptedModel(script), add) as runs:
        seen = await events(runs, await post(runs, says()))
        [first, second] = [e.call_id for e in seen if isinstance(e, ToolCallStarted)]
        why = (
            "The arguments are not valid.\n"
            "a: Input should be a valid integer, unable to parse string as an integer"
        )
        assert [e for e in seen if isinstance(e, ToolCallEnded | ToolResulted)] == [
            ToolCallEnded(first),
            ToolCallEnded(second),
            ToolResulted(first, why, is_error=True, synthetic="invalid"),
            ToolResulted(second, "2"),
        ]
        assert _answers(await record(runs)) == [(why, True, "invalid"), ("2", False, None)]


@pytest.mark.promise("P4")
async def test_invalid_calls_of_the_servers_tools_count_too(memory: Ledger) -> None:
    @tool
    def add(a: int) -> int:
        return a + 1

    model = ScriptedModel([scripted.calls(("add", {"a": "one"}))] * 4)
    async with worker(memory, model, add) as runs:
        ended = await outcome(runs, await post(runs, says()))
    assert isinstance(ended, Failed)
    assert (ended.code, len(model.requests)) == ("model_astray", 3)


@pytest.mark.promise("P4")
async def test_calls_of_unknown_tools_count_too(memory: Ledger) -> None:
    model = ScriptedModel([scripted.calls(("fly", {}))] * 3)
    async with worker(memory, model) as runs:
        ended = await outcome(runs, await post(runs, says(), tools=[COLOR_TOOL]))
    assert isinstance(ended, Failed)
    assert ended.code == "model_astray"


@pytest.mark.promise("P11")
@pytest.mark.promise("P4")
async def test_arguments_that_are_too_long_reach_no_tool(memory: Ledger) -> None:
    long = ("set-color", {"color": "x" * 300_000})
    model = ScriptedModel([scripted.calls(long), scripted.says("well")])
    async with worker(memory, model) as runs:
        assert await outcome(runs, await post(runs, says(), tools=[COLOR_TOOL])) == Completed()
    answer = "Not executed: the arguments are longer than 262144 characters."
    assert _answers(model.requests[1].messages) == [(answer, True, "invalid")]


@pytest.mark.promise("P4")
async def test_the_tools_of_another_worker_are_checked_too(store: Ledger) -> None:
    """The schema comes from the store: the post that declared the tool was another worker's."""
    async with worker(store, ScriptedModel([scripted.calls(BLUE_CALL)])) as runs:
        await events(runs, await post(runs, says(), tools=[COLOR_TOOL]))
        [owed] = await call_ids(runs)
    model = ScriptedModel([scripted.calls(PINK_CALL), scripted.says("well")])
    async with worker(store, model) as runs:
        assert await outcome(runs, await post(runs, result(owed))) == Completed()
    assert _answers(model.requests[1].messages)[-1] == (REASON, True, "invalid")
