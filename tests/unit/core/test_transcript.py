"""What a post means, row by row of the table in docs/design.md, and the small rules beneath it."""

import itertools
from collections.abc import Mapping, Sequence

import pytest

from passback.core.errors import ConversationBusy, NothingToDo, ResultConflict, UnknownToolCall
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    DataPart,
    MediaPart,
    Message,
    MessageId,
    Owed,
    PostedMessage,
    RunId,
    Synthetic,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.transcript import (
    SYNTHETIC_TEXT,
    Answer,
    Begins,
    Joins,
    Parks,
    Verdict,
    accept,
    closing,
    fingerprint,
    owed,
    paired,
    unanswered,
)


def user(text: str = "hi", message_id: str = "u") -> UserMessage:
    return UserMessage(MessageId(message_id), text)


def call(call_id: str, *, client: bool = True) -> ToolCall:
    return ToolCall(CallId(call_id), f"tool_{call_id}", "{}", client)


def asks(*calls: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage(MessageId("a"), text, calls)


def result(call_id: str, content: Content = "done", message_id: str = "t") -> ToolMessage:
    return ToolMessage(MessageId(message_id), CallId(call_id), content)


def closed(call_id: str, reason: Synthetic = "superseded", minted: str = "minted-1") -> ToolMessage:
    text = SYNTHETIC_TEXT[reason]
    return ToolMessage(MessageId(minted), CallId(call_id), text, is_error=True, synthetic=reason)


def prints(**contents: str) -> dict[CallId, str]:
    return {CallId(name): fingerprint(content, False) for name, content in contents.items()}


def superseded_print() -> str:
    return fingerprint(SYNTHETIC_TEXT["superseded"], True)


def judge(
    messages: Sequence[Message],
    *posted: PostedMessage,
    answers: Mapping[str, Answer] | None = None,
    running: str | None = None,
) -> Verdict:
    count = itertools.count(1)
    return accept(
        messages,
        posted,
        lambda: MessageId(f"minted-{next(count)}"),
        answers={CallId(name): answer for name, answer in (answers or {}).items()},
        running=RunId(running) if running else None,
    )


IDLE: list[Message] = [user(), AssistantMessage(MessageId("a"), "hello")]
C1, C2 = call("c1"), call("c2")
OWING: list[Message] = [user(), asks(C1, C2)]
DONE = Answer(fingerprint("done", False), RunId("r1"))
PARKED = Answer(fingerprint("done", False))


# ---------------------------------------------------------------- the table
def test_a_user_message_to_an_idle_conversation_starts_a_run() -> None:
    assert judge(IDLE, user("more")) == Begins((user("more"),), {})


def test_the_first_message_of_a_conversation_starts_a_run() -> None:
    system = SystemMessage(MessageId("s"), "be kind")
    assert judge([], system, user()) == Begins((system, user()), {})


def test_all_owed_results_in_any_order_start_a_run() -> None:
    posted = (result("c2", "two"), result("c1", "one"))
    assert judge(OWING, *posted) == Begins(posted, prints(c2="two", c1="one"))


def test_the_last_of_several_posts_starts_a_run_that_all_the_answers_lead_to() -> None:
    messages: list[Message] = [*OWING, result("c2", "two")]
    assert judge(messages, result("c1", "one")) == Begins(
        (result("c1", "one"),), prints(c1="one", c2="two")
    )


def test_some_of_the_owed_results_are_parked_and_the_rest_is_named() -> None:
    assert judge(OWING, result("c2")) == Parks(
        (result("c2"),), prints(c2="done"), (Owed(C1.id, "tool_c1", "{}"),)
    )


def test_a_user_message_supersedes_what_is_owed() -> None:
    assert judge(OWING, user("never mind")) == Begins(
        (closed("c1"), closed("c2", minted="minted-2"), user("never mind")),
        {C1.id: superseded_print(), C2.id: superseded_print()},
    )


def test_results_come_before_a_user_message_and_the_rest_is_superseded() -> None:
    assert judge(OWING, user("and now?"), result("c2")) == Begins(
        (result("c2"), closed("c1"), user("and now?")),
        {C2.id: fingerprint("done", False), C1.id: superseded_print()},
    )


def test_a_result_for_a_call_that_is_not_handed_back_yet_is_unknown_while_its_run_goes_on() -> None:
    with pytest.raises(UnknownToolCall):
        judge(OWING, result("c1"), running="r1")


def test_a_user_message_during_a_run_meets_busy() -> None:
    with pytest.raises(ConversationBusy) as raised:
        judge(IDLE, user(), running="r1")
    assert raised.value.retry_after == 1


def test_a_repeated_result_and_a_user_message_during_a_run_meet_busy() -> None:
    with pytest.raises(ConversationBusy):
        judge(OWING, result("c1"), user(), answers={"c1": DONE}, running="r1")


@pytest.mark.parametrize("running", [None, "r1", "r2"])
def test_an_equal_repeat_joins_the_run_that_the_first_post_started(running: str | None) -> None:
    messages: list[Message] = [*OWING, result("c1"), result("c2")]
    answers = {"c1": DONE, "c2": DONE}
    assert judge(messages, result("c1"), result("c2"), answers=answers, running=running) == Joins(
        RunId("r1")
    )
    assert judge(messages, result("c2"), answers=answers, running=running) == Joins(RunId("r1"))


def test_an_equal_repeat_of_a_parked_result_changes_nothing() -> None:
    verdict = judge([*OWING, result("c1")], result("c1"), answers={"c1": PARKED})
    assert verdict == Parks((), {}, (Owed(C2.id, "tool_c2", "{}"),))


def test_a_repeat_together_with_the_missing_result_starts_the_run() -> None:
    verdict = judge([*OWING, result("c1")], result("c1"), result("c2"), answers={"c1": PARKED})
    assert verdict == Begins((result("c2"),), prints(c1="done", c2="done"))


def test_other_content_for_an_answered_call_is_a_conflict() -> None:
    with pytest.raises(ResultConflict):
        judge([*OWING, result("c1")], result("c1", "other"), answers={"c1": PARKED})


def test_an_error_is_other_content_than_the_same_words_as_a_result() -> None:
    failed = ToolMessage(MessageId("t"), C1.id, "done", is_error=True)
    with pytest.raises(ResultConflict):
        judge([*OWING, result("c1")], failed, answers={"c1": PARKED})


def test_a_late_result_for_a_superseded_call_is_a_conflict() -> None:
    answers = {"c1": Answer(superseded_print(), RunId("r2"))}
    with pytest.raises(ResultConflict):
        judge(IDLE, result("c1"), answers=answers)


@pytest.mark.parametrize("messages", [[], IDLE, OWING], ids=["none", "idle", "owing"])
@pytest.mark.promise("P9", "P13")
def test_a_result_for_a_call_that_was_never_made_is_unknown(messages: list[Message]) -> None:
    with pytest.raises(UnknownToolCall):
        judge(messages, result("c9"))


@pytest.mark.promise("P13")
def test_a_client_cannot_answer_a_servers_call() -> None:
    with pytest.raises(UnknownToolCall):
        judge([user(), asks(call("c1", client=False), C2)], result("c1"))


def test_no_message_is_nothing_to_do() -> None:
    with pytest.raises(NothingToDo):
        judge(OWING)


# ---------------------------------------------------------------- finer points
def test_the_same_result_twice_in_one_post_counts_once() -> None:
    again = result("c1", message_id="again")
    assert judge([user(), asks(C1)], result("c1"), again) == Begins(
        (result("c1"),), prints(c1="done")
    )


def test_two_results_for_one_call_in_one_post_are_a_conflict() -> None:
    with pytest.raises(ResultConflict):
        judge(OWING, result("c1", "one"), result("c1", "two"))


def test_a_servers_call_that_a_crash_left_open_is_closed_as_interrupted() -> None:
    messages: list[Message] = [user(), asks(C1, call("s1", client=False))]
    verdict = judge(messages, result("c1"))
    assert isinstance(verdict, Begins)
    assert verdict.append == (result("c1"), closed("s1", "interrupted"))


def test_answers_of_an_earlier_run_keep_leading_to_it() -> None:
    """A run that failed without a word leaves the answers at the tail; the next post must not claim them."""
    messages: list[Message] = [*OWING, result("c1"), result("c2")]
    assert judge(messages, user("again")) == Begins((user("again"),), {})


def test_a_servers_answer_at_the_tail_is_not_remembered_as_the_clients() -> None:
    messages: list[Message] = [
        user(),
        asks(call("s1", client=False), C1, C2),
        result("s1"),
        result("c1"),
    ]
    assert judge(messages, result("c2")) == Begins((result("c2"),), prints(c1="done", c2="done"))


# ---------------------------------------------------------------- what is open
def test_nothing_is_open_without_an_assistant_message() -> None:
    assert unanswered([]) == ()
    assert unanswered([user(), result("c1")]) == ()


def test_calls_are_open_until_they_are_answered_in_the_models_order() -> None:
    server = call("s1", client=False)
    messages: list[Message] = [user(), asks(C2, server, C1), result("c2")]
    assert unanswered(messages) == (server, C1)
    assert owed(messages) == (Owed(C1.id, "tool_c1", "{}"),)


def test_a_later_message_closes_the_tail() -> None:
    assert unanswered([*OWING, user()]) == ()


def test_closing_marks_what_the_server_wrote() -> None:
    minted = iter([MessageId("m1"), MessageId("m2")])
    assert closing([C1, C2], "timeout", lambda: next(minted)) == (
        ToolMessage(MessageId("m1"), C1.id, SYNTHETIC_TEXT["timeout"], True, "timeout"),
        ToolMessage(MessageId("m2"), C2.id, SYNTHETIC_TEXT["timeout"], True, "timeout"),
    )


# ---------------------------------------------------------------- fingerprints
def test_equal_content_has_one_fingerprint_whatever_the_order_of_keys() -> None:
    one = (DataPart({"a": 1, "b": [None, "ü"]}), TextPart("x"))
    same = (DataPart({"b": [None, "ü"], "a": 1}), TextPart("x"))
    assert fingerprint(one, False) == fingerprint(same, False)
    assert len(fingerprint(one, False)) == 64


@pytest.mark.parametrize(
    "other",
    ["done ", (TextPart("done"),), (DataPart("done"),), (MediaPart("file", "done"),), ()],
)
def test_other_content_has_another_fingerprint(other: Content) -> None:
    assert fingerprint("done", False) != fingerprint(other, False)


# ---------------------------------------------------------------- what a model may be shown
def test_answers_are_put_into_the_calls_order() -> None:
    messages: list[Message] = [user(), asks(C1, C2), result("c2"), result("c1"), user("next", "u2")]
    assert paired(messages) == (
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
    assert paired(messages) == (
        asks(C1, C2),
        closed("c1", "interrupted", "c1-interrupted"),
        result("c2", "first"),
        user(),
    )


def test_an_answer_behind_another_message_is_no_answer() -> None:
    assert paired([asks(C1), user(), result("c1")]) == (
        asks(C1),
        closed("c1", "interrupted", "c1-interrupted"),
        user(),
    )


def test_an_empty_answer_of_the_model_is_not_shown() -> None:
    system = SystemMessage(MessageId("s"), "rules")
    assert paired([system, asks(), user()]) == (system, user())
