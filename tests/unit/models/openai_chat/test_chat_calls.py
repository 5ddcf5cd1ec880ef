"""Tool calls in all the forms in which services stream them."""

import json
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from passback.core.deltas import ToolCallChunk
from passback.core.errors import ModelIncomplete
from passback.models.http.decoding import MAX_CALLS
from passback.models.openai_chat.decoding import CallSlots

Piece: TypeAlias = dict[str, JsonValue]
Call: TypeAlias = tuple[str | None, str | None, str]


def part(arguments: JsonValue = None, *, name: JsonValue = None, **fields: JsonValue) -> Piece:
    """Return a part of a call, without the fields that are None."""
    inner: Piece = {"name": name, "arguments": arguments}
    function: Piece = {key: value for key, value in inner.items() if value is not None}
    return {**fields, "function": function}


def deltas_of(chunks: list[list[Piece]]) -> list[ToolCallChunk]:
    slots = CallSlots()
    return [delta for chunk in chunks for delta in slots.feed(chunk)]


def joined_calls(deltas: list[ToolCallChunk]) -> list[Call]:
    """Return each slot's id, name and arguments; each id and name may come once."""
    calls: dict[int, Call] = {}
    for delta in deltas:
        call_id, name, arguments = calls.get(delta.slot, (None, None, ""))
        assert call_id is None or delta.provider_id is None
        assert name is None or delta.name is None
        calls[delta.slot] = (
            call_id or delta.provider_id,
            name or delta.name,
            arguments + delta.arguments,
        )
    assert list(calls) == list(range(len(calls)))
    return list(calls.values())


A, B = '{"a": 1}', '{"b": 2}'
ONE: Call = ("x", "f", A)
TWO: list[Call] = [("x", "f", A), ("y", "g", B)]
NAMELESS: list[Call] = [(None, "f", A), (None, "g", B)]

