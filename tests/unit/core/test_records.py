"""Records are read back as they were written."""

import json
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from passback.core import changes as records
from passback.core.changes import QueuedPost
from passback.core.events import (
    Cancelled,
    Completed,
    Failed,
    HandedBack,
    Nested,
    OutputAccepted,
    PlanUpdated,
    Position,
    ReasoningDelta,
    Rewound,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationId,
    ConversationKey,
    DataPart,
    Location,
    MediaPart,
    Message,
    MessageContext,
    MessageId,
    Owed,
    OwnerId,
    PlanEntry,
    PostedMessage,
    Reasoning,
    RefusalPart,
    RunId,
    SummaryMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolKind,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.core.state import EarlierPlan, State

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
MAYBE = st.none() | TEXT
PARTS = st.one_of(
    st.builds(TextPart, TEXT),
    st.builds(MediaPart, st.sampled_from(["image", "audio", "file"]), TEXT, MAYBE, MAYBE),
    st.builds(DataPart, JSON),
    st.builds(RefusalPart, TEXT),
)
CONTENT = TEXT | st.lists(PARTS, max_size=3).map(tuple)
IDS = TEXT.map(MessageId)
CALL_IDS = TEXT.map(CallId)
ASKS = st.sampled_from([None, "approval", "question"])
KINDS_OF_TOOLS = st.sampled_from(get_args(ToolKind))
LOCATIONS = st.lists(st.builds(Location, TEXT, st.none() | st.integers(0, 9)), max_size=2).map(
    tuple
)
CALLS = st.builds(
    ToolCall,
    CALL_IDS,
    TEXT,
    TEXT,
    st.booleans(),
    MAYBE,
    ASKS,
    TEXT,
    title=TEXT,
    kind=KINDS_OF_TOOLS,
)
SYNTHETIC = st.sampled_from([None, "superseded", "interrupted", "invalid", "denied", "timeout"])
CONTEXTS = st.builds(
    MessageContext,
    JSON,
    TEXT,
    st.lists(TEXT, max_size=2).map(tuple),
    TEXT,
    st.none() | st.dictionaries(TEXT, JSON, max_size=3),
    TEXT,
)
POSTED: st.SearchStrategy[PostedMessage] = st.one_of(
    st.builds(SystemMessage, IDS, CONTENT, st.sampled_from([None, "invalid"])),
    st.builds(UserMessage, IDS, CONTENT, TEXT, st.none() | CONTEXTS),
    st.builds(ToolMessage, IDS, CALL_IDS, CONTENT, st.booleans(), SYNTHETIC),
    st.builds(ApprovalMessage, IDS, CALL_IDS, st.booleans(), TEXT, st.booleans(), TEXT),
)
COUNTS = st.integers(0, 10**9)
USAGE = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, st.booleans())
_WHOLE: st.SearchStrategy[Message] = st.one_of(
    POSTED,
    st.builds(
        AssistantMessage,
        IDS,
        CONTENT,
        st.lists(CALLS, max_size=2).map(tuple),
        st.lists(st.builds(Reasoning, TEXT, TEXT, MAYBE), max_size=2).map(tuple),
        st.booleans(),
        st.none() | USAGE,
    ),
)
MESSAGES = _WHOLE | st.builds(
    ChildMessage, CALL_IDS, _WHOLE | st.builds(ChildMessage, CALL_IDS, _WHOLE)
)
KINDS = st.sampled_from(["tool_result", "approval", "question"])
OWED = st.lists(
    st.builds(Owed, CALL_IDS, TEXT, TEXT, KINDS, TEXT, st.none() | CALL_IDS), max_size=2
).map(tuple)
REASONS = st.sampled_from(["end_turn", "max_tokens", "max_turns", "refusal", "budget"])
OUTCOMES = st.one_of(
    st.builds(Completed, REASONS),
    st.builds(HandedBack, OWED),
    st.just(Cancelled()),
    st.builds(Failed, TEXT, TEXT, st.booleans(), st.none() | st.floats(0, 1e9)),
)
RUN_IDS = TEXT.map(RunId)
ENTRIES = st.builds(
    PlanEntry,
    TEXT,
    st.sampled_from(["high", "medium", "low"]),
    st.sampled_from(["pending", "in_progress", "completed"]),
)
_SAID: st.SearchStrategy[RunEvent] = st.one_of(
    st.builds(RunQueued, RUN_IDS),
    st.builds(Rewound, st.builds(Position, COUNTS, COUNTS)),
    st.builds(RunStarted, RUN_IDS),
    st.builds(TurnStarted, IDS),
    st.builds(TextDelta, TEXT),
    st.builds(ReasoningDelta, TEXT),
    st.builds(ToolCallStarted, CALL_IDS, TEXT, st.booleans(), TEXT, KINDS_OF_TOOLS),
    st.builds(ToolBegan, CALL_IDS, LOCATIONS),
    st.builds(ToolCallArguments, CALL_IDS, TEXT),
    st.builds(ToolCallEnded, CALL_IDS),
    st.builds(ToolProgressed, CALL_IDS, TEXT),
    st.builds(ToolResulted, CALL_IDS, CONTENT, st.booleans(), st.none() | st.just("denied")),
    st.builds(PlanUpdated, st.lists(ENTRIES, max_size=2).map(tuple)),
    st.builds(UsageReported, USAGE, context_used=st.none() | COUNTS, window=st.none() | COUNTS),
    st.builds(OutputAccepted, JSON),
    st.builds(RunFinished, OUTCOMES),
)
EVENTS = _SAID | st.builds(Nested, CALL_IDS, _SAID | st.builds(Nested, CALL_IDS, _SAID))
SPECS = st.builds(
    ToolSpec, TEXT, TEXT, st.dictionaries(TEXT, JSON, max_size=3), TEXT, KINDS_OF_TOOLS
)
POSTS = st.builds(
    StartRun,
    st.builds(ConversationKey, TEXT.map(OwnerId), TEXT.map(ConversationId)),
    st.lists(POSTED, max_size=3).map(tuple),
    st.none() | st.lists(SPECS, max_size=2).map(tuple),
    MAYBE,
    st.frozensets(IDS, max_size=2),
    st.sampled_from(["reject", "enqueue", "interrupt", "rollback"]),
    st.sampled_from(["continue", "cancel"]),
)
QUEUED = st.builds(QueuedPost, RUN_IDS, POSTS)
STATES = st.builds(
    State,
    st.lists(ENTRIES, max_size=3).map(tuple),
    USAGE,
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    COUNTS,
    TEXT,
    earlier_plan=st.one_of(
        st.none(), st.builds(EarlierPlan, RUN_IDS, st.lists(ENTRIES, max_size=3).map(tuple))
    ),
)


