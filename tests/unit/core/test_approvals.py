"""Approvals in a transcript: open ones, posts that answer them, and that no model is shown one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.core.admission import (
    C1,
    asks,
    call,
    closed,
    minting,
    needing,
    post,
    remembered,
    result,
    says_no,
    says_yes,
    user,
)

from passback.core.admission import (
    Begins,
    ConversationSnapshot,
    Joins,
    Parks,
    Queues,
    Verdict,
    begin_queued_run,
    decide_post,
    refuse_claim,
)
from passback.core.errors import (
    ConversationBusy,
    InvalidAnswer,
    InvalidRequest,
    NothingToDo,
    ResultConflict,
    UnknownToolCall,
)
from passback.core.messages import (
    ApprovalMessage,
    CallId,
    ChildMessage,
    DataPart,
    Message,
    MessageId,
    Owed,
    PostedMessage,
    RunId,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.permissions import MAX_APPROVALS, MAX_DENIALS, LastingPermission, merge_lasting
from passback.core.posts import OnBusy, Receipt, ReceiptName, call_receipt_name
from passback.core.transcript import (
    UNMADE_TEXT,
    count_futile_turns,
    lasting_permissions,
    owed_answers,
    paired_messages,
    runnable_calls,
    unanswered_calls,
    waiting_calls,
)

A, B, SERVERS = needing("a"), needing("b"), call("s", client=False)
ASKING: list[Message] = [user(), asks(A, B)]
MIXED: list[Message] = [user(), asks(A, C1)]
QUESTION = ToolCall(
    CallId("q"), "ask_user", '{"questions": [{"question": "?"}]}', client=True, asks="question"
)
YES_A, NO_A, YES_B = (
    says_yes("a", tool="tool_a"),
    says_no("a", tool="tool_a"),
    says_yes("b", tool="tool_b"),
)


class Talk:
    """A conversation of posts one after the other, and what a store remembers of them."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.receipts: dict[ReceiptName, Receipt] = {}
        self.running: RunId | None = None
        self._mint = minting()

    def post(
        self, *posted: PostedMessage, overdue: bool = False, on_busy: OnBusy = "reject"
    ) -> Verdict:
        standing = ConversationSnapshot(self.messages, self.receipts, self.running, overdue=overdue)
        verdict = decide_post(standing, post(*posted, on_busy=on_busy), self._mint)
        if isinstance(verdict, Begins | Parks):
            self.messages += verdict.append
            run = "r1" if isinstance(verdict, Begins) else None
            self.receipts |= remembered(verdict.receipts, run)
            self.running = RunId("r1") if run else None
        return verdict


def unmade(call_id: str, *, minted: str) -> ToolMessage:
    return replace(closed(call_id, minted=minted), content=UNMADE_TEXT)


def denied(call_id: str, text: str = "", minted: str = "minted-1") -> ToolMessage:
    """The result of a call that was denied."""
    text = f"This call was not allowed.{text}"
    return ToolMessage(MessageId(minted), CallId(call_id), text, is_error=True, synthetic="denied")


# ---------------------------------------------------------------- open calls
@pytest.mark.promise("P2")
def test_a_call_that_needs_approval_is_owed_until_it_is_approved_and_then_the_servers() -> None:
    messages: list[Message] = [user(), asks(A, SERVERS, C1)]
    assert [each.call for each in waiting_calls(messages)] == [A, C1]
    assert runnable_calls(messages) == (SERVERS,)
    assert owed_answers(messages) == (
        Owed(A.id, "tool_a", "{}", "approval", "Sure?"),
        Owed(C1.id, "tool_c1", "{}"),
    )
    messages += [YES_A]
    assert [each.call for each in waiting_calls(messages)] == [C1]
    assert runnable_calls(messages) == (A, SERVERS)
    messages += [result("a")]
    assert runnable_calls(messages) == (SERVERS,)
    assert unanswered_calls(messages) == (SERVERS, C1)


