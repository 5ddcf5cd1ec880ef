"""The scripted model plays the turns of its script, and records the requests."""

from collections.abc import Sequence

import anyio
import pytest

from passback.core.deltas import (
    Finish,
    ModelDelta,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from passback.core.errors import ConfigurationError, ModelError, ModelUnavailable
from passback.core.messages import AssistantMessage, MediaPart, MessageId, TextPart, UserMessage
from passback.core.transcript import NOT_ACCEPTED
from passback.models.scripted import ScriptedModel, calls, create, says

pytestmark = pytest.mark.anyio

HI = ModelRequest([UserMessage(MessageId("m1"), "hi")])


async def played(model: ScriptedModel, request: ModelRequest = HI) -> list[Sequence[ModelDelta]]:
    async with model.stream(request) as batches:
        return [batch async for batch in batches]


async def test_a_turn_is_played_step_by_step_in_batches() -> None:
    together: list[ModelDelta] = [ReasoningChunk("hm"), TextChunk("b")]
    model = ScriptedModel([["a", together, TextChunk("c"), Finish("length")]])
    assert await played(model) == [
        (TextChunk("a"),),
        together,
        (TextChunk("c"),),
        (Finish("length"),),
    ]


async def test_each_call_of_the_model_plays_the_next_turn_and_is_recorded() -> None:
    model = ScriptedModel([says("one"), says("two")])
    again = ModelRequest([UserMessage(MessageId("m2"), "again")])
    assert await played(model) == [(TextChunk("one"),), (Finish("stop"),)]
    assert await played(model, again) == [(TextChunk("two"),), (Finish("stop"),)]
    assert model.requests == [HI, again]


async def test_a_call_past_the_end_of_the_script_is_an_error() -> None:
    model = ScriptedModel([says("one")])
    await played(model)
    with pytest.raises(ModelError, match="no turn 2: it ends after 1"):
        await played(model)
    assert model.requests == [HI]


async def test_a_script_may_answer_each_message_from_its_start() -> None:
    """Also within another conversation, and after an answer that was not accepted."""
    model = ScriptedModel([says("one"), says("two")], per_message=True)
    first_answer = AssistantMessage(MessageId("a1"), "one")
    refusal = UserMessage(MessageId("s1"), f"{NOT_ACCEPTED}it is not a JSON object")
    parts = UserMessage(MessageId("m3"), (TextPart(NOT_ACCEPTED),))
    second_request = ModelRequest([*HI.messages, first_answer])
    assert (await played(model, second_request))[0] == (TextChunk("two"),)
    assert (await played(model))[0] == (TextChunk("one"),)
    assert (await played(model, ModelRequest([*second_request.messages, refusal])))[0] == (
        TextChunk("two"),
    )
    assert (await played(model, ModelRequest([*second_request.messages, first_answer, parts])))[
        0
    ] == (TextChunk("one"),)
    with pytest.raises(ModelError, match="no turn 3: it ends after 2"):
        await played(model, ModelRequest([*second_request.messages, first_answer]))
    assert model.requests == [ModelRequest([*second_request.messages, first_answer, parts])]


async def test_calls_writes_a_turn_with_parallel_tool_calls() -> None:
    model = ScriptedModel([calls(("add", {"a": 1}), ("now", {}))])
    assert await played(model) == [
        (ToolCallChunk(0, "call_0", "add"),),
        (ToolCallChunk(0, arguments='{"a": 1}'),),
        (ToolCallChunk(1, "call_1", "now"),),
        (ToolCallChunk(1, arguments="{}"),),
        (Finish("tool_calls"),),
    ]


async def test_an_exception_is_raised_at_its_step() -> None:
    model = ScriptedModel([["a", ModelUnavailable("gone"), "b"]])
    async with model.stream(HI) as batches:
        assert await anext(batches) == (TextChunk("a"),)
        with pytest.raises(ModelUnavailable, match="gone"):
            await anext(batches)


async def test_an_event_holds_the_answer_until_it_is_set() -> None:
    gate, seen = anyio.Event(), list[Sequence[ModelDelta]]()
    model = ScriptedModel([["a", gate, "b"]])

    async def read() -> None:
        seen.extend(await played(model))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert (seen, model.open_streams) == ([], 1)
            gate.set()
    assert seen == [(TextChunk("a"),), (TextChunk("b"),)]


async def test_a_reader_that_leaves_early_closes_the_stream() -> None:
    model = ScriptedModel([says("a", "b")])
    async with model.stream(HI) as batches:
        await anext(batches)
        assert model.open_streams == 1
    assert model.open_streams == 0


async def test_its_name_can_be_given_and_its_check_passes() -> None:
    model = ScriptedModel([], name="openai:gpt-test")
    await model.check()
    await model.aclose()
    assert model.name == "openai:gpt-test"


def test_a_setting_cannot_name_a_script() -> None:
    with pytest.raises(ConfigurationError, match="in Python"):
        create("anything")


def test_media_can_be_allowed() -> None:
    picture = MediaPart("image", "https://x/a.png")
    assert ScriptedModel([]).refuses(picture) == "a scripted model is shown text only"
    assert ScriptedModel([], media=True).refuses(picture) is None
