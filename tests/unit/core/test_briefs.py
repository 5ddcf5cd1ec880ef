"""What is asked of a transcript about that which was posted beside words."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import JsonValue
from tests.unit.core.admission import result, user

from passback.core.messages import (
    AssistantMessage,
    CallId,
    JsonObject,
    Message,
    MessageContext,
    MessageId,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.state import State
from passback.core.transcript import (
    count_futile_turns,
    paired_messages,
    posted_data,
    schema_of_answer,
)

OBJECT: JsonObject = {"type": "object"}
EARLIER: JsonObject = {"type": "object", "title": "earlier"}
SCHEMA = MessageContext(output_schema=OBJECT)
DATA = MessageContext({"a": 1})
FORGET = SummaryMessage(MessageId("s"), "", keeps=0)


def said(brief: MessageContext | None, name: str = "u") -> UserMessage:
    return UserMessage(MessageId(name), "hi", brief=brief)


def answer(*calls: str) -> AssistantMessage:
    made = tuple(ToolCall(CallId(call), "look", "{}") for call in calls)
    return AssistantMessage(MessageId("a"), "" if calls else "words", made)


def refused() -> SystemMessage:
    return SystemMessage(MessageId("s"), "no", synthetic="invalid")


def invalid(call: str) -> ToolMessage:
    return ToolMessage(MessageId("t"), CallId(call), "no", is_error=True, synthetic="invalid")


@pytest.mark.parametrize(
    ("messages", "schema", "data"),
    [
        ([], EARLIER, "earlier"),
        ([answer("c"), result("c")], EARLIER, "earlier"),
        ([said(DATA), answer()], None, {"a": 1}),
        ([said(DATA), answer(), said(SCHEMA, "u2")], OBJECT, {"a": 1}),
        ([said(SCHEMA), said(MessageContext([2]), "u2"), said(None, "u3")], None, [2]),
        ([said(SCHEMA), answer("c"), result("c")], OBJECT, "earlier"),
        ([said(MessageContext(0))], None, 0),
        ([said(DATA), said(MessageContext(forgets=True), "u2")], None, None),
        ([said(MessageContext(forgets=True)), said(DATA, "u2")], None, {"a": 1}),
        ([said(DATA), FORGET, said(None, "u2")], None, None),
        ([FORGET], EARLIER, None),
        ([FORGET, said(DATA)], None, {"a": 1}),
        ([said(DATA), replace(FORGET, content="notes"), said(None, "u2")], None, {"a": 1}),
        ([said(DATA), replace(FORGET, keeps=1), said(None, "u2")], None, {"a": 1}),
    ],
)
def test_the_last_message_says_the_schema_and_the_last_data_count(
    messages: Sequence[Message], schema: JsonObject | None, data: JsonValue
) -> None:
    assert schema_of_answer(messages, EARLIER) == schema
    assert posted_data(messages, "earlier") == data


@pytest.mark.parametrize("boundary", range(4))
def test_a_boundary_takes_along_what_was_posted_before_it(boundary: int) -> None:
    messages: list[Message] = [
        said(MessageContext([1], output_schema=OBJECT)),
        answer("c"),
        result("c"),
    ]
    whole = State().with_history_start(0, messages)
    moved = State().with_history_start(boundary, messages)
    for state in (moved, moved.with_history_start(3, messages[boundary:])):
        left = messages[state.history_start :]
        assert schema_of_answer(left, state.output_schema) == OBJECT
        assert posted_data(left, state.data) == [1]
    assert whole == State()


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
    assert count_futile_turns(messages) == turns


@pytest.mark.promise("P5")
def test_the_model_is_told_why_as_if_by_a_user_for_it_has_to_answer() -> None:
    posted = SystemMessage(MessageId("p"), "be kind")
    shown = paired_messages([posted, user(), answer(), refused()])
    assert shown == (posted, user(), answer(), UserMessage(MessageId("s"), "no"))
