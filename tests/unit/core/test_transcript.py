"""The small rules over messages: what is open, and what a model may be shown."""

from passback.core.messages import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    Owed,
    Synthetic,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.transcript import (
    SYNTHETIC_TEXT,
    closing_results,
    count_futile_turns,
    owed_answers,
    paired_messages,
    unanswered_calls,
)


def user(text: str = "hi", message_id: str = "u") -> UserMessage:
    return UserMessage(MessageId(message_id), text)


def call(call_id: str, *, client: bool = True) -> ToolCall:
    return ToolCall(CallId(call_id), f"tool_{call_id}", "{}", client)


def asks(*calls: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage(MessageId("a"), text, calls)


def result(call_id: str, content: str = "done") -> ToolMessage:
    return ToolMessage(MessageId("t"), CallId(call_id), content)


def closed(call_id: str, reason: Synthetic, message_id: str) -> ToolMessage:
    text = SYNTHETIC_TEXT[reason]
    return ToolMessage(
        MessageId(message_id), CallId(call_id), text, is_error=True, synthetic=reason
    )


C1, C2 = call("c1"), call("c2")
OWING: list[Message] = [user(), asks(C1, C2)]


# ---------------------------------------------------------------- open calls
def test_nothing_is_open_without_an_assistant_message() -> None:
    assert unanswered_calls([]) == ()
    assert unanswered_calls([user(), result("c1")]) == ()


def test_calls_are_open_until_they_are_answered_in_the_models_order() -> None:
    server = call("s1", client=False)
    messages: list[Message] = [user(), asks(C2, server, C1), result("c2")]
    assert unanswered_calls(messages) == (server, C1)
    assert owed_answers(messages) == (Owed(C1.id, "tool_c1", "{}"),)


def test_a_later_message_closes_the_tail() -> None:
    assert unanswered_calls([*OWING, user()]) == ()


def test_closing_marks_what_the_server_wrote() -> None:
    minted = iter([MessageId("m1"), MessageId("m2")])
    assert closing_results([C1, C2], "timeout", lambda: next(minted)) == (
        ToolMessage(MessageId("m1"), C1.id, SYNTHETIC_TEXT["timeout"], True, "timeout"),
        ToolMessage(MessageId("m2"), C2.id, SYNTHETIC_TEXT["timeout"], True, "timeout"),
    )


# ---------------------------------------------------------------- view of the model
def test_answers_are_put_into_the_calls_order() -> None:
    messages: list[Message] = [user(), asks(C1, C2), result("c2"), result("c1"), user("next", "u2")]
    assert paired_messages(messages) == (
        user(),
        asks(C1, C2),
        result("c1"),
        result("c2"),
        user("next", "u2"),
    )


def test_a_missing_answer_is_filled_in_and_a_stray_or_second_one_left_out() -> None:
    messages: list[Message] = [
        result("c1"),
        asks(C1, C2),
        result("c2", "first"),
        result("c2", "second"),
        user(),
    ]
    assert paired_messages(messages) == (
        asks(C1, C2),
        closed("c1", "interrupted", "c1-interrupted"),
        result("c2", "first"),
        user(),
    )


def test_an_answer_behind_another_message_is_no_answer() -> None:
    assert paired_messages([asks(C1), user(), result("c1")]) == (
        asks(C1),
        closed("c1", "interrupted", "c1-interrupted"),
        user(),
    )


def test_an_empty_answer_of_the_model_is_not_shown() -> None:
    system = SystemMessage(MessageId("s"), "rules")
    assert paired_messages([system, asks(), user()]) == (system, user())


def test_turns_that_made_nothing_but_invalid_calls_are_counted_from_the_end() -> None:
    futile: list[Message] = [
        asks(C1, C2),
        closed("c1", "invalid", "m"),
        closed("c2", "invalid", "m"),
    ]
    assert count_futile_turns([]) == 0
    assert count_futile_turns(futile) == 1
    assert count_futile_turns([user(), *futile, *futile]) == 2
    assert count_futile_turns([*futile, user()]) == 0
    assert count_futile_turns([asks(text="hm"), *futile]) == 1
    assert (
        count_futile_turns([*futile, asks(C1, C2), closed("c1", "invalid", "m"), result("c2")]) == 0
    )
    assert count_futile_turns([*futile, asks(C1), closed("c1", "interrupted", "m")]) == 0
