"""A block of thinking as it is kept: unedited, with its place in the answer and what it was bound to.

The service signs a block, and takes it back only as it came, where it came, and behind the same words: newer models
refuse one whose prefix (system, tools, all messages before its answer) has changed since.
"""

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.messages import AssistantMessage
from passback.core.values import value
from passback.models.http.bodies import written

Block: TypeAlias = dict[str, JsonValue]

KINDS = frozenset({"thinking", "redacted_thinking"})


@value
class Thought:
    """A block, just as the service gave it.

    Attributes:
        text: characters of the answer's text before it.
        calls: calls of the answer before it.
        prefix: what the request was that it answers, see `Prefix`.
    """

    block: Block
    text: int
    calls: int
    prefix: str

    def dump(self) -> str:
        kept = {"block": self.block, "text": self.text, "calls": self.calls, "prefix": self.prefix}
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def load(cls, record: str, /) -> "Thought":
        kept: dict[str, Any] = from_json(record)
        return cls(kept["block"], kept["text"], kept["calls"], kept["prefix"])


def thoughts_of(message: AssistantMessage, provider: str, /) -> list[Thought]:
    """The thoughts in an answer that may go back to this provider, in the order in which they came."""
    return [
        Thought.load(reasoning.opaque)
        for reasoning in message.reasoning
        if reasoning.provider == provider and reasoning.opaque is not None
    ]


class Prefix:
    """Takes a request in, piece by piece; its `digest` is another one as soon as a piece is."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, *pieces: JsonValue) -> None:
        self._hash.update(b"".join(_framed(pieces)))

    def digest(self) -> str:
        return self._hash.hexdigest()[:32]


def _framed(pieces: Iterable[JsonValue]) -> Iterable[bytes]:
    for piece in pieces:
        yield written(piece)
        yield b"\n"
