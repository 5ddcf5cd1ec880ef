"""Checks of the arguments of a call against the schema of its tool (P4)."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from time import thread_time
from typing import Any, Final, cast

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from jsonschema.exceptions import (
    ValidationError,
    best_match,  # pyright: ignore[reportUnknownVariableType]
)
from jsonschema.protocols import Validator
from pydantic import JsonValue
from pydantic_core import from_json, to_json
from typing_extensions import override

from passback.core.messages import ConversationKey, ToolSpec
from passback.pacing import FairLimiter, limiter_of
from passback.schemas.checks import (
    REFERENCE_KEYWORDS,
    dialect_of,
    resolve_reference,
    schema_anchors,
)
from passback.schemas.keywords import VALIDATORS, CheckTimeout, Reference, check_deadline

# Characters of schema and arguments that may be checked on the event loop.
_INLINE_SIZE: Final = 16 * 1024

_INLINE_TIMEOUT = 0.005  # seconds of CPU time for a check on the event loop
_THREAD_TIMEOUT = 0.25  # seconds of CPU time for a check in a thread

_MAX_EXPONENT = 1023  # of 2: other parsers read larger numbers as infinity

_MAX_ERRORS = 3  # reported to the model
_MAX_ERROR_TEXT = 200  # characters of one error, and of its place
_MAX_VALUE_TEXT = 100  # characters of a value in an error

CHECK_WAIT = 60.0  # seconds until a check in a thread has to begin

# The places of an event loop. By default there is one: a check keeps the interpreter busy.
CHECK_PLACES: RunVar[FairLimiter] = RunVar("places for checks of arguments")

_TOO_COMPLEX: Final = "it is too complex to be checked against its schema"
_TOO_LATE: Final = "it could not be checked against its schema: too many others are; try again"
_UNFIT: Final = "its schema cannot be applied: a reference in it leads nowhere"

_best_match = cast("Callable[[Iterable[ValidationError]], ValidationError]", best_match)


async def find_objection(spec: ToolSpec, arguments: str, key: ConversationKey, /) -> str | None:
    """Return what is wrong with arguments, for the model: up to three errors; None if nothing.

    `arguments` is JSON. A check that takes long continues in a thread, one at a time, with turns by
    owner, until its time is up. Arguments that cannot be checked do not fit.
    """
    schema = to_json(spec.parameters)
    if len(schema) + len(arguments) <= _INLINE_SIZE:
        with suppress(CheckTimeout):
            return check_json(schema, arguments, _INLINE_TIMEOUT)
    try:
        async with limiter_of(CHECK_PLACES, 1, CHECK_WAIT).acquire(key):
            alone = anyio.CapacityLimiter(1)  # the places say how many there are
            return await anyio.to_thread.run_sync(
                check_json, schema, arguments, _THREAD_TIMEOUT, limiter=alone
            )
    except CheckTimeout:
        return _TOO_COMPLEX
    except TimeoutError:
        return _TOO_LATE


def check_json(schema: bytes, text: str, seconds: float, /, *, each: bool = False) -> str | None:
    """Check any JSON at once, as `find_objection`; `each`: the schema is for the items of a list.

    Raises:
        CheckTimeout: it takes more than `seconds` of this thread's CPU time.
    """
    token = check_deadline.set(thread_time() + seconds)
    try:
        validator, given = _compile_schema(schema), _copy_arguments(from_json(text))
        items = ((f"$[{n}]", item) for n, item in enumerate(given)) if each else (("$", given),)
        # lazy: the check ends with the last error that is reported
        errors = ((at, error) for at, item in items for error in validator.iter_errors(item))
        texts: list[str] = []
        for at, error in islice(errors, _MAX_ERRORS):
            best = _best_match([error])
            place = f"{at}{best.json_path.removeprefix('$')}"
            texts.append(f"at {place[:_MAX_ERROR_TEXT]}: {best.message[:_MAX_ERROR_TEXT]}")
        return "; ".join(texts) or None
    except LookupError:
        return _UNFIT
    except (RecursionError, ArithmeticError):
        return _TOO_COMPLEX
    finally:
        check_deadline.reset(token)


@lru_cache(maxsize=64)
def _compile_schema(text: bytes) -> Validator:
    schema: dict[str, JsonValue] = from_json(text)
    named = schema_anchors(schema)
    uri = dialect_of(schema)
    copies: dict[int, Any] = {}
    links: list[tuple[Reference, JsonValue]] = []

    def link_reference(reference: str) -> str:
        made = Reference(reference)
        with suppress(LookupError):
            # linked when all is copied: the target may come later, or be around it
            links.append((made, resolve_reference(schema, named, reference)))
            return made
        return reference

    root = _copy_schema(schema, copies, link_reference)
    for made, to in links:
        made.target = to if isinstance(to, bool) else copies[id(to)]
    return VALIDATORS[uri or ""](root)


def _copy_schema(
    value: JsonValue, copies: dict[int, Any], link_reference: Callable[[str], str]
) -> Any:
    """Return a copy of a schema whose references are linked and whose values are short in errors.

    It has no `$schema` and no `$id`.
    """
    if isinstance(value, dict):
        copies[id(value)] = copy = _ShortObject()
        for key, each in value.items():
            if key in {"$schema", "$id"} and isinstance(each, str):
                # jsonschema would replace the bounded keywords by those of the named dialect
                continue
            is_reference = key in REFERENCE_KEYWORDS and isinstance(each, str)
            copy[key] = (
                link_reference(str(each))
                if is_reference
                else _copy_schema(each, copies, link_reference)
            )
        return copy
    if isinstance(value, list):
        return _ShortList(_copy_schema(each, copies, link_reference) for each in value)
    return _ShortText(value) if isinstance(value, str) else value


def _copy_arguments(value: JsonValue) -> Any:
    """Return a copy of arguments whose values are short in errors.

    Raises:
        OverflowError: a number is beyond a double.
    """
    if isinstance(value, dict):
        return _ArgumentObject(
            (_ShortText(key), _copy_arguments(each)) for key, each in value.items()
        )
    if isinstance(value, list):
        return _ArgumentList(map(_copy_arguments, value))
    if isinstance(value, str):
        return _ShortText(value)
    if isinstance(value, int) and value.bit_length() > _MAX_EXPONENT:
        raise OverflowError
    if isinstance(value, float) and value - value != 0:  # infinity or NaN
        raise OverflowError
    return value


def _shorten_repr(value: object) -> str:
    text = ""
    # piece by piece, so that a large value is not encoded whole
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        text += piece[: _MAX_VALUE_TEXT + 1]
        if len(text) > _MAX_VALUE_TEXT:
            return f"{text[:_MAX_VALUE_TEXT]}..."
    return text


class _ShortText(str):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return _shorten_repr(str(self[: _MAX_VALUE_TEXT + 1]))


class _ShortList(list[Any]):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return _shorten_repr(self)


class _ShortObject(dict[str, Any]):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return _shorten_repr(self)


class _ArgumentList(list[Any]):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return "the list"


class _ArgumentObject(dict[str, Any]):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return "the object"
