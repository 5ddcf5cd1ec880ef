"""Reading a JSON body: bounded in size, time and depth, and strict about JSON's grammar."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from typing import TypeVar, TypeVarTuple, cast

import anyio.to_thread
from pydantic import JsonValue
from pydantic_core import from_json
from starlette.requests import Request

from passback.core.errors import (
    BadRequest,
    BodyTooLarge,
    InvalidRequest,
    RequestTimeout,
    UnsupportedMedia,
)
from passback.core.messages import OwnerId
from passback.http.answers import owner_of
from passback.http.requests import Headers, headers_of
from passback.http.wires import PartialBodies, RequestLimits

# Key in `scope["extensions"]`: the whole body has arrived, so reading it does not wait.
BODY_RECEIVED = "passback.body_came"

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")

_INLINE_CHARACTERS = 16 * 1024  # more are worked on in a thread, not on the event loop
_CHARACTERS_PER_TEXT = 100  # added for each text, however short


async def work_on(
    texts: Iterable[str], work: Callable[[*_Args], _Result], /, *args: *_Args
) -> _Result:
    """Return `work(*args)`. It runs in a thread if `texts`, which it works on, are large."""
    if sum(_CHARACTERS_PER_TEXT + len(text) for text in texts) <= _INLINE_CHARACTERS:
        return work(*args)
    return await anyio.to_thread.run_sync(work, *args)


# Arrays and objects in one body. Each costs far more memory than its two bytes.
_MAX_CONTAINERS = 100_000
_MAX_LENGTH_DIGITS = 19  # of a Content-Length; more are not converted to an integer

_TOO_LARGE = (
    "a number in the JSON is too large: beyond 1.79e308, or an integer of more than 4300 digits"
)

_PLACE = re.compile(r"at line \d+ column \d+\Z")
# A large exponent or 200 digits: a number without either is less than 1e300. The pattern begins
# with a digit because that is found fast. The lookbehind counts the digits of a run from its
# first one only, not again from each of the others.
_PERHAPS_INFINITE = re.compile(rb"[0-9](?:[eE]\+?[0-9]{3}|(?<![0-9][0-9])[0-9]{199})")

# A JSON string, or the beginning of one that does not end. Possessive, so it cannot backtrack.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CURLY_TO_SQUARE = bytes.maketrans(b"{}", b"[]")


async def read_object(
    request: Request, limits: RequestLimits, bodies: PartialBodies, /
) -> dict[str, JsonValue]:
    """Return the body of a request as a JSON object.

    Raises:
        UnsupportedMedia: it is not declared as plain UTF-8 JSON.
        BodyTooLarge: it has more than `limits.body_bytes`.
        RequestTimeout: it did not arrive within `limits.body_seconds`.
        ServerBusy: a part of it has arrived, and `bodies` has no room to wait for the rest.
        BadRequest: it is no JSON object.
    """
    headers = headers_of(request.scope)
    _check_media_type(headers)
    return _parse_object(await read_body(request, limits, bodies, owner_of(request)), limits)


async def read_document_object(
    request: Request, limits: RequestLimits, bodies: PartialBodies, /
) -> dict[str, JsonValue]:
    """Return the body as `read_object` does, if no object in it has a key twice.

    Raises:
        InvalidRequest: one has. A document whose reader chooses one of two values is not whole.
    """
    _check_media_type(headers_of(request.scope))
    text = await read_body(request, limits, bodies, owner_of(request))
    value = _parse_object(text, limits)
    await anyio.to_thread.run_sync(_refuse_repeated_keys, text)
    return value


def _refuse_repeated_keys(text: bytes) -> None:
    json.loads(text, object_pairs_hook=_refuse_repeated_key)


def _refuse_repeated_key(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise InvalidRequest("an object of the document has the same key twice")


async def read_optional_object(
    request: Request, limits: RequestLimits, bodies: PartialBodies, /
) -> dict[str, JsonValue]:
    """Return the body as `read_object` does. An empty body is an empty object of any media type."""
    text = await read_body(request, limits, bodies, owner_of(request))
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
    # Forms and text/plain are the media types that a foreign page may post without a preflight.
    media_type, *parameters = headers.first.get(b"content-type", "").lower().split(";")
    if media_type.strip() != "application/json":
        raise UnsupportedMedia("the content type has to be application/json")
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name == "charset" and value.strip('"') not in {"utf-8", "utf8"}:
            raise UnsupportedMedia("the charset has to be utf-8")
    if headers.first.get(b"content-encoding", "identity").lower() != "identity":
        raise UnsupportedMedia("the body has to come without a content encoding")


async def read_body(
    request: Request, limits: RequestLimits, bodies: PartialBodies, owner: OwnerId, /
) -> bytes:
    """Return the body of a request.

    Raises:
        BodyTooLarge, RequestTimeout, ServerBusy, BadRequest: as `read_object`.
    """
    declared = (
        headers_of(request.scope).first.get(b"content-length", "0").strip(" \t")
    )  # RFC 9110, 5.5
    # an absurd or malformed length is too large, too
    is_sane = len(declared) <= _MAX_LENGTH_DIGITS and declared.isdecimal()
    if not is_sane or int(declared) > limits.body_bytes:
        raise _too_large(limits)
    if BODY_RECEIVED in request.scope.get("extensions", ()):  # all of it is here: no timeout needed
        _, body = await _receive_piece(request)
        if len(body) > limits.body_bytes:
            raise _too_large(limits)
        return body
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read_in_time(request, limits, bodies, owner)
    except TimeoutError:
        late = f"the body did not arrive within {limits.body_seconds:g} seconds"
        raise RequestTimeout(late) from None


async def _read_in_time(
    request: Request, limits: RequestLimits, bodies: PartialBodies, owner: OwnerId
) -> bytes:
    """Return a body when all of it has arrived. Until then `bodies` counts what is here."""
    body, held, more = bytearray(), 0, True
    try:
        while more:
            more, chunk = await _receive_piece(request)
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


async def _receive_piece(request: Request) -> tuple[bool, bytes]:
    """Return whether more of the body follows, and the next piece of it."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise BadRequest("the body ended before it was complete")
    return message.get("more_body", False), message.get("body", b"")


def _too_large(limits: RequestLimits) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is larger than {limits.body_bytes} bytes (body_bytes in PASSBACK_LIMITS)"
    )


def parse_json(text: bytes, /, *, depth: int) -> JsonValue:
    """Parse JSON strictly.

    Refused are a byte order mark, NaN, numbers beyond a double and lone surrogates. Of equal keys
    in one object the last one counts, as in every common parser.

    Raises:
        BadRequest: it is not JSON, nested deeper than `depth`, or has a number that is too large.
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
        try:
            json.dumps(value, allow_nan=False)  # `from_json` reads 1e999 as infinity
        except ValueError:
            raise BadRequest(_TOO_LARGE) from None
    return value


def _check_depth(text: bytes, depth: int) -> None:
    """Raise BadRequest if brackets are nested too deep, or are too many."""
    # a text cannot be nested deeper than it has brackets; those in strings do no harm here
    if text.count(b"[") + text.count(b"{") <= depth:
        return
    brackets = _STRING.sub(b"", text).translate(_CURLY_TO_SQUARE, _NOT_BRACKETS)
    if len(brackets) > 2 * _MAX_CONTAINERS:
        raise BadRequest(f"the JSON has more than {_MAX_CONTAINERS} arrays and objects")
    for _ in range(depth):  # each round removes the innermost pairs, which is one level
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise BadRequest(f"the JSON is nested deeper than {depth} levels, or is not valid")
