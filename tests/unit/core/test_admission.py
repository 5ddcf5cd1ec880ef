"""The meaning of a post, row by row of the table in docs/explanation/design.md."""

import pytest
from tests.unit.core.admission import (
    C1,
    C2,
    IDLE,
    KEY,
    OWING,
    asks,
    by_call,
    by_key,
    call,
    closed,
    judge,
    minting,
    post,
    remembered,
    result,
    superseded,
    user,
)
from typing_extensions import override

from passback.core.admission import (
    Begins,
    ConversationSnapshot,
    Joins,
    Parks,
    Queues,
    begin_queued_run,
    decide_post,
)
from passback.core.errors import ConversationBusy, NothingToDo, ResultConflict, UnknownToolCall
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    Owed,
    RunId,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import OnBusy, StartRun, call_receipt_name, content_fingerprint
from passback.core.transcript import SYNTHETIC_TEXT

DONE = remembered(by_call(c1="done", c2="done"))
PARKED = remembered(by_call(c1="done"), None)
WAITS: list[OnBusy] = ["enqueue", "interrupt", "rollback"]


# ---------------------------------------------------------------- nothing runs
def test_a_user_message_to_an_idle_conversation_starts_a_run() -> None:
    assert judge(IDLE, user("more")) == Begins((user("more"),), {})


def test_the_first_message_of_a_conversation_starts_a_run() -> None:
    system = SystemMessage(MessageId("s"), "be kind")
    assert judge([], system, user()) == Begins((system, user()), {})


def test_all_owed_results_in_any_order_start_a_run() -> None:
    posted = (result("c2", "two"), result("c1", "one"))
    assert judge(OWING, *posted) == Begins(posted, by_call(c2="two", c1="one"))


def test_the_last_of_several_posts_starts_a_run_that_all_the_answers_lead_to() -> None:
    messages: list[Message] = [*OWING, result("c2", "two")]
    assert judge(messages, result("c1", "one")) == Begins(
        (result("c1", "one"),), by_call(c1="one", c2="two")
    )


def test_some_of_the_owed_results_are_parked_and_the_rest_is_named() -> None:
    assert judge(OWING, result("c2")) == Parks(
        (result("c2"),), by_call(c2="done"), (Owed(C1.id, "tool_c1", "{}"),)
    )


def test_a_user_message_supersedes_what_is_owed() -> None:
    assert judge(OWING, user("never mind")) == Begins(
        (closed("c1"), closed("c2", minted="minted-2"), user("never mind")), superseded("c1", "c2")
    )


def test_a_user_message_supersedes_the_rest_of_what_is_owed() -> None:
    messages: list[Message] = [*OWING, result("c2")]
    assert judge(messages, user("never mind")) == Begins(
        (closed("c1"), user("never mind")), by_call(c2="done") | superseded("c1")
    )


def test_results_come_before_a_user_message_and_the_rest_is_superseded() -> None:
    assert judge(OWING, user("and now?"), result("c2")) == Begins(
        (result("c2"), closed("c1"), user("and now?")), by_call(c2="done") | superseded("c1")
    )


@pytest.mark.parametrize("messages", [[], IDLE, OWING], ids=["none", "idle", "owing"])
@pytest.mark.promise("P9", "P13")
def test_a_result_for_a_call_that_was_never_made_is_unknown(messages: list[Message]) -> None:
    with pytest.raises(UnknownToolCall):
        judge(messages, result("c9"))


@pytest.mark.promise("P12")
def test_an_unknown_result_refuses_the_whole_post() -> None:
    with pytest.raises(UnknownToolCall):
        judge(OWING, result("c1"), result("c9"), user("more"))


@pytest.mark.promise("P13")
def test_a_client_cannot_answer_a_servers_call() -> None:
    with pytest.raises(UnknownToolCall):
        judge([user(), asks(call("c1", client=False), C2)], result("c1"))


@pytest.mark.parametrize("running", [None, "r1"])
def test_no_message_is_nothing_to_do(running: str | None) -> None:
    with pytest.raises(NothingToDo):
        judge(OWING, post(), running=running)


# ---------------------------------------------------------------- a run goes on, or posts wait
@pytest.mark.promise("P4")
def test_a_result_for_a_call_that_is_not_handed_back_yet_is_unknown_while_its_run_goes_on() -> None:
    with pytest.raises(UnknownToolCall):
        judge(OWING, result("c1"), running="r1")


