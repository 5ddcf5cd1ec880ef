"""What is posted again because nobody has answered it yet: known without an id, where the whole history is sent."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.admission import (
    C1,
    IDLE,
    OWING,
    asks,
    by_call,
    judge,
    post,
    remembered,
    result,
    user,
)

from passback.core.admission import Begins, Queues
from passback.core.commands import parse_command
from passback.core.errors import InvalidRequest
from passback.core.messages import (
    AssistantMessage,
    DataPart,
    Message,
    MessageId,
    PostedMessage,
    SystemMessage,
    TextPart,
    UserMessage,
)
from passback.core.repeats import count_repeated

CUT = AssistantMessage(MessageId("cut"), "half", partial=True)
BLANK = AssistantMessage(MessageId("blank"), "")
ONE, TWO, THREE = user("one"), user("two"), user("three")
SYSTEM = SystemMessage(MessageId("s"), "one")
PARTS = replace(ONE, content=(TextPart("one"),))
DATA = replace(ONE, content=(TextPart("one"), DataPart(1)))


@pytest.mark.parametrize(
    ("transcript", "posted", "known"),
    [
        ([ONE], [ONE, TWO], 1),
        ([ONE], [PARTS, TWO], 1),
        ([DATA], [DATA, TWO], 1),
        ([ONE, BLANK], [ONE, TWO], 1),
        ([*IDLE, ONE, TWO], [ONE, TWO, THREE], 2),
        ([ONE, ONE], [ONE, ONE, TWO], 2),
        ([ONE, ONE], [ONE, TWO], 1),
        ([SYSTEM, ONE], [SYSTEM, ONE, TWO], 2),
        ([ONE, TWO, ONE], [ONE, TWO, ONE, TWO, THREE], 3),
        ([ONE], [ONE], 0),
        ([ONE, TWO], [ONE, THREE], 1),
        ([ONE, TWO], [ONE, TWO], 1),
        ([ONE, TWO], [TWO, THREE], 1),
        ([ONE, TWO], [TWO, ONE, THREE], 1),
        ([ONE, CUT], [ONE, TWO], 1),
        ([SYSTEM], [ONE, TWO], 0),
        ([DATA], [ONE, TWO], 0),
        ([ONE, *IDLE], [ONE, TWO], 0),
        ([ONE, asks(C1)], [ONE, TWO], 0),
        ([], [ONE, TWO], 0),
        ([ONE], [result("c1"), ONE, TWO], 0),
    ],
)
def test_first_messages_that_the_transcript_ends_with_are_known(
    transcript: Sequence[Message], posted: Sequence[PostedMessage], known: int
) -> None:
    assert count_repeated(transcript, posted) == known


LETTERS = st.lists(st.sampled_from("ab"), max_size=8)


@given(LETTERS, LETTERS)
def test_they_are_known_as_far_as_they_stand_there_in_this_order(
    old: list[str], new: list[str]
) -> None:
    known = count_repeated([user(each) for each in old], [*(user(each) for each in new), THREE])
    pattern = [".*".join(new[:size]) for size in range(len(new) + 1)]
    fits = [size for size, each in enumerate(pattern) if re.search(each, "".join(old))]
    assert known == max(fits)


@pytest.mark.parametrize(
    ("transcript", "posted"),
    [([ONE, asks(C1)], [ONE]), ([ONE, asks(C1), result("c1")], [ONE]), ([ONE, TWO], [ONE, TWO])],
)
def test_with_an_answer_to_a_call_the_last_message_may_be_known(
    transcript: Sequence[Message], posted: Sequence[PostedMessage]
) -> None:
    assert count_repeated(transcript, posted, answers=True) == len(posted)


def test_a_message_that_its_client_names_is_known_by_its_name_alone() -> None:
    assert count_repeated([ONE], [ONE, TWO], {ONE.id}) == 0


# ---------------------------------------------------------------- posts
def test_what_was_not_answered_is_not_stored_again() -> None:
    posted = replace(post(ONE, TWO), resends=True)
    assert judge([ONE], posted) == Begins((TWO,), {})
    waits = replace(posted, on_busy="enqueue")
    assert judge([ONE], waits, running="r1") == Queues((TWO,), {})


def test_what_waits_in_the_queue_is_not_queued_again() -> None:
    waits = replace(post(ONE, TWO, THREE), resends=True, on_busy="enqueue")
    judged = judge([ONE], waits, running="r1", waiting=True, queued=[TWO])
    assert judged == Queues((THREE,), {})


def test_what_is_taken_back_with_its_run_is_said_again() -> None:
    again = replace(post(ONE, TWO), resends=True, on_busy="rollback")
    assert judge([ONE], again, running="r1") == Queues((ONE, TWO), {})


def test_a_result_may_come_with_the_message_that_led_to_its_call() -> None:
    posted = replace(post(ONE, result("c1"), result("c2")), resends=True)
    verdict = judge([ONE, *OWING], posted)
    assert isinstance(verdict, Begins)
    assert ONE not in verdict.append
    new = replace(post(result("c1"), result("c2"), ONE), resends=True)
    verdict = judge([ONE, *OWING], new)
    assert isinstance(verdict, Begins)
    assert ONE in verdict.append


def test_a_client_that_sends_only_what_is_new_may_say_the_same_twice() -> None:
    assert judge([ONE], post(ONE, TWO)) == Begins((ONE, TWO), {})


def test_it_is_known_also_behind_results_that_are() -> None:
    answered = [*OWING, result("c1"), result("c2"), ONE]
    posted = replace(post(result("c1"), result("c2"), ONE, TWO), resends=True)
    receipts = remembered(by_call(c1="done", c2="done"))
    assert judge(answered, posted, receipts=receipts) == Begins((TWO,), {})


def test_what_goes_on_needs_a_conversation() -> None:
    posted = replace(post(ONE), continues=True)
    assert judge([], posted, exists=True) == Begins((ONE,), {})
    for refused in (posted, replace(post(), continues=True)):
        with pytest.raises(InvalidRequest, match="cannot begin with what the agent said"):
            judge([], refused, exists=False)


# ---------------------------------------------------------------- commands
def test_a_command_is_one_also_as_the_only_part() -> None:
    found = [
        parse_command(UserMessage(MessageId("u"), content))
        for content in ("/help me", (TextPart("/help me"),))
    ]
    assert [each and (each.name, each.argument) for each in found] == [("help", "me")] * 2
    assert parse_command(replace(ONE, content=(TextPart("/help"), DataPart(1)))) is None
