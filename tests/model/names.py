"""Canonical names: states that differ only in their ids and nonces become one state. Pure.

Ids and nonces are random, and nothing depends on them but whether two are equal. They are renamed
in the order in which they appear: first in the conversation, which all know, then in what one actor
alone knows. New names are as long as the others, so that no size of a record changes.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tests.model.apply_write import Conversation, Held
from typing_extensions import override

from passback.core.conversation.store import LogEntry, QueueEntry

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ValueT = TypeVar("ValueT")
Renames = dict[bytes, bytes]

CURRENT = 1000
"""The version of each conversation that there is; only whether two are equal matters."""

_SHORTEST = 16  # characters of a nonce
_NAME = re.compile(
    rb'("created":\d+|(?:run|msg|call)_[0-9A-Za-z]{34}|(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f]))'
)
_pieces = lru_cache(maxsize=100_000)(_NAME.split)  # most records come again and again
# first digits of names that the conversation does not know
_PRIVATE = b"f"
_SHARED = b"e"  # by a sender, and a write of its that is late
# what no random name begins with
_IS_PUBLIC = re.compile(rb"0{9}")
_IS_PRIVATE = re.compile(rb"f0{8}")
_IS_SHARED = re.compile(rb"e..0{6}")


class Names:
    """Renames ids and nonces. Known ones get the names that are given; others are numbered."""

    def __init__(self, known: Mapping[bytes, bytes], first_digit: bytes = b"0") -> None:
        self.given: Renames = dict(known)
        self._digit = first_digit
        self._count = 0

    def in_bytes(self, text: bytes, /) -> bytes:
        if len(text) < _SHORTEST:
            return text
        pieces = _pieces(text)
        if len(pieces) == 1:
            return text
        renamed = list(pieces)
        renamed[1::2] = map(self._rename, renamed[1::2])
        return b"".join(renamed)

    def in_text(self, text: str, /) -> str:
        if len(text) < _SHORTEST:
            return text
        return self.in_bytes(text.encode()).decode()

    def _rename(self, name: bytes) -> bytes:
        if name[:1] == b'"':  # the time at which a message was recorded
            return b'"created":1'
        kind, digits = name[:-34], name[-34:]
        if name not in self.given and self._digit == _PRIVATE and _IS_SHARED.match(digits):
            return name
        if name not in self.given:
            self._count += 1
            number = b"%0*x" % (len(digits) - 1, self._count)
            self.given[name] = kind + self._digit + number
        return self.given[name]


_WITHOUT_NAMES = frozenset({int, bool, float, NoneType})
_ATOMS = _WITHOUT_NAMES | {str, bytes}


def renamed_conversation(raw: Conversation, /) -> tuple[Conversation, Renames]:
    """Return a conversation with canonical names, and its names by the earlier ones.

    Of its last writes only those under its lease stay. Others were made on one version, and are
    refused since then, unless whoever repeats one knows that it was applied.
    """
    names = Names({})
    in_bytes, in_text = names.in_bytes, names.in_text
    messages = tuple(map(in_bytes, raw.messages))
    logs = tuple(
        (
            _typed(in_text, run_id),
            tuple(LogEntry(e.position, e.size, in_bytes(e.record)) for e in entries),
        )
        for run_id, entries in raw.logs
    )
    queue = tuple(
        QueueEntry(_typed(in_text, each.run_id), in_bytes(each.record)) for each in raw.queue
    )
    lease = raw.lease
    fence = lease.fence if lease else ""
    writes = tuple(each for each in raw.writes if fence and each.startswith(f"{fence}:"))
    renamed = raw._replace(
        version=CURRENT if raw.version else 0,
        messages=messages,
        logs=tuple(sorted(logs)),
        queue=queue,
        head=in_bytes(raw.head),
        fields=tuple((name, in_bytes(record)) for name, record in raw.fields),
        lease=lease and Held(in_text(fence), lease.expires, lease.seq, lease.signal),
        writes=tuple(map(in_text, writes)),
        receipts=tuple(sorted((in_text(name), in_text(to)) for name, to in raw.receipts)),
        runs=tuple(sorted((_typed(in_text, run), in_bytes(record)) for run, record in raw.runs)),
    )
    return renamed, names.given


def renamed_value(raw: ValueT, known: Mapping[bytes, bytes], /) -> ValueT:
    """Return what an actor knows, with the names of the conversation and private ones."""
    return cast("ValueT", _renamed(raw, Names(known, _PRIVATE)))


def shared_value(value: ValueT, sender: int, /) -> ValueT:
    """Return what an actor knows with names that a late write of its may share, also later."""

    class Shared(Names):
        @override
        def _rename(self, name: bytes) -> bytes:
            kind, _, digits = name.rpartition(b"_")
            if not _IS_PRIVATE.match(digits):
                return name
            return (kind + b"_" if kind else b"") + _SHARED + b"%02x" % sender + digits[3:]

    return cast("ValueT", _renamed(value, Shared({})))


def is_known_to_others(name: bytes, /) -> bool:
    """Return whether a name is a canonical one that others than one actor may have."""
    digits = name.rpartition(b"_")[2]
    return bool(_IS_PUBLIC.match(digits) or _IS_SHARED.match(digits))


def _renamed(raw: Any, names: Names) -> Any:
    kind = type(raw)
    if kind in _WITHOUT_NAMES:
        return raw
    if kind is bytes:
        return names.in_bytes(raw)
    if kind is str:
        return names.in_text(raw)
    if isinstance(raw, tuple):
        parts = [_renamed(each, names) for each in raw]
        return tuple(parts) if kind is tuple else kind(*parts)
    if isinstance(raw, dict):
        return {_renamed(name, names): _renamed(each, names) for name, each in raw.items()}
    if is_dataclass(raw):
        return kind(*[_renamed(getattr(raw, name), names) for name in _fields(kind)])
    raise TypeError(kind)


def frozen(value: Any, /) -> Hashable:
    """Return a hashable form of a value: equal for equal ones, every field counts."""
    if type(value) in _ATOMS:
        return cast("Hashable", value)
    if isinstance(value, tuple):
        return type(value).__name__, *map(frozen, value)
    if isinstance(value, dict):
        return tuple(sorted((name, frozen(each)) for name, each in value.items()))
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        return kind.__name__, *[frozen(getattr(value, name)) for name in _fields(kind)]
    raise TypeError(type(value))


def _fields(kind: type["DataclassInstance"]) -> tuple[str, ...]:
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(each.name for each in fields(kind))
    return names


_FIELDS: dict[type["DataclassInstance"], tuple[str, ...]] = {}


def _typed(rename: Callable[[str], str], name: ValueT) -> ValueT:
    """Rename an id of its own type."""
    return rename(name)  # type: ignore[arg-type, return-value]
