"""Results of functions: conversion to text, JSON or media, and the progress of generators."""

import asyncio
import inspect
import re
import types
import typing
from base64 import b64encode
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from math import inf
from time import monotonic
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeGuard, cast

from pydantic import PydanticSchemaGenerationError, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from passback.core.errors import ConfigurationError
from passback.core.messages import Content, MediaPart
from passback.core.text import replace_surrogates

MediaKind: TypeAlias = Literal["image", "audio", "file"]

MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)

# In base64, for all media of one result. With a text of the greatest length beside them, the result
# can still be stored.
MEDIA_CHARACTERS = 512 * 1024

_BYTES: Final[tuple[type, ...]] = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool, to be returned or yielded; a generator is not resumed after it.

    Args:
        value: any value that a tool may return, or bytes.
        media_type: of bytes, such as `image/png`: the result is an image, a sound or a file.
    """

    value: object
    media_type: str | None = None


class NoResult(Exception):
    """A value cannot be a result. The text names its type, and shows nothing of the value."""


def content_of(value: object, /) -> Content:
    """Return the value of a tool as the content of a result.

    Infinity and NaN become null, because JSON has neither.

    Raises:
        NoResult: the value cannot be a result.
    """
    if not isinstance(value, Result):
        return _result_text(value)
    given, media_type = value.value, value.media_type
    if media_type is None:
        return content_of(given)
    if not _is_bytes(given):
        raise NoResult(f"{_class_name(type(given))} with a media type, which only bytes have")
    if not MEDIA_TYPE.fullmatch(media_type):
        raise NoResult("bytes with an invalid media type; a valid one is image/png")
    data = b64encode(given).decode()
    if len(data) > MEDIA_CHARACTERS:
        raise NoResult(f"more than {MEDIA_CHARACTERS // 4 * 3} bytes of {media_type}")
    url = f"data:{media_type};base64,{data}"
    return (MediaPart(media_kind(media_type), url, media_type),)


def media_kind(media_type: str, /) -> MediaKind:
    """Return the kind of content part for a media type."""
    match media_type.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case _:
            return "file"


def _result_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if _is_bytes(value):
        raise NoResult(
            f"{_class_name(type(value))} without a media type; "
            "give Result(value, media_type='image/png')"
        )
    foreign: list[str] = []

    def refuse(inner: object) -> None:
        foreign.append(_class_name(type(inner)))
        raise TypeError

    failures = (PydanticSerializationError, TypeError, ValueError, RecursionError)
    with suppress(*failures):
        return to_json(value, fallback=refuse, inf_nan_mode="null").decode()
    with suppress(*failures):  # perhaps only a lone surrogate was wrong: pydantic refuses them
        return to_json(
            _without_surrogates(value, refuse), fallback=refuse, inf_nan_mode="null"
        ).decode()
    whole, inner = _class_name(type(value)), "".join(foreign[:1])
    raise NoResult(
        f"a value of type {whole}{f' that holds {inner}' if inner not in ('', whole) else ''}, "
        "which cannot be written as JSON"
    )


def _without_surrogates(value: object, refuse: Callable[[object], object]) -> object:
    """Return the value with U+FFFD for each lone surrogate in its texts and keys.

    Raises:
        PydanticSerializationError, TypeError, ValueError, RecursionError: it cannot be JSON at all.
    """
    match value:
        case str():
            return replace_surrogates(value)
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return {
                replace_surrogates(key) if isinstance(key, str) else key: _without_surrogates(
                    each, refuse
                )
                for key, each in pairs
            }
        case list() | tuple() | set() | frozenset():
            return [_without_surrogates(each, refuse) for each in cast("Iterable[object]", value)]
        case None | int() | float():
            return value
        case _:
            return _without_surrogates(to_jsonable_python(value, fallback=refuse), refuse)


def _is_bytes(value: object) -> TypeGuard[bytes | bytearray]:
    return isinstance(value, _BYTES)


def _class_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# Seconds without a further value before the pending one is sent. Longer than the interval in which
# further progress of a call is dropped.
_PROGRESS_DELAY = 0.06


class Yields:
    """Collect the values of one generator: the last, or a `Result`, is its content.

    Each text or JSON before the last is progress. A value is sent as progress when the next one
    comes, or when none has come for `_PROGRESS_DELAY` seconds: a generator that works on after a
    value shows that it is not the last. Called from the thread that the generator runs in.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.content: Content = "null"
        self._send_progress = tell
        self._loop = asyncio.get_running_loop()
        self._pending: deque[str] = deque(maxlen=1)
        self._pending_since = -inf
        self._timer_runs = False
        self._ended = False

    def __call__(self, value: object, /) -> bool:
        """Take the next value; return True if it is the result. Raises NoResult."""
        content = content_of(value)
        self._send_pending()
        self.content = content
        if isinstance(value, Result):
            return True
        self._pending.append(cast("str", content))
        self._pending_since = monotonic()
        if not self._timer_runs:
            self._timer_runs = True
            # the caller may be a worker thread; timers belong to the loop's
            self._loop.call_soon_threadsafe(self._send_when_settled)
        return False

    def result(self, given: object, /) -> Content:
        """Return the result of a function that returned `given` in the end.

        None: the last value that it yielded is the result. Raises NoResult.
        """
        if given is None:
            return self.content
        self._send_pending()
        return content_of(given)

    def end(self) -> None:
        """Send no more progress."""
        self._ended = True

    def _send_pending(self) -> None:
        try:
            text = self._pending.pop()
        except IndexError:  # the timer and the generator's thread may both come here
            return
        self._send_progress(text)

    def _send_when_settled(self) -> None:
        if self._ended:
            return
        left = self._pending_since + _PROGRESS_DELAY - monotonic()
        if left > 0:
            self._loop.call_later(left, self._send_when_settled)
        else:
            self._timer_runs = False
            self._send_pending()


