"""What is said of a post without the messages is what the messages would say, or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.unit.core.admission import (
    IDLE,
    OWING,
    by_call,
    by_key,
    by_message,
    judge,
    post,
    remembered,
    result,
    user,
)

from passback.core.admission import ConversationSnapshot, Joins, Parks, decide_unread_post
from passback.core.errors import PassbackError
from passback.core.messages import Message, RunId
from passback.core.posts import OnBusy, Receipt, ReceiptName, StartRun
from passback.core.transcript import owed_answers

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
ON_BUSY: list[OnBusy] = ["reject", "enqueue"]


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


@pytest.mark.parametrize("on_busy", ON_BUSY)
@pytest.mark.parametrize("posted", POSTS)
@pytest.mark.parametrize("messages", [IDLE, OWING])
def test_it_agrees_with_what_the_messages_say(
    messages: Sequence[Message], posted: StartRun, on_busy: OnBusy
) -> None:
    posted = replace(posted, on_busy=on_busy)
    for receipts in KNOWN:
        for running, overdue in ((False, False), (True, False), (False, True)):
            said = unread(messages, posted, receipts, running=running, overdue=overdue)
            expected = whole(messages, posted, receipts, running=running, overdue=overdue)
            assert said in (None, expected)


def test_repeats_and_refusals_need_no_messages() -> None:
    parked = remembered(by_call(c1="done"), None)
    assert unread(OWING, post(result("c1")), parked, running=False, overdue=False) == Parks(
        (), {}, owed_answers(OWING)
    )
    joined = remembered(by_call(c1="done"))
    assert unread(IDLE, post(result("c1")), joined, running=True, overdue=False) == Joins(
        RunId("r1")
    )
    for running in (False, True):
        said = unread(IDLE, post(M1), {}, running=running, overdue=False)
        assert (said is None) is not running
