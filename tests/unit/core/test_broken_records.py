"""Models are shown whole messages that every service takes, of any damaged record (P5)."""

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.support.provider_rules import refusals_of

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    Message,
    MessageId,
    Reasoning,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.transcript import (
    closing_results,
    owed_answers,
    paired_messages,
    shown_messages,
    unanswered_calls,
    view_start,
    waiting_calls,
)

TEXTS = st.sampled_from(["", "text", "  "])


class Record:
    """A record, whole. Too long to be shown."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Draw turns as the engine commits them, with approvals, sub-agents and summaries."""
    numbers = map(str, itertools.count())
    messages: list[Message] = [UserMessage(MessageId(next(numbers)), "hi")]
    for _ in range(draw(st.integers(0, 6))):
        messages += _turn(draw, numbers)
    return Record(messages)


def _turn(draw: st.DrawFn, numbers: Iterator[str]) -> list[Message]:
    message_id = MessageId(next(numbers))
    match draw(st.sampled_from(["user", "says", "summary", "calls", "calls", "calls"])):
        case "user":
            return [UserMessage(message_id, "more")]
        case "says":
            return [AssistantMessage(message_id, "text", reasoning=_thoughts(draw))]
        case "summary":
            return [SummaryMessage(message_id, "so far", draw(st.integers(0, 9)))]
        case _:
            return _calls(draw, message_id, numbers)


def _thoughts(draw: st.DrawFn) -> tuple[Reasoning, ...]:
    return draw(st.sampled_from([(), (Reasoning("hm", "openai", "reasoning_content"),)]))


def _calls(draw: st.DrawFn, message_id: MessageId, numbers: Iterator[str]) -> list[Message]:
    calls = [
        ToolCall(
            CallId(f"c{next(numbers)}"),
            "tool",
            "{}",
            draw(st.booleans()),
            draw(st.sampled_from([None, "same", "same"])),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    behind: list[Message] = []
    for call in draw(st.permutations(calls)):
        if draw(st.booleans()):
            behind.append(ApprovalMessage(MessageId(next(numbers)), call.id, approved=True))
        if draw(st.booleans()):
            behind.append(
                ChildMessage(call.id, AssistantMessage(MessageId(next(numbers)), "inner"))
            )
        result = ToolMessage(MessageId(next(numbers)), call.id, draw(TEXTS), draw(st.booleans()))
        behind.append(result)
    if draw(st.booleans()):
        note = SystemMessage(MessageId(next(numbers)), "not accepted", synthetic="invalid")
        behind.append(note)
    return [AssistantMessage(message_id, draw(TEXTS), tuple(calls)), *behind]


@st.composite
def broken(draw: st.DrawFn) -> Record:
    """Draw a record with messages missing, doubled or moved; it begins with the user."""
    first, *others = draw(records()).messages
    kept = [each for each in others if draw(st.integers(0, 4))]
    answers = [each for each in kept if isinstance(each, ToolMessage)]
    for answer in answers:
        if not draw(st.integers(0, 4)):
            kept.insert(draw(st.integers(0, len(kept))), answer)
    cut = draw(st.integers(0, len(kept)))
    return Record([first, *kept[:cut]])


def refused(shown: Sequence[Message]) -> list[str]:
    sendable = [each for each in shown if not isinstance(each, ApprovalMessage | ChildMessage)]
    return refusals_of(
        ModelRequest([each for each in sendable if not isinstance(each, SummaryMessage)], "rules")
    )


@given(records())
@examples(150)
@pytest.mark.promise("P5")
def test_every_service_takes_what_is_shown_of_a_whole_record(record: Record) -> None:
    shown = paired_messages(record.messages)
    assert refused(shown) == []
    assert not any(isinstance(each, ToolMessage) and each.synthetic for each in shown)


@given(broken())
@examples(300)
@pytest.mark.promise("P5")
def test_every_service_takes_what_is_shown_of_a_broken_one_and_mending_it_again_changes_nothing(
    record: Record,
) -> None:
    messages = record.messages
    shown = paired_messages(messages)
    assert refused(shown) == []
    assert paired_messages(shown) == shown
    assert paired_messages(shown_messages(messages)) == shown
    assert paired_messages(messages[view_start(messages) :]) == shown
    # what stands there is shown as it is, and what is made up is an error that says so
    kept = {each.id: each for each in shown_messages(messages)}
    for each in shown:
        if isinstance(each, ToolMessage) and each.synthetic:
            assert (each.is_error, each.synthetic) == (True, "interrupted")
        elif not isinstance(each, UserMessage):
            assert kept[each.id] == each


@given(broken())
@examples(150)
@pytest.mark.promise("P2", "P5")
def test_closing_what_is_open_leaves_nothing_open_and_is_done_once(record: Record) -> None:
    """A run that is cut does this, and so does one that is taken over."""
    messages = record.messages
    numbers = itertools.count()
    closed = [
        *messages,
        *closing_results(
            unanswered_calls(messages), "interrupted", lambda: MessageId(f"n{next(numbers)}")
        ),
    ]
    assert (unanswered_calls(closed), owed_answers(closed), waiting_calls(closed)) == ((), (), ())
    assert refused(paired_messages(closed)) == []
    assert (
        closing_results(unanswered_calls(closed), "interrupted", lambda: MessageId("never")) == ()
    )