def test_a_question_is_owed_as_one() -> None:
    assert owed_answers([user(), asks(QUESTION)]) == (
        Owed(QUESTION.id, "ask_user", QUESTION.arguments, "question"),
    )


@pytest.mark.promise("P5")
def test_no_model_is_shown_an_approval() -> None:
    messages: list[Message] = [*ASKING, YES_A, YES_B, result("b"), result("a"), user("more", "u2")]
    assert paired_messages(messages) == (*ASKING, result("a"), result("b"), user("more", "u2"))


def test_a_turn_whose_calls_were_denied_is_not_futile() -> None:
    assert count_futile_turns([user(), asks(A), NO_A, denied("a")]) == 0
    assert count_futile_turns([user(), asks(C1), closed("c1", "invalid"), asks(A), NO_A]) == 0


def test_what_was_answered_for_good_is_a_tool_as_it_was_declared() -> None:
    """An answer to one call alone is not kept; a denial is of the name."""
    copied = replace(says_yes("g", always=True, tool="copy"), digest="2")
    messages: list[Message] = [
        replace(says_yes("a", always=True, tool="save"), digest="1"),
        replace(says_yes("b", tool="send"), digest="1"),
        replace(says_no("c", tool="pay"), digest="1"),
        replace(says_no("d", "x" * 2000, tool="drop"), always=True, digest="1"),
        replace(says_no("i", tool="never"), always=True),
        ChildMessage(CallId("e"), ChildMessage(CallId("f"), copied)),
        user(),
    ]
    assert list(lasting_permissions(messages)) == [
        LastingPermission("save", "1", True),
        LastingPermission("drop", "1", False, "x" * 1000),
        LastingPermission("never", "", False),
        LastingPermission("copy", "2", True),
    ]


YES, NO = LastingPermission("a", "1", True), LastingPermission("a", "1", False, "No.")
YES_TO_OTHER, NO_TO_OTHER = replace(YES, digest="2"), replace(NO, digest="2")
YES_TO_B = LastingPermission("b", "1", True)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ([YES, YES_TO_B, YES], [YES_TO_B, YES]),
        ([YES, YES_TO_OTHER], [YES, YES_TO_OTHER]),
        ([YES, YES_TO_OTHER, YES_TO_B, NO], [YES_TO_B, NO]),
        ([NO, YES_TO_B, NO_TO_OTHER], [YES_TO_B, NO_TO_OTHER]),
        ([NO, YES_TO_OTHER], [YES_TO_OTHER]),
        ([YES, NO, YES_TO_OTHER], [YES_TO_OTHER]),
    ],
)
def test_a_denial_is_of_all_declarations_of_a_tool_and_an_approval_is_of_one(
    given: list[LastingPermission], left: list[LastingPermission]
) -> None:
    assert merge_lasting(given, []) == tuple(left)
    assert merge_lasting(given[:1], given[1:]) == tuple(left)


def test_the_oldest_of_too_many_approvals_go_and_no_denial_does() -> None:
    denials = [LastingPermission(f"no_{n}", "1", False) for n in range(MAX_DENIALS + 1)]
    approvals = [LastingPermission(f"yes_{n}", "1", True) for n in range(MAX_APPROVALS)]
    assert merge_lasting([*denials, *approvals], []) == (*denials, *approvals)
    assert merge_lasting([*denials, *approvals], [YES]) == (*denials, *approvals[1:], YES)
    # that it is too old an approval does not bring back the denial that it replaced
    assert merge_lasting([NO, YES], approvals) == tuple(approvals)


def never(tool: str) -> ApprovalMessage:
    return replace(says_no(f"call-{tool}", tool=tool), always=True, digest="1")


