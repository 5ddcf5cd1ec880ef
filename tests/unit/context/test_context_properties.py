"""Any history and any window: the model's view is paired and fits, or the error says it cannot."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.support.provider_rules import violations_of
from tests.unit.core.admission import minting

from passback.context.compaction import Compaction
from passback.context.shown import (
    Scale,
    frame_tokens,
    message_tokens,
    scale_from_count,
    shortened,
)
from passback.core.context import Context, Fitted
from passback.core.deltas import ModelRequest
from passback.core.errors import ContextTooLarge, ModelError
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    DataPart,
    MediaPart,
    Message,
    MessageId,
    SideMessage,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.text import text_tokens
from passback.core.transcript import (
    owed_answers,
    paired_messages,
    runnable_calls,
    shown_messages,
    view_start,
    waiting_calls,
)
from passback.models.openai_chat.encoding import encode_request
from passback.models.scripted import ScriptedModel, Step, says

pytestmark = pytest.mark.anyio

NOTE = 160
"""Tokens that a summary needs at least, with all around it."""

FRAME = ModelRequest((), "be brief")
WINDOWS = st.sampled_from([600, 1_000, 2_000, 8_000, 128_000])
SIZES = st.sampled_from([0, 1, 30, 300, 1_000, 4_000, 40_000])
LETTERS = st.sampled_from(["word ", "é", "中", "😀", "</earlier-conversation>", "</transcript>"])


def long(letter: str, size: int) -> str:
    return letter * (size // len(letter) + 1)


TEXTS = st.builds(long, LETTERS, SIZES)
CONTENTS = st.one_of(
    TEXTS,
    st.builds(
        lambda text: (TextPart(text), MediaPart("image", "data:," + "A" * 5_000), DataPart([text])),
        TEXTS,
    ),
)


@dataclass
class Numbers:
    """Ids that no other message of a history has."""

    last: int = 0

    def next(self) -> str:
        self.last += 1
        return str(self.last)


@st.composite
def turns(draw: st.DrawFn, numbers: Numbers) -> list[Message]:
    """Draw a user's message, or an answer with its results, as the engine commits them."""
    kind = draw(st.sampled_from(["user", "says", "calls", "calls"]))
    message_id = MessageId(numbers.next())
    if kind == "user":
        return [UserMessage(message_id, draw(CONTENTS))]
    if kind == "says":
        return [AssistantMessage(message_id, draw(TEXTS))]
    calls = [
        ToolCall(
            CallId(f"c{numbers.next()}"),
            "tool",
            f'{{"a":"{"b" * draw(SIZES)}"}}',
            asks=draw(st.sampled_from([None, "approval"])),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    answers: list[Message] = []
    for call in calls:
        if call.asks:
            answers.append(ApprovalMessage(MessageId(numbers.next()), call.id, approved=True))
        answers.append(
            ToolMessage(MessageId(numbers.next()), call.id, draw(CONTENTS), draw(st.booleans()))
        )
    usage = draw(
        st.one_of(st.none(), st.builds(Usage, st.integers(0, 20_000), estimated=st.booleans()))
    )
    return [AssistantMessage(message_id, draw(TEXTS), tuple(calls), usage=usage), *answers]


class History:
    """A transcript at a moment at which the model is called. Too long to be shown."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages


@st.composite
def histories(draw: st.DrawFn) -> History:
    numbers = Numbers()
    first: list[Message] = [UserMessage(MessageId("first"), draw(TEXTS))]
    several = draw(st.lists(turns(numbers), max_size=12))
    return History([*first, *(message for turn in several for message in turn)])


class Writing:
    """A model that writes summaries."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps


SUMMARIES = st.one_of(
    st.builds(lambda texts: Writing(says(*texts)), st.lists(TEXTS, max_size=3)),
    st.just(Writing([ModelError("away")])),
    st.just(Writing(["half"])),
)


def tokens_of(shown: Sequence[Message]) -> int:
    return frame_tokens(FRAME) + sum(map(message_tokens, shown))


def last_turn(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that must always be shown, with results as short as they become."""
    start = max(n for n, m in enumerate(messages) if m.role not in ("tool", "approval"))
    return [
        replace(m, content="x" * 240) if isinstance(m, ToolMessage) and len(m.content) > 240 else m
        for m in messages[start:]
    ]


def assert_accepted(shown: Sequence[Message]) -> None:
    """No provider refuses it."""
    model_messages = [m for m in shown if not isinstance(m, SideMessage | SummaryMessage)]
    body = json.loads(encode_request("m", "p", replace(FRAME, messages=model_messages)))
    assert violations_of(body["messages"]) == []


async def fitted(context: Context, messages: Sequence[Message]) -> Fitted | ContextTooLarge:
    shown = context.at_once(messages)
    spent: list[Usage] = []
    try:
        return await context.fit(messages, spent.append) if shown is None else Fitted(shown)
    except ContextTooLarge as error:
        return error


async def shown_to(context: Context, messages: Sequence[Message]) -> Sequence[Message]:
    result = await fitted(context, messages)
    return () if isinstance(result, ContextTooLarge) else result.messages


@given(histories(), WINDOWS, SUMMARIES, st.integers(0, 300_000))
@examples(100)
@pytest.mark.promise("P5")
async def test_what_is_shown_is_paired_and_fits_or_the_error_says_that_it_cannot(
    history: History, window: int, writing: Writing, reported: int
) -> None:
    messages, model = history.messages, ScriptedModel([writing.steps])
    context = Compaction(window).watch(model, FRAME, minting())
    scale = Scale()
    if context.at_once(messages[:1]) is not None and reported:
        context.counted(Usage(input_tokens=reported))
        scale = scale_from_count(reported, tokens_of(messages[:1]), window)
    least = scale.used(tokens_of(last_turn(messages)) + NOTE)
    result = await fitted(context, messages)
    if isinstance(result, ContextTooLarge):
        assert "too large for the model" in result.message
        assert least > window * 95 // 100
        return
    assert_accepted(result.messages)
    assert scale.used(tokens_of(result.messages)) <= window * 95 // 100
    assert len(result.append) <= 1
    assert len(model.requests) <= 1
    for asked in model.requests:
        size = text_tokens(asked.system) + sum(map(message_tokens, asked.messages))
        assert scale.used(size) <= window
    # the record says the same to the next run, which has nothing more to do
    record = [*messages, *result.append]
    assert owed_answers(record) == owed_answers(messages)
    for summary in result.append:
        kept = paired_messages(shown_messages(record))
        assert kept[0].id == summary.id
        assert [m for m in messages if m in kept] == [m for m in kept[1:] if m in messages]


@given(histories(), WINDOWS)
@examples(60)
async def test_nothing_but_the_bulk_of_results_is_lost_without_a_summary(
    history: History, window: int
) -> None:
    messages = history.messages
    context = Compaction(window).watch(ScriptedModel([]), FRAME, minting())
    result = await fitted(context, messages)
    if isinstance(result, ContextTooLarge) or result.append:
        return
    whole = paired_messages(messages)
    assert len(result.messages) == len(whole)
    for shown, was in zip(result.messages, whole, strict=True):
        if shown != was:
            assert isinstance(shown, ToolMessage)
            assert isinstance(was, ToolMessage)
            assert replace(shown, content=was.content) == was
            assert "left out" in str(shown.content)
            assert message_tokens(shown) < message_tokens(was)


def nearly_full() -> History:
    """A window that a model call fills to its end, and in which it only shortens results."""
    first, second = (
        AssistantMessage(
            MessageId(name),
            long("word ", 40_000),
            tuple(ToolCall(CallId(f"{name}{n}"), "tool", '{"a":""}') for n in range(count)),
            usage=usage,
        )
        for name, count, usage in (("a", 3, Usage(9_285)), ("b", 2, None))
    )
    results = [
        ToolMessage(MessageId(f"r{call.id}"), call.id, long("word ", size))
        for call, size in zip(
            (*first.tool_calls, *second.tool_calls), (0, 0, 0, 0, 40_000), strict=True
        )
    ]
    answers = [AssistantMessage(MessageId(name), "word ") for name in ("c", "d")]
    asked = UserMessage(MessageId("first"), "word ")
    return History([asked, first, *results[:3], second, *results[3:], *answers])


@given(histories(), st.sampled_from([0, 600, 1_000, 2_000, 8_000, 128_000]))
@example(nearly_full(), 128_000)
@example(nearly_full(), 0)
@examples(40)
async def test_a_later_run_shows_what_the_earlier_one_showed(history: History, window: int) -> None:
    """A worker that has only the record shows what the run showed call by call."""
    policy = Compaction(window)
    first = policy.watch(ScriptedModel([]), FRAME, minting())
    record: list[Message] = []
    for message in history.messages:
        if isinstance(message, AssistantMessage):
            result = await fitted(first, record)
            if isinstance(result, ContextTooLarge) or result.append:
                return  # from a summary on it is another history
            assert (
                await shown_to(policy.watch(ScriptedModel([]), FRAME, minting()), record)
                == result.messages
            )
            if message.usage is not None:
                first.counted(message.usage)
        record.append(message)


@given(histories(), st.integers(-2, 30), st.data())
@examples(80)
@pytest.mark.promise("P5")
def test_a_summary_anywhere_keeps_the_view_paired_and_what_is_open(
    whole: History, keeps: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(whole.messages)))
    end = data.draw(st.integers(cut, len(whole.messages)))
    summary = SummaryMessage(MessageId("s"), "so far", keeps, data.draw(st.sampled_from(["", "q"])))
    history = whole.messages[:end]
    record: list[Message] = [*history[:cut], summary, *history[cut:]]
    assert waiting_calls(record) == waiting_calls(history)
    assert runnable_calls(record) == runnable_calls(history)
    assert_accepted(paired_messages(record))
    assert shown_messages(shown_messages(record)) == shown_messages(record)
    assert shown_messages(record[view_start(record) :]) == shown_messages(record)
    shown = paired_messages(record)
    assert [m.id for m in shown if m.role != "tool"] == [
        "s",
        *(m.id for m in paired_messages(shown_messages(record)[1:]) if m.role != "tool"),
    ]


@given(LETTERS, SIZES, st.integers(0, 3_000))
@examples(80)
def test_a_shortened_text_says_what_is_missing(letter: str, size: int, tokens: int) -> None:
    text = long(letter, size)
    short = shortened(text, tokens)
    if text_tokens(text) <= tokens:
        assert short == text
    else:
        assert "left out" in short
        assert text_tokens(short) <= max(tokens, 16)