@pytest.mark.parametrize(("running", "waiting"), [("r1", False), ("r1", True), (None, True)])
def test_a_user_message_that_would_not_wait_meets_busy(running: str | None, waiting: bool) -> None:
    with pytest.raises(ConversationBusy) as raised:
        judge(IDLE, user(), running=running, waiting=waiting)
    assert raised.value.retry_after == 1


def test_a_user_message_goes_behind_those_that_wait_for_results_that_may_never_come() -> None:
    assert judge(OWING, user("next"), waiting=True) == Queues((user("next"),), {})


@pytest.mark.parametrize("on_busy", WAITS)
@pytest.mark.parametrize(("running", "waiting"), [("r1", False), (None, True), ("r1", True)])
def test_a_message_that_waits_is_queued(
    on_busy: OnBusy, running: str | None, waiting: bool
) -> None:
    posted = post(user("next"), on_busy=on_busy)
    assert judge(IDLE, posted, running=running, waiting=waiting) == Queues((user("next"),), {})


@pytest.mark.parametrize("on_busy", WAITS)
def test_a_post_that_would_wait_begins_when_nothing_is_before_it(on_busy: OnBusy) -> None:
    assert judge(IDLE, post(user("next"), on_busy=on_busy)) == Begins((user("next"),), {})


def test_a_repeated_result_and_a_user_message_during_a_run_meet_busy() -> None:
    with pytest.raises(ConversationBusy):
        judge(OWING, result("c1"), user(), receipts=DONE, running="r1")


def test_only_what_is_new_in_a_post_waits() -> None:
    posted = post(result("c1"), user("next"), on_busy="enqueue")
    assert judge(OWING, posted, receipts=DONE, running="r1") == Queues((user("next"),), {})


def test_results_that_wait_behind_others_keep_their_place_before_the_message() -> None:
    posted = post(user("next"), result("c1"), on_busy="enqueue")
    assert judge(OWING, posted, waiting=True) == Queues(
        (result("c1"), user("next")), by_call(c1="done")
    )


@pytest.mark.parametrize("on_busy", ["reject", *WAITS])
@pytest.mark.promise("P1", "P4")
def test_results_alone_do_not_wait_behind_posts(on_busy: OnBusy) -> None:
    """Results are taken at once, because the waiting posts may wait for them."""
    some = post(result("c1"), on_busy=on_busy)
    both = post(result("c1"), result("c2"), on_busy=on_busy)
    assert judge(OWING, some, waiting=True) == Parks(
        (result("c1"),), by_call(c1="done"), (Owed(C2.id, "tool_c2", "{}"),)
    )
    assert judge(OWING, both, waiting=True) == Begins(
        (result("c1"), result("c2")), by_call(c1="done", c2="done")
    )


# ---------------------------------------------------------------- repeated results
@pytest.mark.parametrize("running", [None, "r1", "r2"])
@pytest.mark.promise("P8", "P9")
def test_an_equal_repeat_joins_the_run_that_the_first_post_started(running: str | None) -> None:
    messages: list[Message] = [*OWING, result("c1"), result("c2")]
    both = judge(messages, result("c1"), result("c2"), receipts=DONE, running=running)
    assert both == Joins(RunId("r1"))
    assert judge(messages, result("c2"), receipts=DONE, running=running) == both


def test_an_equal_repeat_of_a_parked_result_changes_nothing() -> None:
    verdict = judge([*OWING, result("c1")], result("c1"), receipts=PARKED)
    assert verdict == Parks((), {}, (Owed(C2.id, "tool_c2", "{}"),))


def test_a_repeat_together_with_the_missing_result_starts_the_run() -> None:
    verdict = judge([*OWING, result("c1")], result("c1"), result("c2"), receipts=PARKED)
    assert verdict == Begins((result("c2"),), by_call(c1="done", c2="done"))


@pytest.mark.promise("P9")
def test_other_content_for_an_answered_call_is_a_conflict() -> None:
    with pytest.raises(ResultConflict):
        judge([*OWING, result("c1")], result("c1", "other"), receipts=PARKED)


def test_an_error_is_other_content_than_the_same_words_as_a_result() -> None:
    failed = ToolMessage(MessageId("t"), C1.id, "done", is_error=True)
    with pytest.raises(ResultConflict):
        judge([*OWING, result("c1")], failed, receipts=PARKED)


def test_a_late_result_for_a_superseded_call_is_a_conflict() -> None:
    with pytest.raises(ResultConflict):
        judge(IDLE, result("c1"), receipts=remembered(superseded("c1"), "r2"))


