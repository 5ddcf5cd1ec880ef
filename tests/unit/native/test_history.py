"""Messages are shown in the forms in which the protocol posts them."""

import pytest

from passback.core.changes import Status
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationId,
    Message,
    MessageContext,
    MessageId,
    PlanEntry,
    Reasoning,
    SummaryMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.permissions import LastingPermission
from passback.core.state import Refusal, State
from passback.native.history import MessageView, conversation_view, message_view

ID, CALL = MessageId("m"), CallId("c")
MESSAGES: list[tuple[Message, MessageView]] = [
    (UserMessage(ID, "hi"), {"id": "m", "role": "user", "content": "hi"}),
    (SystemMessage(ID, "be kind"), {"id": "m", "role": "system", "content": "be kind"}),
    (
        UserMessage(ID, "hi", agent="sales"),
        {"id": "m", "role": "user", "content": "hi", "agentId": "sales"},
    ),
    (
        SystemMessage(ID, "mend it", synthetic="invalid"),
        {"id": "m", "role": "system", "content": "mend it", "synthetic": "invalid"},
    ),
    (
        UserMessage(ID, (TextPart("hi"),)),
        {"id": "m", "role": "user", "content": [{"type": "text", "text": "hi"}]},
    ),
    (
        AssistantMessage(ID, "hello", reasoning=(Reasoning("secret", "x", "opaque"),)),
        {"id": "m", "role": "assistant", "content": "hello"},
    ),
    (
        AssistantMessage(ID, "", (ToolCall(CALL, "t", "{}", client=True),), partial=True),
        {
            "id": "m",
            "role": "assistant",
            "content": "",
            "toolCalls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "t", "arguments": "{}"},
                    "client": True,
                }
            ],
            "partial": True,
        },
    ),
    (
        AssistantMessage(ID, "hello", usage=Usage(1, 2, 3, 4)),
        {
            "id": "m",
            "role": "assistant",
            "content": "hello",
            "usage": {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 3, "reasoningTokens": 4},
        },
    ),
    (
        UserMessage(ID, "hi", imported=True),
        {"id": "m", "role": "user", "content": "hi", "imported": True},
    ),
    (
        AssistantMessage(ID, "hello", imported=True),
        {"id": "m", "role": "assistant", "content": "hello", "imported": True},
    ),
    (
        ToolMessage(ID, CALL, "gone", synthetic="unanswered", imported=True),
        {
            "id": "m",
            "role": "tool",
            "toolCallId": "c",
            "content": "gone",
            "synthetic": "unanswered",
            "imported": True,
        },
    ),
    (
        ToolMessage(ID, CALL, "done"),
        {"id": "m", "role": "tool", "toolCallId": "c", "content": "done"},
    ),
    (
        ToolMessage(ID, CALL, "late", is_error=True, synthetic="timeout"),
        {
            "id": "m",
            "role": "tool",
            "toolCallId": "c",
            "content": "late",
            "isError": True,
            "synthetic": "timeout",
        },
    ),
    (
        ApprovalMessage(ID, CALL, approved=True, tool="t"),
        {"id": "m", "role": "approval", "toolCallId": "c", "approved": True},
    ),
    (
        ApprovalMessage(ID, CALL, approved=True, always=True, tool="t"),
        {"id": "m", "role": "approval", "toolCallId": "c", "approved": True, "always": True},
    ),
    (
        ApprovalMessage(ID, CALL, approved=False, reason="Not now.", tool="t"),
        {"id": "m", "role": "approval", "toolCallId": "c", "approved": False, "reason": "Not now."},
    ),
    (
        ChildMessage(CALL, UserMessage(ID, "hi", brief=MessageContext(extras={"a": 1}))),
        {
            "id": "m",
            "role": "child",
            "toolCallId": "c",
            "message": {"id": "m", "role": "user", "content": "hi", "extras": {"a": 1}},
        },
    ),
    (
        SummaryMessage(ID, "In short.", 2, asked="what?", usage=Usage(1)),
        {"id": "m", "role": "summary", "content": "In short."},
    ),
]


@pytest.mark.parametrize(("message", "shown"), MESSAGES)
def test_a_message_is_shown(message: Message, shown: MessageView) -> None:
    assert message_view(message) == shown


def test_a_conversation_is_shown_with_what_it_cost_and_what_people_have_answered() -> None:
    refusals = (Refusal(CALL, "rm", "No."),)
    lasting = (LastingPermission("ls", "1", True), LastingPermission("rm", "1", False, "Never."))
    status = Status(state=State(cost=0.5, seconds=2.5, refusals=refusals, lasting=lasting))
    shown = conversation_view(ConversationId("c"), status)
    assert (shown["cost"], shown["seconds"]) == (0.5, 2.5)
    assert shown["refusals"] == [{"toolCallId": CALL, "name": "rm", "reason": "No."}]
    assert shown["permissions"] == [
        {"name": "ls", "decision": "allow"},
        {"name": "rm", "decision": "deny", "reason": "Never."},
    ]


def test_a_conversation_is_shown_with_its_usage_and_its_plan() -> None:
    plan = (PlanEntry("look", "high", "completed"), PlanEntry("leap"))
    status = Status(state=State(plan, Usage(1, 2, 3, 4)))
    shown = conversation_view(ConversationId("c"), status)
    assert shown["usage"] == {
        "inputTokens": 1,
        "outputTokens": 2,
        "cachedTokens": 3,
        "reasoningTokens": 4,
    }
    assert shown["plan"] == [
        {"content": "look", "priority": "high", "status": "completed"},
        {"content": "leap", "priority": "medium", "status": "pending"},
    ]
