"""Frames of events, their ids, and streams that are resumed after any of them."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passback.core.errors import InvalidCursor, UnknownRun
from passback.core.events import (
    Cursor,
    Failed,
    HandedBack,
    Logged,
    Position,
    ReasoningDelta,
    Rewound,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
)
from passback.core.messages import CallId, MessageId, Owed, RunId
from passback.native.responses import INCLUDABLE, NativeEncoder
from passback.pacing import LARGE
from passback.streams.frames import EventId, SseFramer, join_deltas, split_batch

RUN = RunId("run_1")
A, B = CallId("a"), CallId("b")


def _log(*events: RunEvent) -> list[Logged]:
    return [Logged(Position(1, number), event) for number, event in enumerate(events, 1)]


# ---------------------------------------------------------------- ids
@pytest.mark.parametrize(
    ("text", "cursor", "frames"),
    [("run_1.1-2", (1, 2), 0), ("run_1.0-0~1", (0, 0), 1), ("run_1.12-345~999", (12, 345), 999)],
)
def test_an_event_id_is_read_back(text: str, cursor: tuple[int, int], frames: int) -> None:
    assert EventId.parse(text) == EventId(Cursor(RUN, Position(*cursor)), frames)


BAD_IDS = """
1 run_1 run_1. run_1.1 run_1.1- run_1.-1 .1-1 run_1.1-1~ ~1 run_1.1-1~x run_1.1-1~-1
run_1.1-1~1000000 run_1.1-1~²
run_1.1-1~1~1 run_1.1-² run_1.1-1234567890123456
"""


@pytest.mark.parametrize("text", [*BAD_IDS.split(), "", "x" * 1_000_000, "run_1.1-1 ", "\0"])
def test_any_other_event_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        EventId.parse(text)


# ---------------------------------------------------------------- joining
def test_neighbouring_deltas_are_joined_at_the_position_of_the_last() -> None:
    log = _log(
        TextDelta("a"),
        TextDelta("b"),
        ReasoningDelta("c"),
        ReasoningDelta("d"),
        ToolCallArguments(A, "1"),
        ToolCallArguments(A, "2"),
        ToolCallArguments(B, "3"),
        ToolCallEnded(A),
        ToolCallEnded(B),
        TextDelta("e"),
    )
    assert join_deltas(log) == [
        Logged(Position(1, 2), TextDelta("ab")),
        Logged(Position(1, 4), ReasoningDelta("cd")),
        Logged(Position(1, 6), ToolCallArguments(A, "12")),
        Logged(Position(1, 7), ToolCallArguments(B, "3")),
        Logged(Position(1, 8), ToolCallEnded(A)),
        Logged(Position(1, 9), ToolCallEnded(B)),
        Logged(Position(1, 10), TextDelta("e")),
    ]


def test_a_single_event_stays_as_it_is() -> None:
    log = _log(TextDelta("a"))
    assert join_deltas(log) is log


# ---------------------------------------------------------------- frames
def test_each_frame_has_the_id_of_its_event() -> None:
    framer = SseFramer(NativeEncoder(), RUN)
    text = framer.frame_batch(_log(RunStarted(RUN), TextDelta("a"))) + framer.end_frames()
    assert text == (
        'id: run_1.1-2\ndata: {"type":"text","content":"a"}\n\nid: run_1.1-2\ndata: [DONE]\n\n'
    )
    assert framer.position == Position(1, 2)


def test_several_frames_of_one_event_have_ids_of_their_own() -> None:
    framer = SseFramer(NativeEncoder(INCLUDABLE), RUN)
    batch = _log(RunFinished(Failed("internal", "no")))
    ids = re.findall(r"id: (\S+)\n", framer.frame_batch(batch) + framer.end_frames())
    assert ids == ["run_1.0-0~1", "run_1.1-1", "run_1.1-1"]


def test_a_failure_of_reading_has_the_id_of_the_last_event() -> None:
    framer = SseFramer(NativeEncoder(), RUN)
    framer.frame_batch(_log(TextDelta("a")))
    assert framer.failure_frames(UnknownRun("gone")) == (
        "id: run_1.1-1\n"
        'data: {"type":"error","error":"gone","code":"run_not_found","retryable":false}\n\n'
        "id: run_1.1-1\n"
        "data: [DONE]\n\n"
    )


# ---------------------------------------------------------------- rewind
TAKEN_OVER = [
    Logged(Position(2, 1), Rewound(Position(1, 2))),
    Logged(Position(2, 2), TextDelta("b")),
]
REWIND_FRAME = 'id: run_1.2-1\ndata: {"type":"rewind","to":"run_1.1-2"}\n\n'
TEXT_FRAME = 'id: run_1.2-2\ndata: {"type":"text","content":"b"}\n\n'
REWOUND_ERROR = (
    "id: run_1.0-0\n"
    'data: {"type":"error","error":"another worker took this run over, '
    'and a part of what was sent is void: read the run again from its start",'
    '"code":"rewound","retryable":true}\n\n'
    "id: run_1.0-0\n"
    "data: [DONE]\n\n"
)


def _taken_over(since: str | None, include: frozenset[str]) -> tuple[str, bool]:
    """Return the frames after a take-over behind `since`, and whether they end the stream."""
    framer = SseFramer(NativeEncoder(include), RUN, EventId.parse(since) if since else None)
    return framer.frame_batch(TAKEN_OVER), framer.ended


@pytest.mark.promise("P10")
@pytest.mark.parametrize("since", ["run_1.1-3", "run_1.1-2~1"])
def test_a_client_that_saw_void_events_gets_a_rewind(since: str) -> None:
    assert _taken_over(since, frozenset({"rewind"})) == (REWIND_FRAME + TEXT_FRAME, False)


@pytest.mark.promise("P10")
@pytest.mark.parametrize("since", ["run_1.1-3", "run_1.1-2~1"])
@pytest.mark.parametrize("include", [frozenset[str](), frozenset({"run"})])
def test_without_rewinds_the_stream_ends_with_an_error_and_the_id_of_its_start(
    since: str, include: frozenset[str]
) -> None:
    assert _taken_over(since, include) == (REWOUND_ERROR, True)


@pytest.mark.promise("P10")
@pytest.mark.parametrize("since", [None, "run_1.1-2"])
@pytest.mark.parametrize("include", [frozenset[str](), frozenset({"rewind"})])
def test_a_client_that_saw_no_void_events_gets_no_rewind(
    since: str | None, include: frozenset[str]
) -> None:
    assert _taken_over(since, include) == (TEXT_FRAME, False)


def test_void_events_without_a_frame_cause_no_rewind() -> None:
    framer = SseFramer(NativeEncoder(), RUN)
    framer.frame_batch(
        _log(TextDelta("a"), RunStarted(RUN), TurnStarted(MessageId("m")), ReasoningDelta("hm"))
    )
    assert framer.frame_batch(TAKEN_OVER) == TEXT_FRAME
    assert not framer.ended


def test_void_events_of_the_same_stream_cause_a_rewind() -> None:
    framer = SseFramer(NativeEncoder(frozenset({"rewind"})), RUN)
    framer.frame_batch(_log(TextDelta("a"), RunStarted(RUN), TextDelta("void")))
    assert framer.frame_batch(TAKEN_OVER) == REWIND_FRAME + TEXT_FRAME
    again = [
        Logged(Position(3, 1), Rewound(Position(2, 1))),
        Logged(Position(3, 2), TextDelta("c")),
    ]
    assert '"to":"run_1.2-1"' in framer.frame_batch(again)


def test_only_an_event_of_another_lease_is_a_new_lease() -> None:
    framer = SseFramer(NativeEncoder(), RUN, EventId.parse("run_1.1-3"))
    assert framer.is_new_lease(TAKEN_OVER)
    assert not framer.is_new_lease([Logged(Position(1, 4), TextDelta("a"))])


def test_nothing_in_a_text_can_end_a_frame() -> None:
    text = "a\n\ndata: [DONE]\r\n\r\nid: x\u2028\u2029\u0085\x0b\x0c\x1c\0😀"
    chunk = SseFramer(NativeEncoder(), RUN).frame_batch(_log(TextDelta(text)))
    assert chunk.isascii()
    assert len(chunk.splitlines()) == 3


FULL_LOG = _log(
    RunStarted(RUN),
    TurnStarted(MessageId("m")),
    ReasoningDelta("hm"),
    TextDelta("a"),
    TextDelta("b"),
    ToolCallStarted(A, "paint", client=True),
    ToolCallArguments(A, "{"),
    ToolCallArguments(A, "}"),
    ToolCallEnded(A),
    RunFinished(HandedBack((Owed(A, "paint", "{}"),))),
)
FAILED_LOG = _log(RunStarted(RUN), TextDelta("a"), RunFinished(Failed("internal", "no")))


def _stream(log: list[Logged], since: EventId | None, include: frozenset[str]) -> list[str]:
    """Return the frames of one connection, with events one by one."""
    framer = SseFramer(NativeEncoder(include), RUN, since)
    text = "".join(framer.frame_batch([one]) for one in log if one.position > framer.position)
    return (text + framer.end_frames()).removesuffix("\n\n").split("\n\n")


@pytest.mark.parametrize("log", [FULL_LOG, FAILED_LOG])
@pytest.mark.parametrize("include", [frozenset[str](), INCLUDABLE])
def test_a_stream_cut_after_any_frame_goes_on_with_the_next(
    log: list[Logged], include: frozenset[str]
) -> None:
    whole = _stream(log, None, include)
    assert len({frame.partition("\n")[0] for frame in whole[:-1]}) == len(whole) - 1
    for cut, frame in enumerate(whole[:-1], 1):
        seen = EventId.parse(frame.partition("\n")[0].removeprefix("id: "))
        assert _stream(log, seen, include) == whole[cut:]


def test_a_stream_resumed_after_its_end_is_only_done() -> None:
    last = EventId(Cursor(RUN, FULL_LOG[-1].position))
    assert _stream(FULL_LOG, last, INCLUDABLE) == ["id: run_1.1-10\ndata: [DONE]"]


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), data=st.data()
)
def test_texts_add_up_however_the_stream_is_cut(texts: list[str], data: st.DataObject) -> None:
    log = _log(*map(TextDelta, texts))
    framer, received = SseFramer(NativeEncoder(), RUN), ""
    while log:
        size = data.draw(st.integers(1, len(log)))
        chunk, log = framer.frame_batch(log[:size]), log[size:]
        received += chunk
        if data.draw(st.booleans()):
            last = re.findall(r"id: (\S+)\n", chunk)[-1]
            framer = SseFramer(NativeEncoder(), RUN, EventId.parse(last))
    pieces = re.findall(r"data: (.*)\n\n", received)
    assert "".join(_content(piece) for piece in pieces) == "".join(texts)


def _content(piece: str) -> str:
    content: str = json.loads(piece)["content"]
    return content


# ---------------------------------------------------------------- large batches
def test_a_large_batch_is_written_in_parts_and_a_small_one_at_once() -> None:
    half = TextDelta("x" * (LARGE // 2 + 1))
    small = _log(TextDelta("a"), TurnStarted(MessageId("m")), TextDelta("b"))
    large = _log(half, half, TextDelta("a"), half, half, TurnStarted(MessageId("m")))

    assert [*split_batch(small)] == [(small, False)]
    assert [*split_batch(large)] == [(large[:2], True), (large[2:5], True), (large[5:], False)]
    assert [*split_batch(large[:2])] == [(large[:2], True)]
