"""The place at which a posted AG-UI thread and the record part, message by message."""

import pytest
from tests.unit.wire.ag_ui_site import assistant, posted, tool_result, user

from passback.core.ids import new_message_id
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationId,
    ConversationKey,
    Message,
    MessageId,
    OwnerId,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.wire.ag_ui.matching import (
    Place,
    Tail,
    find_place,
    is_from_server,
    message_to_answer,
    named_elsewhere,
)
from passback.wire.ag_ui.posted import (
    AgUiOwnMessage,
    AgUiSaid,
    AgUiToolMessage,
    AgUiUserMessage,
    RunAgentInput,
)

KEY = ConversationKey(OwnerId("anonymous"), ConversationId("c"))
OTHER = ConversationKey(OwnerId("anonymous"), ConversationId("d"))
MADE = "msg_693FyNLtTkEYVaTmsgaHHiLyEnj8r9oklj"
C1 = ToolCall(CallId("c1"), "paint", "{}", client=True)
ASKED = ToolCall(CallId("c2"), "erase", "{}", asks="approval")


def said(*messages: dict[str, object]) -> list[AgUiSaid]:
    read = RunAgentInput.model_validate(posted(*messages)).messages
    return [each for each in read if not isinstance(each, AgUiOwnMessage)]


def place(record: list[Message], *messages: dict[str, object]) -> Place:
    return find_place(said(*messages), Tail(0, record), lambda each: str(each.content))


def u(name: str, text: str = "a") -> UserMessage:
    return UserMessage(MessageId(name), text)


def a(name: str, *calls: ToolCall, partial: bool = False) -> AssistantMessage:
    return AssistantMessage(MessageId(name), "hi", calls, partial=partial)


def t(name: str, call: ToolCall = C1) -> ToolMessage:
    return ToolMessage(MessageId(name), call.id, "done")


U1, A1 = user("a", "u1"), assistant("a1")
DECIDED = ApprovalMessage(MessageId("d1"), ASKED.id, True)
SUMMARY = SummaryMessage(MessageId("s1"), "so far", 0)
CHILD = ChildMessage(C1.id, a("h1"))


@pytest.mark.parametrize(
    ("record", "messages", "found"),
    [
        ([], [U1], (-1, 0, "", True)),
        ([u("u1")], [U1], (0, 1, "u1", True)),
        ([u("u1"), a("a1")], [U1, A1, user("b", "u2")], (1, 2, "a1", True)),
        ([u("u1"), a("a1")], [U1], (0, 1, "u1", False)),
        ([u("u1"), a("a1")], [user("b", "u9")], (-1, 0, "", False)),
        # only one of the messages is needed
        ([u("u1"), a("a1")], [assistant("theirs"), A1], (1, 2, "a1", True)),
        # an edited message is new
        ([u("u1"), a("a1")], [user("edited", "u1")], (-1, 0, "", False)),
        ([u("u1"), a("a1")], [user("edited", "u1"), A1], (1, 2, "a1", True)),
        # results belong to their calls
        ([u("u1"), a("a1", C1), t("t1")], [U1, A1], (1, 3, "t1", True)),
        ([u("u1"), a("a1", C1), t("t1"), a("a2")], [U1, A1], (1, 3, "t1", False)),
        ([u("u1"), a("a1", C1), t("t1")], [U1, A1, tool_result("c1")], (2, 3, "t1", True)),
        (
            [u("u1"), a("a1", ASKED), DECIDED, t("t2", ASKED), CHILD, SUMMARY],
            [U1, A1],
            (1, 6, "t2", True),
        ),
        ([u("u1"), a("a1"), SUMMARY, u("u2")], [U1, A1], (1, 3, "a1", False)),
        # the server's correction of an answer is a message like others
        (
            [u("u1"), a("a1"), SystemMessage(MessageId("x"), "no", "invalid"), a("a2")],
            [U1, A1],
            (1, 2, "a1", False),
        ),
    ],
)
def test_the_last_message_that_both_have_is_found(
    record: list[Message], messages: list[dict[str, object]], found: tuple[int, int, str, bool]
) -> None:
    seen = place(record, *messages)
    assert (seen.known, seen.end, str(seen.after), seen.is_end) == found


@pytest.mark.parametrize(
    ("record", "messages", "answered"),
    [
        ([], [U1], None),
        ([u("u1"), a("a1")], [U1], "u1"),
        ([u("u1"), a("a1")], [U1, A1], "a1"),
        ([u("u1"), a("a1", partial=True)], [U1, A1], "u1"),
        ([u("u1"), a("a0", C1), t("t1"), a("a1", partial=True)], [U1, A1], "t1"),
        ([a("a1", partial=True)], [A1], "a1"),
        ([u("u1")], [user("b", "u9")], ""),
    ],
)
def test_the_last_known_message_is_answered_anew(
    record: list[Message], messages: list[dict[str, object]], answered: str | None
) -> None:
    assert message_to_answer(Tail(0, record), place(record, *messages)) == answered


def test_of_a_tail_the_answered_calls_and_the_approvals_are_known() -> None:
    deep = ChildMessage(C1.id, ToolMessage(MessageId("t9"), CallId("c9"), "x"))
    tail = Tail(0, [a("a1", C1, ASKED), t("t1"), ChildMessage(C1.id, a("h1", ASKED)), deep])
    assert tail.answered == {"c1", "c9"}
    assert tail.approvals == {"c2"}


def test_answers_on_other_branches_are_looked_for_from_the_last() -> None:
    ours = [new_message_id(KEY) for _ in range(4)]
    messages = [
        U1,
        assistant("theirs"),
        assistant(new_message_id(OTHER)),
        assistant(new_message_id(KEY), "hi", "c1"),
        *(assistant(each) for each in ours),
        user("b", "u2"),
    ]
    found = named_elsewhere(said(*messages), Place(0, 1, MessageId("u1"), is_end=True), KEY)
    assert found == [(7, ours[3]), (6, ours[2]), (5, ours[1])]
    known = Place(7, 1, MessageId("u1"), is_end=True)
    assert named_elsewhere(said(*messages), known, KEY) == []


@pytest.mark.parametrize(
    ("message_id", "ours"),
    [("c1_result", True), (MADE, True), ("c2_result", False), ("mine", False)],
)
def test_the_servers_results_are_known_by_their_ids(message_id: str, ours: bool) -> None:
    [result] = said(tool_result("c1", "x", message_id))
    assert isinstance(result, AgUiToolMessage)
    assert is_from_server(result) is ours


def test_a_message_of_the_user_is_read_with_its_parts() -> None:
    [message] = said(user([{"type": "text", "text": "a"}]))
    assert isinstance(message, AgUiUserMessage)
    assert not isinstance(message.content, str)
