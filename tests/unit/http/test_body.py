"""A body is a JSON object in UTF-8, of bounded size, depth and time; each other body gets a 4xx."""

import time
from typing import Any

import pytest
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, exchange

from passback.core.errors import BadRequest, InvalidRequest
from passback.http.answers import json_answer
from passback.http.body import parse_json, read_object, read_optional_object
from passback.http.gate import Access
from passback.http.requests import validate_model
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import PartialBodies, RequestLimits, Wire
from passback.wire.send_message import SendMessage

pytestmark = pytest.mark.anyio


LIMITS = RequestLimits()
JSON = {"content-type": "application/json"}


def _app(limits: RequestLimits = LIMITS) -> ASGIApp:
    async def echo(request: Request) -> Response:
        return json_answer(
            request.scope, {"read": await read_object(request, limits, PartialBodies())}
        )

    return build_site([Wire([Endpoint("/", echo, methods=["POST"])])], Access())


async def _post(body: bytes, **headers: str) -> Answer:
    return await ask(_app(), "POST", "/", headers=JSON | headers, body=body)


BAD_JSON = {
    "nothing": b"",
    "a word": b"hello",
    "cut": b'{"a": [1, 2',
    "trailing": b"{} {}",
    "a comma too many": b'{"a": 1,}',
    "a comment": b"{/* */}",
    "single quotes": b"{'a': 1}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "invalid UTF-8": b'{"a": "\xff"}',
    "an encoded surrogate": b'{"a": "\xed\xa0\x80"}',
    "a lone high surrogate": b'{"a": "\\ud800"}',
    "a lone low surrogate": b'{"a": "\\udc00"}',
    "a lone surrogate as key": b'{"\\ud800": 1}',
    "a raw control character": b'{"a": "\x01"}',
    "a raw newline": b'{"a": "\n"}',
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": Infinity}',
    "minus Infinity": b'{"a": -Infinity}',
    "a number beyond a double": b'{"a": 1e999}',
    "5000 digits": b'{"a": ' + b"1" * 5000 + b"}",
    "200000 open brackets": b'{"a": ' + b"[" * 200_000,
    "200000 brackets": b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "200000 open braces": b'{"a":' * 200_000,
    "an unfinished string of escapes": b'{"a": "' + b'\\"' * 100_000,
    "a million quotes": b'"' * 1_000_000,
    "a list": b"[]",
    "a text": b'"a"',
    "a number": b"1",
    "null": b"null",
    "true": b"true",
}


@pytest.mark.promise("P12")
@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON.keys())
async def test_a_body_that_is_no_json_object_is_a_bad_request(body: bytes) -> None:
    answer = await _post(body)
    assert (answer.status, answer.code) == (400, "bad_request")


@pytest.mark.promise("P12")
@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" + b"0" * 400 + b".5", b"1" * 4301])
def test_a_number_that_is_too_large_has_an_error_of_its_own(number: bytes) -> None:
    with pytest.raises(BadRequest, match="a number in the JSON is too large"):
        parse_json(b'{"a": ' + number + b"}", depth=2)


def test_a_long_integer_is_kept_to_the_last_digit() -> None:
    assert parse_json(b"9" * 4300, depth=1) == 10**4300 - 1


def test_runs_of_digits_cost_little_more_than_single_ones() -> None:
    assert _seconds(b"1" * 199 + b" ") < 4 * _seconds(b"11 ")


