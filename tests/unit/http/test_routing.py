"""Routes match the raw path, with servers that give it and without; failed responses are logged."""

import json
from collections.abc import Sequence
from threading import get_ident
from urllib.parse import urljoin

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.support.asgi_client import ask, exchange
from tests.support.sse_site import Direct

from passback.core.errors import StoreError
from passback.hotpath.sending import SEND_NOW
from passback.http.body import work_on
from passback.http.gate import Access
from passback.http.routing import Endpoint, relative_reference
from passback.http.site import build_site
from passback.http.wires import Wire

pytestmark = pytest.mark.anyio


async def _endpoint(request: Request) -> Response:
    return JSONResponse(request.path_params)


ROUTE = Endpoint("/things/{id}", _endpoint, methods=["GET"])


def _scope(path: str, raw: bytes | None, method: str = "GET") -> Scope:
    scope: Scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    return scope if raw is None else {**scope, "raw_path": raw}


async def _answer(path: str, raw: bytes | None) -> tuple[int, object]:
    """Return the status and the JSON that the route answers."""
    scope = _scope(path, raw)
    match, found = ROUTE.matches(scope)
    assert match is Match.FULL
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    await ROUTE.handle({**scope, **found}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize(
    ("path", "raw", "given"),
    [
        ("/things/a/b", b"/things/a%2Fb", "a/b"),
        ("/things/\u00e9", b"/things/%C3%A9", "\u00e9"),
        ("/things/a", None, "a"),
        ("/things/%2F", None, "%2F"),
    ],
)
async def test_a_parameter_is_decoded_once(path: str, raw: bytes | None, given: str) -> None:
    assert await _answer(path, raw) == (200, {"id": given})


@pytest.mark.parametrize(
    ("method", "raw", "match"),
    [
        ("POST", b"/things/a", Match.PARTIAL),
        ("GET", b"/things/a/b", Match.NONE),
        ("GET", b"/other", Match.NONE),
    ],
)
def test_other_paths_and_methods_do_not_match(method: str, raw: bytes, match: Match) -> None:
    assert ROUTE.matches(_scope(raw.decode(), raw, method))[0] is match


async def test_a_parameter_has_to_be_text() -> None:
    status, body = await _answer("/things/\ufffd", b"/things/%FF")
    assert status == 400
    assert isinstance(body, dict)
    assert body["code"] == "bad_request"


# ---------------------------------------------------------------- queries
async def _query_answer(request: Request) -> Response:
    return JSONResponse(dict(request.query_params))


QUERIED = build_site(
    [
        Wire(
            [
                Endpoint(
                    "/some", _query_answer, methods=["GET", "DELETE"], query={"GET": ["a", "b"]}
                ),
                Endpoint("/any", _query_answer, methods=["GET"], query=None),
                Endpoint("/none", _query_answer, methods=["GET"]),
            ]
        )
    ],
    Access(),
)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("address", ["/some?a=1&b=2", "/some?", "/any?x=1&x=2", "/none", "/none?&"])
async def test_a_query_that_the_route_takes_is_served(method: str, address: str) -> None:
    assert (await ask(QUERIED, method, address)).status == 200


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("method", "address", "message", "details"),
    [
        (
            "GET",
            "/some?a=1&order=desc",
            "this address has no query parameter 'order': it takes a, b",
            {"parameter": "order", "available": ["a", "b"]},
        ),
        (
            "DELETE",
            "/some?a=1",
            "this address has no query parameter 'a': it takes none",
            {"parameter": "a", "available": []},
        ),
        (
            "GET",
            "/none?" + "x" * 100,
            f"this address has no query parameter '{'x' * 64}': it takes none",
            {"parameter": "x" * 64, "available": []},
        ),
        (
            "GET",
            "/none?a%0Ab",
            r"this address has no query parameter 'a\nb': it takes none",
            {"parameter": "a\nb", "available": []},
        ),
        ("GET", "/some?b=1&a=1&b=2", "the query parameter b comes twice", {"parameter": "b"}),
    ],
)
async def test_a_query_that_the_route_does_not_take_is_refused(
    method: str, address: str, message: str, details: dict[str, object]
) -> None:
    answer = await ask(QUERIED, method, address)
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert (answer.json["message"], answer.json["details"]) == (message, details)


