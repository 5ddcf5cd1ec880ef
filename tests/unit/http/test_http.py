"""Errors become JSON with the code and the request's id; unknown errors are not shown."""

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask

from passback.core import errors
from passback.core.errors import BadRequest, NotAcceptable, PassbackError
from passback.core.messages import OwnerId
from passback.http.answers import STATUS, json_answer
from passback.http.gate import Access
from passback.http.requests import (
    Headers,
    headers_of,
    idempotency_key,
    keyed_conversation_id,
    preferred_media_type,
)
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import Wire

pytestmark = pytest.mark.anyio


def _tree(root: type[PassbackError]) -> list[type[PassbackError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


def _raising(error: Exception) -> ASGIApp:
    async def endpoint(request: Request) -> Response:
        raise error

    return build_site([Wire([Endpoint("/", endpoint, methods=["GET"])])], Access())


async def _error(error: Exception, **headers: str) -> Answer:
    return await ask(_raising(error), "GET", "/", headers=headers)


@pytest.mark.promise("P12")
def test_every_error_of_the_tree_has_a_status() -> None:
    own = {kind.code for kind in _tree(PassbackError) if kind.__module__ == errors.__name__}
    assert own == STATUS.keys()


@pytest.mark.promise("P12")
@pytest.mark.parametrize("kind", _tree(PassbackError), ids=lambda kind: kind.code)
async def test_an_error_is_json(kind: type[PassbackError]) -> None:
    answer = await _error(kind("what is wrong"), **{"x-request-id": "r-1"})
    assert answer.status == STATUS[kind.code]
    assert answer.json == {"code": kind.code, "message": "what is wrong", "request_id": "r-1"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == "r-1"


async def test_details_are_sent_if_there_are_any() -> None:
    answer = await _error(errors.InvalidTool("bad", details={"tool": "t"}), **{"x-request-id": "r"})
    assert answer.json == {
        "code": "invalid_tool",
        "message": "bad",
        "details": {"tool": "t"},
        "request_id": "r",
    }


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (errors.ConversationBusy("", retry_after=2.1), "3"),
        (errors.ConversationBusy("", retry_after=0.2), "1"),
        (errors.StoreUnavailable(""), "1"),
        (errors.StoreFull(""), "1"),
        (errors.ServerBusy(""), "1"),
        (errors.ShuttingDown(""), "1"),
        (errors.ModelRateLimited(""), "1"),
        (errors.QueueFull(""), "1"),
        (errors.InvalidRequest(""), None),
    ],
)
async def test_a_retryable_error_says_when_to_retry(
    error: PassbackError, seconds: str | None
) -> None:
    assert (await _error(error)).headers.get("retry-after") == seconds


async def test_a_missing_key_is_answered_with_www_authenticate() -> None:
    assert (await _error(errors.Unauthenticated(""))).headers["www-authenticate"] == "Bearer"


async def test_a_connection_is_closed_only_on_a_client_that_has_stopped_sending() -> None:
    assert (await _error(errors.RequestTimeout(""))).headers["connection"] == "close"
    assert "connection" not in (await _error(errors.BodyTooLarge(""))).headers


async def test_an_unknown_error_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(_raising(RuntimeError("tulip")), "GET", "/", headers={"x-request-id": "r"})
    assert answer.status == 500
    assert answer.json == {
        "code": "internal",
        "message": "the server met an unexpected error",
        "request_id": "r",
    }
    assert "tulip" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "not_found"), ("PUT", "/", 405, "method_not_allowed")],
)
async def test_unknown_routes_have_errors_of_the_same_form(
    method: str, path: str, status: int, code: str
) -> None:
    app = _raising(RuntimeError())
    answer = await ask(app, method, path, headers={"x-request-id": "r"})
    assert (answer.status, answer.code) == (status, code)
    assert answer.json.keys() == {"code", "message", "request_id"}
    assert answer.headers["x-request-id"] == "r"


@pytest.mark.parametrize("given", ["", "a b", "a\x01", "é", "x" * 129, "<script>"])
async def test_a_strange_request_id_is_replaced(given: str) -> None:
    answer = await _error(errors.NotFound(""), **{"x-request-id": given})
    assert answer.json["request_id"].startswith("req_")
    assert answer.headers["x-request-id"] == answer.json["request_id"]


def test_an_answer_with_a_value_that_is_not_json_raises() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        json_answer({"type": "http", "headers": []}, {"value": float("nan")})


# ---------------------------------------------------------------- headers
DOUBLED = Headers([(b"accept", b"text/plain"), (b"host", b"localhost"), (b"accept", b"caf\xe9")])


def test_a_repeated_header_is_read_as_a_list_or_by_its_first_value() -> None:
    assert DOUBLED.all[b"accept"] == ["text/plain", "caf\xe9"]
    assert DOUBLED.first[b"accept"] == "text/plain"


def test_a_missing_header_has_no_entry() -> None:
    assert DOUBLED.all.keys() == DOUBLED.first.keys() == {b"accept", b"host"}


def test_a_header_may_be_empty() -> None:
    headers = Headers([(b"content-encoding", b"")])
    assert headers.first == {b"content-encoding": ""}


