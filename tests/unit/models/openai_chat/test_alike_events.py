"""Events that are known by their bytes mean what parsing them does."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.models.openai_chat.chat_streams import chunk, sse
from tests.unit.models.streams import SIZES, Decoded, cut_into, decoded_by

from passback.core.deltas import Finish, TextChunk
from passback.core.errors import ModelIncomplete
from passback.models.openai_chat.decoding import ChatDecoder

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
    HEAD[:-1] + TAIL,  # the quote that begins and the one that ends are one
]
JSON_TEXTS = st.text(min_size=1).map(lambda text: json.dumps(text)[1:-1].encode())
RAW_TEXTS = st.text(min_size=1).map(lambda text: json.dumps(text, ensure_ascii=False)[1:-1])
INSIDES = (
    JSON_TEXTS
    | RAW_TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.binary(max_size=4)
    | st.sampled_from([b"", b"\\", b'\\"', b'"', b'","x":"', b'"},"error":{"message":"no', b"\xc3"])
)
EVENTS = st.lists(INSIDES.map(lambda text: HEAD + text + TAIL) | st.sampled_from(OTHERS))
START = [HEAD + b"word" + TAIL] * 5
"""Enough to learn from."""


def unlike(event: bytes, number: int) -> bytes:
    """The same event, but no other one begins so."""
    return event.replace(b'data: {"', b'data: {"n%d":0,"' % number, 1)


def decode(stream: bytes, sizes: list[int]) -> Decoded:
    return decoded_by(ChatDecoder("test"), cut_into(stream, sizes))


@given(EVENTS, SIZES)
@example([HEAD + b"a\\" + TAIL, HEAD + b'"' + TAIL], [1000])
@example([HEAD + b"\xc3" + TAIL, HEAD + b"\xa4" + TAIL], [1000])
def test_events_that_are_alike_mean_the_same_as_any(events: list[bytes], sizes: list[int]) -> None:
    stream = [*START, *events, sse("[DONE]")]
    parsed = [unlike(event, number) for number, event in enumerate(stream)]
    assert decode(b"".join(stream), sizes) == decode(b"".join(parsed), sizes)


@pytest.mark.parametrize("content", ["word", "0", "index", "id", 'a "quote"', "\u00e4"])
def test_whatever_the_first_texts_are_the_following_ones_are_right(content: str) -> None:
    said = [content] * 6 + ["behind", 'with "quotes"', "and\nlines", "\U0001f600"]
    stream = b"".join(sse(chunk(content=text)) for text in said) + sse(chunk("stop"), "[DONE]")
    decoder = ChatDecoder("test")
    assert decoder.feed(stream) == [TextChunk("".join(said))]
    assert decoder.end() == [Finish("stop")]


def test_a_burst_of_alike_events_is_bounded() -> None:
    decoder = ChatDecoder("test", max_answer=50)
    decoder.feed(b"".join(START))
    [said] = decoder.feed((HEAD + b"0123456789" + TAIL) * 10)
    assert isinstance(decoder.failure, ModelIncomplete)
    assert said == TextChunk("0123456789" * 4)
