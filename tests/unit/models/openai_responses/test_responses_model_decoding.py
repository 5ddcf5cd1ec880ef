"""Decoding of responses: the same deltas wherever the bytes are cut."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.responses_model_server import HEAD, call, ending, response, text
from tests.unit.models.openai_responses.response_streams import (
    CASES,
    WHOLE,
    WHOLE_BYTES,
    WHOLE_DELTAS,
    added,
    argued,
    done,
    said,
    stream,
    thought,
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

from passback.core.deltas import Finish, TextChunk, ToolCallChunk
from passback.core.errors import ModelError, ModelIncomplete, ModelUnavailable
from passback.core.messages import Usage
from passback.models.http.decoding import MAX_CALLS
from passback.models.openai_responses.decoding import MAX_ITEMS, ResponseDecoder


def decode(pieces: Iterable[bytes]) -> Decoded:
    return decoded_by(ResponseDecoder("test"), pieces)


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@every_case
@pytest.mark.parametrize("cutting", CUTTINGS.values(), ids=CUTTINGS)
def test_a_response_is_decoded_the_same_however_it_is_cut(case: Case, cutting: Cutting) -> None:
    check(case, decode(cutting(case.stream)))


@every_case
def test_a_response_cut_in_two_anywhere(case: Case) -> None:
    for pieces in cut_in_two(case.stream):
        check(case, decode(pieces))


@given(st.sampled_from(CASES), SIZES)
def test_a_response_in_pieces_of_any_size(case: Case, sizes: list[int]) -> None:
    check(case, decode(cut_into(case.stream, sizes)))


@given(st.binary(max_size=300))
def test_any_bytes_in_a_response_are_decoded_or_refused(data: bytes) -> None:
    decoded = decode([HEAD[0], b'data: {"type":"response.completed","response":', data, b"}\n\n"])
    assert decoded.failure is None or decoded.failure[0] is ModelIncomplete


TYPES = [
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "error",
    None,
]
WORDS = st.sampled_from(["", "a", "message", "function_call", "reasoning", "response", "refusal"])
LEAVES = st.none() | st.booleans() | st.integers(-1, 3) | WORDS
NAMES = st.sampled_from(
    [
        *("type", "id", "item_id", "output_index", "item", "delta", "content", "summary", "text"),
        *("call_id", "name", "arguments", "encrypted_content", "phase", "summary_index", "error"),
        *("response", "status", "output", "usage", "incomplete_details", "reason", "object"),
    ]
)
VALUES = LEAVES | st.lists(st.dictionaries(NAMES, LEAVES, max_size=3), max_size=2)
ITEMS = st.dictionaries(NAMES, VALUES, max_size=4) | st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "reasoning"])},
    optional={
        "id": WORDS,
        "call_id": LEAVES,
        "name": LEAVES,
        "arguments": LEAVES,
        "content": VALUES,
        "summary": VALUES,
        "encrypted_content": LEAVES,
        "phase": LEAVES,
    },
)
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "item": ITEMS | VALUES,
        "delta": WORDS | VALUES,
        "response": ITEMS | st.lists(ITEMS, max_size=2).map(lambda each: response("", *each)),
        "item_id": VALUES,
        "output_index": VALUES,
        "object": LEAVES,
        "error": ITEMS | LEAVES,
    },
)


@given(st.lists(EVENTS, max_size=5))
def test_any_events_make_deltas_in_order_or_a_failure(events: list[dict[str, Any]]) -> None:
    decoded = decode(f"data: {json.dumps(each)}\n\n".encode() for each in events)
    assert decoded.failure is None or issubclass(decoded.failure[0], ModelError)
    ends = [at for at, each in enumerate(decoded.deltas) if isinstance(each, Finish)]
    assert ends in ([], [len(decoded.deltas) - 1])
    slots = [each.slot for each in decoded.deltas if isinstance(each, ToolCallChunk)]
    assert sorted(set(slots)) == list(range(len(set(slots))))


def test_size_grows_with_the_content_of_a_response_only() -> None:
    decoder = ResponseDecoder("test")
    for data, size in (
        (stream(HEAD), 0),
        (stream(text(0, "abc")), 3),
        (added(1, type="reasoning") + thought("de", output_index=1, summary_index=0), 5),
        (done(1, type="reasoning", summary=[{"text": "de"}], encrypted_content="sealed"), 11),
        (done(2, type="reasoning", content=[{"text": "xy"}]), 13),
        (added(3, type="reasoning") + thought("z", output_index=3), 14),
        (done(3, type="reasoning", summary=[{"text": "z"}], content=[{"text": "z!"}]), 16),
        (added(4, type="function_call", name="f"), 17),
        (argued("{}", output_index=4), 19),
        (done(4, type="function_call", name="f", arguments="{}"), 19),
        (ending(), 19),
    ):
        decoder.feed(data)
        assert decoder.size == size


def test_a_decoder_knows_when_a_response_is_complete() -> None:
    decoder = ResponseDecoder("test")
    decoder.feed(stream(HEAD, text(0, "a")))
    assert (decoder.finished, decoder.done) == (False, False)
    decoder.feed(ending())
    assert (decoder.finished, decoder.done) == (True, True)


def test_a_response_that_is_too_long_fails_after_the_allowed_text() -> None:
    decoder = ResponseDecoder("test", max_answer=5)
    assert decoder.feed(said("12345")) == [TextChunk("12345")]
    assert decoder.failure is None
    decoder.feed(done(1, type="reasoning", encrypted_content="!") + said("!"))
    assert isinstance(decoder.failure, ModelIncomplete)


def test_too_many_calls_in_a_response_fail_after_the_allowed_ones() -> None:
    steps = [call(index, f"c{index}", "f", "{}") for index in range(MAX_CALLS + 2)]
    decoded = decode([*map(stream, steps), ending()])
    begun = [each for each in decoded.deltas if isinstance(each, ToolCallChunk) and each.name]
    assert len(begun) == MAX_CALLS
    assert decoded.failure == (ModelIncomplete, "the model called too many tools at once")


@pytest.mark.parametrize(
    "step",
    [
        lambda at: added(at, type="message", id=f"m{at}"),
        lambda at: done(at, type="reasoning", id=f"m{at}"),
        lambda at: said("", output_index=at) + done(at, type="message"),
    ],
)
def test_items_without_end_fail(step: Any) -> None:
    decoded = decode(step(at) for at in range(MAX_ITEMS + 1))
    assert decoded.failure == (ModelIncomplete, "the model's answer makes no sense")
    assert decode([*(step(at) for at in range(MAX_ITEMS)), ending()]).failure is None


# ---------------------------------------------------------------- an answer that is not streamed
def decode_whole(*pieces: bytes) -> Decoded:
    return decoded_by(ResponseDecoder("test", whole=True), pieces)


def test_a_response_in_one_object_is_read() -> None:
    expected = Decoded(list(WHOLE_DELTAS), Usage(10, 5, 3, 2), None)
    assert decode_whole(*cut_into(WHOLE_BYTES, [50, 70])) == expected
    unsaid = {name: given for name, given in WHOLE.items() if name != "status"}
    assert decode_whole(json.dumps(unsaid).encode()) == expected


@pytest.mark.parametrize("status", ["queued", "in_progress", "unknown", 7])
def test_a_response_in_one_object_that_goes_on_has_no_end(status: Any) -> None:
    assert decode_whole(json.dumps(WHOLE | {"status": status}).encode()).deltas == []


def test_an_object_with_an_error_fails_and_another_one_is_no_response() -> None:
    failed = decode_whole(b'{"error": {"code": "server_error"}}')
    assert failed.failure is not None
    assert failed.failure[0] is ModelUnavailable
    assert decode_whole(b"[]") == decode_whole(b'{"output": []}') == Decoded([], None, None)