def _seconds(text: bytes) -> float:
    """Return the least CPU time of some attempts to read a string of 600 KB that repeats a text."""
    body = b'"' + text * (600_000 // len(text)) + b'"'
    return min(_time_to_read(body) for _ in range(5))


def _time_to_read(body: bytes) -> float:
    started = time.thread_time()
    parse_json(body, depth=1)
    return time.thread_time() - started


@pytest.mark.parametrize("before", [b"", b"1", b"x", b"1.", b"12e", b"1" * 150 + b" "])
@pytest.mark.parametrize("digits", [199, 200, 309, 310, 400])
def test_a_number_too_large_for_a_float_is_refused_behind_any_text(
    before: bytes, digits: int
) -> None:
    text = b'["' + before + b'", ' + b"1" * digits + b".5]"
    if digits < 310:
        assert parse_json(text, depth=1) == [before.decode(), float("1" * digits)]
    else:
        with pytest.raises(BadRequest, match="a number in the JSON is too large"):
            parse_json(text, depth=1)


GOOD_JSON: dict[str, tuple[bytes, object]] = {
    "all kinds": (
        b'{"a": [1, -2.5, 1e3, true, null, "x"]}',
        {"a": [1, -2.5, 1000.0, True, None, "x"]},
    ),
    "any character": ('{"é\u2028": "😀\\u0000"}'.encode(), {"é\u2028": "😀\0"}),
    "a pair of surrogates": (b'{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    "brackets in texts": (b'{"a": "' + b"[{" * 1000 + b'\\""}', {"a": "[{" * 1000 + '"'}),
    "the last of two equal keys": (b'{"a": 1, "a": 2}', {"a": 2}),
    "space around it": (b" \r\n\t{} ", {}),
}


@pytest.mark.parametrize(("body", "value"), GOOD_JSON.values(), ids=GOOD_JSON.keys())
async def test_json_is_read_as_it_is(body: bytes, value: object) -> None:
    assert (await _post(body)).json == {"read": value}


@pytest.mark.promise("P11")
@pytest.mark.parametrize(("levels", "status"), [(64, 200), (65, 400)])
@pytest.mark.parametrize("beside", [b"", b', "b": [[], {}]', b', "b": "]]]"'])
async def test_depth_is_limited(levels: int, status: int, beside: bytes) -> None:
    inner = levels - 1
    body = b'{"a": ' + b"[" * inner + b"]" * inner + beside + b"}"
    assert (await _post(body)).status == status


@pytest.mark.promise("P11")
async def test_a_body_of_very_many_containers_is_refused() -> None:
    assert (await _post(b'{"a": [' + b"[]," * 100_000 + b"[]]}")).status == 400


def test_the_caller_sets_the_depth_of_nested_json() -> None:
    assert parse_json(b"[[1]]", depth=2) == [[1]]
    with pytest.raises(BadRequest):
        parse_json(b"[[[1]]]", depth=2)


@pytest.mark.parametrize(
    "media_type",
    [
        "",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
    ],
)
async def test_another_media_type_is_refused(media_type: str) -> None:
    answer = await ask(_app(), "POST", "/", headers={"content-type": media_type}, body=b"{}")
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


async def test_a_body_without_media_type_is_refused() -> None:
    assert (await ask(_app(), "POST", "/", body=b"{}")).status == 415


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "Application/JSON",
        "application/json;charset=utf-8",
        'application/json; charset="UTF-8"',
        "application/json; profile=x",
    ],
)
async def test_media_types_of_json_are_accepted(media_type: str) -> None:
    assert (await _post(b"{}", **{"content-type": media_type})).status == 200


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("br", 415), ("identity", 200)])
async def test_a_content_encoding_is_refused(encoding: str, status: int) -> None:
    assert (await _post(b"{}", **{"content-encoding": encoding})).status == status


SMALL = RequestLimits(body_bytes=10)


@pytest.mark.promise("P11", "P12")
@pytest.mark.parametrize("declared", ["11", "99999999999999999999999", "1e3", "-1", "1 1", "11 "])
async def test_a_body_with_too_large_a_content_length_is_not_read(declared: str) -> None:
    headers = JSON | {"content-length": declared}
    async with exchange(_app(SMALL), "POST", "/", headers=headers, stalled_body=True) as one:
        assert one.status == 413


@pytest.mark.parametrize("declared", ["2 ", " 2", "\t2 \t"])
async def test_blanks_around_a_content_length_are_ignored(declared: str) -> None:
    answer = await _post(b"{}", **{"content-length": declared})
    assert (answer.status, answer.json) == (200, {"read": {}})


@pytest.mark.promise("P11", "P12")
@pytest.mark.parametrize(("size", "status"), [(10, 200), (11, 413)])
async def test_a_body_that_turns_out_too_large_is_refused(size: int, status: int) -> None:
    chunks = [b"{", b" " * (size - 2), b"}"]
    answer = await ask(_app(SMALL), "POST", "/", headers=JSON, body=chunks)
    assert answer.status == status


@pytest.mark.promise("P11")
async def test_an_endless_body_times_out() -> None:
    app = _app(RequestLimits(body_seconds=0.01))
    async with exchange(app, "POST", "/", headers=JSON, body=b"{", stalled_body=True) as one:
        assert one.status == 408
        assert one.headers["connection"] == "close"
        assert b'"code":"request_timeout"' in await one.rest()


async def test_a_client_that_disconnects_while_it_sends_is_no_server_error() -> None:
    async with exchange(
        _app(), "POST", "/", headers=JSON, body=b"{", stalled_body=True, leaves_at_once=True
    ) as one:
        assert one.status == 400


# ---------------------------------------------------------------- a body that may be missing
FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("headers", "body", "status", "read"),
    [
        ({}, b"", 200, {}),
        (JSON, b"", 200, {}),
        ({"content-type": FORM}, b"", 200, {}),
        (JSON, b'{"a": 1}', 200, {"a": 1}),
        (JSON, b"[]", 400, None),
        ({"content-type": FORM}, b"a=1", 415, None),
        ({}, b"{}", 415, None),
    ],
)
async def test_an_optional_body_is_read_if_it_is_there(
    headers: dict[str, str], body: bytes, status: int, read: object
) -> None:
    async def echo(request: Request) -> Response:
        return json_answer(
            request.scope, {"read": await read_optional_object(request, LIMITS, PartialBodies())}
        )

    app = build_site([Wire([Endpoint("/", echo, methods=["POST"])])], Access())
    answer = await ask(app, "POST", "/", headers=headers, body=body)
    assert (answer.status, answer.json.get("read")) == (status, read)


# ---------------------------------------------------------------- places of errors
AN_OBJECT = "Input should be an object"
A_LIST = "Input should be a valid list"
A_TEXT = "Input should be a valid string"
MISSING = "Field required"
ROLES = "Input should be one of 'user', 'system', 'assistant', 'tool'"
AN_ADDRESS = "Input should be an http:, https: or data: URL, without control characters"
PARTS = "'text', 'image', 'audio', 'file', 'image_url', 'input_audio', 'data'"


def problems(posted: dict[str, JsonValue]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRequest) as refused:
        validate_model(SendMessage, posted)
    details: Any = refused.value.details
    found = [(each["at"], each["problem"]) for each in details["problems"]]
    assert refused.value.message == ": ".join(found[0])
    return found


def test_an_error_of_the_whole_value_names_no_place() -> None:
    with pytest.raises(InvalidRequest) as refused:
        validate_model(SendMessage, 7)
    assert refused.value.message == AN_OBJECT


def user_message(content: JsonValue) -> dict[str, JsonValue]:
    return {"messages": [{"role": "user", "content": content}]}


WRONG_BODIES: dict[str, tuple[dict[str, JsonValue], list[tuple[str, str]]]] = {
    "neither form": ({"resume": 7}, [("resume", A_LIST), ("resume", AN_OBJECT)]),
    "in a list": ({"resume": [7]}, [("resume.0", AN_OBJECT)]),
    "of an item": ({"resume": [{"payload": True}]}, [("resume.0.interruptId", MISSING)]),
    "of the one": (
        {"resume": {"interruptId": 5}},
        [("resume.interruptId", A_TEXT), ("resume.payload", MISSING)],
    ),
    "no object": ({"messages": ["hi"]}, [("messages.0", AN_OBJECT)]),
    "no role": ({"messages": [{"content": "x"}]}, [("messages.0.role", MISSING)]),
    "another role": ({"messages": [{"role": "robot"}]}, [("messages.0.role", ROLES)]),
    "no content": ({"messages": [{"role": "user"}]}, [("messages.0.content", MISSING)]),
    "a key like the role": (
        {"messages": [{"role": "user", "user": {"content": "x"}, "content": 7}]},
        [("messages.0.content", A_TEXT), ("messages.0.content", A_LIST)],
    ),
    "an id": (
        {"messages": [{"role": "user", "content": "x", "id": "\0"}]},
        [("messages.0.id", "has characters that cannot be printed")],
    ),
    "another part": (
        user_message([{"type": "smell"}]),
        [("messages.0.content.0.type", f"Input should be one of {PARTS}")],
    ),
    "a part without a key like its type": (
        user_message([{"type": "text"}]),
        [("messages.0.content.0.text", MISSING)],
    ),
    "a key like the type": (
        user_message([{"type": "text", "text": 5}]),
        [("messages.0.content.0.text", A_TEXT)],
    ),
    "one of two forms": (
        user_message([{"type": "image_url", "image_url": "ftp:x"}]),
        [("messages.0.content.0.image_url", AN_ADDRESS)],
    ),
    "within one of two forms": (
        user_message([{"type": "image_url", "image_url": {"url": "ftp:x"}}]),
        [("messages.0.content.0.image_url.url", AN_ADDRESS)],
    ),
    "a setting": (
        {"onDisconnect": "x"},
        [("onDisconnect", "Input should be 'continue' or 'cancel'")],
    ),
}


@pytest.mark.parametrize(("posted", "expected"), WRONG_BODIES.values(), ids=WRONG_BODIES)
@pytest.mark.promise("P12")
def test_a_refusal_says_where_and_why(
    posted: dict[str, JsonValue], expected: list[tuple[str, str]]
) -> None:
    assert problems(posted) == expected