def test_the_headers_of_a_request_are_sorted_once() -> None:
    scope = {"type": "http", "headers": [(b"host", b"localhost")]}
    assert headers_of(scope) is headers_of(scope)
    assert headers_of(scope).first == {b"host": "localhost"}


# ---------------------------------------------------------------- negotiation
A, B, C = "text/event-stream", "application/json", "text/plain"


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", A),
        (" ", A),
        ("*/*", A),
        (A, A),
        (B, B),
        ("TEXT/Plain", C),
        ("text/*", A),
        ("application/*", B),
        ("text/html, application/xhtml+xml, */*;q=0.8", A),
        # sent by a common client for browsers
        ("application/json, text/plain, */*", A),
        ("application/json, text/plain", B),
        ("application/json;q=0.5, text/plain", C),
        ("text/plain;q=0.5, text/event-stream;q=0.4", C),
        ("text/plain; charset=utf-8; Q=0.5 , application/json; q=0.4", C),
        ("*/*, text/event-stream;q=0", B),
        ("*/*;q=0.1, text/*;q=0.2, text/event-stream;q=0", C),
        ("text/*;q=0.9, application/json", B),
        ("text/plain;q=0, text/plain", C),
        ("text/plain;q=0.001", C),
        ("text/plain;q=1.000, application/json;q=0.999", C),
        ("nonsense, , text/plain", C),
        ("text/plain;format=flowed", C),
    ],
)
def test_the_best_form_is_chosen(header: str, chosen: str) -> None:
    assert preferred_media_type(header, [A, B, C]) == chosen


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    "header",
    [
        "text/html",
        "image/*",
        "*/*;q=0",
        "text/*;q=0, application/json;q=0.000",
        "text/plain;q=2",
        "text/plain;q=high",
        "text/plain;q=0.1234",
        "text/plain;q=",
        "text",
        "*",
        "/",
        "text/plain/x",
        "text/plain x",
    ],
)
def test_an_accept_header_without_a_known_form_is_refused_with_the_list(header: str) -> None:
    with pytest.raises(NotAcceptable) as refused:
        preferred_media_type(header, [A, B, C])
    assert refused.value.message == f"the answer can be {A} or {B} or {C}"
    assert refused.value.details == {"available": [A, B, C]}


# ---------------------------------------------------------------- requests
ALICE, BOB = OwnerId("alice"), OwnerId("bob")


def _key(*given: str) -> str | None:
    return idempotency_key(Headers([(b"idempotency-key", each.encode()) for each in given]))


def test_a_post_without_a_key_has_none() -> None:
    assert _key() is None


GOOD_KEYS = [
    ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    ('"8e03978e-40d5-43e8-bc93-6894a57f9324"', "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    ("!#$%&'()*+-./:<=>?@[]^_`{|}~", "!#$%&'()*+-./:<=>?@[]^_`{|}~"),
    ('"a,b;c"', "a,b;c"),
    (r'"a\"b\\c"', r'a"b\c'),
    ("x", "x"),
    ("x" * 256, "x" * 256),
    ('"' + "x" * 256 + '"', "x" * 256),
    ('"' + r"\\" * 256 + '"', "\\" * 256),
]


@pytest.mark.promise("P8")
@pytest.mark.parametrize(("given", "key"), GOOD_KEYS)
def test_a_key_is_the_same_in_quotes_and_without(given: str, key: str) -> None:
    assert _key(given) == key


BAD_KEYS = {
    "empty": "",
    "empty quotes": '""',
    "an open quote": '"a',
    "a quote too many": 'a"',
    "a space": "a b",
    "a space in quotes": '"a b"',
    "a tab": "a\tb",
    "NUL": "a\0b",
    "DEL in quotes": '"a\x7f"',
    "a letter beyond ASCII": "é",
    "two keys in one header": "a,b",
    "two strings in one header": '"a", "b"',
    "a parameter": '"a";b=1',
    "a backslash": r"a\b",
    "an escape of something else": r'"a\b"',
    "a backslash at the end": '"a\\"',
    "257 characters": "x" * 257,
    "257 characters in quotes": '"' + "x" * 257 + '"',
    "257 escapes": '"' + r"\\" * 257 + '"',
    "60000 characters": "x" * 60_000,
}


@pytest.mark.promise("P12")
@pytest.mark.parametrize("given", BAD_KEYS.values(), ids=BAD_KEYS.keys())
def test_any_other_key_is_refused(given: str) -> None:
    with pytest.raises(BadRequest):
        _key(given)


@pytest.mark.parametrize("second", ["a", "b", ""])
def test_two_keys_are_refused(second: str) -> None:
    with pytest.raises(BadRequest):
        _key("a", second)


@pytest.mark.promise("P8", "P13")
def test_a_keyed_posts_conversation_follows_from_owner_and_key() -> None:
    one = keyed_conversation_id(ALICE, "k")
    assert one == keyed_conversation_id(ALICE, "k")
    assert one.startswith("conv_")
    others = {keyed_conversation_id(ALICE, "l"), keyed_conversation_id(BOB, "k")}
    assert len({one, *others}) == 3
