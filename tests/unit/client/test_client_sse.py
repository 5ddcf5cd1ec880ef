"""The decoder, against the vectors that all our clients share."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from passback_client.errors import LimitExceeded
from passback_client.sse import SseDecoder

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "sse.json").read_text(encoding="utf-8")
)


def decode(chunks: Iterable[bytes]) -> tuple[list[dict[str, str]], str, int | None]:
    decoder = SseDecoder(10_000)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    told = [{"id": each.id, "event": each.event, "data": each.data} for each in events]
    return told, decoder.last_event_id, decoder.retry


def ways_to_feed(vector: dict[str, Any]) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and cut in two at each place; or just as the vector says."""
    if "chunks" in vector:
        yield [chunk.encode() for chunk in vector["chunks"]]
        return
    whole = bytes.fromhex(vector["hex"]) if "hex" in vector else vector["text"].encode()
    yield [whole]
    yield [whole[place : place + 1] for place in range(len(whole))]
    for place in range(len(whole) + 1):
        yield [whole[:place], whole[place:]]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
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


def test_a_pause_that_nobody_can_mean_is_not_taken() -> None:
    assert decode([b"retry: 7\nretry: " + b"9" * 5000 + b"\n\n"]) == ([], "", 7)
