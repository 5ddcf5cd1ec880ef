"""Decoding of a chat service's stream: the same deltas wherever the bytes are cut."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.models.openai_chat.chat_streams import AB, CALL, CALLED, CASES, USAGE, chunk, sse
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
from passback.models.http.decoding import MAX_CALLS, MAX_EVENT
from passback.models.openai_chat.decoding import ChatDecoder


def decode(pieces: Iterable[bytes]) -> Decoded:
    return decoded_by(ChatDecoder("test"), pieces)


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@every_case
@pytest.mark.parametrize("cutting", CUTTINGS.values(), ids=CUTTINGS)
def test_a_stream_is_decoded_the_same_however_it_is_cut(case: Case, cutting: Cutting) -> None:
    check(case, decode(cutting(case.stream)))


UNUSUAL: list[object] = [
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


@pytest.mark.parametrize("unusual", UNUSUAL, ids=repr)
def test_an_unusual_event_is_decoded_the_same_alone_and_in_pieces(unusual: object) -> None:
    head, end = sse(chunk(content="a")), sse(chunk(content="b"), chunk("stop"), "[DONE]")
    alone = decode([head, sse(unusual), end])
    whole = head + sse(unusual) + end
    assert alone == decode(whole[start : start + 7] for start in range(0, len(whole), 7))


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


def test_a_decoder_knows_when_an_answer_is_complete() -> None:
    decoder = ChatDecoder("test")
    decoder.feed(sse(chunk(content="a")))
    assert (decoder.finished, decoder.done) == (False, False)
    decoder.feed(sse(chunk("stop")))
    assert (decoder.finished, decoder.done) == (True, False)
    decoder.feed(sse("[DONE]"))
    assert (decoder.finished, decoder.done) == (True, True)


# ---------------------------------------------------------------- limits
def test_an_answer_that_is_too_long_fails_after_the_allowed_text() -> None:
    decoder = ChatDecoder("test", max_answer=10)
    assert decoder.feed(sse(chunk(content="12345"), chunk(content="67890"))) == [
        TextChunk("1234567890")
    ]
    assert decoder.failure is None
    decoder.feed(sse(chunk(content="!"), chunk(content="never seen")))
    assert isinstance(decoder.failure, ModelIncomplete)
    assert "too long" in decoder.failure.message
    assert decoder.finished is False


def test_too_many_calls_fail_after_the_allowed_ones() -> None:
    calls = ({**CALL, "index": n, "id": f"c{n}"} for n in range(MAX_CALLS + 2))
    decoded = decode([sse(*(chunk(tool_calls=[call]) for call in calls), *AB)])
    assert decoded.deltas == [ToolCallChunk(n, f"c{n}", "f", "{}") for n in range(MAX_CALLS)]
    assert decoded.failure == (ModelIncomplete, "the model called too many tools at once")


@pytest.mark.parametrize("line", [b"data: " + b"x" * 1023, b": " + b"x" * 1023, b"x" * 1023])
def test_a_line_that_does_not_end_fails(line: bytes) -> None:
    decoder = ChatDecoder("test")
    sent = 0
    while decoder.failure is None:
        decoder.feed(line)
        sent += len(line)
        assert sent <= MAX_EVENT + len(line)
    assert sent > MAX_EVENT
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


# ---------------------------------------------------------------- events of one form
HEAD = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"'
TAIL = b'"},"finish_reason":null}]}\n\n'
OTHERS = [
    sse(chunk(reasoning="hm")),
    sse({**chunk(content="x"), "usage": {"prompt_tokens": 1}}),
    sse({**chunk(content="x"), "error": {"message": "no"}}),
    b": nothing new\n\n",
    b'event: odd\ndata: {"choices":[{"delta":{"content":"named"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"without a blank line"}}]}\n',
    b"data: {\ndata: }\n\n",
    b"data: {\n\n",
    HEAD[:-1] + TAIL,  # one quote is both the opening and the closing one
]
JSON_TEXTS = st.text(min_size=1).map(lambda text: json.dumps(text)[1:-1].encode())
RAW_TEXTS = st.text(min_size=1).map(lambda text: json.dumps(text, ensure_ascii=False)[1:-1])
CONTENTS = (
    JSON_TEXTS
    | RAW_TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.binary(max_size=4)
    | st.sampled_from([b"", b"\\", b'\\"', b'"', b'","x":"', b'"},"error":{"message":"no', b"\xc3"])
)
EVENTS = st.lists(CONTENTS.map(lambda text: HEAD + text + TAIL) | st.sampled_from(OTHERS))
START = [HEAD + b"word" + TAIL] * 5
"""Enough events for the decoder to learn their form."""


def with_unique_start(event: bytes, number: int) -> bytes:
    """Return the same event with a beginning that no other one has."""
    return event.replace(b'data: {"', b'data: {"n%d":0,"' % number, 1)


def decode_cut(stream: bytes, sizes: list[int]) -> Decoded:
    return decoded_by(ChatDecoder("test"), cut_into(stream, sizes))


@given(EVENTS, SIZES)
@example([HEAD + b"a\\" + TAIL, HEAD + b'"' + TAIL], [1000])
@example([HEAD + b"\xc3" + TAIL, HEAD + b"\xa4" + TAIL], [1000])
def test_events_of_one_form_are_decoded_as_any_others(
    events: list[bytes], sizes: list[int]
) -> None:
    stream = [*START, *events, sse("[DONE]")]
    parsed = [with_unique_start(event, number) for number, event in enumerate(stream)]
    assert decode_cut(b"".join(stream), sizes) == decode_cut(b"".join(parsed), sizes)


@pytest.mark.parametrize("content", ["word", "0", "index", "id", 'a "quote"', "\u00e4"])
def test_texts_after_any_first_ones_are_decoded(content: str) -> None:
    texts = [content] * 6 + ["behind", 'with "quotes"', "and\nlines", "\U0001f600"]
    stream = b"".join(sse(chunk(content=text)) for text in texts) + sse(chunk("stop"), "[DONE]")
    decoder = ChatDecoder("test")
    assert decoder.feed(stream) == [TextChunk("".join(texts))]
    assert decoder.end() == [Finish("stop")]


def test_many_events_of_one_form_are_bounded() -> None:
    decoder = ChatDecoder("test", max_answer=50)
    decoder.feed(b"".join(START))
    [delta] = decoder.feed((HEAD + b"0123456789" + TAIL) * 10)
    assert isinstance(decoder.failure, ModelIncomplete)
    assert delta == TextChunk("0123456789" * 4)
