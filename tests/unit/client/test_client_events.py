"""Parsing of events, conversations and server-sent events, and the text of an answer."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.replies import answer_of

from passback_client import (
    AgentText,
    BadAnswer,
    ContextUse,
    Failure,
    Interrupt,
    Left,
    LimitExceeded,
    Limits,
    MessageStart,
    Output,
    Owed,
    OwedCall,
    Plan,
    PlanEntry,
    Reasoning,
    Rewind,
    RunEnd,
    Running,
    RunQueued,
    RunStart,
    Text,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolProgress,
    ToolResult,
    Unknown,
    Usage,
)
from passback_client.conversation import LastingPermission, Refusal, read_conversation, read_page
from passback_client.parsing import parse_event
from passback_client.sse import SseDecoder

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "send_message.json").read_text(encoding="utf-8")
)
DATA = sorted({data for vector in VECTORS for data in vector["data"]} - {"[DONE]"})


@pytest.mark.parametrize("data", DATA)
def test_every_event_that_a_server_sends_is_known(data: str) -> None:
    event = parse_event(data, "run.1-2")
    assert not isinstance(event, Unknown)
    assert event.id == "run.1-2"


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ({"type": "text", "content": "a"}, Text("a", id="1")),
        ({"type": "reasoning", "delta": "a"}, Reasoning("a", id="1")),
        (
            {"type": "tool-call-start", "toolCallId": "c", "toolCallName": "t"},
            ToolCallStart("c", "t", id="1"),
        ),
        (
            {"type": "tool-call-args", "toolCallId": "c", "delta": "{}"},
            ToolCallArgs("c", "{}", id="1"),
        ),
        ({"type": "tool-call-end", "toolCallId": "c"}, ToolCallEnd("c", id="1")),
        ({"type": "output", "value": {"a": 1}}, Output({"a": 1}, id="1")),
        ({"type": "tool-result", "toolCallId": "c", "result": "r"}, ToolResult("c", "r", id="1")),
        (
            {
                "type": "tool-result",
                "toolCallId": "c",
                "result": "r",
                "isError": True,
                "synthetic": "denied",
            },
            ToolResult("c", "r", is_error=True, synthetic="denied", id="1"),
        ),
        (
            {
                "type": "owed",
                "toolCalls": [{"id": "c", "name": "t", "arguments": "{}", "kind": "approval"}],
            },
            Owed((OwedCall("c", "t", "{}", "approval"),), id="1"),
        ),
        (
            {
                "type": "owed",
                "toolCalls": [
                    {"id": "c", "name": "t", "arguments": "{}", "kind": "approval", "reason": "r"}
                ],
            },
            Owed((OwedCall("c", "t", "{}", "approval", "r"),), id="1"),
        ),
        (
            {
                "type": "interrupt",
                "id": "c",
                "reason": "r",
                "payload": {
                    "kind": "approval",
                    "toolCallId": "c",
                    "toolCallName": "t",
                    "arguments": "{}",
                },
            },
            Interrupt("c", "r", "approval", "t", "{}", id="1"),
        ),
        ({"type": "interrupt", "id": "c"}, Interrupt("c", "", "", "", "", id="1")),
        ({"type": "run-queued", "runId": "r"}, RunQueued("r", id="1")),
        ({"type": "run-start", "runId": "r", "more": 1}, RunStart("r", id="1")),
        ({"type": "run-end", "outcome": "cancelled"}, RunEnd("cancelled", id="1")),
        (
            {"type": "run-end", "outcome": "completed", "reason": "end_turn", "model": "demo"},
            RunEnd("completed", "end_turn", "demo", id="1"),
        ),
        ({"type": "rewind", "to": "r.1-2"}, Rewind("r.1-2", id="1")),
        ({"type": "error", "error": "e"}, Failure("e", "unknown", id="1")),
        (
            {"type": "error", "error": "e", "code": "c", "retryable": True, "retryAfter": 2},
            Failure("e", "c", retryable=True, retry_after=2.0, id="1"),
        ),
        (
            {
                "type": "usage",
                "inputTokens": 1,
                "outputTokens": 2,
                "cachedTokens": 3,
                "reasoningTokens": 4,
            },
            Usage(1, 2, 3, 4, id="1"),
        ),
        (
            {
                "type": "usage",
                "inputTokens": 1,
                "outputTokens": 2,
                "cachedTokens": 3,
                "reasoningTokens": 4,
                "left": {"turns": 5, "seconds": 1.5},
            },
            Usage(1, 2, 3, 4, left=Left(turns=5, seconds=1.5), id="1"),
        ),
        (
            {"type": "tool-progress", "toolCallId": "c", "text": "half"},
            ToolProgress("c", "half", id="1"),
        ),
        (
            {"type": "agent-text", "parentToolCallId": "c", "delta": "a"},
            AgentText("c", "a", id="1"),
        ),
        ({"type": "message", "messageId": "m"}, MessageStart("m", id="1")),
        (
            {
                "type": "plan",
                "entries": [{"content": "look", "priority": "high", "status": "in_progress"}],
            },
            Plan((PlanEntry("look", "high", "in_progress"),), id="1"),
        ),
        (
            {
                "type": "usage",
                "inputTokens": 1,
                "outputTokens": 2,
                "cachedTokens": 3,
                "reasoningTokens": 4,
                "estimated": True,
            },
            Usage(1, 2, 3, 4, estimated=True, id="1"),
        ),
        (
            {
                "type": "owed",
                "toolCalls": [
                    {
                        "id": "c",
                        "name": "t",
                        "arguments": "{}",
                        "kind": "question",
                        "parentToolCallId": "p",
                    }
                ],
            },
            Owed((OwedCall("c", "t", "{}", "question", parent_call_id="p"),), id="1"),
        ),
        ({"type": "new", "a": 1}, Unknown("new", {"type": "new", "a": 1}, id="1")),
    ],
)
def test_data_becomes_an_event(fields: dict[str, Any], event: object) -> None:
    assert parse_event(json.dumps(fields), "1") == event


@pytest.mark.parametrize(
    "data",
    [
        "",
        "[DONE",
        "[]",
        "[" * 100_000,
        "{}",
        '{"type": 1}',
        '{"type": "text"}',
        '{"type": "owed", "toolCalls": {}}',
        '{"type": "owed", "toolCalls": [1]}',
        '{"type": "usage", "inputTokens": "many"}',
        '{"type": "plan"}',
        '{"type": "plan", "entries": [{"content": "look"}]}',
        '{"type": "agent-text", "delta": "a"}',
    ],
)
def test_malformed_data_is_a_bad_answer(data: str) -> None:
    with pytest.raises(BadAnswer):
        parse_event(data, "")


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        (
            {"type": "tool-call-start", "toolCallId": "c", "toolCallName": "t"},
            ToolCallStart("c", "t", id="1", parent_call_id="p"),
        ),
        (
            {"type": "tool-call-args", "toolCallId": "c", "delta": "{}"},
            ToolCallArgs("c", "{}", id="1", parent_call_id="p"),
        ),
        (
            {"type": "tool-call-end", "toolCallId": "c"},
            ToolCallEnd("c", id="1", parent_call_id="p"),
        ),
        (
            {"type": "tool-result", "toolCallId": "c", "result": "r"},
            ToolResult("c", "r", id="1", parent_call_id="p"),
        ),
        (
            {"type": "tool-progress", "toolCallId": "c", "text": "half"},
            ToolProgress("c", "half", id="1", parent_call_id="p"),
        ),
        ({"type": "reasoning", "delta": "a"}, Reasoning("a", id="1", parent_call_id="p")),
        ({"type": "message", "messageId": "m"}, MessageStart("m", id="1", parent_call_id="p")),
        ({"type": "context", "used": 1, "window": 2}, ContextUse(1, 2, id="1", parent_call_id="p")),
        ({"type": "plan", "entries": []}, Plan((), id="1", parent_call_id="p")),
        (
            {
                "type": "usage",
                "inputTokens": 1,
                "outputTokens": 2,
                "cachedTokens": 3,
                "reasoningTokens": 4,
            },
            Usage(1, 2, 3, 4, id="1", parent_call_id="p"),
        ),
    ],
)
def test_an_event_of_a_sub_agent_names_the_call_that_it_works_on(
    fields: dict[str, Any], event: object
) -> None:
    assert parse_event(json.dumps({**fields, "parentToolCallId": "p"}), "1") == event


# ---------------------------------------------------------------- conversations
CONVERSATION: dict[str, Any] = {
    "id": "c",
    "runId": None,
    "running": None,
    "owed": [],
    "messageCount": 0,
}


def test_a_conversation_has_its_usage_its_plan_and_its_permissions() -> None:
    conversation = read_conversation(
        {
            **CONVERSATION,
            "usage": {
                "inputTokens": 1,
                "outputTokens": 2,
                "cachedTokens": 3,
                "reasoningTokens": 4,
                "estimated": True,
            },
            "plan": [{"content": "look", "priority": "low", "status": "pending"}],
            "cost": 0.5,
            "seconds": 2,
            "refusals": [{"toolCallId": "c1", "name": "burn", "reason": "No."}],
            "permissions": [
                {"name": "look", "decision": "allow"},
                {"name": "burn", "decision": "deny", "reason": "Never."},
            ],
        }
    )
    assert (conversation.cost, conversation.seconds) == (0.5, 2)
    assert conversation.refusals == (Refusal("c1", "burn", "No."),)
    never = LastingPermission("burn", approved=False, reason="Never.")
    assert conversation.permissions == (LastingPermission("look", approved=True), never)
    assert conversation.usage == Usage(1, 2, 3, 4, estimated=True)
    assert conversation.plan == (PlanEntry("look", "low", "pending"),)


def test_a_conversation_has_its_runs_and_its_owed_calls_with_deadlines() -> None:
    owed: Any = {"id": "c", "name": "t", "arguments": "{}", "kind": "tool_result"}
    times = {"deadline": "2026-01-31T12:00:00.000Z", "claimedUntil": "2026-01-31T11:00:00.000Z"}
    running: Any = {"runId": "r2", "firstMessage": 4, "attempt": 2}
    more: dict[str, Any] = {
        "runId": "r2",
        "running": running,
        "queued": ["r3", "r4"],
        "owed": [owed | times],
    }
    conversation = read_conversation({**CONVERSATION, **more})
    assert (conversation.running, conversation.queued) == (Running("r2", 4, 2), ("r3", "r4"))
    assert conversation.owed == (
        OwedCall("c", "t", "{}", deadline=times["deadline"], claimed_until=times["claimedUntil"]),
    )
    assert read_conversation({**CONVERSATION, "running": {"runId": "r"}}).running == Running(
        "r", 0, 1
    )


def test_usage_and_plan_of_a_conversation_are_optional() -> None:
    conversation = read_conversation(CONVERSATION)
    assert (conversation.usage, conversation.plan) == (None, ())


def test_messages_of_sub_agents_and_approvals_have_roles_of_their_own() -> None:
    approval: dict[str, Any] = {"id": "2", "role": "approval", "toolCallId": "c", "approved": True}
    child: dict[str, Any] = {"id": "3", "role": "child", "toolCallId": "p", "message": approval}
    user: dict[str, Any] = {"id": "1", "role": "user", "content": "hi", "agentId": "sales"}
    page = read_page({"messages": [user, child], "next": None, "total": 2})
    asked, inner = page.messages
    assert asked["role"] == "user"
    assert asked.get("agentId") == "sales"
    assert inner["role"] == "child"
    assert inner["toolCallId"] == "p"
    assert inner["message"]["role"] == "approval"
    assert inner["message"]["approved"] is True


@pytest.mark.parametrize(
    "wrong", [{"messages": [{"id": "1"}]}, {"messages": {}}, {"messages": [1]}, {"total": "1"}]
)
def test_a_page_without_messages_that_have_roles_and_a_count_is_a_bad_answer(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(BadAnswer):
        read_page({"messages": [], "next": None, "total": 1, **wrong})


# ---------------------------------------------------------------- answers
def test_the_text_of_a_sub_agent_is_no_part_of_the_answer() -> None:
    answer = answer_of(
        Text("I ask.", id="a.1-2"),
        ToolCallStart("c", "helper", id="a.1-3"),
        AgentText("c", "I look.", id="a.1-4"),
        Reasoning("hm", id="a.1-5", parent_call_id="c"),
        ToolResult("c", "found", id="a.1-6"),
        Text(" Found.", id="a.1-7"),
    )
    assert answer.text == "I ask. Found."


def test_the_texts_of_the_runs_of_an_answer_are_separated() -> None:
    answer = answer_of(
        RunStart("a", id="a.1-1"),
        Text("On ", id="a.1-2"),
        Text("it.", id="a.1-3"),
        RunEnd("handed-back", id="a.1-4"),
        Text("Done.", id="b.2-1"),
        RunEnd("completed", "end_turn", id="b.2-2"),
    )
    assert (answer.texts, answer.text, answer.outcome) == (
        ["On it.", "Done."],
        "On it.\n\nDone.",
        "completed",
    )


@pytest.mark.parametrize(
    ("to", "left"),
    [
        ("b.0-0", "kept"),
        ("b.1-2", "kept\n\none "),
        ("b.1-3", "kept\n\none "),
        ("b.1-9~1", "kept\n\none two "),
        ("b.1-10", "kept\n\none two three "),
        ("c.0-0", "kept\n\none two three four"),
    ],
)
def test_a_rewind_removes_the_text_of_its_run_behind_an_id(to: str, left: str) -> None:
    answer = answer_of(
        Text("kept", id="z.5-9"),
        Text("one ", id="b.1-2"),
        Text("two ", id="b.1-9"),
        Text("three ", id="b.1-9~2"),
        Text("four", id="b.2-1"),
        Rewind(to, id="b.3-1"),
    )
    assert answer.text == left


@pytest.mark.parametrize("place", ["", "b", "b.1", "b.1-", "b.1-x", ".1-1", "b.1-1~", "b.1-٣"])
def test_a_text_with_a_malformed_id_is_a_bad_answer(place: str) -> None:
    with pytest.raises(BadAnswer):
        answer_of(Text("a", id=place))


def test_a_text_that_is_too_long_is_refused_and_rewound_text_does_not_count() -> None:
    limits = Limits(text_chars=4)
    answer = answer_of(Text("abcd", id="a.1-2"), Rewind("a.1-1", id="a.2-1"), limits=limits)
    answer.feed(Text("efgh", id="a.2-2"))
    with pytest.raises(LimitExceeded):
        answer.feed(Text("i", id="a.2-3"))
    failed = Failure("no", "model_error", id="a.2-4")
    answer.feed(failed)
    assert (answer.text, answer.failure) == ("efgh", failed)


# ---------------------------------------------------------------- server-sent events
SSE_VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "sse.json").read_text(encoding="utf-8")
)


def decode(chunks: Iterable[bytes]) -> tuple[list[dict[str, str]], str, int | None]:
    decoder = SseDecoder(10_000)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    parsed = [{"id": each.id, "event": each.event, "data": each.data} for each in events]
    return parsed, decoder.last_event_id, decoder.retry


def ways_to_feed(vector: dict[str, Any]) -> Iterator[list[bytes]]:
    """Yield a stream whole, byte by byte, and cut in two at each place; or the vector's chunks."""
    if "chunks" in vector:
        yield [chunk.encode() for chunk in vector["chunks"]]
        return
    whole = bytes.fromhex(vector["hex"]) if "hex" in vector else vector["text"].encode()
    yield [whole]
    yield [whole[place : place + 1] for place in range(len(whole))]
    for place in range(len(whole) + 1):
        yield [whole[:place], whole[place:]]


@pytest.mark.parametrize("vector", SSE_VECTORS, ids=lambda vector: vector["name"])
def test_a_stream_is_read_the_same_however_it_is_cut(vector: dict[str, Any]) -> None:
    expected = (vector["events"], vector["lastEventId"], vector.get("retry"))
    for chunks in ways_to_feed(vector):
        assert decode(chunks) == expected


def feed(decoder: SseDecoder, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        decoder.feed(chunk)


@pytest.mark.parametrize("line", [b"data: 0123456789", b"data: 01234\n", b"data:\n"])
def test_an_event_larger_than_the_limit_is_refused_in_one_line_or_in_many(line: bytes) -> None:
    decoder = SseDecoder(64)
    with pytest.raises(LimitExceeded):
        feed(decoder, [line] * 100)


def test_the_limit_is_one_events_not_the_streams() -> None:
    decoder = SseDecoder(64)
    for _ in range(100):
        [event] = decoder.feed(b"data: 0123456789\n\n")
        assert event.data == "0123456789"


def test_an_absurd_retry_is_ignored() -> None:
    assert decode([b"retry: 7\nretry: " + b"9" * 5000 + b"\n\n"]) == ([], "", 7)
