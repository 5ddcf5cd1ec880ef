"""Patterns of schemas, run by an engine that never backtracks, and only at bounded cost.

The engine is Rust's regex, which comes with pydantic. Patterns are written for ECMA-262: what means
something else to the engine is translated. Patterns that it cannot run (lookaround, back
references), or not within bounds, are not run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

# Of a compiled pattern, estimated: compiling takes some milliseconds then.
_MAX_STATES = 20_000

# States times characters of one search, which cannot be interrupted.
_MAX_STEPS = 4_000_000

_PIECE: Final = re.compile(r"\\[pP]\{[^}]*\}|\\.|\{\d{1,6}(?:,\d{0,6})?\}|.", re.DOTALL)
_TRANSLATIONS: Final = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
    r"\b": r"(?-u:\b)",
    r"\<": "<",
    r"\>": ">",
}
_CLASS_TRANSLATIONS: Final = _TRANSLATIONS | {r"\b": r"\x08", "[": r"\[", "&": r"\&", "~": r"\~"}
_CLASS_STATES = 8  # of a class, estimated: characters beyond ASCII are several bytes

_CLASSES = frozenset({".", r"\d", r"\w", r"\s", r"\p"})
_UNICODE_STATES = 400  # of a class that Unicode defines


@dataclass(frozen=True, slots=True)
class _CompiledPattern:
    engine: SchemaValidator
    size: int


class _Unsupported(Exception):
    """The pattern is too large, or the engine would read it differently."""


def pattern_occurs(pattern: str, text: str, /) -> bool | None:
    """Return whether a pattern is found in a text; None if it is not run."""
    runnable = _compile_pattern(pattern)
    if runnable is None or runnable.size * len(text) > _MAX_STEPS:
        return None
    return runnable.engine.isinstance_python(text)


@lru_cache(maxsize=64)
def _compile_pattern(pattern: str) -> _CompiledPattern | None:
    translated: list[str] = []
    size = _StateCounter()
    pieces: Iterator[str] = iter(_PIECE.findall(pattern))
    try:
        for piece in pieces:
            if piece == "[":
                members = list(_translate_class(pieces))
                translated += ["[", *members, "]"]
                size.add_states(_count_states(members))
            else:
                translated.append(_TRANSLATIONS.get(piece, piece))
                size.add_piece(piece)
        states = size.total
        schema = core_schema.str_schema(pattern="".join(translated), regex_engine="rust-regex")
        return _CompiledPattern(SchemaValidator(schema), states)
    except (_Unsupported, SchemaError):
        return None


def _translate_class(pieces: Iterator[str]) -> Iterator[str]:
    """Yield the members of a class of characters, up to its end."""
    before = ""
    for piece in pieces:
        if piece == "]":
            if before in {"", "^"}:
                break  # [] and [^] are valid, but not in the engine
            return
        if piece == before == "-":
            break  # the engine reads -- as a difference of classes
        yield _CLASS_TRANSLATIONS.get(piece, piece)
        before = piece
    raise _Unsupported


def _count_states(members: list[str]) -> int:
    return (
        sum(_UNICODE_STATES for each in members if each.lower().startswith(r"\p")) or _CLASS_STATES
    )


class _StateCounter:
    """Counts states. The content of a repetition is compiled as often as it may occur."""

    def __init__(self) -> None:
        self._groups = [0]
        self._last = 0

    def add_piece(self, piece: str) -> None:
        if piece == "(":
            self._groups.append(0)
        elif piece == ")":
            if len(self._groups) == 1:
                raise _Unsupported
            self.add_states(self._groups.pop() + 1)
        elif piece == "{":
            raise _Unsupported  # ECMA-262 reads it as a character
        elif piece.startswith("{"):
            times = max(int(number or 0) for number in piece[1:-1].split(","))
            repeated = self._last * max(times, 1)
            # the content itself is counted already
            self.add_states(repeated - self._last)
            self._last = repeated
        elif piece not in "*+?":
            self.add_states(_count_states([piece]) if piece[:2].lower() in _CLASSES else 1)

    def add_states(self, size: int) -> None:
        self._groups[-1] += size
        self._last = size
        if size > _MAX_STATES or self._groups[-1] > _MAX_STATES:
            raise _Unsupported

    @property
    def total(self) -> int:
        if len(self._groups) > 1:
            raise _Unsupported
        return self._groups[0]