def test_a_denial_for_good_that_there_is_no_room_for_is_refused_and_changes_nothing() -> None:
    full: list[Message] = [never(f"tool_{n}") for n in range(MAX_DENIALS)]
    no_to_a, no_to_b = (replace(says_no(call), always=True) for call in "ab")
    talk = Talk(*full, *ASKING)
    with pytest.raises(InvalidRequest, match="64 tools are denied for good"):
        talk.post(no_to_a)
    assert talk.messages == [*full, *ASKING]
    # this call alone, and another one for good, can be answered
    assert isinstance(talk.post(says_no("a"), says_yes("b", always=True)), Begins)
    # one more is all that there is room for, and a tool that is denied already needs none
    talk = Talk(*full[1:], *ASKING)
    with pytest.raises(InvalidRequest):
        talk.post(no_to_a, no_to_b)
    assert isinstance(talk.post(no_to_a), Parks)
    with pytest.raises(InvalidRequest):
        talk.post(no_to_b)
    talk = Talk(*full[1:], never("tool_a"), *ASKING)
    assert isinstance(talk.post(no_to_a), Parks)


def test_denials_for_good_that_wait_in_the_queue_need_room_too() -> None:
    messages: list[Message] = [*(never(f"tool_{n}") for n in range(1, MAX_DENIALS)), *ASKING]
    queued: list[Message] = [never("tool_x"), user("queued")]
    no = post(replace(says_no("a"), always=True), user("more", "u2"), on_busy="enqueue")
    assert isinstance(decide_post(ConversationSnapshot(messages), no, minting()), Begins)
    with pytest.raises(InvalidRequest):
        decide_post(ConversationSnapshot(messages, queued=queued), no, minting())


def test_the_model_is_sent_a_lasting_denial_as_a_denial() -> None:
    talk = Talk(*ASKING[:1], asks(A))
    talk.post(replace(says_no("a", "No."), always=True))
    assert talk.messages[-1] == denied(
        "a", " Nor is any other call of this tool in this conversation. The user says: No."
    )


# ---------------------------------------------------------------- meaning of posts
REASONED = says_no("a", "Not now.", tool="tool_a")
Posted = Sequence[PostedMessage]
BEGINS: dict[str, tuple[list[Message], Posted, Posted, Sequence[Message]]] = {
    "yes": ([user(), asks(A)], [], [says_yes("a")], [YES_A]),
    "no": ([user(), asks(A)], [], [says_no("a")], [NO_A, denied("a")]),
    "no, with a reason": (
        [user(), asks(A)],
        [],
        [says_no("a", "Not now.")],
        [REASONED, denied("a", " The user says: Not now.")],
    ),
    "both in one post": (ASKING, [], [says_yes("b"), says_no("a")], [YES_B, NO_A, denied("a")]),
    "the last of several": (ASKING, [says_yes("a")], [says_yes("b")], [YES_B]),
    "beside one that was denied": (ASKING, [says_no("a")], [says_yes("b")], [YES_B]),
    "with a result": (MIXED, [], [result("c1"), says_yes("a")], [result("c1"), YES_A]),
    "behind a result": (MIXED, [result("c1")], [says_yes("a")], [YES_A]),
    "before a result": (MIXED, [says_yes("a")], [result("c1")], [result("c1")]),
    "again, beside what is new": (
        MIXED,
        [says_yes("a")],
        [says_yes("a"), result("c1"), says_yes("a")],
        [result("c1")],
    ),
    "a message instead": (
        ASKING,
        [],
        [user("no")],
        [closed("a"), closed("b", minted="minted-2"), user("no")],
    ),
    "a message, and what was approved had not begun": (
        ASKING,
        [says_yes("a")],
        [user("no")],
        [closed("b"), unmade("a", minted="minted-2"), user("no")],
    ),
    "a message with a yes": (
        MIXED,
        [],
        [user("no"), says_yes("a")],
        [YES_A, closed("c1"), unmade("a", minted="minted-2"), user("no")],
    ),
    "a message with a no": (
        ASKING,
        [],
        [says_no("a"), user("no")],
        [NO_A, denied("a"), closed("b", minted="minted-2"), user("no")],
    ),
    "a message behind a crash: what was approved has perhaps begun": (
        [*ASKING, YES_A, YES_B, result("b")],
        [],
        [user("so?")],
        [closed("a", "interrupted"), user("so?")],
    ),
}


