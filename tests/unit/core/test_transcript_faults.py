"""The tests' own judge of transcripts: it must tell each fault, and nothing of a sound one."""

from collections.abc import Sequence

import pytest
from tests.support.transcript_rules import faults_of

from passback.core.messages import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    ToolCall,
    ToolMessage,
    UserMessage,
)

USER = UserMessage(MessageId("u1"), "hi")
MORE = UserMessage(MessageId("u2"), "more")


def asks(*calls: str, server: str = "", name: str = "a1") -> AssistantMessage:
    each = [ToolCall(CallId(call), "tool", "{}", call not in server) for call in calls]
    return AssistantMessage(MessageId(name), "", tuple(each))


def answers(call: str, name: str = "") -> ToolMessage:
    return ToolMessage(MessageId(name or f"t-{call}"), CallId(call), "done")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER, MORE],
        [USER, AssistantMessage(MessageId("a1"), "hello"), MORE],
        [USER, asks("x", "y"), answers("y")],
        [USER, asks("x", "y"), answers("y"), answers("x"), MORE],
    ],
)
def test_a_sound_transcript_has_no_fault(messages: Sequence[Message]) -> None:
    assert faults_of(messages, running=False) == []


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([asks("x")], "begins with a message of the assistant"),
        ([USER, USER], "u1 stands there 2 times"),
        ([USER, asks("x", "x"), answers("x")], "x stands there 2 times"),
        ([USER, asks()], "1: says nothing"),
        ([USER, asks("x"), MORE], "x has 0 answers next to it"),
        ([USER, asks("x"), answers("x"), answers("x", "t2")], "x has 2 answers next to it"),
        ([USER, answers("x")], "1: answers no call of the turn before it"),
        ([USER, asks("x"), answers("y")], "2: answers no call of the turn before it"),
        (
            [USER, asks("x"), answers("x"), asks("y", name="a2"), answers("x", "t2")],
            "4: answers no call of the turn before it",
        ),
        ([USER, asks("x", server="x")], "x waits for a server"),
        (
            [USER, asks("x"), ToolMessage(MessageId("t"), CallId("x"), "", synthetic="timeout")],
            "2: was made up, and is no error",
        ),
    ],
)
def test_each_fault_is_found(messages: Sequence[Message], fault: str) -> None:
    assert fault in faults_of(messages, running=False)


def test_a_servers_call_may_be_open_while_something_runs() -> None:
    assert faults_of([USER, asks("x", server="x")], running=True) == []
