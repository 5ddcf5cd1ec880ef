"""Run events become events of the Agent API: by vectors, and for any legal run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter
from tests.support.agent_api import (
    ENDS,
    Json,
    bodies,
    check_legal,
    events_of,
    joined_text,
    line,
    rebuilt,
)

from passback.core.changes import load_events
from passback.core.errors import CursorExpired
from passback.core.events import (
    Cancelled,
    Completed,
    Cursor,
    Failed,
    HandedBack,
    Logged,
    Nested,
    Outcome,
    Position,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import CallId, MessageId, Owed, RunId, ToolCall, Usage
from passback.streams.frames import EventId, SseFramer
from passback.wire.agent_api.describe import AgentEvent
from passback.wire.agent_api.encoder import MOST_FRAMES, AgentEncoder

VECTORS: list[Json] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "agent-api.json").read_text(encoding="utf-8")
)
SCHEMA = Draft202012Validator(TypeAdapter[Any](AgentEvent).json_schema())
RUN = RunId("run_1")
TYPES = {
    *("message", "reasoning", "function_call", "function_call_output", "plugin_call"),
    *("plugin_call_output", "mcp_call", "mcp_call_output", "mcp_approval_request"),
}


def _encoder(known: Json | None = None, most: int = 10_000, seen: int = 0) -> AgentEncoder:
    calls = {
        CallId(call_id): ToolCall(CallId(call_id), call["name"], call["arguments"])
        for call_id, call in (known or {}).items()
    }
    return AgentEncoder(
        "s",
        "response_1",
        known=calls,
        mcp_servers={"weather"},
        most=most,
        seen=seen,
        clock=lambda: 1767225600.5,
    )


def _lines(events: Sequence[RunEvent], known: Json | None = None) -> list[str]:
    encoder = _encoder(known)
    return [data for event in events for data in encoder.feed(event)] + list(encoder.end())


def _vector_lines(vector: Json) -> list[str]:
    return _lines(load_events(json.dumps(vector["events"]).encode()), vector["known"])


# ---------------------------------------------------------------- vectors
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_run_is_encoded_as_the_vector_says(vector: Json) -> None:
    lines = _vector_lines(vector)
    assert lines == [line(event) for event in vector["data"]]
    assert all(each.isascii() for each in lines)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_each_vector_is_legal_and_fits_its_schema(vector: Json) -> None:
    check_legal(vector["data"])
    rebuilt(vector["data"])
    for event in vector["data"]:
        SCHEMA.validate(event)


def test_the_vectors_have_every_run_event_every_status_and_every_type_of_message() -> None:
    fed = {event["type"] for vector in VECTORS for event in vector["events"]}
    assert fed == {kind.__dataclass_fields__["type"].default for kind in get_args(RunEvent)}
    sent = [event for vector in VECTORS for event in vector["data"]]
    statuses = {event["status"] for event in sent if event["object"] == "response"}
    assert statuses == {"created", "queued", "in_progress", *ENDS}
    assert {event["type"] for event in sent if event["object"] == "message"} == TYPES


# ---------------------------------------------------------------- any legal run
NAMES = st.sampled_from(["paint", "weather__get", "roll"])
WORDS = st.text(st.sampled_from('a"\\\n\u0085\u2028\u2029é😀'), min_size=1, max_size=4)
CLIENT, INVALID, SERVER = "client", "invalid", "server"


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[RunEvent], list[Owed]]:
    """Draw the events of one model call, its tool calls in any order, and the calls then owed."""
    number = draw(st.integers(0, 10**9))
    kinds = draw(st.lists(st.sampled_from([CLIENT, INVALID, SERVER]), max_size=3))
    calls = [
        ToolCall(CallId(f"c{number}-{index}"), draw(NAMES), draw(WORDS), kind == CLIENT)
        for index, kind in enumerate(kinds)
    ]
    words = draw(st.lists(st.builds(TextDelta, WORDS) | st.builds(ReasoningDelta, WORDS)))
    pieces: list[list[RunEvent]] = [list(words)]
    for call in calls:
        cut = draw(st.integers(0, len(call.arguments)))
        started = ToolCallStarted(call.id, call.name, client=call.client)
        halves = (call.arguments[:cut], call.arguments[cut:])
        pieces.append([started, *(ToolCallArguments(call.id, half) for half in halves)])
    events: list[RunEvent] = [TurnStarted(MessageId(f"msg_{number}"))]
    while streams := [each for each in pieces if each]:
        events.append(streams[draw(st.integers(0, len(streams) - 1))].pop(0))
    events.append(UsageReported(Usage(1, 2)))
    by_kind = {kind: [c for c, k in zip(calls, kinds, strict=True) if k == kind] for kind in kinds}
    events += [ToolResulted(call.id, "no", is_error=True) for call in by_kind.get(INVALID, [])]
    events += [ToolCallEnded(call.id) for call in by_kind.get(SERVER, [])]
    made = draw(st.permutations(by_kind.get(SERVER, [])))
    events += [ToolResulted(call.id, draw(WORDS)) for call in made]
    events += [ToolCallEnded(call.id) for call in by_kind.get(CLIENT, [])]
    owed = [Owed(call.id, call.name, call.arguments) for call in by_kind.get(CLIENT, [])]
    if draw(st.integers(0, 1)):
        events = [Nested(CallId("parent"), each) for each in events]
    return events, owed


ENDINGS: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        *(Completed(), Completed("max_tokens"), Completed("refusal"), Cancelled()),
        *(Failed("internal", "no"), HandedBack(())),
    ]
)


def _begins(turn: tuple[list[RunEvent], list[Owed]]) -> RunEvent:
    """Return the first event of a turn: its id is used once, by a sub-agent, too."""
    first = turn[0][0]
    return first.event if isinstance(first, Nested) else first


@st.composite
def runs(draw: st.DrawFn) -> list[RunEvent]:
    drawn = draw(st.lists(turns(), max_size=3, unique_by=_begins))
    events = [event for turn, _ in drawn for event in turn]
    outcome: Outcome = draw(ENDINGS)
    if isinstance(outcome, Cancelled | Failed):
        events = events[: draw(st.integers(0, len(events)))]
    if isinstance(outcome, HandedBack):
        outcome = HandedBack(tuple(owed for _, each in drawn for owed in each))
    queued = [RunQueued(RUN)] if draw(st.booleans()) else []
    return [*queued, RunStarted(RUN), *events, RunFinished(outcome)]


def _text_of(events: Sequence[RunEvent], kind: type[TextDelta | ReasoningDelta]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


@given(runs())
def test_an_event_has_at_most_as_many_frames_as_a_rewind_leaves_out(
    events: list[RunEvent],
) -> None:
    encoder, count = _encoder(), 0
    for number, event in enumerate(events[:-1], 1):
        count += len(encoder.feed(event))
        assert count <= number * MOST_FRAMES


@given(runs())
def test_any_run_is_a_legal_stream_with_its_texts_and_calls(
    events: list[RunEvent],
) -> None:
    sent = [json.loads(each) for each in _lines(events)]
    for event in sent:
        SCHEMA.validate(event)
    answer = check_legal(sent)
    client = rebuilt(sent)
    assert client.joined_text() == joined_text(answer) == _text_of(events, TextDelta)
    assert (
        client.joined_text("reasoning")
        == joined_text(answer, "reasoning")
        == _text_of(events, ReasoningDelta)
    )
    inner = [event.event if isinstance(event, Nested) else event for event in events]
    arguments = {e.call_id: "" for e in inner if isinstance(e, ToolCallStarted)}
    for event in inner:
        if isinstance(event, ToolCallArguments):
            arguments[event.call_id] += event.delta
    kinds = ("function_call", "plugin_call", "mcp_call")
    sent_calls = [data for kind in kinds for data in bodies(answer, kind)]
    assert {data["call_id"]: data["arguments"] for data in sent_calls} == arguments
    outputs = [data["call_id"] for kind in kinds for data in bodies(answer, f"{kind}_output")]
    assert sorted(outputs) == sorted(e.call_id for e in inner if isinstance(e, ToolResulted))


@pytest.mark.promise("P3")
@given(runs(), st.data())
def test_a_stream_that_is_cut_at_any_frame_goes_on_with_the_rest(
    events: list[RunEvent], data: st.DataObject
) -> None:
    log = [Logged(Position(1, number), event) for number, event in enumerate(events, 1)]
    ready = data.draw(st.lists(st.integers(1, 9), min_size=len(log), max_size=len(log)))
    first, start = SseFramer(_encoder(), RUN, remembers=True), 0
    whole = ""
    for size in ready:
        if batch := log[start : start + size]:
            whole += first.frame_batch(batch)
        start += size
    frames = whole.split("\n\n")[:-1]
    seen = data.draw(st.integers(1, len(frames)))
    last = EventId.parse(frames[seen - 1].partition("\n")[0].removeprefix("id: "))
    again = SseFramer(_encoder(), RUN, last, remembers=True)
    if again.needs_recall:
        for number in range(0, len(log), 2):
            if not again.recall(log[number : number + 2]):
                break
    rest = again.frame_batch([each for each in log if each.position > last.cursor.position])
    seen_text = "".join(f"{frame}\n\n" for frame in frames[:seen])
    sent = [*events_of(seen_text.encode()), *events_of(rest.encode())]
    answer = sent[-1]
    numbers = [event["sequence_number"] for event in sent]
    assert numbers == sorted(set(numbers)), "it grows, and may leave numbers out"
    full = events_of(whole.encode())
    assert rebuilt(sent).parts == rebuilt(full).parts
    assert _unnumbered(answer) == _unnumbered(full[-1])


def _unnumbered(value: Any) -> Any:
    if isinstance(value, list):
        return [_unnumbered(each) for each in value]
    if isinstance(value, dict):
        return {key: _unnumbered(each) for key, each in value.items() if key != "sequence_number"}
    return value


# ---------------------------------------------------------------- bounds
@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    "event",
    [
        TextDelta("x" * 11),
        ToolCallArguments(CallId("c"), "x" * 11),
        ToolResulted(CallId("c"), "x" * 11),
    ],
)
def test_an_answer_that_is_too_long_ends_as_failed(event: RunEvent) -> None:
    encoder = _encoder(most=10)
    started = ToolCallStarted(CallId("c"), "roll", client=False)
    lines = [each for first in (RunStarted(RUN), started) for each in encoder.feed(first)]
    with pytest.raises(CursorExpired, match="too long"):
        encoder.feed(event)
    lines += encoder.fail(Failed("cursor_expired", "too long"))
    last = check_legal([json.loads(each) for each in lines])
    assert (last["status"], last["error"]["code"]) == ("failed", "cursor_expired")


@pytest.mark.promise("P11")
def test_arguments_in_many_pieces_are_not_sent_again_with_each_of_them() -> None:
    call = CallId("c")
    pieces = [ToolCallArguments(call, "x") for _ in range(4_000)]
    lines = _lines(
        [RunStarted(RUN), ToolCallStarted(call, "roll", client=False), *pieces, ToolCallEnded(call)]
    )
    assert sum(each.count("x") for each in lines) < 12 * len(pieces)
    assert json.loads(lines[-1])["content"][0]["data"]["arguments"] == "x" * 4_000


def test_a_failure_before_the_first_event_is_a_legal_stream() -> None:
    encoder = _encoder()
    lines = encoder.fail(Failed("run_not_found", "gone"))
    assert [json.loads(each)["status"] for each in lines] == ["created", "in_progress", "failed"]


def test_a_rewind_sends_nothing_but_leaves_numbers_out() -> None:
    encoder = _encoder(seen=3)
    assert not encoder.rewind(Cursor(RUN, Position(1, 1)))
    first = json.loads(encoder.fail(Failed("rewound", "void"))[0])
    assert first["sequence_number"] == 3 * MOST_FRAMES