@given(MESSAGES)
def test_a_message_survives_being_written_down(message: Message) -> None:
    assert records.load_message(records.dump_message(message)) == message


@given(st.lists(EVENTS, max_size=5))
def test_a_batch_of_events_survives_being_written_down(events: list[RunEvent]) -> None:
    assert records.load_events(records.dump_events(events)) == events


@given(OWED)
def test_what_is_owed_survives_being_written_down(owed: Sequence[Owed]) -> None:
    assert records.load_owed(records.dump_owed(owed)) == owed


@given(st.lists(SPECS, max_size=3))
def test_tools_survive_being_written_down(tools: list[ToolSpec]) -> None:
    assert records.load_tools(records.dump_tools(tools)) == tuple(tools)


@given(QUEUED)
def test_a_post_that_waits_survives_being_written_down(queued: QueuedPost) -> None:
    assert records.load_queued(records.dump_queued(queued)) == queued


@given(STATES)
def test_a_state_survives_being_written_down(state: State) -> None:
    assert records.load_state(records.dump_state(state)) == state


def test_the_stored_form_of_a_state_has_what_is_not_as_in_a_new_one() -> None:
    state = State((PlanEntry("a"), PlanEntry("b", "low")), Usage(1), 0.5, history_start=7)
    assert json.loads(records.dump_state(state)) == {
        "plan": [{"content": "a"}, {"content": "b", "priority": "low"}],
        "usage": {"input_tokens": 1},
        "cost": 0.5,
        "history_start": 7,
    }
    assert records.dump_state(State()) == b"{}"


def test_the_stored_form_says_the_kind_of_each_value() -> None:
    """Records outlive the version that wrote them: this form is not to change."""
    message = AssistantMessage(
        MessageId("m"), "text", (ToolCall(CallId("c"), "t", "{}", True, "p"),), partial=True
    )
    assert json.loads(records.dump_message(message)) == {
        "id": "m",
        "content": "text",
        "tool_calls": [
            {
                "id": "c",
                "name": "t",
                "arguments": "{}",
                "client": True,
                "provider_id": "p",
                "asks": None,
                "reason": "",
                "digest": "",
                "title": "",
                "kind": "other",
            }
        ],
        "reasoning": [],
        "partial": True,
        "usage": None,
        "command": False,
        "imported": False,
        "model": "",
        "role": "assistant",
        "duration": 0,
        "started": 0,
        "window": 0,
        "created": 0,
        "run_id": "",
    }
    finished = RunFinished(HandedBack((Owed(CallId("c"), "t", "{}"),)))
    assert json.loads(records.dump_events([TextDelta("a"), finished])) == [
        {"text": "a", "type": "text-delta"},
        {
            "outcome": {
                "owed": [
                    {
                        "id": "c",
                        "name": "t",
                        "arguments": "{}",
                        "kind": "tool_result",
                        "reason": "",
                        "parent_id": None,
                    }
                ],
                "type": "handed-back",
            },
            "model": "",
            "type": "run-finished",
        },
    ]


