"""Reading a JSON body: bounded in size, time and depth, and strict about what JSON is."""

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import TypeVar, TypeVarTuple, cast

import anyio.to_thread
from pydantic import JsonValue
from pydantic_core import from_json
from starlette.requests import Request

from passback.core.errors import BadRequest, BodyTooLarge, RequestTimeout, UnsupportedMedia
from passback.http.answers import owner_of
from passback.http.headers import Headers, headers_of
from passback.http.sending import BODY_CAME
from passback.http.wires import Bodies, RequestLimits

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")

_AT_ONCE = 16 * 1024  # characters that are worked on where the event loop runs
_EACH = 100  # characters that a text counts as more


async def work_on(
    texts: Iterable[str], work: Callable[[*_Args], _Result], /, *args: *_Args
) -> _Result:
    """Return what `work` returns for its arguments, whose texts are `texts`; where they are large, it runs in a thread."""
    if sum(_EACH + len(text) for text in texts) <= _AT_ONCE:
        return work(*args)
    return await anyio.to_thread.run_sync(work, *args)


_CONTAINERS = 100_000
"""Arrays and objects in one body: each costs far more memory than its two bytes."""

_TOO_LARGE = (
    "a number in the JSON is too large: beyond 1.79e308, or an integer of more than 4300 digits"
)

_PLACE = re.compile(r"at line \d+ column \d+\Z")
_PERHAPS_INFINITE = re.compile(rb"[0-9](?:[eE]\+?[0-9]{3}|(?<![0-9][0-9])[0-9]{199})")
"""A large exponent or 200 digits: without either a number is less than 1e300. Begun by a digit, it is looked for fast.

Digits are counted from the first of a run only, or one run of them would be counted from each of its digits.
"""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")


async def read_object(
    request: Request, limits: RequestLimits, bodies: Bodies, /
) -> dict[str, JsonValue]:
    """The body of a request as a JSON object.

    Raises:
        UnsupportedMedia: not declared as plain UTF-8 JSON. This keeps out posts that a foreign page may send
            without asking (forms, text/plain).
        BodyTooLarge: more than `limits.body_bytes`.
        RequestTimeout: not here within `limits.body_seconds`.
        ServerBusy: a part of it is here, and `bodies` has no room to wait for the rest.
        BadRequest: not a JSON object.
    """
    _check_media_type(headers_of(request.scope))
    return _parse_object(await _read(request, limits, bodies), limits)


async def read_optional_object(
    request: Request, limits: RequestLimits, bodies: Bodies, /
) -> dict[str, JsonValue]:
    """As `read_object`; a body without a byte is an empty object, whatever it is declared as."""
    text = await _read(request, limits, bodies)
    if not text:
        return {}
    _check_media_type(headers_of(request.scope))
    return _parse_object(text, limits)


def _parse_object(text: bytes, limits: RequestLimits) -> dict[str, JsonValue]:
    value = parse_json(text, depth=limits.depth)
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return value


def _check_media_type(headers: Headers) -> None:
    media_type, *parameters = headers.get(b"content-type").lower().split(";")
    if media_type.strip() != "application/json":
        raise UnsupportedMedia("the content type has to be application/json")
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name == "charset" and value.strip('"') not in {"utf-8", "utf8"}:
            raise UnsupportedMedia("the charset has to be utf-8")
    if headers.get(b"content-encoding", "identity").lower() != "identity":
        raise UnsupportedMedia("the body has to come without a content encoding")


async def _read(request: Request, limits: RequestLimits, bodies: Bodies) -> bytes:
    if _declared_length(headers_of(request.scope)) > limits.body_bytes:
        raise _too_large(limits)
    if BODY_CAME in request.scope.get("extensions", ()):  # what is there does not wait
        _, body = await _receive(request)
        if len(body) > limits.body_bytes:
            raise _too_large(limits)
        return body
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _gather(request, limits, bodies)
    except TimeoutError:
        late = f"the body did not arrive within {limits.body_seconds:g} seconds"
        raise RequestTimeout(late) from None


async def _gather(request: Request, limits: RequestLimits, bodies: Bodies) -> bytes:
    """Wait for all of a body; what is here of it is counted until the rest is."""
    owner, body, held, more = owner_of(request), bytearray(), 0, True
    try:
        while more:
            more, chunk = await _receive(request)
            body += chunk
            if len(body) > limits.body_bytes:
                raise _too_large(limits)
            if more and chunk:
                bodies.take(owner, len(chunk))
                held += len(chunk)
    finally:
        if held:
            bodies.release(owner, held)
    return bytes(body)


async def _receive(request: Request) -> tuple[bool, bytes]:
    """A piece of the body, and whether there is more of it."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise BadRequest("the body broke off")
    return message.get("more_body", False), message.get("body", b"")


def _too_large(limits: RequestLimits) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is larger than {limits.body_bytes} bytes (PASSBACK_MAX_BODY_BYTES)"
    )


def _declared_length(headers: Headers) -> float:
    """Infinite for one that no integer should be made of."""
    declared = headers.get(b"content-length", "0").strip(" \t")  # blanks belong to no value
    return int(declared) if len(declared) < 20 and declared.isdecimal() else math.inf


def parse_json(text: bytes, /, *, depth: int) -> JsonValue:
    """Parse strictly: UTF-8 without a mark, no NaN, no number beyond a double, no lone surrogates.

    Of equal keys in one object the last one counts, as in every common parser.

    Raises:
        BadRequest: not JSON, nested deeper than `depth`, or with a number that is too large.
    """
    _check_depth(text, depth)
    try:
        value = cast("JsonValue", from_json(text, allow_inf_nan=False))
    except ValueError as error:
        is_number = str(error).startswith("number out of range")
        place = _PLACE.search(str(error))
        at = f" {place[0]}" if place else ""
        raise BadRequest(
            _TOO_LARGE if is_number else f"the text is not valid JSON in UTF-8{at}"
        ) from None
    if _PERHAPS_INFINITE.search(text):
        _refuse_infinity(value)
    return value


def _refuse_infinity(value: JsonValue) -> None:
    try:
        json.dumps(value, allow_nan=False)  # 1e999 was read as infinity
    except ValueError:
        raise BadRequest(_TOO_LARGE) from None


def _check_depth(text: bytes, depth: int) -> None:
    """Raise when brackets are nested too deep: peel pairs off, one level in each round."""
    if text.count(b"[") + text.count(b"{") <= depth:
        return
    brackets = _STRING.sub(b"", text).translate(_ONE_KIND, _NOT_BRACKETS)
    if len(brackets) > 2 * _CONTAINERS:
        raise BadRequest(f"the JSON has more than {_CONTAINERS} arrays and objects")
    for _ in range(depth):
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise BadRequest(f"the JSON is nested deeper than {depth} levels, or is not valid")
