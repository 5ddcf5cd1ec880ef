"""Results of functions: what becomes text, JSON or media, what cannot, and what generators yield before."""

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
from passback.core.text import mended

MediaKind: TypeAlias = Literal["image", "audio", "file"]

MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)

MEDIA_CHARACTERS = 512 * 1024
"""Of all media of one result, in base64: with a text as long as it may be the result is one that can be stored."""

_BYTES: Final[tuple[type, ...]] = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool, said outright: it may be returned, or yielded, and then nothing more is asked of the generator.

    Args:
        value: what a tool may return, or bytes.
        media_type: of bytes, such as `image/png`: the result is an image, a sound or a file.
    """

    value: object
    media_type: str | None = None


class NoResult(Exception):
    """Why a value cannot be a result. Its text names types, and shows nothing of values."""


def content_of(value: object, /) -> Content:
    """What a tool gave, as the content of its result. JSON has no infinity and no NaN: there they are null.

    Raises:
        NoResult: it cannot be a result.
    """
    if not isinstance(value, Result):
        return _text(value)
    if value.media_type is None:
        return content_of(value.value)
    return (_medium(value.value, value.media_type),)


def media_kind(media_type: str, /) -> MediaKind:
    match media_type.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case _:
            return "file"


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if _is_bytes(value):
        raise NoResult(
            f"{_type_name(value)} without a media type; give Result(value, media_type='image/png')"
        )
    foreign: list[str] = []

    def refuse(inner: object) -> None:
        foreign.append(_type_name(inner))
        raise TypeError

    failures = (PydanticSerializationError, TypeError, ValueError, RecursionError)
    with suppress(*failures):
        return to_json(value, fallback=refuse, inf_nan_mode="null").decode()
    with suppress(*failures):  # what was wrong may be half a character
        return to_json(_mended(value, refuse), fallback=refuse, inf_nan_mode="null").decode()
    whole, inner = _type_name(value), "".join(foreign[:1])
    raise NoResult(
        f"a value of type {whole}{f' that holds {inner}' if inner not in ('', whole) else ''}, "
        "which cannot be written as JSON"
    )


def _mended(value: object, refuse: Callable[[object], object]) -> object:
    """Return the value for the same writer, with U+FFFD for halves of characters in its texts and keys.

    Raises:
        PydanticSerializationError, TypeError, ValueError, RecursionError: something else is wrong with it.
    """
    match value:
        case str():
            return mended(value)
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return {
                mended(key) if isinstance(key, str) else key: _mended(each, refuse)
                for key, each in pairs
            }
        case list() | tuple() | set() | frozenset():
            return [_mended(each, refuse) for each in cast("Iterable[object]", value)]
        case None | int() | float():
            return value
        case _:
            return _mended(to_jsonable_python(value, fallback=refuse), refuse)


def _medium(value: object, media_type: str) -> MediaPart:
    if not _is_bytes(value):
        raise NoResult(f"{_type_name(value)} with a media type, which only bytes have")
    if not MEDIA_TYPE.fullmatch(media_type):
        raise NoResult("bytes with a media type that is none, such as image/png")
    data = b64encode(value).decode()
    if len(data) > MEDIA_CHARACTERS:
        raise NoResult(f"more than {MEDIA_CHARACTERS // 4 * 3} bytes of {media_type}")
    return MediaPart(media_kind(media_type), f"data:{media_type};base64,{data}", media_type)


def _is_bytes(value: object) -> TypeGuard[bytes | bytearray]:
    return isinstance(value, _BYTES)


def _type_name(value: object) -> str:
    return _name(type(value))


def _name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# ---------------------------------------------------------------- generators
_SETTLED = 0.06  # seconds; longer than the time in which further words of a call are left out


class Yields:
    """What one generator yields: the last value, or a `Result`, is its content, and each text or JSON before is progress.

    A value is told as progress when the next one comes, or when none has come for a moment: that a generator goes on
    working behind it says that it is not the last. Called from the thread that the generator runs in.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.content: Content = "null"
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._untold: deque[str] = deque(maxlen=1)
        self._since = -inf
        self._watched = False
        self._over = False

    def __call__(self, value: object, /) -> bool:
        """Take the next value; True: it is the result. Raises NoResult."""
        content = content_of(value)
        self._tell_untold()
        self.content = content
        if isinstance(value, Result):
            return True
        self._untold.append(cast("str", content))
        self._since = monotonic()
        if not self._watched:
            self._watched = True
            self._loop.call_soon_threadsafe(self._watch)
        return False

    def result(self, given: object, /) -> Content:
        """The result, where the function has given this in the end: what it yielded before is progress. Raises NoResult."""
        if given is None:
            return self.content
        self._tell_untold()
        return content_of(given)

    def end(self) -> None:
        """Tell nothing more."""
        self._over = True

    def _tell_untold(self) -> None:
        try:
            text = self._untold.pop()
        except IndexError:  # it was told, or there was none
            return
        self._tell(text)

    def _watch(self) -> None:
        if self._over:
            return
        left = self._since + _SETTLED - monotonic()
        if left > 0:
            self._loop.call_later(left, self._watch)
        else:
            self._watched = False
            self._tell_untold()


