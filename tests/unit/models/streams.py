"""Cases of streams of bytes, ways to cut them into pieces, and the check of what is decoded."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

from passback.core.deltas import ModelDelta, ReasoningChunk, TextChunk, UsageChunk
from passback.core.errors import ModelError
from passback.core.messages import Usage
from passback.models.http.decoding import Decoder

Cutting: TypeAlias = Callable[[bytes], Iterable[bytes]]


@dataclass(frozen=True)
class Case:
    id: str
    stream: bytes
    deltas: Sequence[ModelDelta] = ()
    usage: Usage | None = None
    failure: tuple[type[ModelError], str] | None = None


@dataclass(frozen=True)
class Decoded:
    deltas: list[ModelDelta]
    usage: Usage | None
    failure: tuple[type[ModelError], str] | None


def decoded_by(decoder: Decoder, pieces: Iterable[bytes]) -> Decoded:
    """Feed the pieces; join neighbouring texts over batches, and take the last usage."""
    deltas: list[ModelDelta] = []
    for piece in pieces:
        deltas += decoder.feed(piece)
        if decoder.failure or decoder.done:
            break
    if not decoder.failure:
        deltas += decoder.end()
    reports = [delta.usage for delta in deltas if isinstance(delta, UsageChunk)]
    failure = decoder.failure
    return Decoded(
        joined(delta for delta in deltas if not isinstance(delta, UsageChunk)),
        reports[-1] if reports else None,
        (type(failure), failure.message) if failure else None,
    )


def joined(deltas: Iterable[ModelDelta]) -> list[ModelDelta]:
    result: list[ModelDelta] = []
    for delta in deltas:
        match (result[-1] if result else None, delta):
            case (TextChunk(before), TextChunk(text)):
                result[-1] = TextChunk(before + text)
            case (ReasoningChunk(before), ReasoningChunk(text)):
                result[-1] = ReasoningChunk(before + text)
            case _:
                result.append(delta)
    return result


def check(case: Case, decoded: Decoded) -> None:
    assert decoded.deltas == list(case.deltas)
    assert decoded.usage == case.usage
    if case.failure is None or decoded.failure is None:
        assert decoded.failure is case.failure
    else:
        assert decoded.failure[0] is case.failure[0]
        assert case.failure[1] in decoded.failure[1]


async def body_in_pieces(*pieces: bytes | Exception) -> AsyncGenerator[bytes]:
    """Yield the pieces of a body, and raise an exception in its place."""
    for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        yield piece


# ---------------------------------------------------------------- cutting
def _whole(stream: bytes) -> Iterable[bytes]:
    return [stream]


def _by_byte(stream: bytes) -> Iterable[bytes]:
    return (bytes([byte]) for byte in stream)


def _by_event(stream: bytes) -> Iterable[bytes]:
    events = [event + b"\n\n" for event in stream.split(b"\n\n")]
    events[-1] = events[-1].removesuffix(b"\n\n")
    return filter(None, events)


CUTTINGS: Mapping[str, Cutting] = {"whole": _whole, "bytes": _by_byte, "events": _by_event}

SIZES = st.lists(st.integers(1, 400), max_size=30)


def cut_into(stream: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Cut a stream into pieces of these sizes, and the rest."""
    cuts, position = [0], 0
    cuts.extend(position := position + size for size in sizes)
    return [stream[a:b] for a, b in zip(cuts, [*cuts[1:], len(stream)], strict=True)]


def cut_in_two(stream: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Cut a stream in two at every place; a very long one at many."""
    for cut in range(0, len(stream), max(1, len(stream) // 2000)):
        yield stream[:cut], stream[cut:]
