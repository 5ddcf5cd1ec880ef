"""A path is matched as it was sent, by servers that tell it and by those that do not."""

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from passback.core.errors import BadRequest
from passback.transport.requests import SentPathRoute


async def _endpoint(_: Request) -> Response:
    return Response()


ROUTE = SentPathRoute("/things/{id}", _endpoint, methods=["GET"])


def _scope(path: str, raw: bytes | None, method: str = "GET") -> Scope:
    scope: Scope = {"type": "http", "method": method, "path": path, "root_path": ""}
    return scope if raw is None else {**scope, "raw_path": raw}


@pytest.mark.parametrize(
    ("path", "raw", "given"),
    [
        ("/things/a/b", b"/things/a%2Fb", "a/b"),
        ("/things/\u00e9", b"/things/%C3%A9", "\u00e9"),
        ("/things/a", None, "a"),
    ],
)
def test_a_parameter_is_decoded(path: str, raw: bytes | None, given: str) -> None:
    match, found = ROUTE.matches(_scope(path, raw))
    assert (match, found["path_params"]) == (Match.FULL, {"id": given})


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


def test_a_parameter_has_to_be_text() -> None:
    with pytest.raises(BadRequest):
        ROUTE.matches(_scope("/things/\ufffd", b"/things/%FF"))
