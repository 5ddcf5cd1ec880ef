"""Which call a piece belongs to: services disagree about indices and ids, a call here has one slot of its own.

Sent in the wild: calls whole in one piece or in many, with an index, without one or all with index 0; ids in every
piece, only in the first, late, changing, empty, doubled or never; names once or in every piece; arguments as a
string, an object or null. A piece goes on with a call unless something says that it begins another.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.deltas import ToolCallChunk
from passback.core.values import value
from passback.models.http.decoding import MAX_CALLS, usable_id

_MAX_CHECKS = 64


class TooManyCalls(Exception):
    """The answer has more than `MAX_CALLS` calls."""


@dataclass(slots=True)
class _Call:
    slot: int
    id: str | None = None
    name: str | None = None
    pieces: list[str] = field(default_factory=list[str])
    size: int = 0
    checks: int = 0

    def is_complete(self) -> bool:
        """Whether the arguments so far are JSON, asked a bounded number of times: it reads all of them."""
        if self.checks == _MAX_CHECKS or not self.pieces[-1].rstrip().endswith("}"):
            return False
        self.checks += 1
        return _is_json("".join(self.pieces))


@value
class _Piece:
    index: int | None
    id: str | None
    name: str | None
    arguments: str


class CallSlots:
    """Feed it the `tool_calls` of each chunk, in order; its length is the number of calls."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def feed(self, items: Sequence[Mapping[str, JsonValue]], /) -> list[ToolCallChunk]:
        """What one chunk says of calls.

        Raises:
            TooManyCalls: one call too many.
        """
        # Pieces that say nothing of themselves continue the newest calls, in their order.
        newest = self._calls[-len(items) :] if len(items) <= len(self._calls) else []
        chunks: list[ToolCallChunk] = []
        told: set[int] = set()
        for position, piece in enumerate(map(_piece, items)):
            call = self._known(piece, newest[position] if newest else None)
            if call and _is_resent(call, piece):
                continue
            # One chunk never has two first pieces of one call.
            if call is None or (piece.name and call.slot in told) or _begins_another(call, piece):
                call = self._new_call()
            told.add(call.slot)
            chunks.append(self._continue(call, piece))
        return chunks

    def _known(self, piece: _Piece, newest: _Call | None) -> _Call | None:
        """The call that has the piece's place: its index and id, its index, or else the newest."""
        if piece.index is not None and piece.index not in self._by_index:
            return None
        if piece.id is not None and (call := self._by_id.get((piece.index, piece.id))):
            return call
        if piece.index is not None:
            return self._by_index[piece.index]
        return newest or (self._calls[-1] if self._calls else None)

    def _new_call(self) -> _Call:
        if len(self._calls) == MAX_CALLS:
            raise TooManyCalls
        call = _Call(len(self._calls))
        self._calls.append(call)
        return call

    def _continue(self, call: _Call, piece: _Piece) -> ToolCallChunk:
        """Note what the piece says; its id and name are told once."""
        new_id = piece.id if call.id is None else None
        new_name = piece.name if call.name is None else None
        call.id, call.name = call.id or new_id, call.name or new_name
        if piece.arguments:
            call.pieces.append(piece.arguments)
            call.size += len(piece.arguments)
        if piece.index is not None:
            self._by_index[piece.index] = call
        if piece.id is not None:
            self._by_id[piece.index, piece.id] = call
            self._by_id.setdefault((None, piece.id), call)
        return ToolCallChunk(call.slot, new_id, new_name, piece.arguments)


def _begins_another(call: _Call, piece: _Piece) -> bool:
    """Whether a piece in the place of a known call is the first of another call all the same."""
    if piece.name is None or call.name is None:
        return False
    if piece.name != call.name:
        return True
    if call.pieces:
        return bool(piece.arguments or _differ(call.id, piece.id)) and call.is_complete()
    return _differ(call.id, piece.id) and (not piece.arguments or _is_json(piece.arguments))


def _is_resent(call: _Call, piece: _Piece) -> bool:
    """Whether a piece is a whole call once more, as some services send it at the end."""
    if call.id is None or (call.id, call.name) != (piece.id, piece.name):
        return False
    if call.size != len(piece.arguments):
        return False
    return "".join(call.pieces) == piece.arguments and _is_json(piece.arguments)


def _differ(first: str | None, second: str | None) -> bool:
    return first is not None and second is not None and first != second


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- reading the JSON
def _piece(item: Mapping[str, JsonValue]) -> _Piece:
    inner = item.get("function")
    function = inner if isinstance(inner, dict) else item  # some leave the inner object out
    index, name, arguments = item.get("index"), function.get("name"), function.get("arguments")
    if arguments is None:
        arguments = ""
    return _Piece(
        index=index if isinstance(index, int) else None,
        id=usable_id(item.get("id")),
        name=name.strip() or None if isinstance(name, str) else None,
        arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
    )