@pytest.mark.promise("P5")
@pytest.mark.parametrize(("given", "earlier", "posted", "append"), BEGINS.values(), ids=BEGINS)
def test_a_post_that_settles_all_starts_a_run(
    given: list[Message], earlier: Posted, posted: Posted, append: Sequence[Message]
) -> None:
    talk = Talk(*given)
    if earlier:
        assert isinstance(talk.post(*earlier), Parks)
    verdict = talk.post(*posted)
    assert isinstance(verdict, Begins)
    assert [_unminted(each) for each in verdict.append] == [_unminted(each) for each in append]
    # all that was answered leads to this run
    for each in (*earlier, *posted):
        if not isinstance(each, UserMessage):
            assert talk.post(each) == Joins(RunId("r1"))


def _unminted(message: Message) -> Message:
    """Ids that the server made do not matter."""
    return replace(message, id=MessageId("")) if isinstance(message, ToolMessage) else message


PARKS: dict[str, tuple[list[Message], PostedMessage, Sequence[Message], CallId]] = {
    "yes": (ASKING, says_yes("a"), [YES_A], B.id),
    "no": (ASKING, says_no("b"), [says_no("b", tool="tool_b"), denied("b")], A.id),
    "yes beside a client's call": (MIXED, says_yes("a"), [YES_A], C1.id),
    "a result beside it": (MIXED, result("c1"), [result("c1")], A.id),
}


@pytest.mark.promise("P2")
@pytest.mark.parametrize(("given", "posted", "append", "left"), PARKS.values(), ids=PARKS)
def test_what_does_not_settle_all_is_stored_and_the_rest_is_named(
    given: list[Message], posted: PostedMessage, append: Sequence[Message], left: CallId
) -> None:
    talk = Talk(*given)
    first = talk.post(posted)
    assert isinstance(first, Parks)
    assert list(first.append) == append
    assert [each.id for each in first.owed] == [left]
    assert first.owed == owed_answers(talk.messages)
    assert talk.post(posted) == Parks((), {}, first.owed)


# ---------------------------------------------------------------- refusals
@pytest.mark.promise("P9")
@pytest.mark.parametrize(
    ("first", "other"),
    [
        (says_yes("a"), says_no("a")),
        (says_no("a"), says_yes("a")),
        (says_yes("a"), says_yes("a", always=True)),
        (says_no("a"), replace(says_no("a"), always=True)),
        (says_yes("a", always=True), replace(says_no("a"), always=True)),
        (says_no("a"), says_no("a", "Not now.")),
        (says_yes("a"), result("a")),
    ],
)
def test_another_answer_is_a_conflict_and_an_equal_one_is_not(
    first: PostedMessage, other: PostedMessage
) -> None:
    for given in (ASKING, [user(), asks(A)]):
        talk = Talk(*given)
        with pytest.raises(ResultConflict):
            talk.post(first, other)
        talk.post(first, first)
        stored = list(talk.messages)
        with pytest.raises(ResultConflict):
            talk.post(other)
        talk.post(first)
        assert talk.messages == stored


@pytest.mark.promise("P9", "P13")
@pytest.mark.parametrize(
    ("given", "posted"),
    [
        ([user(), asks(C1)], says_yes("c1")),
        ([user(), asks(QUESTION)], says_yes("q")),
        ([user(), asks(A)], result("a")),
        ([user(), asks(A, SERVERS)], says_yes("s")),
        ([user(), asks(A)], says_yes("never")),
        ([user()], says_yes("a")),
        ([user(), asks(A), YES_A, result("a"), user("more", "u2")], says_yes("a")),
    ],
    ids=[
        *["a client's call", "a question", "a result for an approval", "the server's call"],
        *["no call", "nothing was asked", "it was not remembered"],
    ],
)
def test_an_answer_of_another_kind_is_unknown(given: list[Message], posted: PostedMessage) -> None:
    for posts in ([posted], [posted, user("more", "u3")]):
        talk = Talk(*given)
        with pytest.raises(UnknownToolCall):
            talk.post(*posts)
        assert talk.messages == given


