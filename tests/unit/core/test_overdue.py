"""What a post means when the time for what the client owes is over: the calls are closed as `timeout`."""

import pytest
from tests.unit.core.admission import (
    C1,
    IDLE,
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

from passback.core.admission import Begins, Joins, Queues, begin_queued_run
from passback.core.errors import ResultConflict, UnknownToolCall
from passback.core.messages import CallId, Message, MessageId, RunId, ToolMessage
from passback.core.transcript import SYNTHETIC_TEXT

LATE = (closed("c1", "timeout"), closed("c2", "timeout", "minted-2"))
TIMED_OUT = superseded("c1", "c2", reason="timeout")
PARKED = remembered(by_call(c2="done"), None)
SOME: list[Message] = [*OWING, result("c2")]


@pytest.mark.promise("P5")
def test_a_user_message_closes_the_calls_as_timed_out_and_starts_its_run() -> None:
    assert judge(OWING, user("more"), overdue=True) == Begins((*LATE, user("more")), TIMED_OUT)


def test_answers_that_came_in_time_count() -> None:
    verdict = judge(SOME, user("more"), receipts=PARKED, overdue=True)
    late = superseded("c1", reason="timeout")
    assert verdict == Begins((closed("c1", "timeout"), user("more")), by_call(c2="done") | late)


@pytest.mark.promise("P9")
@pytest.mark.parametrize("more", [[], [user("more")]], ids=["alone", "with a message"])
def test_a_late_result_is_a_conflict_that_says_why(more: list[ToolMessage]) -> None:
    with pytest.raises(ResultConflict, match="time for this tool call's result is over"):
        judge(OWING, result("c1"), *more, overdue=True)


@pytest.mark.promise("P9")
def test_a_result_that_comes_after_the_time_out_is_told_the_same() -> None:
    messages: list[Message] = [*OWING, *LATE, *IDLE]
    with pytest.raises(ResultConflict, match="time for this tool call's result is over"):
        judge(messages, result("c1"), receipts=remembered(TIMED_OUT))


def test_a_result_for_a_call_that_was_never_made_is_unknown_all_the_same() -> None:
    with pytest.raises(UnknownToolCall):
        judge(OWING, result("c9"), overdue=True)


@pytest.mark.promise("P8")
def test_a_repeat_of_an_answer_that_came_in_time_starts_the_run_that_it_would_join() -> None:
    posted = post(result("c2"), key="k")
    verdict = judge(SOME, posted, receipts=PARKED, overdue=True)
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
