"""The native form of events, approvals and messages; the events by the shared vectors."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from pydantic import JsonValue
from tests.support.asgi_client import ask
from tests.support.sse_site import END, Site

from passback.core.budgets import Left
from passback.core.changes import Status, load_events
from passback.core.errors import InvalidRequest
from passback.core.events import (
    Cursor,
    Failed,
    Nested,
    Rewound,
    RunEvent,
    RunFinished,
    TextDelta,
    TurnEnded,
)
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
    RunId,
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
from passback.http.answers import left_headers
from passback.native.history import MessageView, conversation_view, message_view
from passback.native.responses import ALWAYS, CONVERSIONS, DONE, INCLUDABLE, NativeEncoder
from passback.native.shapes import NATIVE_EVENT, left_view
from passback.native.submissions import read_approval

pytestmark = pytest.mark.anyio


VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "send_message.json").read_text(encoding="utf-8")
)
SCHEMA = Draft202012Validator(NATIVE_EVENT.json_schema())


def _encode(vector: dict[str, Any]) -> list[str]:
    encoder = NativeEncoder(frozenset(vector["include"]))
    events = load_events(json.dumps(vector["events"]).encode())
    return [data for event in events for data in _frames(encoder, event)] + list(encoder.end())


def _frames(encoder: NativeEncoder, event: RunEvent) -> list[str]:
    rewound = encoder.rewind(Cursor(RunId("run_1"), event.to)) if isinstance(event, Rewound) else ()
    return [*rewound, *encoder.feed(event)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_events_are_encoded_as_the_vector_says(vector: dict[str, Any]) -> None:
    assert _encode(vector) == vector["data"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_sent_events_fit_their_schema_and_only_text_has_content(vector: dict[str, Any]) -> None:
    *events, done = _encode(vector)
    assert done == DONE
    for event in map(json.loads, events):
        SCHEMA.validate(event)
        assert ("content" in event) == (event["type"] == "text")


def test_the_vectors_have_every_event_and_every_native_type() -> None:
    fed = {event["type"] for vector in VECTORS for event in vector["events"]}
    assert fed == {kind.__dataclass_fields__["type"].default for kind in get_args(RunEvent)}
    sent = {json.loads(data)["type"] for one in VECTORS for data in one["data"] if data != DONE}
    assert sent == NATIVE_EVENT.json_schema()["discriminator"]["mapping"].keys()


def test_every_event_is_converted_and_has_a_known_include() -> None:
    converted_elsewhere = {TextDelta, TurnEnded, RunFinished, Nested, Rewound}
    assert CONVERSIONS.keys() == {*get_args(RunEvent)} - converted_elsewhere
    assert {word for word, _ in CONVERSIONS.values()} <= {ALWAYS, *INCLUDABLE}


# ---------------------------------------------------------------- budgets
@pytest.mark.parametrize(
    ("left", "headers"),
    [
        (None, {}),
        (Left(), {}),
        (Left(tokens=0), {"x-budget-left-tokens": "0"}),
        (
            Left(tokens=10**12, seconds=1234.5678901, cost=0.00001),
            {
                "x-budget-left-tokens": "1000000000000",
                "x-budget-left-seconds": "1234.56789",
                "x-budget-left-cost": "0.00001",
            },
        ),
    ],
)
def test_headers_give_plain_numbers_of_limits(left: Left | None, headers: dict[str, str]) -> None:
    assert left_headers(left) == headers


def test_a_view_of_the_budget_left_has_only_limited_values() -> None:
    assert left_view(Left()) == {}
    assert left_view(Left(3, 40, 0.5, 0.25)) == {
        "turns": 3,
        "tokens": 40,
        "seconds": 0.5,
        "cost": 0.25,
    }


async def test_a_stream_and_an_error_have_headers_of_the_budget_left() -> None:
    site = Site()
    site.runs.remains = Left(tokens=5)
    site.runs.say(END)
    stream = await ask(site.app(), "GET", "/")
    assert stream.headers["x-budget-left-tokens"] == "5"
    failing = Site()
    failing.runs.remains = Left(tokens=5)
    failing.runs.say(RunFinished(Failed("model_unavailable", "away")))
    refusal = await ask(failing.text(), "GET", "/")
    assert (refusal.status, refusal.headers["x-budget-left-tokens"]) == (503, "5")


# ---------------------------------------------------------------- approvals
CALL = CallId("call_1")


def read(payload: JsonValue) -> tuple[bool, str, bool]:
    message = read_approval(CALL, payload)
    assert message == ApprovalMessage(
        message.id, CALL, message.approved, message.reason, message.always
    )
    return message.approved, message.reason, message.always


APPROVED, DENIED = (True, "", False), (False, "", False)
APPROVALS: list[tuple[JsonValue, tuple[bool, str, bool]]] = [
    ({"approved": True}, APPROVED),
    ({"approved": False}, DENIED),
    ({"approved": False, "reason": " Not now.\n"}, (False, "Not now.", False)),
    ({"approved": False, "reason": "x" * 10_000}, (False, "x" * 10_000, False)),
    ({"approved": True, "always": True}, (True, "", True)),
    ({"approved": False, "always": True, "reason": "no"}, (False, "no", True)),
    ({"approved": True, "reason": " fine "}, (True, "fine", False)),
    ({"approved": True, "somethingElse": [1]}, APPROVED),
    (True, APPROVED),
    (False, DENIED),
]
WORDS = {
    True: ["yes", "true", "approve", "approved", "allow", " YES\n", "Allow"],
    False: ["no", "false", "deny", "denied", "reject", "rejected", "Denied "],
}


@pytest.mark.parametrize(("payload", "expected"), APPROVALS)
def test_an_approval_is_read_from_json_and_from_its_text(
    payload: JsonValue, expected: tuple[bool, str, bool]
) -> None:
    assert read(payload) == expected
    assert read(json.dumps(payload)) == expected


@pytest.mark.parametrize(
    ("word", "approved"), [(word, approved) for approved in WORDS for word in WORDS[approved]]
)
def test_an_approval_is_read_from_a_word(word: str, approved: bool) -> None:
    assert read(word) == (approved, "", False)


UNREADABLE: list[Any] = [
    *[None, 0, 1, 1.5, [], [True], {}, {"approved": None}, {"approved": "yes"}, {"approved": 1}],
    *["", " ", "perhaps", "yes please", "{", "null", "1", "[true]", '"yes"', '{"approved": NaN}'],
    {"approved": True, "always": "yes"},
    {"approved": True, "always": 1},
    {"approved": False, "reason": 5},
    {"approved": False, "reason": None},
    {"approved": False, "reason": "x" * 10_001},
    {"answer": True},
    "[" * 100_000,
    '{"approved": false, "reason": "\\ud800"}',
]


@pytest.mark.promise("P12")
@pytest.mark.parametrize("payload", UNREADABLE, ids=lambda payload: repr(payload)[:30])
def test_any_other_approval_is_refused_with_what_is_expected(payload: JsonValue) -> None:
    with pytest.raises(InvalidRequest, match='"approved": true or false') as raised:
        read_approval(CALL, payload)
    assert len(raised.value.message) < 200


# ---------------------------------------------------------------- the history
ID, SPOKEN_CALL = MessageId("m"), CallId("c")
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
        AssistantMessage(ID, "", (ToolCall(SPOKEN_CALL, "t", "{}", client=True),), partial=True),
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
        ToolMessage(ID, SPOKEN_CALL, "gone", synthetic="unanswered", imported=True),
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
        ToolMessage(ID, SPOKEN_CALL, "done"),
        {"id": "m", "role": "tool", "toolCallId": "c", "content": "done"},
    ),
    (
        ToolMessage(ID, SPOKEN_CALL, "late", is_error=True, synthetic="timeout"),
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
        ApprovalMessage(ID, SPOKEN_CALL, approved=True, tool="t"),
        {"id": "m", "role": "approval", "toolCallId": "c", "approved": True},
    ),
    (
        ApprovalMessage(ID, SPOKEN_CALL, approved=True, always=True, tool="t"),
        {"id": "m", "role": "approval", "toolCallId": "c", "approved": True, "always": True},
    ),
    (
        ApprovalMessage(ID, SPOKEN_CALL, approved=False, reason="Not now.", tool="t"),
        {"id": "m", "role": "approval", "toolCallId": "c", "approved": False, "reason": "Not now."},
    ),
    (
        ChildMessage(SPOKEN_CALL, UserMessage(ID, "hi", context=MessageContext(extras={"a": 1}))),
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
    # when, by which run, and how long
    (
        UserMessage(ID, "hi", created=1767225600123, run_id=RunId("r")),
        {
            "id": "m",
            "role": "user",
            "content": "hi",
            "createdAt": "2026-01-01T00:00:00.123Z",
            "runId": "r",
        },
    ),
    (
        AssistantMessage(
            ID,
            "",
            (ToolCall(SPOKEN_CALL, "t", "{}", title="A tool", kind="edit"),),
            created=1767225600000,
            duration=7,
        ),
        {
            "id": "m",
            "role": "assistant",
            "content": "",
            "toolCalls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "t", "arguments": "{}"},
                    "client": False,
                    "title": "A tool",
                    "kind": "edit",
                }
            ],
            "durationMs": 7,
            "createdAt": "2026-01-01T00:00:00.000Z",
        },
    ),
    (
        ChildMessage(
            SPOKEN_CALL, ToolMessage(ID, SPOKEN_CALL, "done", run_id=RunId("r"), duration=7)
        ),
        {
            "id": "m",
            "role": "child",
            "toolCallId": "c",
            "message": {
                "id": "m",
                "role": "tool",
                "toolCallId": "c",
                "content": "done",
                "durationMs": 7,
                "runId": "r",
            },
        },
    ),
    (
        SummaryMessage(ID, "In short.", 2, run_id=RunId("r")),
        {"id": "m", "role": "summary", "content": "In short.", "runId": "r"},
    ),
    (
        ApprovalMessage(ID, SPOKEN_CALL, approved=True, run_id=RunId("r")),
        {"id": "m", "role": "approval", "toolCallId": "c", "approved": True, "runId": "r"},
    ),
]


@pytest.mark.parametrize(("message", "shown"), MESSAGES)
def test_a_message_is_shown(message: Message, shown: MessageView) -> None:
    assert message_view(message) == shown


def test_a_conversation_is_shown_with_its_cost_and_its_permissions() -> None:
    refusals = (Refusal(SPOKEN_CALL, "rm", "No."),)
    lasting = (LastingPermission("ls", "1", True), LastingPermission("rm", "1", False, "Never."))
    status = Status(state=State(cost=0.5, seconds=2.5, refusals=refusals, lasting=lasting))
    shown = conversation_view(ConversationId("c"), status)
    assert (shown["cost"], shown["seconds"]) == (0.5, 2.5)
    assert shown["refusals"] == [{"toolCallId": SPOKEN_CALL, "name": "rm", "reason": "No."}]
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
