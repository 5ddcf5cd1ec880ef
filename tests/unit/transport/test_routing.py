"""A path is matched as it was sent, by servers that tell it and by those that do not."""

import json

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Message, Scope

from passback.transport.routing import Endpoint

pytestmark = pytest.mark.anyio


async def _endpoint(request: Request) -> Response:
    return JSONResponse(request.path_params)


ROUTE = Endpoint("/things/{id}", _endpoint, methods=["GET"])


def _scope(path: str, raw: bytes | None, method: str = "GET") -> Scope:
    scope: Scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    return scope if raw is None else {**scope, "raw_path": raw}


async def _answer(path: str, raw: bytes | None) -> tuple[int, object]:
    """The status and the JSON that the route answers."""
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
def test_what_is_not_the_route_does_not_match(method: str, raw: bytes, match: Match) -> None:
    assert ROUTE.matches(_scope(raw.decode(), raw, method))[0] is match


async def test_a_parameter_has_to_be_text() -> None:
    status, said = await _answer("/things/\ufffd", b"/things/%FF")
    assert status == 400
    assert isinstance(said, dict)
    assert said["code"] == "bad_request"
