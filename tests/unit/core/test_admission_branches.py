"""What a post means that says after which message it goes on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.admission import (
    C1,
    IDLE,
    OWING,
    asks,
    by_call,
    by_key,
    by_message,
    by_place,
    call,
    closed,
    judge,
    minting,
    post,
    remembered,
    result,
    says_yes,
    superseded,
    user,
)

from passback.core.admission import (
    Begins,
    ConversationSnapshot,
    Joins,
    Parks,
    Queues,
    close_open_calls,
    decide_unread_post,
)
from passback.core.errors import (
    ConversationBusy,
    InvalidRequest,
    NothingToDo,
    Reused,
    UnknownConversation,
    UnknownMessage,
)
from passback.core.messages import (
    AssistantMessage,
    Message,
    MessageId,
    RunId,
    SummaryMessage,
    SystemMessage,
    UserMessage,
)

ANSWER = AssistantMessage(MessageId("a"), "hello")
SUMMARY = SummaryMessage(MessageId("s"), "in short", keeps=0)
DONE: list[Message] = [user(), asks(C1), result("c1")]
NEW = user("new", "n")


@pytest.mark.parametrize("place", [[], [user()], IDLE, DONE, [*IDLE, SUMMARY]])
def test_a_message_may_follow_any_whole_place(place: Sequence[Message]) -> None:
    assert judge(IDLE, post(NEW, after="x"), place=place) == Begins((NEW,), {})


def test_at_the_end_of_the_branch_a_post_is_one_like_others() -> None:
    assert judge(IDLE, post(NEW, after="a")) == Begins((NEW,), {})
    assert isinstance(judge(OWING, post(result("c1"), after="a")), Parks)
    both = judge(OWING, post(result("c1"), result("c2"), NEW, after="a"))
    assert isinstance(both, Begins)
    assert (both.append[-1], both.left) == (NEW, ())


@pytest.mark.parametrize(
    "place", [None, [user()], DONE, [user(), SUMMARY], [SystemMessage(MessageId("y"), "s")]]
)
def test_without_messages_what_is_there_is_answered_anew(place: Sequence[Message] | None) -> None:
    assert judge([user()], post(after="x"), place=place) == Begins((), {})


@pytest.mark.parametrize("place", [[], IDLE, [*IDLE, SUMMARY], [SUMMARY]])
def test_without_messages_there_has_to_be_something_to_answer(place: Sequence[Message]) -> None:
    for messages, elsewhere in (([user()], place), (place, None)):
        with pytest.raises(NothingToDo, match="answered anew"):
            judge(messages, post(after="x"), place=elsewhere)


@pytest.mark.parametrize("running", [None, "r1"])
def test_calls_that_wait_are_nothing_to_answer_anew(running: str | None) -> None:
    with pytest.raises(InvalidRequest):
        judge([*OWING, result("c1")], post(after="t", on_busy="enqueue"), running=running)


@pytest.mark.parametrize(
    "place", [OWING, [*OWING, result("c1")], [user(), asks(call("s", client=False))]]
)
def test_no_message_stands_between_calls_and_their_results(place: Sequence[Message]) -> None:
    for what in (post(NEW, after="x"), post(after="x")):
        with pytest.raises(InvalidRequest, match="name the last answer"):
            judge(IDLE, what, place=place)


@pytest.mark.parametrize("how", [{"running": "r1"}, {"waiting": True}])
def test_a_post_that_waits_does_not_wait_for_open_calls(how: dict[str, Any]) -> None:
    """They may be answered by then, so that it would stand between calls and results."""
    with pytest.raises(InvalidRequest, match="name the last answer"):
        judge(OWING, post(NEW, after="a", on_busy="enqueue"), **how)


# ---------------------------------------------------------------- calls that are left
def test_what_is_owed_is_closed_on_the_branch_that_is_left() -> None:
    what = post(NEW, named=["n"], after="")
    verdict = judge(OWING, what, place=[])
    left = (closed("c1"), closed("c2", minted="minted-2"))
    assert verdict == Begins((NEW,), {**superseded("c1", "c2"), **by_place(what)}, left)


def test_answers_that_are_there_stay_with_their_calls() -> None:
    verdict = judge([*OWING, result("c1", "red")], post(after=""), place=[user()])
    assert verdict == Begins((), {**by_call(c1="red"), **superseded("c2")}, (closed("c2"),))


def test_calls_whose_time_is_over_are_closed_as_such() -> None:
    verdict = judge([user(), asks(C1)], post(NEW, after=""), place=[], overdue=True)
    assert isinstance(verdict, Begins)
    assert verdict.left == (closed("c1", "timeout"),)


def test_what_was_accepted_before_is_kept_when_a_post_that_waited_leaves() -> None:
    given = result("c1", "red")
    left = close_open_calls(OWING, minting(), posted=[NEW, given, result("gone")])
    assert left.append == (given, closed("c2"))
    assert left.receipts == {**by_call(c1="red"), **superseded("c2")}


@pytest.mark.parametrize("answer", [result("c1"), says_yes("c1"), result("unknown")])
def test_answers_cannot_leave_their_calls(answer: Any) -> None:
    with pytest.raises(InvalidRequest, match="without `after`"):
        judge(OWING, post(answer, NEW, after=""), place=[])


# ---------------------------------------------------------------- while a run goes on
@pytest.mark.parametrize("on_busy", ["enqueue", "interrupt", "rollback"])
@pytest.mark.parametrize("messages", [(NEW,), ()])
@pytest.mark.parametrize("how", [{"running": "r1"}, {"waiting": True}])
def test_a_post_waits_or_is_refused_as_others_are(
    messages: tuple[UserMessage, ...], how: dict[str, Any], on_busy: Any
) -> None:
    with pytest.raises(ConversationBusy):
        judge(IDLE, post(*messages, after="u"), place=[user()], **how)
    what = post(*messages, after="u", on_busy=on_busy)
    assert judge(IDLE, what, place=[user()], **how) == Queues(messages, {})


# ---------------------------------------------------------------- repeats
def test_a_repeat_joins_wherever_it_would_go_on() -> None:
    keyed = post(NEW, key="k", after="u")
    assert judge(IDLE, keyed, receipts=remembered(by_key(keyed)), place=[]) == Joins(RunId("r1"))
    again = post(key="k", after="u")
    assert judge(IDLE, again, receipts=remembered(by_key(again)), place=[]) == Joins(RunId("r1"))
    named = post(NEW, named=["n"], after="u")
    known = remembered(by_place(named))
    assert judge(IDLE, named, receipts=known, place=[]) == Joins(RunId("r1"))
    assert decide_unread_post(ConversationSnapshot([], known), (), named) == Joins(RunId("r1"))
    with pytest.raises(Reused):
        judge(IDLE, post(NEW, key="k", after=""), receipts=remembered(by_key(keyed)), place=[])
    with pytest.raises(Reused):
        judge(IDLE, post(NEW, key="k"), receipts=remembered(by_key(keyed)))


@pytest.mark.parametrize(
    ("first", "second"), [("u", ""), ("", "u"), ("u", None), (None, "u"), (None, "")]
)
def test_a_known_message_in_another_place_is_no_repeat(
    first: str | None, second: str | None
) -> None:
    known = remembered(by_place(post(NEW, named=["n"], after=first)))
    other = post(NEW, named=["n"], after=second)
    place = None if second is None else [user()]
    with pytest.raises(Reused, match="in another place"):
        judge(IDLE, other, receipts=known, place=place)
    with pytest.raises(Reused, match="in another place"):
        decide_unread_post(ConversationSnapshot([], known), (), other)


def test_a_known_message_with_other_content_in_the_same_place_is_no_repeat() -> None:
    known = remembered(by_place(post(user("old", "n"), named=["n"], after="u")))
    for what in (
        post(NEW, named=["n"], after="u"),
        replace(post(NEW, named=["n"]), resends=True),
        replace(post(NEW, named=["n"], after="u"), digest="d"),
    ):
        with pytest.raises(Reused):
            decide_unread_post(ConversationSnapshot([], known), (), what)


def test_a_client_that_resends_its_messages_names_their_place_once() -> None:
    placed, newer = post(NEW, named=["n"], after="u"), user("newer", "n2")
    again = replace(post(NEW, newer, named=["n", "n2"]), resends=True)
    assert judge([user(), NEW], again, receipts=remembered(by_place(placed))) == Begins(
        (newer,), by_message(newer)
    )


@pytest.mark.parametrize("before", [None, "", "u"])
def test_a_place_that_is_read_from_the_record_is_not_said(before: str | None) -> None:
    known = remembered(by_place(post(NEW, named=["n"], after=before)))
    read = replace(post(NEW, named=["n"], after="x"), digest="d")
    assert judge(IDLE, read, receipts=known, place=[user()]) == Joins(RunId("r1"))
    assert by_place(read) == by_message(NEW)


def test_a_known_result_alone_has_nothing_answered_elsewhere() -> None:
    known = remembered(by_call(c1="done"), run_id=None)
    half = [*OWING, result("c1")]
    with pytest.raises(NothingToDo):
        judge(half, post(result("c1"), after=""), receipts=known, place=[], overdue=True)


def test_known_results_beside_a_new_message_are_no_answers() -> None:
    known = remembered(by_call(c1="done"))
    verdict = judge([*DONE, ANSWER], post(result("c1"), NEW, after=""), receipts=known, place=[])
    assert verdict == Begins((NEW,), {})


# ---------------------------------------------------------------- conversations that are not there
def test_there_is_no_message_without_a_conversation() -> None:
    with pytest.raises(UnknownMessage):
        judge([], post(NEW, after="x"), exists=False)
    assert judge([], post(NEW, after=""), exists=False) == Begins((NEW,), {})
    with pytest.raises(NothingToDo):
        judge([], post(after=""), exists=False)
    with pytest.raises(UnknownConversation):
        judge([], replace(post(NEW, after="x"), continues=True), exists=False)


def test_messages_are_needed_to_judge_what_is_answered_anew() -> None:
    idle = ConversationSnapshot(())
    assert decide_unread_post(idle, (), post(after="u")) is None
    running = ConversationSnapshot((), running=RunId("r1"))
    with pytest.raises(ConversationBusy):
        decide_unread_post(running, (), post(after="u"))
    with pytest.raises(NothingToDo):
        decide_unread_post(idle, (), post())
