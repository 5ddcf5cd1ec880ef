"""Decoding of Anthropic's stream: the same deltas wherever the bytes are cut."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.anthropic_server import PING, START, call, ending, text
from tests.unit.models.anthropic.message_streams import (
    CASES,
    PREFIX,
    WHOLE_BYTES,
    WHOLE_DELTAS,
    delta,
    start,
    stream,
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

from passback.core.deltas import TextChunk, ToolCallChunk
from passback.core.errors import ModelIncomplete, ModelUnavailable
from passback.core.messages import Usage
from passback.models.anthropic.decoding import MessageDecoder
from passback.models.http.decoding import MAX_CALLS


def decode(pieces: Iterable[bytes]) -> Decoded:
    return decoded_by(MessageDecoder("test", PREFIX), pieces)


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@every_case
@pytest.mark.parametrize("cutting", CUTTINGS.values(), ids=CUTTINGS)
def test_a_message_is_decoded_the_same_however_it_is_cut(case: Case, cutting: Cutting) -> None:
    check(case, decode(cutting(case.stream)))


@every_case
def test_a_message_cut_in_two_anywhere(case: Case) -> None:
    for pieces in cut_in_two(case.stream):
        check(case, decode(pieces))


@given(st.sampled_from(CASES), SIZES)
def test_a_message_in_pieces_of_any_size(case: Case, sizes: list[int]) -> None:
    check(case, decode(cut_into(case.stream, sizes)))


@given(st.binary(max_size=300))
def test_any_bytes_in_a_message_are_decoded_or_refused(data: bytes) -> None:
    decoded = decode([START, b'data: {"type":"message_delta","delta":', data, b"}\n\n", data])
    assert decoded.failure is None or decoded.failure[0] is ModelIncomplete


def test_size_grows_with_the_content_of_a_message_only() -> None:
    decoder = MessageDecoder("test", PREFIX)
    for data, size in (
        (START + PING, 0),
        (start(0, "text", text=""), 0),
        (delta(0, "text_delta", text="abc"), 3),
        (start(1, "thinking", thinking="") + delta(1, "thinking_delta", thinking="de"), 5),
        (delta(1, "signature_delta", signature="sig"), 8),
        (start(2, "redacted_thinking", data="xyz"), 11),
        (start(3, "tool_use", id="c", name="f"), 12),
        (delta(3, "input_json_delta", partial_json="{}"), 14),
        (stream(ending()), 14),
    ):
        decoder.feed(data)
        assert decoder.size == size


def test_a_decoder_knows_when_a_message_is_complete() -> None:
    decoder = MessageDecoder("test", PREFIX)
    decoder.feed(stream(START, text(0, "a")))
    assert (decoder.finished, decoder.done) == (False, False)
    decoder.feed(ending()[0])
    assert (decoder.finished, decoder.done) == (True, False)
    decoder.feed(ending()[1])
    assert (decoder.finished, decoder.done) == (True, True)


def test_a_message_that_is_too_long_fails_after_the_allowed_text() -> None:
    decoder = MessageDecoder("test", PREFIX, max_answer=5)
    assert decoder.feed(delta(0, "text_delta", text="12345")) == [TextChunk("12345")]
    assert decoder.failure is None
    decoder.feed(delta(0, "signature_delta", signature="!") + delta(0, "text_delta", text="!"))
    assert isinstance(decoder.failure, ModelIncomplete)


def test_too_many_calls_in_a_message_fail_after_the_allowed_ones() -> None:
    steps = [call(index, f"c{index}", "f", "{}") for index in range(MAX_CALLS + 2)]
    decoded = decode([START, *map(stream, steps), stream(ending())])
    begun = [each for each in decoded.deltas if isinstance(each, ToolCallChunk) and each.name]
    assert len(begun) == MAX_CALLS
    assert decoded.failure == (ModelIncomplete, "the model called too many tools at once")


def test_blocks_that_never_end_fail() -> None:
    decoded = decode(start(index, "text", text="") for index in range(MAX_CALLS + 1))
    assert decoded.failure == (ModelIncomplete, "the model's answer makes no sense")


# ---------------------------------------------------------------- an answer that is not streamed
def test_a_message_in_one_object_is_read() -> None:
    decoded = decoded_by(
        MessageDecoder("test", PREFIX, whole=True), cut_into(WHOLE_BYTES, [50, 70])
    )
    assert decoded == Decoded(list(WHOLE_DELTAS), Usage(2, 5), None)


def test_an_object_that_is_an_error_fails_and_another_one_is_no_message() -> None:
    error = b'{"type": "error", "error": {"type": "overloaded_error"}}'
    failed = decoded_by(MessageDecoder("test", PREFIX, whole=True), [error])
    assert failed.failure is not None
    assert failed.failure[0] is ModelUnavailable
    nothing = decoded_by(MessageDecoder("test", PREFIX, whole=True), [b"[]"])
    assert nothing == Decoded([], None, None)
