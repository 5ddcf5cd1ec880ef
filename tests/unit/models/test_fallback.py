"""A list of models: the next one is asked if one fails early."""

import logging

import anyio
import pytest
from typing_extensions import override

from passback.core.deltas import (
    AnsweredBy,
    Finish,
    LostUsageChunk,
    ModelDelta,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from passback.core.errors import (
    ModelError,
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)
from passback.core.messages import MediaPart, MessageId, Usage, UserMessage
from passback.models.fallback import Fallback
from passback.models.scripted import ScriptedModel, Step, says

pytestmark = pytest.mark.anyio

HI = ModelRequest([UserMessage(MessageId("m1"), "hi")])
DOWN = ModelUnavailable("down")
COUNTED = UsageChunk(Usage(input_tokens=5))


def model(*steps: Step, name: str = "model") -> ScriptedModel:
    return ScriptedModel([steps], name=name)


async def deltas_of(models: Fallback, deltas: list[ModelDelta] | None = None) -> list[ModelDelta]:
    """Return the deltas of the answer; also add them to `deltas`, as far as they came."""
    deltas = [] if deltas is None else deltas
    with anyio.fail_after(10):
        async with models.stream(HI) as batches:
            async for batch in batches:
                deltas += batch
    return deltas


BY = AnsweredBy("model")
SECOND = [TextChunk("second"), Finish("stop")]


@pytest.mark.parametrize(
    "steps",
    [[DOWN], [ModelRateLimited("slow", retry_after=60)], []],
    ids=["fails", "asks to wait", "ends"],
)
async def test_the_next_model_is_asked_when_one_fails_early(steps: list[Step]) -> None:
    first, second = model(*steps, name="a"), model(*says("second"), name="b")
    assert await deltas_of(Fallback([first, second])) == [AnsweredBy("b"), *SECOND]
    assert [first.requests, second.requests] == [[HI], [HI]]
    assert (first.open_streams, second.open_streams) == (0, 0)


@pytest.mark.parametrize(
    "begun",
    [
        TextChunk("first"),
        ReasoningChunk("hm"),
        ToolCallChunk(0, "c", "f"),
        [COUNTED, TextChunk("first")],
    ],
    ids=repr,
)
async def test_a_model_that_has_begun_is_not_replaced(begun: Step) -> None:
    second = model(*says("second"))
    models = Fallback([model(begun, DOWN), second])
    with pytest.raises(ModelUnavailable, match="down"):
        await deltas_of(models)
    assert second.requests == []


async def test_a_refusal_is_not_taken_to_the_next_model() -> None:
    second = model(*says("second"))
    with pytest.raises(ModelRejected, match="no"):
        await deltas_of(Fallback([model(ModelRejected("no")), second]))
    assert second.requests == []


async def test_the_failure_of_the_last_model_is_raised() -> None:
    models = Fallback([model(DOWN), model(DOWN), model(ModelRateLimited("slow"))])
    with pytest.raises(ModelRateLimited, match="slow"):
        await deltas_of(models)


async def test_the_last_models_answer_is_passed_on_as_it_is() -> None:
    assert await deltas_of(Fallback([model(DOWN), model(COUNTED)])) == [BY, COUNTED]


async def test_usage_before_the_first_text_is_passed_on() -> None:
    steps: list[Step] = [UsageChunk(Usage(1)), COUNTED, *says("first")]
    assert await deltas_of(Fallback([model(*steps), model()])) == [
        BY,
        COUNTED,
        TextChunk("first"),
        Finish("stop"),
    ]


# ---------------------------------------------------------------- usage of failed attempts
LOST = LostUsageChunk(COUNTED.usage)


@pytest.mark.parametrize("failing", [[COUNTED], [COUNTED, DOWN], [UsageChunk(Usage(1)), COUNTED]])
async def test_the_usage_of_a_failed_attempt_comes_before_the_answer(failing: list[Step]) -> None:
    models = Fallback([model(*failing), model(UsageChunk(Usage(2)), *says("second"))])
    assert await deltas_of(models) == [LOST, BY, UsageChunk(Usage(2)), *SECOND]


async def test_the_usage_of_each_failed_attempt_comes_even_if_the_last_fails() -> None:
    deltas: list[ModelDelta] = []
    models = Fallback([model(COUNTED, DOWN), model(COUNTED), model(ModelRateLimited("slow"))])
    with pytest.raises(ModelRateLimited, match="slow"):
        await deltas_of(models, deltas)
    assert deltas == [LOST, LOST, BY]


async def test_the_usage_of_a_refused_request_is_passed_on() -> None:
    second = model(*says("second"))
    deltas: list[ModelDelta] = []
    with pytest.raises(ModelRejected, match="no"):
        await deltas_of(Fallback([model(COUNTED, ModelRejected("no")), second]), deltas)
    assert (deltas, second.requests) == ([LOST], [])


async def test_lost_usage_of_a_nested_list_does_not_begin_its_answer() -> None:
    inner = Fallback([model(COUNTED, DOWN), model(COUNTED, DOWN)])
    assert await deltas_of(Fallback([inner, model(*says("second"))])) == [
        LostUsageChunk(Usage(input_tokens=10)),
        BY,
        *SECOND,
    ]
    answers = Fallback([model(COUNTED, DOWN), model(COUNTED, *says("second"), name="b")])
    assert await deltas_of(Fallback([answers, model()])) == [
        AnsweredBy("b"),
        LOST,
        COUNTED,
        *SECOND,
    ]


# ---------------------------------------------------------------- the answer
async def test_an_empty_answer_is_an_answer() -> None:
    models = Fallback([model(Finish("stop")), model(*says("second"))])
    assert await deltas_of(models) == [BY, Finish("stop")]


async def test_an_answer_is_streamed() -> None:
    gate = anyio.Event()
    first = model("one", gate, "two")
    async with Fallback([first, model()]).stream(HI) as batches:
        assert list(await anext(batches)) == [BY, TextChunk("one")]
        assert first.open_streams == 1
        gate.set()
        assert list(await anext(batches)) == [TextChunk("two")]
    assert first.open_streams == 0


async def test_leaving_early_closes_the_model_that_answers() -> None:
    second = model("one", anyio.Event())
    async with Fallback([model(DOWN), second, model()]).stream(HI) as batches:
        await anext(batches)
        assert second.open_streams == 1
    assert second.open_streams == 0


async def test_being_cancelled_before_the_first_word_closes_the_model() -> None:
    first = model(anyio.Event())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deltas_of, Fallback([first, model()]))
        while not first.open_streams:
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert first.open_streams == 0