def test_the_same_result_twice_in_one_post_counts_once() -> None:
    again = result("c1", message_id="again")
    assert judge([user(), asks(C1)], result("c1"), again) == Begins(
        (result("c1"),), by_call(c1="done")
    )


def test_two_results_for_one_call_in_one_post_are_a_conflict() -> None:
    with pytest.raises(ResultConflict):
        judge(OWING, result("c1", "one"), result("c1", "two"))


# ---------------------------------------------------------------- after a crash
def test_a_servers_call_that_a_crash_left_open_is_closed_as_interrupted() -> None:
    messages: list[Message] = [user(), asks(C1, call("s1", client=False))]
    verdict = judge(messages, result("c1"))
    assert isinstance(verdict, Begins)
    assert verdict.append == (result("c1"), closed("s1", "interrupted"))


def test_a_user_message_behind_servers_calls_only_closes_them() -> None:
    messages: list[Message] = [user(), asks(call("s1", client=False))]
    verdict = judge(messages, user("still there?"))
    assert isinstance(verdict, Begins)
    assert verdict.append == (closed("s1", "interrupted"), user("still there?"))


def test_answers_of_an_earlier_run_keep_leading_to_it() -> None:
    """A run that failed at once leaves answers at the tail; the next post must not claim them."""
    messages: list[Message] = [*OWING, result("c1"), result("c2")]
    assert judge(messages, user("again")) == Begins((user("again"),), {})
    assert begin_queued_run(messages, [user("again")], minting()) == Begins((user("again"),), {})


def test_a_servers_answer_at_the_tail_is_not_remembered_as_the_clients() -> None:
    turn = asks(call("s1", client=False), C1, C2)
    messages: list[Message] = [user(), turn, result("s1"), result("c1")]
    assert judge(messages, result("c2")) == Begins((result("c2"),), by_call(c1="done", c2="done"))


# ---------------------------------------------------------------- a post whose turn has come
def test_a_post_that_waited_begins_with_its_messages() -> None:
    system = SystemMessage(MessageId("s"), "be kind")
    assert begin_queued_run(IDLE, [system, user("next")], minting()) == Begins(
        (system, user("next")), {}
    )
    assert begin_queued_run([], [user("next")], minting()) == Begins((user("next"),), {})


def test_a_post_that_waited_supersedes_what_is_owed_by_then() -> None:
    messages: list[Message] = [*OWING, result("c2")]
    assert begin_queued_run(messages, [user("next")], minting()) == Begins(
        (closed("c1"), user("next")), by_call(c2="done") | superseded("c1")
    )


def test_results_that_waited_answer_what_is_still_open() -> None:
    waited = (user("next"), result("c1", "one"))
    assert begin_queued_run(OWING, waited, minting()) == Begins(
        (result("c1", "one"), closed("c2"), user("next")), by_call(c1="one") | superseded("c2")
    )


@pytest.mark.promise("P9")
def test_results_that_waited_while_another_answered_are_left_out() -> None:
    messages: list[Message] = [*OWING, result("c1", "first"), result("c2"), *IDLE]
    waited = (result("c1", "late"), user("next"))
    assert begin_queued_run(messages, waited, minting()) == Begins((user("next"),), {})


def test_a_servers_call_left_open_before_a_post_that_waited_is_closed_as_interrupted() -> None:
    messages: list[Message] = [user(), asks(call("s1", client=False))]
    text = content_fingerprint(SYNTHETIC_TEXT["interrupted"], True)
    assert begin_queued_run(messages, [user("next")], minting()) == Begins(
        (closed("s1", "interrupted"), user("next")), {call_receipt_name(call("s1").id): text}
    )


# ---------------------------------------------------------------- costs
POSTED, STORED = 300, 1_000
"""Messages. A body has room for 10,000: too many to compare each with each."""


class CountedId(str):
    """An id that counts how often one of its kind is compared."""

    compared = 0
    __hash__ = str.__hash__

    @override
    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return str.__eq__(self, other)


def test_ids_that_a_client_chose_are_not_each_compared_with_each_message() -> None:
    ids = [MessageId(CountedId(f"mine-{number}")) for number in range(POSTED)]
    posted = tuple(UserMessage(each, "hi") for each in ids)
    stored: list[Message] = [
        AssistantMessage(MessageId(f"msg_{number:024x}"), "hello") for number in range(STORED)
    ]
    post = StartRun(KEY, posted, named=frozenset(ids))
    CountedId.compared = 0
    verdict = decide_post(ConversationSnapshot([user(), *stored]), post, minting())
    assert isinstance(verdict, Begins)
    assert verdict.append == posted
    # once or twice for each posted message, where equal ids meet
    assert CountedId.compared < 20 * POSTED