SHAPES: dict[str, tuple[list[list[Piece]], list[Call]]] = {
    # one call
    "whole": ([[part(A, name="f", index=0, id="x")]], [ONE]),
    "whole, without an index": ([[part(A, name="f", id="x")]], [ONE]),
    "whole, without index or id": ([[part(A, name="f")]], [(None, "f", A)]),
    "whole, arguments as an object": ([[part({"a": 1}, name="f", id="x")]], [ONE]),
    "whole, without the inner object": ([[{"id": "x", "name": "f", "arguments": A}]], [ONE]),
    "without arguments": ([[part(name="f", id="x")]], [("x", "f", "")]),
    "in pieces": (
        [[part("", name="f", index=0, id="x")], [part(A[:4], index=0)], [part(A[4:], index=0)]],
        [ONE],
    ),
    "in pieces, without an index": (
        [[part(name="f", id="x")], [part(A[:4])], [part(A[4:])]],
        [ONE],
    ),
    "in pieces, the index in the first only": (
        [[part(name="f", id="x", index=0)], [part(A[:4])], [part(A[4:])]],
        [ONE],
    ),
    "the id late": (
        [[part(name="f", index=0)], [part(A[:4], index=0, id="x")], [part(A[4:], index=0)]],
        [ONE],
    ),
    "the name late": ([[part(A[:4], index=0, id="x")], [part(A[4:], name="f", index=0)]], [ONE]),
    "id and name in every piece": (
        [[part(t, name="f", index=0, id="x")] for t in (A[:2], A[2:6], A[6:])],
        [ONE],
    ),
    "id and name in every piece, without an index": (
        [[part(t, name="f", id="x")] for t in ("", A[:2], A[2:6], A[6:])],
        [ONE],
    ),
    "another id in every piece": (
        [
            [part(t, name="f", index=0, id=i)]
            for t, i in ((A[:2], "x"), (A[2:6], "q"), (A[6:], "r"))
        ],
        [ONE],
    ),
    "empty and null ids and names": (
        [[part(A[:4], name="f", index=0, id="x")], [part(A[4:], name="", index=0, id="")]],
        [ONE],
    ),
    "an empty id, then a real one": (
        [[part(name="f", index=0, id="")], [part(A, index=0, id="x")]],
        [ONE],
    ),
    "ids that could not be sent back": (
        [[part(A, name="f", index=0, id="x\r\ny")], [part(B, name="g", index=1, id="z" * 300)]],
        NAMELESS,
    ),
    "an id that is no text": ([[part(A, name="f", index=0, id=7)]], [(None, "f", A)]),
    "spaces around the name": ([[part(A, name=" f\n", id="x")]], [ONE]),
    "the whole call again at the end": (
        [
            [part(A[:4], name="f", index=0, id="x")],
            [part(A[4:], index=0)],
            [part(A, name="f", index=0, id="x")],
        ],
        [ONE],
    ),
    "an empty piece at the end": (
        [
            [part(A, name="f", index=0, id="x")],
            [part("", name="f", index=0, id="x")],
            [part(index=0)],
        ],
        [ONE],
    ),
    # several calls
    "two in one chunk": (
        [[part(A, name="f", index=0, id="x"), part(B, name="g", index=1, id="y")]],
        TWO,
    ),
    "two in one chunk, without an index": (
        [[part(A, name="f", id="x"), part(B, name="g", id="y")]],
        TWO,
    ),
    "two in one chunk, all with index 0": (
        [[part(A, name="f", index=0, id="x"), part(B, name="g", index=0, id="y")]],
        TWO,
    ),
    "two in one chunk, without index or id": ([[part(A, name="f"), part(B, name="g")]], NAMELESS),
    "the same tool twice without arguments, index or id": (
        [[part(name="f"), part(name="f")]],
        [(None, "f", ""), (None, "f", "")],
    ),
    "two in two chunks, all with index 0": (
        [[part(A, name="f", index=0, id="x")], [part(B, name="g", index=0, id="y")]],
        TWO,
    ),
    "two in two chunks, all with index 0, without ids": (
        [[part(A, name="f", index=0)], [part(B, name="g", index=0)]],
        NAMELESS,
    ),
    "two in two chunks, without an index": (
        [[part(A, name="f", id="x")], [part(B, name="g", id="y")]],
        TWO,
    ),
    "two in two chunks, without index or id": (
        [[part(A, name="f")], [part(B, name="g")]],
        NAMELESS,
    ),
    "two without arguments, all with index 0": (
        [[part("", name="f", index=0, id="x")], [part("", name="g", index=0, id="y")]],
        [("x", "f", ""), ("y", "g", "")],
    ),
    "the same tool twice without arguments, all with index 0": (
        [[part("", name="f", index=0, id="x")], [part("", name="f", index=0, id="y")]],
        [("x", "f", ""), ("y", "f", "")],
    ),
    "the same tool twice, whole, all with index 0": (
        [[part(A, name="f", index=0, id="x")], [part(A, name="f", index=0, id="y")]],
        [("x", "f", A), ("y", "f", A)],
    ),
    "the same tool, called empty and then whole, all with index 0": (
        [[part("", name="f", index=0, id="x")], [part(A, name="f", index=0, id="y")]],
        [("x", "f", ""), ("y", "f", A)],
    ),
    "one after the other in pieces": (
        [
            [part(name="f", index=0, id="x")],
            [part(A, index=0)],
            [part(name="g", index=1, id="y")],
            [part(B[:3], index=1)],
            [part(B[3:], index=1)],
        ],
        TWO,
    ),
    "one after the other in pieces, without an index": (
        [
            [part(name="f", id="x")],
            [part(A[:3])],
            [part(A[3:])],
            [part(name="g", id="y")],
            [part(B[:3])],
            [part(B[3:])],
        ],
        TWO,
    ),
    "mixed pieces by index": (
        [
            [part(name="f", index=0, id="x"), part(name="g", index=1, id="y")],
            [part(A[:3], index=0), part(B[:3], index=1)],
            [part(B[3:], index=1)],
            [part(A[3:], index=0)],
        ],
        TWO,
    ),
    "mixed pieces by id, without an index": (
        [
            [part(A[:3], name="f", id="x")],
            [part(B[:3], name="g", id="y")],
            [part(A[3:], id="x")],
            [part(B[3:], id="y")],
        ],
        [("x", "f", A), ("y", "g", B)],
    ),
    "mixed pieces by place, without an index or an id": (
        [
            [part(name="f", id="x"), part(name="g", id="y")],
            [part(A[:3]), part(B[:3])],
            [part(A[3:]), part(B[3:])],
        ],
        TWO,
    ),
    "mixed pieces by id, all with index 0": (
        [
            [part(name="f", index=0, id="x"), part(name="g", index=0, id="y")],
            [part(A[:3], index=0, id="x"), part(B[:3], index=0, id="y")],
            [part(A[3:], index=0, id="x"), part(B[3:], index=0, id="y")],
        ],
        TWO,
    ),
    "equal ids with different indexes": (
        [
            [part(A, name="f", index=0, id="x")],
            [part(name="g", index=1, id="x")],
            [part(B, index=1, id="x")],
        ],
        [("x", "f", A), ("x", "g", B)],
    ),
    "indices that leave gaps": (
        [[part(A, name="f", index=3, id="x")], [part(B, name="g", index=1, id="y")]],
        TWO,
    ),
}