async def test_the_name_lists_all_models_and_the_log_names_the_failed_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = Fallback([model(DOWN, name="a:1"), model(*says("x"), name="b:2")])
    assert models.name == "a:1,b:2"
    with caplog.at_level(logging.WARNING):
        await deltas_of(models)
    assert "model=a:1 failed code=model_unavailable next=b:2" in caplog.text


# ---------------------------------------------------------------- checking and closing
class Broken(ScriptedModel):
    """A model that cannot be used, nor closed properly."""

    def __init__(self, failure: ModelError | None = None) -> None:
        super().__init__([])
        self.closed = False
        self._failure = failure

    @override
    async def check(self) -> None:
        if self._failure:
            raise self._failure

    @override
    async def aclose(self) -> None:
        self.closed = True
        if self._failure:
            raise self._failure


async def test_each_model_is_checked() -> None:
    assert await Fallback([Broken(), Broken()]).check() == []
    with pytest.raises(ModelIncomplete):
        await Fallback([Broken(), Broken(ModelIncomplete("x"))]).check()


async def test_each_model_is_closed_whatever_becomes_of_the_others() -> None:
    models = [Broken(), Broken(DOWN), Broken()]
    with pytest.raises(ModelUnavailable):
        await Fallback(models).aclose()
    assert [each.closed for each in models] == [True] * 3


def test_attachments_are_taken_if_all_models_take_them() -> None:
    picture = MediaPart("image", "https://x/a.png")
    shown, blind = ScriptedModel([], media=True), ScriptedModel([])
    assert Fallback([shown, shown]).refuses(picture) is None
    assert Fallback([shown, blind]).refuses(picture) == "a scripted model is shown text only"