# ---------------------------------------------------------------- answers that are overdue
LATE = (closed("c1", "timeout"), closed("c2", "timeout", "minted-2"))
TIMED_OUT = superseded("c1", "c2", reason="timeout")
PARKED_OVERDUE = remembered(by_call(c2="done"), None)
SOME: list[Message] = [*OWING, result("c2")]


@pytest.mark.promise("P5")
def test_a_user_message_closes_the_calls_as_timed_out_and_starts_its_run() -> None:
    assert judge(OWING, user("more"), overdue=True) == Begins((*LATE, user("more")), TIMED_OUT)


def test_answers_that_came_in_time_count() -> None:
    verdict = judge(SOME, user("more"), receipts=PARKED_OVERDUE, overdue=True)
    late = superseded("c1", reason="timeout")
    assert verdict == Begins((closed("c1", "timeout"), user("more")), by_call(c2="done") | late)


@pytest.mark.promise("P9")
@pytest.mark.parametrize("more", [[], [user("more")]], ids=["alone", "with a message"])
def test_a_late_result_is_a_conflict_that_says_why(more: list[ToolMessage]) -> None:
    with pytest.raises(ResultConflict, match="time for this tool call's result is over"):
        judge(OWING, result("c1"), *more, overdue=True)


@pytest.mark.promise("P9")
def test_a_result_after_the_timeout_is_refused_in_the_same_words() -> None:
    messages: list[Message] = [*OWING, *LATE, *IDLE]
    with pytest.raises(ResultConflict, match="time for this tool call's result is over"):
        judge(messages, result("c1"), receipts=remembered(TIMED_OUT))


def test_a_result_for_a_call_that_was_never_made_is_unknown_all_the_same() -> None:
    with pytest.raises(UnknownToolCall):
        judge(OWING, result("c9"), overdue=True)


@pytest.mark.promise("P8")
def test_a_repeat_of_an_answer_that_came_in_time_starts_the_run_that_it_would_join() -> None:
    posted = post(result("c2"), key="k")
    verdict = judge(SOME, posted, receipts=PARKED_OVERDUE, overdue=True)
    late = superseded("c1", reason="timeout")
    assert verdict == Begins((closed("c1", "timeout"),), by_call(c2="done") | late | by_key(posted))


@pytest.mark.promise("P8")
def test_a_result_that_says_what_the_server_would_say_is_a_repeat() -> None:
    text = SYNTHETIC_TEXT["timeout"]
    same = ToolMessage(MessageId("t"), CallId("c1"), text, is_error=True)
    assert judge(OWING, same, overdue=True) == Begins(LATE, TIMED_OUT)
    receipts = remembered(TIMED_OUT)
    assert judge([*OWING, *LATE], same, receipts=receipts) == Joins(RunId("r1"))


def test_a_repeat_of_an_earlier_message_joins_its_run() -> None:
    first = user("hi", "m")
    posted = post(first, named=["m"], key="k")
    known = remembered(by_key(posted), "r0")
    assert judge(OWING, posted, receipts=known, overdue=True) == Joins(RunId("r0"))


@pytest.mark.parametrize("on_busy", ["reject", "enqueue"])
def test_a_user_message_goes_behind_those_that_wait(on_busy: str) -> None:
    posted = post(user("more"), on_busy="enqueue" if on_busy == "enqueue" else "reject")
    assert judge(OWING, posted, waiting=True, overdue=True) == Queues((user("more"),), {})


def test_a_servers_call_left_open_is_still_interrupted() -> None:
    messages: list[Message] = [user(), asks(C1, call("s1", client=False))]
    verdict = judge(messages, user("more"), overdue=True)
    assert isinstance(verdict, Begins)
    assert verdict.append[:2] == (closed("c1", "timeout"), closed("s1", "interrupted", "minted-2"))


# ---------------------------------------------------------------- without a post
def test_without_a_post_a_run_begins_with_the_answers_that_there_are() -> None:
    assert begin_queued_run(SOME, (), minting(), overdue=True) == Begins(
        (closed("c1", "timeout"),), by_call(c2="done") | superseded("c1", reason="timeout")
    )


def test_answers_that_wait_with_a_post_are_in_time() -> None:
    assert begin_queued_run(SOME, [result("c1", "one")], minting(), overdue=True) == Begins(
        (result("c1", "one"),), by_call(c1="one", c2="done")
    )
