"""What services stream, and the deltas that it means: the same however the bytes are cut."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.models.openai_chat.chat_streams import (
    AB,
    CALL,
    CALLED,
    CASES,
    USAGE,
    chunk,
    sse,
)
from tests.unit.models.streams import (
    CUTTINGS,
    SIZES,
    Case,
    Cutting,
    Decoded,
    check,
    cut_in_two,
    cut_into,
    decoded_by,
)

from passback.core.deltas import (
    Finish,
    ModelDelta,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from passback.core.errors import ModelError, ModelIncomplete, ModelRateLimited
from passback.core.messages import Usage
from passback.models.http.decoding import MAX_CALLS
from passback.models.http.events import MAX_EVENT
from passback.models.openai_chat.decoding import ChatDecoder


def decode(pieces: Iterable[bytes]) -> Decoded:
    return decoded_by(ChatDecoder("test"), pieces)


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@every_case
@pytest.mark.parametrize("cutting", CUTTINGS.values(), ids=CUTTINGS)
def test_a_stream_means_the_same_however_it_is_cut(case: Case, cutting: Cutting) -> None:
    check(case, decode(cutting(case.stream)))


ODD: list[object] = [
    {**chunk(content="x"), "usage": {"prompt_tokens": 1}},
    {**chunk(content="x"), "error": {"message": "no"}},
    {**chunk(content="x"), "object": "error"},
    {**chunk(content="x"), "error": None, "usage": None},
    {"choices": [{"index": 1, "delta": {"content": "x"}}]},
    {"choices": [{"delta": {"content": "x"}}]},
    {"choices": [{"delta": {"content": "x"}, "finish_reason": ""}]},
    {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]},
    {"choices": [{"delta": {"content": "x", "role": "assistant"}}]},
    {"choices": [{"delta": {"content": ""}}]},
    {"choices": [{"delta": {"content": 1}}]},
    {"choices": [{"delta": {"content": ["x"]}}]},
    {"choices": [{"delta": "content"}]},
    {"choices": [{"delta": {}}]},
    {"choices": ["delta"]},
    {"choices": [{}, {}]},
    {"choices": {"a": 1}},
    {"choices": []},
    [1],
    "{",
    "[DONE]",
    1,
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_event_means_the_same_alone_and_in_pieces(odd: object) -> None:
    start, end = sse(chunk(content="a")), sse(chunk(content="b"), chunk("stop"), "[DONE]")
    alone = decode([start, sse(odd), end])
    whole = start + sse(odd) + end
    assert alone == decode(whole[at : at + 7] for at in range(0, len(whole), 7))


def test_an_answer_that_comes_event_by_event_is_bounded() -> None:
    decoder = ChatDecoder("test", max_answer=3)
    for text in ("a", "b", "c", "d"):
        decoder.feed(sse(chunk(content=text)))
    assert isinstance(decoder.failure, ModelIncomplete)
    assert decoder.feed(sse(chunk(content="e"))) == []


@every_case
def test_a_stream_cut_in_two_anywhere(case: Case) -> None:
    for pieces in cut_in_two(case.stream):
        check(case, decode(pieces))


@given(st.sampled_from(CASES), SIZES)
def test_a_stream_in_pieces_of_any_size(case: Case, sizes: list[int]) -> None:
    check(case, decode(cut_into(case.stream, sizes)))


@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_decoded_or_refused(data: bytes) -> None:
    decoded = decode([b'data: {"choices":[{"delta":', data, b"}]}\n\n", data])
    assert decoded.failure is None or decoded.failure[0] is ModelIncomplete


# ---------------------------------------------------------------- batches
def test_one_read_is_one_batch_with_its_texts_joined_and_one_usage() -> None:
    decoder = ChatDecoder("test")
    read = sse(
        chunk(content="a"),
        chunk(content="b"),
        {**chunk(reasoning="h"), "usage": {"prompt_tokens": 1}},
        {**chunk(reasoning="m"), "usage": {"prompt_tokens": 2}},
        chunk(tool_calls=[CALL]),
        chunk(content="c"),
    )
    assert decoder.feed(read) == [
        TextChunk("ab"),
        ReasoningChunk("hm"),
        CALLED,
        TextChunk("c"),
        UsageChunk(Usage(2)),
    ]
    assert decoder.feed(b": nothing new\n\n") == []


def test_empty_texts_are_no_deltas() -> None:
    assert (
        ChatDecoder("test").feed(sse(chunk(role="assistant", content=""), chunk(content=""))) == []
    )


def test_size_grows_with_content_only() -> None:
    decoder = ChatDecoder("test")
    for stream, size in (
        (b": ping\n\n", 0),
        (sse(chunk(content=""), {"choices": [], "usage": USAGE}, {"junk": 1}), 0),
        (sse(chunk(content="abc")), 3),
        (sse(chunk(reasoning="de")), 5),
        (sse(chunk(tool_calls=[CALL])), 8),
    ):
        decoder.feed(stream)
        assert decoder.size == size


def test_it_says_when_the_answer_is_complete() -> None:
    decoder = ChatDecoder("test")
    decoder.feed(sse(chunk(content="a")))
    assert (decoder.finished, decoder.done) == (False, False)
    decoder.feed(sse(chunk("stop")))
    assert (decoder.finished, decoder.done) == (True, False)
    decoder.feed(sse("[DONE]"))
    assert (decoder.finished, decoder.done) == (True, True)


# ---------------------------------------------------------------- limits
def test_an_answer_that_is_too_long_fails_after_what_was_good() -> None:
    decoder = ChatDecoder("test", max_answer=10)
    assert decoder.feed(sse(chunk(content="12345"), chunk(content="67890"))) == [
        TextChunk("1234567890")
    ]
    assert decoder.failure is None
    decoder.feed(sse(chunk(content="!"), chunk(content="never seen")))
    assert isinstance(decoder.failure, ModelIncomplete)
    assert "too long" in decoder.failure.message
    assert decoder.finished is False


def test_more_calls_than_make_sense_fail_after_the_good_ones() -> None:
    calls = ({**CALL, "index": n, "id": f"c{n}"} for n in range(MAX_CALLS + 2))
    decoded = decode([sse(*(chunk(tool_calls=[call]) for call in calls), *AB)])
    assert decoded.deltas == [ToolCallChunk(n, f"c{n}", "f", "{}") for n in range(MAX_CALLS)]
    assert decoded.failure == (ModelIncomplete, "the model called too many tools at once")


@pytest.mark.parametrize("line", [b"data: " + b"x" * 1023, b": " + b"x" * 1023, b"x" * 1023])
def test_a_line_that_does_not_end_fails(line: bytes) -> None:
    decoder = ChatDecoder("test")
    fed = 0
    while decoder.failure is None:
        decoder.feed(line)
        fed += len(line)
        assert fed <= MAX_EVENT + len(line)
    assert fed > MAX_EVENT
    assert isinstance(decoder.failure, ModelIncomplete)


def test_an_event_of_endless_lines_fails() -> None:
    decoder = ChatDecoder("test")
    lines = b"data: {\n" * 100_000
    for _ in range(50):
        decoder.feed(lines)
    assert isinstance(decoder.failure, ModelIncomplete)


# ---------------------------------------------------------------- an answer that is not streamed
def whole(*pieces: bytes) -> tuple[list[ModelDelta], ModelError | None]:
    decoder = ChatDecoder("test", whole=True)
    deltas = [delta for piece in pieces for delta in decoder.feed(piece)]
    return [*deltas, *decoder.end()], decoder.failure


def test_an_answer_in_one_object_is_read_as_a_message() -> None:
    message = {"role": "assistant", "content": "ab", "tool_calls": [CALL | {"index": None}]}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE}
    data = json.dumps(body, indent=2).encode()
    assert whole(data[:50], data[50:]) == (
        [TextChunk("ab"), CALLED, Finish("tool_calls"), UsageChunk(Usage(7, 5, 3, 2))],
        None,
    )


def test_an_object_that_is_an_error_fails() -> None:
    deltas, failure = whole(b'{"error": {"code": 429}}')
    assert deltas == []
    assert isinstance(failure, ModelRateLimited)


def test_an_object_that_is_too_large_or_none_is_no_answer() -> None:
    assert whole(b"not JSON") == ([], None)
    decoder = ChatDecoder("test", whole=True)
    decoder.feed(b" " * MAX_EVENT)
    assert decoder.failure is None
    decoder.feed(b" ")
    assert isinstance(decoder.failure, ModelIncomplete)