_ASYNC_GENERATOR_TYPES: Final = (AsyncGenerator, AsyncIterator, AsyncIterable)
_GENERATOR_TYPES: Final = (Generator, Iterator, Iterable)
_VALUE_TYPES: Final[tuple[type, ...]] = (Iterable, AsyncIterable, Awaitable, int, float)
_RESULT_RULE: Final = (
    "a result is text, JSON, a dataclass, a pydantic model, or Result(value, media_type=...)"
)


def refuse_return(function: Callable[..., Any], hint: object, label: str, /) -> None:
    """Raise ConfigurationError if by its return annotation a tool can have no result."""
    if hasattr(function, "__wrapped__"):
        return  # a decorated function: the annotation is that of the function inside
    members = list(_union_members(hint))
    for yields, kind in (
        (inspect.isasyncgenfunction(function), AsyncGenerator),
        (inspect.isgeneratorfunction(function), Generator),
    ):
        if yields and all(_excludes_generator(kind, one) for one in members):
            raise ConfigurationError(
                f"tool {label!r}: it yields, so it returns "
                f"{kind.__name__.replace('Generator', 'Iterator')}[...], not {_shown_hint(hint)}"
            )
    given = [
        one for member in members for one in _result_types(member) if one is not types.NoneType
    ]
    if given and all(map(_cannot_be_result, given)):
        raise ConfigurationError(
            f"tool {label!r}: what it returns, {_shown_hint(given[0])}, cannot be a result; "
            f"{_RESULT_RULE}"
        )


def _union_members(hint: object) -> Iterator[object]:
    """Yield the members of a union; any other hint is its own only member."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        yield from _union_members(arguments[0])
    elif origin in (typing.Union, types.UnionType):
        for one in arguments:
            yield from _union_members(one)
    else:
        yield hint


def _result_types(hint: object) -> Iterator[object]:
    """Yield the types that a result may have: for generators and awaitables, those inside."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    inner: tuple[object, ...]
    if origin is Coroutine:
        inner = arguments[2:]
    elif origin in (*_ASYNC_GENERATOR_TYPES, Awaitable):
        inner = arguments[:1]
    elif origin in _GENERATOR_TYPES:
        inner = (*arguments[:1], *arguments[2:])  # a plain generator may return its result
    else:
        yield hint
        return
    for one in inner:
        for member in _union_members(one):
            yield from _result_types(member)


def _class_of(hint: object) -> type[Any] | None:
    kind = typing.get_origin(hint) or hint
    return cast("type[Any]", kind) if isinstance(kind, type) else None


def _excludes_generator(kind: type, hint: object) -> bool:
    """Return True if a function that yields cannot have this return annotation."""
    declared = _class_of(hint)
    if declared is None or declared is Any or _is_protocol(declared):
        return False  # nothing is known of the class
    return not issubclass(kind, declared)


def _cannot_be_result(hint: object) -> bool:
    """Return True if certainly no value of this type can be a result."""
    if (typing.get_origin(hint) or hint) is Callable:
        return True
    kind = _class_of(hint)
    if kind is None or kind is Any:
        return False
    if issubclass(kind, _BYTES):
        return True
    # values of a protocol or an abstract class are of subclasses that are not known here
    is_open = _is_protocol(kind) or inspect.isabstract(kind)
    if is_open or issubclass(kind, _VALUE_TYPES) or is_dataclass(kind):
        return False
    try:
        TypeAdapter(kind)
    except PydanticSchemaGenerationError:
        return True
    return False


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _shown_hint(hint: object) -> str:
    return _class_name(hint) if isinstance(hint, type) else str(hint).replace("typing.", "")