# ---------------------------------------------------------------- annotations
_YIELDS_ASYNC: Final = (AsyncGenerator, AsyncIterator, AsyncIterable)
_YIELDS: Final = (Generator, Iterator, Iterable)
_HAVE_VALUES: Final[tuple[type, ...]] = (Iterable, AsyncIterable, Awaitable, int, float)
_RESULTS: Final = (
    "a result is text, JSON, a dataclass, a pydantic model, or Result(value, media_type=...)"
)


def refuse_return(function: Callable[..., Any], hint: object, label: str, /) -> None:
    """Raise ConfigurationError where the annotation of what a tool returns says that it can have no result."""
    if hasattr(function, "__wrapped__"):
        return  # the annotation is that of another function
    members = list(_members(hint))
    for yields, kind in (
        (inspect.isasyncgenfunction(function), AsyncGenerator),
        (inspect.isgeneratorfunction(function), Generator),
    ):
        if yields and all(_contradicts(kind, one) for one in members):
            raise ConfigurationError(
                f"tool {label!r}: it yields, so it returns {kind.__name__.replace('Generator', 'Iterator')}[...], "
                f"not {_shown(hint)}"
            )
    given = [one for member in members for one in _given(member) if one is not types.NoneType]
    if given and all(map(_is_no_result, given)):
        raise ConfigurationError(
            f"tool {label!r}: what it returns, {_shown(given[0])}, cannot be a result; {_RESULTS}"
        )


def _members(hint: object) -> Iterator[object]:
    """What a union is made of; anything else is its only member."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        yield from _members(arguments[0])
    elif origin in (typing.Union, types.UnionType):
        for one in arguments:
            yield from _members(one)
    else:
        yield hint


def _given(hint: object) -> Iterator[object]:
    """What a result may be where a function returns this: of what yields, or is awaited, the values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    inner: tuple[object, ...]
    if origin is Coroutine:
        inner = arguments[2:]
    elif origin in (*_YIELDS_ASYNC, Awaitable):
        inner = arguments[:1]
    elif origin in _YIELDS:
        inner = (*arguments[:1], *arguments[2:])  # a plain generator may return its result
    else:
        yield hint
        return
    for one in inner:
        for member in _members(one):
            yield from _given(member)


def _class_of(hint: object) -> type[Any] | None:
    kind = typing.get_origin(hint) or hint
    return cast("type[Any]", kind) if isinstance(kind, type) else None


def _contradicts(kind: type, hint: object) -> bool:
    """Whether a function that yields cannot return this."""
    said = _class_of(hint)
    if said is None or said is Any or _is_protocol(said):
        return False
    return not issubclass(kind, said)


def _is_no_result(hint: object) -> bool:
    """Whether no value of this type can be a result, as far as can be known."""
    if (typing.get_origin(hint) or hint) is Callable:
        return True
    kind = _class_of(hint)
    if kind is None or kind is Any:
        return False
    return issubclass(kind, _BYTES) or not _may_have_json(kind)


def _may_have_json(kind: type) -> bool:
    # of a protocol or an abstract class, values are of classes that others write
    is_open = (_is_protocol(kind), inspect.isabstract(kind))
    if any((issubclass(kind, _HAVE_VALUES), is_dataclass(kind), *is_open)):
        return True
    try:
        TypeAdapter(kind)
    except PydanticSchemaGenerationError:
        return False
    return True


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _shown(hint: object) -> str:
    return _name(hint) if isinstance(hint, type) else str(hint).replace("typing.", "")