@pytest.mark.parametrize(("chunks", "calls"), SHAPES.values(), ids=SHAPES)
def test_each_form_of_calls_is_read(chunks: list[list[Piece]], calls: list[Call]) -> None:
    assert joined_calls(deltas_of(chunks)) == calls


def test_ids_and_names_are_passed_on_when_they_are_known() -> None:
    assert deltas_of(
        [
            [part(name="f", index=0)],
            [part("{", index=0, id="x")],
            [part("}", name="f", index=0, id="x")],
        ]
    ) == [
        ToolCallChunk(0, None, "f", ""),
        ToolCallChunk(0, "x", None, "{"),
        ToolCallChunk(0, None, None, "}"),
    ]


def test_broken_arguments_are_passed_on_as_they_are() -> None:
    assert joined_calls(
        deltas_of([[part('{"a', name="f", index=0)], [part("}", name="f", index=0)]])
    ) == [(None, "f", '{"a}')]


def test_calls_are_limited() -> None:
    slots = CallSlots()
    slots.feed([part(A, name="f", index=n) for n in range(MAX_CALLS)])
    assert len(slots) == MAX_CALLS
    with pytest.raises(ModelIncomplete, match="too many tools"):
        slots.feed([part(A, name="f", index=MAX_CALLS)])


def test_the_search_for_the_end_of_arguments_is_bounded() -> None:
    pieces = ['{"a": "', *["}"] * 3000, '"}']
    assert joined_calls(deltas_of([[part(piece, name="f", index=0)] for piece in pieces])) == [
        (None, "f", "".join(pieces))
    ]


values = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20), max_size=4)


@given(st.lists(st.tuples(st.sampled_from("fgh"), values), min_size=1, max_size=4), st.data())
def test_well_formed_calls_in_any_pieces_are_put_together(
    calls: list[tuple[str, dict[str, JsonValue]]], data: st.DataObject
) -> None:
    texts = [json.dumps(arguments) for _, arguments in calls]
    firsts = [part("", name=name, index=n, id=f"i{n}") for n, (name, _) in enumerate(calls)]
    rests: list[list[Piece]] = []
    for n, text in enumerate(texts):
        cut = data.draw(st.integers(0, len(text)))
        rests += [[part(text[:cut], index=n)], [part(text[cut:], index=n)]]
    order = sorted(rests, key=lambda piece: data.draw(st.integers(0, 3)) + 0 * len(piece))
    by_call = [iter([r for r in rests if r[0]["index"] == n]) for n in range(len(calls))]
    mixed = [next(by_call[int(str(piece[0]["index"]))]) for piece in order]
    assert joined_calls(deltas_of([firsts, *mixed])) == [
        (f"i{n}", name, texts[n]) for n, (name, _) in enumerate(calls)
    ]