def test_an_answer_that_does_not_fit_its_question_changes_nothing() -> None:
    talk = Talk(user(), asks(QUESTION, A))
    bad = result("q", (DataPart({"answers": []}),))
    with pytest.raises(InvalidAnswer):
        talk.post(says_yes("a"), bad)
    assert owed_answers(talk.messages) == owed_answers([asks(QUESTION, A)])
    assert isinstance(talk.post(says_yes("a"), result("q", "Sky")), Begins)


# ---------------------------------------------------------------- time, claims, and posts that wait
@pytest.mark.promise("P9")
def test_an_answer_that_comes_too_late_is_a_conflict_that_says_so() -> None:
    with pytest.raises(ResultConflict, match="time for this tool call's result is over"):
        Talk(*ASKING).post(says_yes("a"), overdue=True)


@pytest.mark.promise("P5")
def test_when_the_time_is_over_what_was_approved_is_made_and_the_rest_is_closed() -> None:
    verdict = begin_queued_run([*ASKING, YES_A], (), minting(), overdue=True)
    assert verdict.append == (closed("b", "timeout"),)
    assert runnable_calls([*ASKING, YES_A, *verdict.append]) == (A,)
    assert verdict.receipts.keys() == {call_receipt_name(A.id), call_receipt_name(B.id)}


def test_an_approval_that_waited_with_a_message_is_stored_before_it() -> None:
    talk = Talk(*ASKING)
    standing = ConversationSnapshot(talk.messages, queued=[user("queued")])
    verdict = decide_post(standing, post(says_yes("a"), user("more", "u2")), minting())
    assert isinstance(verdict, Queues)
    assert verdict.messages == (YES_A, user("more", "u2"))
    assert begin_queued_run(ASKING, verdict.messages, minting()).append == (
        YES_A,
        closed("b"),
        unmade("a", minted="minted-2"),
        user("more", "u2"),
    )


@pytest.mark.promise("P9")
def test_an_approval_that_waited_while_another_answered_is_left_out() -> None:
    messages: list[Message] = [user(), asks(A), NO_A, denied("a")]
    verdict = begin_queued_run(messages, (YES_A, user("more", "u2")), minting())
    assert verdict == Begins((user("more", "u2"),), {})


def test_while_a_run_goes_on_an_approval_is_unknown_and_a_repeat_joins() -> None:
    talk = Talk(user(), asks(A))
    talk.running = RunId("r0")
    with pytest.raises(UnknownToolCall):
        talk.post(says_yes("a"))
    talk.running = None
    assert isinstance(talk.post(says_yes("a")), Begins)
    assert talk.post(says_yes("a")) == Joins(RunId("r1"))
    with pytest.raises(ConversationBusy):
        talk.post(says_yes("a"), user("more", "u2"))


def test_a_call_that_waits_for_a_person_can_be_claimed_until_it_is_answered() -> None:
    talk = Talk(user(), asks(A, B, SERVERS))
    refuse_claim(ConversationSnapshot(()), owed_answers(talk.messages), A.id)
    talk.post(says_yes("a"))
    with pytest.raises(ResultConflict):
        refuse_claim(ConversationSnapshot((), talk.receipts), owed_answers(talk.messages), A.id)
    with pytest.raises(UnknownToolCall):
        refuse_claim(
            ConversationSnapshot((), talk.receipts), owed_answers(talk.messages), SERVERS.id
        )


def test_no_answer_is_nothing_to_do() -> None:
    with pytest.raises(NothingToDo):
        Talk(*ASKING).post()