# ---------------------------------------------------------------- references
@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/post", "/post"),
        ("/v1/bots/{id}/post", "/v1/bots/a%2Fb/post"),
        ("/things/{id}/stream", "/things/..%2F/stream"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "/agents", "/a/b%2Fc"])
async def test_a_reference_leads_to_the_same_place_below_any_prefix(
    pattern: str, path: str, prefix: str
) -> None:
    async def endpoint(request: Request) -> Response:
        return Response(relative_reference(request.scope, "/things/%2F/stream?a=b"))

    app = build_site([Wire([Endpoint(pattern, endpoint, methods=["GET"])])], Access())
    reference = (await ask(app, "GET", path)).body.decode()
    base = f"https://agents.example{prefix}"
    assert urljoin(f"{base}{path}?wait=1", reference) == f"{base}/things/%2F/stream?a=b"


# ---------------------------------------------------------------- responses that fail
class _Failing:
    """A response that sends some messages, then raises."""

    def __init__(self, error: Exception, *messages: Message) -> None:
        self._error = error
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for message in self._messages:
            await send(message)
        raise self._error


BEGUN: tuple[Message, ...] = (
    {"type": "http.response.start", "status": 200, "headers": []},
    {"type": "http.response.body", "body": b"half", "more_body": True},
)


def _failing(error: Exception, *messages: Message) -> ASGIApp:
    async def endpoint(_: Request) -> ASGIApp:
        return _Failing(error, *messages)

    return build_site([Wire([Endpoint("/", endpoint, methods=["GET"])])], Access())


@pytest.mark.parametrize(
    ("error", "status", "code", "line"),
    [
        (RuntimeError("tulip"), 500, "internal", "request r failed"),
        (UnicodeEncodeError("ascii", "\u2028", 0, 1, "tulip"), 500, "internal", "request r failed"),
        (StoreError("gone"), 503, "store_error", "request r failed: store_error"),
    ],
)
async def test_an_error_before_the_response_begins_is_answered_and_logged(
    error: Exception, status: int, code: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await ask(_failing(error), "GET", "/", headers={"x-request-id": "r"})
    assert (answer.status, answer.code, answer.json["request_id"]) == (status, code, "r")
    assert b"tulip" not in answer.body
    assert [record.getMessage() for record in caplog.records] == [line]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("tulip"), "answer to request r broken off"),
        (StoreError("gone"), "answer to request r broken off: store_error"),
    ],
)
@pytest.mark.parametrize("is_direct", [True, False])
async def test_an_error_after_the_response_began_breaks_it_off(
    error: Exception, line: str, is_direct: bool, caplog: pytest.LogCaptureFixture
) -> None:
    direct = Direct()
    extensions = {SEND_NOW: direct} if is_direct else {}
    headers = {"x-request-id": "r"}
    app = _failing(error, *BEGUN)
    async with exchange(app, "GET", "/", headers=headers, extensions=extensions) as one:
        assert (one.status, await one.rest(), one.ended) == (200, b"half", False)
    assert direct.broken_off is is_direct
    assert [record.getMessage() for record in caplog.records] == [line]


# ---------------------------------------------------------------- threads
KIB = 1024


@pytest.mark.parametrize(
    ("texts", "in_thread"),
    [([], False), (["x" * 15 * KIB], False), (["x" * 16 * KIB], True), ([""] * 200, True)],
)
async def test_large_inputs_are_handled_in_a_thread(texts: Sequence[str], in_thread: bool) -> None:
    async def runs_in_thread() -> bool:
        return await work_on(texts, lambda here: get_ident() != here, get_ident())

    assert await runs_in_thread() is in_thread