def test_usage_of_older_records_was_counted() -> None:
    counts = '{"input_tokens":1,"output_tokens":2,"cached_tokens":3,"reasoning_tokens":4}'
    record = f'[{{"usage":{counts},"type":"usage-reported"}}]'.encode()
    assert records.load_events(record) == [UsageReported(Usage(1, 2, 3, 4))]


@pytest.mark.parametrize("record", [b"", b"{}", b'{"role":"nobody","id":"m","content":""}'])
def test_what_is_no_record_is_not_read(record: bytes) -> None:
    with pytest.raises(ValidationError):
        records.load_message(record)


# ---------------------------------------------------------------- records of earlier versions
def test_messages_of_older_records_have_no_time_no_run_and_no_duration() -> None:
    call = (
        '{"id":"c","name":"t","arguments":"{}","client":false,"provider_id":null,"asks":null,'
        '"reason":"","digest":""}'
    )
    ends = '"command":false,"imported":false'
    older = [
        f'{{"id":"u","content":"hi","agent":"","context":null,{ends},"role":"user"}}',
        (
            f'{{"id":"a","content":"","tool_calls":[{call}],"reasoning":[],"partial":false,'
            f'"usage":null,{ends},"model":"","role":"assistant"}}'
        ),
        (
            '{"id":"t","call_id":"c","content":"seen","is_error":false,"synthetic":null,'
            '"imported":false,"role":"tool"}'
        ),
        (
            '{"id":"y","call_id":"c","approved":true,"reason":"","always":false,"tool":"t",'
            '"digest":"","role":"approval"}'
        ),
        '{"id":"s","content":"","keeps":1,"asked":"","usage":null,"role":"summary"}',
    ]
    older.append(f'{{"call_id":"c","message":{older[1]},"role":"child"}}')
    read = [records.load_message(record.encode()) for record in older]
    made = ToolCall(CallId("c"), "t", "{}")
    answer = AssistantMessage(MessageId("a"), "", (made,))
    assert read == [
        UserMessage(MessageId("u"), "hi"),
        answer,
        ToolMessage(MessageId("t"), CallId("c"), "seen"),
        ApprovalMessage(MessageId("y"), CallId("c"), True, tool="t"),
        SummaryMessage(MessageId("s"), "", 1),
        ChildMessage(CallId("c"), answer),
    ]
    assert {(each.created, each.run_id) for each in read} == {(0, "")}
    timed = [each for each in read if isinstance(each, AssistantMessage | ToolMessage)]
    assert [each.duration for each in timed] == [0, 0]
    assert (made.title, made.kind) == ("", "other")


def test_events_and_tools_of_older_records_are_read() -> None:
    older = (
        b'[{"call_id":"c","name":"t","client":false,"type":"tool-call-started"},'
        b'{"call_id":"c","content":"seen","is_error":false,"synthetic":null,'
        b'"type":"tool-resulted"},'
        b'{"usage":{"input_tokens":1},"left":null,"model":"m","type":"usage-reported"}]'
    )
    read = records.load_events(older)
    assert read == [
        ToolCallStarted(CallId("c"), "t", client=False, title="", kind="other"),
        ToolResulted(CallId("c"), "seen"),
        UsageReported(Usage(1), model="m", context_used=None, window=None),
    ]
    assert isinstance(read[1], ToolResulted)
    assert read[1].duration == 0
    tools = b'[{"name":"t","description":"d","parameters":{"type":"object"}}]'
    assert records.load_tools(tools) == (ToolSpec("t", "d", {"type": "object"}),)


def test_a_post_that_waits_since_an_older_version_is_read() -> None:
    older = (
        b'{"run_id":"r","post":{"key":{"owner":"o","id":"c"},"messages":[{"id":"u","content":"hi",'
        b'"agent":"","context":null,"command":false,"imported":false,"role":"user"}],"tools":null,'
        b'"idempotency_key":null,"named":[],"on_busy":"enqueue","on_disconnect":"continue",'
        b'"resends":false,"continues":false,"history":[],"flaw":""}}'
    )
    key = ConversationKey(OwnerId("o"), ConversationId("c"))
    post = StartRun(key, (UserMessage(MessageId("u"), "hi"),), on_busy="enqueue")
    assert records.load_queued(older) == QueuedPost(RunId("r"), post)


@pytest.mark.parametrize(
    "message",
    [
        UserMessage(MessageId("u"), "hi", created=5, run_id=RunId("r")),
        ToolMessage(MessageId("t"), CallId("c"), "", created=5, run_id=RunId("r"), duration=7),
        AssistantMessage(MessageId("a"), "", created=5, run_id=RunId("r"), duration=7),
    ],
)
def test_time_run_and_duration_survive_being_written_down(message: Message) -> None:
    """Comparisons leave them out."""
    read = records.load_message(records.dump_message(message))
    assert repr(read) == repr(message)
