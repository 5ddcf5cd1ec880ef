"""Whether the arguments of a call fit the schema that its tool was declared with (DESIGN promise P4)."""

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
from passback.places import Places, places_of
from passback.schemas.declared import KEYS, anchors, target
from passback.schemas.keywords import VALIDATORS, Reference, TooMuch, until
from passback.schemas.metaschemas import dialect

_AT_ONCE: Final = 16 * 1024
"""Characters of schema and arguments that may be checked on the event loop."""

_AT_ONCE_SECONDS = 0.005
_SECONDS = 0.25
"""Of CPU time: for a check on the event loop, and for one in a thread."""

_MAX_EXPONENT = 1023
"""Of two, of a number: those beyond a double are no numbers elsewhere."""

_ERRORS = 3
_WORDS = 200
_BRIEF = 100
"""Characters of a value, of a place, or of one error."""

WAIT = 60.0
"""Seconds in which a check in a thread is begun; then it is given up."""

PLACES: RunVar[Places] = RunVar("places for checks of arguments")
"""Those of an event loop. Where none are set, there is one: a check keeps the interpreter busy."""

_TOO_COMPLEX: Final = "it is too complex to be checked against its schema"
_TOO_LATE: Final = "it could not be checked against its schema: too many others are; try again"
_UNFIT: Final = "its schema cannot be applied: a reference in it leads nowhere"

_best_match = cast("Callable[[Iterable[ValidationError]], ValidationError]", best_match)


async def objection(spec: ToolSpec, arguments: str, key: ConversationKey, /) -> str | None:
    """What is wrong with the arguments, for the model to read: up to three errors, each with its place. None: nothing.

    A check that takes long goes on in a thread, one at a time, for which the owners of conversations take turns, and is
    given up at last: what cannot be checked does not fit. `arguments` is JSON.
    """
    schema = to_json(spec.parameters)
    if len(schema) + len(arguments) <= _AT_ONCE:
        with suppress(TooMuch):
            return judge(schema, arguments, _AT_ONCE_SECONDS)
    try:
        async with places_of(PLACES, 1, WAIT).one(key):
            alone = anyio.CapacityLimiter(1)  # the places say how many there are
            return await anyio.to_thread.run_sync(judge, schema, arguments, _SECONDS, limiter=alone)
    except TooMuch:
        return _TOO_COMPLEX
    except TimeoutError:
        return _TOO_LATE


def judge(schema: bytes, text: str, seconds: float, /, *, each: bool = False) -> str | None:
    """As `objection`, here and now, of any JSON; `each`: the schema is of the items of a list.

    Raises:
        TooMuch: after `seconds`, of this thread's CPU time.
    """
    token = until.set(thread_time() + seconds)
    try:
        fits, given = _compiled(schema), _given(from_json(text))
        items = ((f"$[{n}]", item) for n, item in enumerate(given)) if each else (("$", given),)
        errors = ((at, error) for at, item in items for error in fits.iter_errors(item))
        return "; ".join(_words(at, error) for at, error in islice(errors, _ERRORS)) or None
    except LookupError:
        return _UNFIT
    except (RecursionError, ArithmeticError):
        return _TOO_COMPLEX
    finally:
        until.reset(token)


def _words(at: str, error: ValidationError) -> str:
    best = _best_match([error])
    place = f"{at}{best.json_path.removeprefix('$')}"
    return f"at {place[:_WORDS]}: {best.message[:_WORDS]}"


# ---------------------------------------------------------------- the schema
@lru_cache(maxsize=64)
def _compiled(text: bytes) -> Validator:
    schema: dict[str, JsonValue] = from_json(text)
    named = anchors(schema)
    uri = dialect(schema)
    copies: dict[int, Any] = {}
    links: list[tuple[Reference, JsonValue]] = []

    def link(reference: str) -> str:
        made = Reference(reference)
        with suppress(LookupError):
            links.append((made, target(schema, named, reference)))
            return made
        return reference

    root = _declared(schema, copies, link)
    for made, to in links:
        made.target = to if isinstance(to, bool) else copies[id(to)]
    return VALIDATORS[uri or ""](root)


def _declared(value: JsonValue, copies: dict[int, Any], link: Callable[[str], str]) -> Any:
    """A copy whose values are brief in messages, whose references are linked, and that has no names of its own."""
    if isinstance(value, dict):
        copies[id(value)] = copy = _Object()
        for key, each in value.items():
            if key in {"$schema", "$id"} and isinstance(each, str):
                continue  # jsonschema would leave the bounded keywords for those of the named dialect
            is_reference = key in KEYS and isinstance(each, str)
            copy[key] = link(str(each)) if is_reference else _declared(each, copies, link)
        return copy
    if isinstance(value, list):
        return _List(_declared(each, copies, link) for each in value)
    return _Text(value) if isinstance(value, str) else value


# ---------------------------------------------------------------- the arguments
def _given(value: JsonValue) -> Any:
    """A copy that is brief in messages. Raises OverflowError for numbers that are none elsewhere."""
    if isinstance(value, dict):
        return _GivenObject((_Text(key), _given(each)) for key, each in value.items())
    if isinstance(value, list):
        return _GivenList(map(_given, value))
    if isinstance(value, str):
        return _Text(value)
    if isinstance(value, int) and value.bit_length() > _MAX_EXPONENT:
        raise OverflowError
    if isinstance(value, float) and value - value != 0:
        raise OverflowError
    return value


# ---------------------------------------------------------------- what messages show
def _brief(value: object) -> str:
    text = ""
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        text += piece[: _BRIEF + 1]
        if len(text) > _BRIEF:
            return f"{text[:_BRIEF]}..."
    return text


class _Text(str):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return _brief(str(self[: _BRIEF + 1]))


class _List(list[Any]):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return _brief(self)


class _Object(dict[str, Any]):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return _brief(self)


class _GivenList(list[Any]):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return "the list"


class _GivenObject(dict[str, Any]):
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return "the object"
