"""Patterns of schemas, run by an engine that never backtracks, and only where their cost is bounded.

The engine is that of Rust, which pydantic brings along. Patterns are written for ECMA-262: what means something else to the
engine is translated. What it cannot run (lookaround, back references), or not within bounds, is not run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

_SIZE = 20_000
"""States of a compiled pattern, roughly: compiling takes some milliseconds then."""

_STEPS = 4_000_000
"""States times characters: the most that one search may have to do. It cannot be interrupted."""

_PIECE: Final = re.compile(r"\\[pP]\{[^}]*\}|\\.|\{\d{1,6}(?:,\d{0,6})?\}|.", re.DOTALL)
_OUTSIDE: Final = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
    r"\b": r"(?-u:\b)",
    r"\<": "<",
    r"\>": ">",
}
_WITHIN: Final = _OUTSIDE | {r"\b": r"\x08", "[": r"\[", "&": r"\&", "~": r"\~"}
_CLASS = 8
"""States of a class of characters, roughly: those beyond ASCII are several bytes each."""

_CLASSES = frozenset({".", r"\d", r"\w", r"\s", r"\p"})
_UNICODE = 400
"""The same of one that Unicode defines."""


@dataclass(frozen=True, slots=True)
class _Runnable:
    engine: SchemaValidator
    size: int


class _Odd(Exception):
    """It is written in a way that the engine would understand otherwise, or it is too large."""


def occurs(pattern: str, text: str, /) -> bool | None:
    """Whether the pattern is found in the text. None: it is not run."""
    runnable = _compiled(pattern)
    if runnable is None or runnable.size * len(text) > _STEPS:
        return None
    return runnable.engine.isinstance_python(text)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> _Runnable | None:
    try:
        translated, size = _translate(pattern)
        engine = SchemaValidator(
            core_schema.str_schema(pattern=translated, regex_engine="rust-regex")
        )
    except (_Odd, SchemaError):
        return None
    return _Runnable(engine, size)


# ---------------------------------------------------------------- from ECMA-262 to the engine
def _translate(pattern: str) -> tuple[str, int]:
    """The pattern for the engine, and its size. Raises `_Odd`."""
    translated: list[str] = []
    size = _Size()
    pieces: Iterator[str] = iter(_PIECE.findall(pattern))
    for piece in pieces:
        if piece == "[":
            members = list(_class(pieces))
            translated += ["[", *members, "]"]
            size.atom(_weight(members))
        else:
            translated.append(_OUTSIDE.get(piece, piece))
            size.take(piece)
    return "".join(translated), size.whole


def _class(pieces: Iterator[str]) -> Iterator[str]:
    """The members of a class of characters, up to its end."""
    before = ""
    for piece in pieces:
        if piece == "]":
            if before in {"", "^"}:
                break  # no character, or any: the engine has no such class
            return
        if piece == before == "-":
            break  # a difference of classes, to the engine
        yield _WITHIN.get(piece, piece)
        before = piece
    raise _Odd


def _weight(members: list[str]) -> int:
    return sum(_UNICODE for each in members if each.lower().startswith(r"\p")) or _CLASS


class _Size:
    """Counts states: what stands in a repetition is compiled as often as it may come."""

    def __init__(self) -> None:
        self._groups = [0]
        self._last = 0

    def take(self, piece: str) -> None:
        if piece == "(":
            self._groups.append(0)
        elif piece == ")":
            if len(self._groups) == 1:
                raise _Odd
            self.atom(self._groups.pop() + 1)
        elif piece == "{":
            raise _Odd  # a brace that repeats nothing
        elif piece.startswith("{"):
            times = max(int(number or 0) for number in piece[1:-1].split(","))
            repeated = self._last * max(times, 1)
            self.atom(repeated - self._last)
            self._last = repeated
        elif piece not in "*+?":
            self.atom(_weight([piece]) if piece[:2].lower() in _CLASSES else 1)

    def atom(self, size: int) -> None:
        self._groups[-1] += size
        self._last = size
        if size > _SIZE or self._groups[-1] > _SIZE:
            raise _Odd

    @property
    def whole(self) -> int:
        if len(self._groups) > 1:
            raise _Odd
        return self._groups[0]
