"""Tool calls from their pieces. Services disagree about indices and ids; here each call has a slot.

Services send a call whole or in many pieces, with an index, without one, or all with index 0. They
send the id in every piece, only in the first, late, changing, empty, doubled or never. They send
the name once or in every piece, and the arguments as a string, an object or null. So a piece
continues a call unless something shows that it begins another one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.deltas import ToolCallChunk
from passback.core.values import value
from passback.models.http.decoding import MAX_CALLS, usable_id

_MAX_JSON_CHECKS = 64  # of one call


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
        """Return True if the arguments so far are JSON."""
        # Each check reads all arguments, so their number is bounded.
        if self.checks == _MAX_JSON_CHECKS or not self.pieces[-1].rstrip().endswith("}"):
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
    """The calls of one answer: feed it the `tool_calls` of each chunk, in order.

    Its length is the number of calls.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def feed(self, items: Sequence[Mapping[str, JsonValue]], /) -> list[ToolCallChunk]:
        """Return the deltas of one chunk's pieces, each with the slot of its call.

        Raises:
            TooManyCalls: there are more than `MAX_CALLS` calls.
        """
        # Pieces without index and id continue the newest calls, in their order.
        newest = self._calls[-len(items) :] if len(items) <= len(self._calls) else []
        chunks: list[ToolCallChunk] = []
        seen_slots: set[int] = set()
        for position, piece in enumerate(map(_parse_piece, items)):
            call = self._find_call(piece, newest[position] if newest else None)
            if call and _is_repeated_call(call, piece):
                continue
            # One chunk never has two first pieces of one call.
            is_second = call is not None and piece.name and call.slot in seen_slots
            if call is None or is_second or _begins_new_call(call, piece):
                if len(self._calls) == MAX_CALLS:
                    raise TooManyCalls
                call = _Call(len(self._calls))
                self._calls.append(call)
            seen_slots.add(call.slot)
            chunks.append(self._continue_call(call, piece))
        return chunks

    def _find_call(self, piece: _Piece, newest: _Call | None) -> _Call | None:
        """Return the call with the piece's index and id, or with its index, or else the newest."""
        if piece.index is not None and piece.index not in self._by_index:
            return None
        if piece.id is not None and (call := self._by_id.get((piece.index, piece.id))):
            return call
        if piece.index is not None:
            return self._by_index[piece.index]
        return newest or (self._calls[-1] if self._calls else None)

    def _continue_call(self, call: _Call, piece: _Piece) -> ToolCallChunk:
        """Add a piece to its call, and return its delta; each call's id and name are sent once."""
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
            # Some services send the index in the first piece only, and the id in all.
            self._by_id.setdefault((None, piece.id), call)
        return ToolCallChunk(call.slot, new_id, new_name, piece.arguments)


def _begins_new_call(call: _Call, piece: _Piece) -> bool:
    """Return True if a piece that looks like a known call's is the first of another call."""
    if piece.name is None or call.name is None:
        return False
    if piece.name != call.name:
        return True
    # The same name once more: some services repeat it in every piece, so it takes another id or
    # arguments that follow complete ones.
    if call.pieces:
        return bool(piece.arguments or _are_different(call.id, piece.id)) and call.is_complete()
    return _are_different(call.id, piece.id) and (not piece.arguments or _is_json(piece.arguments))


def _is_repeated_call(call: _Call, piece: _Piece) -> bool:
    """Return True if a piece repeats a whole call, as some services do at the end."""
    if call.id is None or (call.id, call.name) != (piece.id, piece.name):
        return False
    if call.size != len(piece.arguments):
        return False
    return "".join(call.pieces) == piece.arguments and _is_json(piece.arguments)


def _are_different(first: str | None, second: str | None) -> bool:
    return first is not None and second is not None and first != second


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _parse_piece(item: Mapping[str, JsonValue]) -> _Piece:
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
