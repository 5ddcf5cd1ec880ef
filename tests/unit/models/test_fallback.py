"""A list of models: when the next one is asked, and when not."""

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


async def said(models: Fallback, heard: list[ModelDelta] | None = None) -> list[ModelDelta]:
    """What they say; also in `heard`, as far as it came."""
    heard = [] if heard is None else heard
    with anyio.fail_after(10):
        async with models.stream(HI) as batches:
            async for batch in batches:
                heard += batch
    return heard


BY = AnsweredBy("model")
SECOND = [TextChunk("second"), Finish("stop")]


@pytest.mark.parametrize(
    "steps",
    [[DOWN], [ModelRateLimited("slow", retry_after=60)], []],
    ids=["fails", "asks to wait", "ends"],
)
async def test_the_next_model_is_asked_when_one_fails_early(steps: list[Step]) -> None:
    first, second = model(*steps, name="a"), model(*says("second"), name="b")
    assert await said(Fallback([first, second])) == [AnsweredBy("b"), *SECOND]
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
        await said(models)
    assert second.requests == []


async def test_a_refusal_is_not_taken_to_the_next_model() -> None:
    second = model(*says("second"))
    with pytest.raises(ModelRejected, match="no"):
        await said(Fallback([model(ModelRejected("no")), second]))
    assert second.requests == []


async def test_the_last_models_failure_is_told() -> None:
    models = Fallback([model(DOWN), model(DOWN), model(ModelRateLimited("slow"))])
    with pytest.raises(ModelRateLimited, match="slow"):
        await said(models)


async def test_the_last_models_answer_is_passed_on_as_it_is() -> None:
    assert await said(Fallback([model(DOWN), model(COUNTED)])) == [BY, COUNTED]


async def test_what_the_model_counted_before_it_began_is_told() -> None:
    steps: list[Step] = [UsageChunk(Usage(1)), COUNTED, *says("first")]
    assert await said(Fallback([model(*steps), model()])) == [
        BY,
        COUNTED,
        TextChunk("first"),
        Finish("stop"),
    ]


# ---------------------------------------------------------------- what failed attempts used
LOST = LostUsageChunk(COUNTED.usage)


@pytest.mark.parametrize("failing", [[COUNTED], [COUNTED, DOWN], [UsageChunk(Usage(1)), COUNTED]])
async def test_what_a_failed_attempt_used_is_told_before_the_answer(failing: list[Step]) -> None:
    models = Fallback([model(*failing), model(UsageChunk(Usage(2)), *says("second"))])
    assert await said(models) == [LOST, BY, UsageChunk(Usage(2)), *SECOND]


async def test_what_each_failed_attempt_used_is_told_also_when_the_last_fails() -> None:
    heard: list[ModelDelta] = []
    models = Fallback([model(COUNTED, DOWN), model(COUNTED), model(ModelRateLimited("slow"))])
    with pytest.raises(ModelRateLimited, match="slow"):
        await said(models, heard)
    assert heard == [LOST, LOST, BY]


async def test_what_a_refused_request_used_is_told() -> None:
    second = model(*says("second"))
    heard: list[ModelDelta] = []
    with pytest.raises(ModelRejected, match="no"):
        await said(Fallback([model(COUNTED, ModelRejected("no")), second]), heard)
    assert (heard, second.requests) == ([LOST], [])


async def test_a_list_within_a_list_has_not_begun_by_what_it_lost() -> None:
    inner = Fallback([model(COUNTED, DOWN), model(COUNTED, DOWN)])
    assert await said(Fallback([inner, model(*says("second"))])) == [
        LostUsageChunk(Usage(input_tokens=10)),
        BY,
        *SECOND,
    ]
    answers = Fallback([model(COUNTED, DOWN), model(COUNTED, *says("second"), name="b")])
    assert await said(Fallback([answers, model()])) == [AnsweredBy("b"), LOST, COUNTED, *SECOND]


# ---------------------------------------------------------------- the answer


async def test_an_answer_without_a_word_is_an_answer() -> None:
    models = Fallback([model(Finish("stop")), model(*says("second"))])
    assert await said(models) == [BY, Finish("stop")]


async def test_an_answer_comes_as_it_is_said() -> None:
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
        tasks.start_soon(said, Fallback([first, model()]))
        while not first.open_streams:
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert first.open_streams == 0


async def test_the_name_lists_all_and_the_log_who_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = Fallback([model(DOWN, name="a:1"), model(*says("x"), name="b:2")])
    assert models.name == "a:1,b:2"
    with caplog.at_level(logging.WARNING):
        await said(models)
    assert "model=a:1 failed code=model_unavailable next=b:2" in caplog.text


# ---------------------------------------------------------------- all of them
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


def test_it_takes_the_attachments_that_all_of_them_take() -> None:
    picture = MediaPart("image", "https://x/a.png")
    shown, blind = ScriptedModel([], media=True), ScriptedModel([])
    assert Fallback([shown, shown]).refuses(picture) is None
    assert Fallback([shown, blind]).refuses(picture) == "a scripted model is shown text only"
