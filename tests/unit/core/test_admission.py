"""What a post means, row by row of the table in docs/explanation/design.md."""

import pytest
from tests.unit.core.admission import (
    C1,
    C2,
    IDLE,
    OWING,
    asks,
    by_call,
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

from passback.core.admission import Begins, Joins, Parks, Queues, begin_queued_run
from passback.core.errors import ConversationBusy, NothingToDo, ResultConflict, UnknownToolCall
from passback.core.messages import Message, MessageId, Owed, RunId, SystemMessage, ToolMessage
from passback.core.posts import OnBusy, call_receipt_name, content_fingerprint
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
        (closed("c1"), closed("c2", minted="minted-2"), user("never mind")),
        superseded("c1", "c2"),
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
def test_a_user_message_that_would_wait_is_queued(
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
    """What is owed is answered at once: the posts may wait for just that."""
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


# ---------------------------------------------------------------- what a crash left
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
    """A run that failed without a word leaves the answers at the tail; the next post must not claim them."""
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
        (result("c1", "one"), closed("c2"), user("next")),
        by_call(c1="one") | superseded("c2"),
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
        (closed("s1", "interrupted"), user("next")),
        {call_receipt_name(call("s1").id): text},
    )
