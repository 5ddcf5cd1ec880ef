"""Posts that come again: by idempotency key and by the ids of messages that clients chose."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.admission import (
    C1,
    C2,
    IDLE,
    OWING,
    asks,
    by_call,
    by_key,
    by_message,
    closed,
    judge,
    post,
    remembered,
    result,
    superseded,
    user,
)

from passback.core.admission import (
    Begins,
    ConversationSnapshot,
    Joins,
    Parks,
    Queues,
    decide_unread_post,
)
from passback.core.errors import (
    ConversationBusy,
    InvalidRequest,
    PassbackError,
    ResultConflict,
    Reused,
    UnknownConversation,
    UnknownToolCall,
)
from passback.core.messages import (
    AssistantMessage,
    DataPart,
    Message,
    MessageId,
    Owed,
    PostedMessage,
    RunId,
    SystemMessage,
    TextPart,
    ToolSpec,
    UserMessage,
)
from passback.core.posts import (
    OnBusy,
    Receipt,
    ReceiptName,
    StartRun,
    count_repeated,
    key_receipt_name,
    message_receipt_name,
)
from passback.core.transcript import owed_answers
from passback.engine.commands import parse_command

ON_BUSY: list[OnBusy] = ["reject", "enqueue", "interrupt", "rollback"]
MORE = user("more", "m1")
ANSWERED: list[Message] = [*OWING, result("c1"), result("c2", message_id="t2")]
SPEC = ToolSpec("paint", "Paints.", {"type": "object"})


# ---------------------------------------------------------------- idempotency keys
@pytest.mark.promise("P8")
def test_a_post_with_a_key_is_remembered_by_it() -> None:
    posted = post(user("more"), key="k")
    assert judge(IDLE, posted) == Begins((user("more"),), by_key(posted))


@pytest.mark.parametrize("on_busy", ON_BUSY)
@pytest.mark.parametrize(("running", "waiting"), [(None, False), ("r2", False), (None, True)])
@pytest.mark.promise("P8")
def test_the_same_key_joins_whatever_happens_by_then(
    on_busy: OnBusy, running: str | None, waiting: bool
) -> None:
    receipts = remembered(by_key(post(user("more"), key="k")))
    again = post(user("more", "minted-anew"), key="k", on_busy=on_busy)
    verdict = judge(OWING, again, receipts=receipts, running=running, waiting=waiting)
    assert verdict == Joins(RunId("r1"))


@pytest.mark.promise("P8")
def test_a_key_with_other_content_is_refused() -> None:
    receipts = remembered(by_key(post(user("more"), key="k")))
    for other in (
        post(user("other"), key="k"),
        post(user("more"), user("more"), key="k"),
        post(user("more"), key="k", tools=()),
        post(user("more"), key="k", tools=(SPEC,)),
    ):
        with pytest.raises(Reused):
            judge(IDLE, other, receipts=receipts)


def test_the_key_of_a_post_that_only_parked_does_not_hide_what_became_of_it() -> None:
    parked = post(result("c1"), key="k")
    assert judge(OWING, parked) == Parks(
        (result("c1"),), by_key(parked) | by_call(c1="done"), (Owed(C2.id, "tool_c2", "{}"),)
    )
    receipts = remembered(by_key(parked) | by_call(c1="done"), None)
    messages: list[Message] = [*OWING, result("c1")]

    assert judge(messages, parked, receipts=receipts) == Parks(
        (), {}, (Owed(C2.id, "tool_c2", "{}"),)
    )
    begun = receipts | remembered(by_call(c1="done", c2="done"), "r7")
    assert judge([*messages, result("c2")], parked, receipts=begun, running="r7") == Joins(
        RunId("r7")
    )


def test_the_key_of_a_parked_post_with_other_content_is_refused_too() -> None:
    parked = post(result("c1"), key="k")
    receipts = remembered(by_key(parked) | by_call(c1="done"), None)
    with pytest.raises(Reused):
        judge([*OWING, result("c1")], post(result("c2"), key="k"), receipts=receipts)


def test_another_key_with_equal_results_joins_by_the_results() -> None:
    receipts = remembered(by_call(c1="done", c2="done"))
    again = post(result("c1"), result("c2"), key="another")
    assert judge(ANSWERED, again, receipts=receipts) == Joins(RunId("r1"))


def test_a_post_that_waits_is_remembered_by_its_key() -> None:
    posted = post(user("next"), key="k", on_busy="enqueue")
    assert judge(IDLE, posted, running="r1") == Queues((user("next"),), by_key(posted))
    queued = remembered(by_key(posted), "r2")
    assert judge(IDLE, posted, receipts=queued, running="r1", waiting=True) == Joins(RunId("r2"))


def test_a_post_that_was_refused_is_not_remembered() -> None:
    posted = post(user("next"), key="k")
    with pytest.raises(ConversationBusy):
        judge(IDLE, posted, running="r1")
    assert judge(IDLE, posted) == Begins((user("next"),), by_key(posted))


# ---------------------------------------------------------------- messages with names
@pytest.mark.promise("P8")
def test_a_named_message_is_remembered_by_its_name_and_one_without_is_not() -> None:
    posted = post(MORE, user("and this", "minted"), named=["m1"])
    assert judge(IDLE, posted) == Begins(posted.messages, by_message(MORE))


@pytest.mark.parametrize("on_busy", ON_BUSY)
@pytest.mark.parametrize(("running", "waiting"), [(None, False), ("r2", False), (None, True)])
@pytest.mark.promise("P8")
def test_a_repeated_named_message_joins_whatever_happens_by_then(
    on_busy: OnBusy, running: str | None, waiting: bool
) -> None:
    again = post(MORE, named=["m1"], on_busy=on_busy)
    receipts = remembered(by_message(MORE))
    verdict = judge(OWING, again, receipts=receipts, running=running, waiting=waiting)
    assert verdict == Joins(RunId("r1"))


@pytest.mark.promise("P8")
def test_a_name_with_other_content_is_refused() -> None:
    with pytest.raises(Reused):
        judge(IDLE, post(user("other", "m1"), named=["m1"]), receipts=remembered(by_message(MORE)))


@pytest.mark.promise("P8")
def test_an_id_that_the_server_gave_is_no_name_for_another_message() -> None:
    for message in IDLE:
        with pytest.raises(Reused):
            judge(IDLE, post(user("mine", message.id), named=[message.id]))


@pytest.mark.promise("P8")
def test_an_id_that_the_server_may_have_given_before_the_boundary_is_no_name_either() -> None:
    ours, theirs = f"msg_{'0a' * 17}", f"msg_{'0a' * 12}"
    with pytest.raises(Reused):
        judge(IDLE, post(user("mine", ours), named=[ours]), start=7)
    for name, start in ((theirs, 7), (ours, 0)):
        posted = post(user("mine", name), named=[name])
        assert judge(IDLE, posted, start=start) == Begins(
            (user("mine", name),), by_message(user("mine", name))
        )
    minted = post(user("mine", ours))
    assert judge(IDLE, minted, start=7) == Begins((user("mine", ours),), {})


def test_a_message_without_a_name_is_new_each_time() -> None:
    receipts = remembered(by_message(MORE))
    assert judge(IDLE, post(MORE), receipts=receipts) == Begins((MORE,), {})


def test_what_is_new_beside_repeats_begins_alone() -> None:
    then = user("and then?", "m2")
    verdict = judge(
        IDLE, post(MORE, then, named=["m1", "m2"]), receipts=remembered(by_message(MORE))
    )
    assert verdict == Begins((then,), by_message(then))


def test_what_is_new_beside_repeats_waits_alone() -> None:
    then = user("and then?", "m2")
    posted = post(MORE, then, named=["m1", "m2"], on_busy="interrupt")
    verdict = judge(IDLE, posted, receipts=remembered(by_message(MORE)), running="r1")
    assert verdict == Queues((then,), by_message(then))


def test_new_results_beside_a_repeated_message_supersede_nothing() -> None:
    """A client that sends its whole history again does not close what it has not answered yet."""
    posted = post(MORE, result("c1"), named=["m1"])
    assert judge(OWING, posted, receipts=remembered(by_message(MORE))) == Parks(
        (result("c1"),), by_call(c1="done"), (Owed(C2.id, "tool_c2", "{}"),)
    )


def test_the_last_of_several_repeats_says_which_run_is_joined() -> None:
    receipts = remembered(by_call(c1="done", c2="done"), "r1") | remembered(by_message(MORE), "r2")
    assert judge(ANSWERED, post(result("c1"), MORE, named=["m1"]), receipts=receipts) == Joins(
        RunId("r2")
    )
    assert judge(ANSWERED, post(MORE, result("c1"), named=["m1"]), receipts=receipts) == Joins(
        RunId("r1")
    )


@pytest.mark.promise("P9")
def test_a_repeated_message_beside_a_wrong_result_is_refused_for_the_result() -> None:
    receipts = remembered(by_call(c1="done") | by_message(MORE))
    with pytest.raises(ResultConflict):
        judge(ANSWERED, post(MORE, result("c1", "other"), named=["m1"]), receipts=receipts)
    with pytest.raises(UnknownToolCall):
        judge(OWING, post(MORE, result("c9"), named=["m1"]), receipts=receipts)


def test_two_equal_messages_of_one_name_in_one_post_count_once() -> None:
    assert judge(IDLE, post(MORE, MORE, named=["m1"])) == Begins((MORE,), by_message(MORE))


def test_two_different_messages_of_one_name_in_one_post_are_refused() -> None:
    with pytest.raises(Reused):
        judge(IDLE, post(MORE, user("other", "m1"), named=["m1"]))


def test_a_post_may_be_known_by_key_name_and_result_at_once() -> None:
    posted = post(result("c1"), result("c2"), MORE, key="k", named=["m1"])
    assert judge(OWING, posted) == Begins(
        posted.messages, by_call(c1="done", c2="done") | by_message(MORE) | by_key(posted)
    )


def test_a_new_key_does_not_make_a_named_message_new() -> None:
    posted = post(MORE, key="another", named=["m1"])
    receipts = remembered(by_message(MORE))
    assert judge(IDLE, posted, receipts=receipts) == Joins(RunId("r1"))
    assert key_receipt_name("another") not in receipts
    assert message_receipt_name(MORE.id) in receipts


# ---------------------------------------------------------------- answers that the server made
@pytest.mark.promise("P9", "P13")
@pytest.mark.parametrize("content", ["done", "other"])
def test_a_result_whose_waiting_post_was_cancelled_can_be_given_again(content: str) -> None:
    known = remembered(by_call(c1="done"))
    owing: list[Message] = [user(), asks(C1)]
    given = post(result("c1", content))

    verdict = judge(owing, given, receipts=known)

    assert verdict == Begins((result("c1", content),), by_call(c1=content))
    snapshot = ConversationSnapshot((), known)
    assert decide_unread_post(snapshot, [Owed(C1.id, C1.name, "{}")], given) is None


def test_a_result_that_waits_with_its_post_is_a_repeat() -> None:
    known = remembered(by_call(c1="done"))

    verdict = judge(
        [user(), asks(C1)], result("c1"), receipts=known, queued=[result("c1"), user("more")]
    )

    assert verdict == Joins(RunId("r1"))


def test_an_invalid_calls_answer_is_not_remembered_as_a_result_of_the_client() -> None:
    """A result for it is one for an unknown call, before and after its turn is over."""
    messages: list[Message] = [*OWING, closed("c1", "invalid")]
    assert judge(messages, result("c2")) == Begins((result("c2"),), by_call(c2="done"))
    assert judge(messages, user("more")) == Begins((closed("c2"), user("more")), superseded("c2"))


# ---------------------------------------------------------------- histories that are sent again
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
def test_first_messages_are_known_in_their_stored_order(old: list[str], new: list[str]) -> None:
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


def test_a_message_is_known_behind_known_results() -> None:
    answered = [*OWING, result("c1"), result("c2"), ONE]
    posted = replace(post(result("c1"), result("c2"), ONE, TWO), resends=True)
    receipts = remembered(by_call(c1="done", c2="done"))
    assert judge(answered, posted, receipts=receipts) == Begins((TWO,), {})


def test_what_goes_on_needs_a_conversation() -> None:
    posted = replace(post(ONE), continues=True)
    assert judge([], posted, exists=True) == Begins((ONE,), {})
    for refused in (posted, replace(post(), continues=True)):
        with pytest.raises(UnknownConversation):
            judge([], refused, exists=False)
        with pytest.raises(InvalidRequest, match="it is to blame"):
            judge([], replace(refused, flaw="it is to blame"), exists=False)


# ---------------------------------------------------------------- commands
def test_a_command_is_one_also_as_the_only_part() -> None:
    found = [
        parse_command(UserMessage(MessageId("u"), content))
        for content in ("/help me", (TextPart("/help me"),))
    ]
    assert [each and (each.name, each.argument) for each in found] == [("help", "me")] * 2
    assert parse_command(replace(ONE, content=(TextPart("/help"), DataPart(1)))) is None


# ---------------------------------------------------------------- judged without the messages
M1 = user("more", "m1")
KEYED = post(M1, key="k")
KNOWN: list[dict[ReceiptName, Receipt]] = [
    {},
    remembered(by_call(c1="done")),
    remembered(by_call(c1="done"), None),
    remembered(by_message(M1)),
    remembered(by_message(M1) | by_key(KEYED), None),
    remembered(by_key(KEYED)),
]
POSTS = [
    post(),
    KEYED,
    post(user("other", "m1"), key="k"),
    post(result("c1")),
    post(result("c1", "other")),
    post(result("c1"), result("c2")),
    post(result("never")),
    post(M1, named=["m1"]),
    post(user("other", "m1"), named=["m1"]),
    post(M1, user("and more", "m2"), named=["m1"]),
    post(M1, result("c1")),
    post(M1),
    replace(post(M1), resends=True),
]
EVERY_ON_BUSY: list[OnBusy] = ["reject", "enqueue"]


def whole(
    messages: Sequence[Message],
    posted: StartRun,
    receipts: Mapping[ReceiptName, Receipt],
    *,
    running: bool,
    overdue: bool,
) -> object:
    try:
        return judge(
            messages, posted, receipts=receipts, running="r2" if running else None, overdue=overdue
        )
    except PassbackError as error:
        return type(error), error.message, error.retry_after


def unread(
    messages: Sequence[Message],
    posted: StartRun,
    receipts: Mapping[ReceiptName, Receipt],
    *,
    running: bool,
    overdue: bool,
) -> object:
    standing = ConversationSnapshot((), receipts, RunId("r2") if running else None, overdue=overdue)
    try:
        return decide_unread_post(standing, () if running else owed_answers(messages), posted)
    except PassbackError as error:
        return type(error), error.message, error.retry_after


@pytest.mark.parametrize("on_busy", EVERY_ON_BUSY)
@pytest.mark.parametrize("posted", POSTS)
@pytest.mark.parametrize("messages", [IDLE, OWING])
def test_a_verdict_without_messages_is_the_verdict_with_them(
    messages: Sequence[Message], posted: StartRun, on_busy: OnBusy
) -> None:
    posted = replace(posted, on_busy=on_busy)
    for receipts in KNOWN:
        for running, overdue in ((False, False), (True, False), (False, True)):
            verdict = unread(messages, posted, receipts, running=running, overdue=overdue)
            expected = whole(messages, posted, receipts, running=running, overdue=overdue)
            assert verdict in (None, expected)


def test_repeats_and_refusals_need_no_messages() -> None:
    parked = remembered(by_call(c1="done"), None)
    half = [*OWING, result("c1")]
    assert unread(half, post(result("c1")), parked, running=False, overdue=False) == Parks(
        (), {}, owed_answers(half)
    )
    joined = remembered(by_call(c1="done"))
    assert unread(IDLE, post(result("c1")), joined, running=True, overdue=False) == Joins(
        RunId("r1")
    )
    for running in (False, True):
        verdict = unread(IDLE, post(M1), {}, running=running, overdue=False)
        assert (verdict is None) is not running
