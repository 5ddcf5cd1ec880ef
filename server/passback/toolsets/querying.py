"""What a process of its own does for the data tools: a query may take any time and memory, and is killed at last."""

import json
import sys
from contextlib import suppress

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import JsonValue
from pydantic_core import from_json

from passback.toolsets.summary import summary

if sys.platform != "win32":
    import resource

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

MEMORY = 1024 * 1024 * 1024
"""Bytes of address space for a query, of which Python itself takes a third."""


def run_query(text: bytes, expression: str, summarised: bool, most: int, /) -> str:
    """As `answer_query`, in a process that is there for nothing else: its memory is bounded from now on."""
    _confine()
    return answer_query(text, expression, summarised, most)


def answer_query(text: bytes, expression: str, summarised: bool, most: int, /) -> str:
    """What a JMESPath expression finds in a JSON text, or a summary of that, as JSON: of a long one the first `most` characters.

    Raises:
        ValueError: for the model: why there is no result.
    """
    try:
        found: JsonValue = jmespath.search(expression, from_json(text))
        return _dumped(summary(found) if summarised else found, most)
    except JMESPathError as error:
        raise ValueError(f"The expression is not valid JMESPath: {str(error)[:400]}") from None
    except (MemoryError, RecursionError):
        raise ValueError("The expression takes too much memory.") from None
    except (ArithmeticError, TypeError):
        raise ValueError("The expression cannot be applied to these values.") from None


def _confine() -> None:
    if sys.platform == "win32":
        return  # there, time is the only bound
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):  # a lower bound is there already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))


def _dumped(value: JsonValue, most: int) -> str:
    """The same list may stand in a result many times: what is not wanted is not even written.

    Raises:
        ValueError: for the model: there is a number in it that JSON does not have.
    """
    pieces: list[str] = []
    size = 0
    try:
        for piece in _ENCODER.iterencode(value):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                break
    except ValueError:
        raise ValueError(
            "The result has a number that JSON does not have: infinite, none (NaN), or of too many digits."
        ) from None
    return "".join(pieces)[:most]
