"""What is asked of a transcript about that which was posted beside words."""

from collections.abc import Sequence

import pytest
from tests.support.judging import result, user

from passback.core.messages import (
    AssistantMessage,
    Brief,
    CallId,
    Message,
    MessageId,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.transcript import brief_of, data_of, futile_turns, paired

SCHEMA = Brief(output_schema={"type": "object"})
DATA = Brief({"a": 1})


def said(brief: Brief | None, name: str = "u") -> UserMessage:
    return UserMessage(MessageId(name), "hi", brief=brief)


def answer(*calls: str) -> AssistantMessage:
    made = tuple(ToolCall(CallId(call), "look", "{}") for call in calls)
    return AssistantMessage(MessageId("a"), "" if calls else "words", made)


def refused() -> SystemMessage:
    return SystemMessage(MessageId("s"), "no", synthetic="invalid")


def invalid(call: str) -> ToolMessage:
    return ToolMessage(MessageId("t"), CallId(call), "no", is_error=True, synthetic="invalid")


@pytest.mark.parametrize(
    ("messages", "brief", "data"),
    [
        ([], None, None),
        ([said(DATA), answer()], DATA, {"a": 1}),
        ([said(DATA), answer(), said(SCHEMA, "u2")], SCHEMA, {"a": 1}),
        ([said(DATA), said(Brief([2]), "u2"), said(None, "u3")], None, [2]),
        ([said(Brief(0)), answer("c"), result("c")], Brief(0), 0),
    ],
)
def test_the_last_brief_counts_and_the_last_data(
    messages: Sequence[Message], brief: Brief | None, data: object
) -> None:
    assert brief_of(messages) == brief
    assert data_of(messages) == data


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ([user()], 0),
        ([user(), answer(), refused()], 1),
        ([user(), answer(), refused(), refused()], 2),
        ([user(), answer("c"), invalid("c"), answer(), refused()], 2),
        ([user(), answer(), refused(), answer("c"), result("c")], 0),
        ([user(), answer(), refused(), user("again")], 0),
        ([user(), SystemMessage(MessageId("s"), "be kind")], 0),
    ],
)
def test_answers_that_were_not_accepted_are_futile_turns(
    messages: Sequence[Message], turns: int
) -> None:
    assert futile_turns(messages) == turns


@pytest.mark.promise("P5")
def test_the_model_is_told_why_as_if_by_a_user_for_it_has_to_answer() -> None:
    posted = SystemMessage(MessageId("p"), "be kind")
    shown = paired([posted, user(), answer(), refused()])
    assert shown == (posted, user(), answer(), UserMessage(MessageId("s"), "no"))
