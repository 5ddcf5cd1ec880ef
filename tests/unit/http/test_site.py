"""How a request finds its endpoint."""

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.support.asgi_client import exchange

from passback.core.errors import ConfigurationError
from passback.http.access import Access
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import Wire

pytestmark = pytest.mark.anyio


def _says(path: str, text: str, method: str = "GET") -> Endpoint:
    async def answer(request: Request) -> Response:
        return PlainTextResponse(f"{text}{dict(request.path_params)}")

    return Endpoint(path, answer, methods=[method])


APP = build_site(
    [
        Wire([_says("/a", "a"), _says("/a/{id}", "one")]),
        Wire([_says("/both", "get"), _says("/both", "post", "POST")]),
    ],
    Access(),
)


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/a", b"a{}"),
        ("GET", "/a/b%2Fc", b"one{'id': 'b/c'}"),
        ("GET", "/both", b"get{}"),
        ("POST", "/both", b"post{}"),
    ],
)
async def test_each_request_finds_its_endpoint(method: str, path: str, answer: bytes) -> None:
    async with exchange(APP, method, path) as one:
        assert (one.status, await one.rest()) == (200, answer)


@pytest.mark.parametrize(("one", "other"), [("/a", "/a"), ("/a/{id}/b", "/a/{session}/b")])
def test_two_routes_at_one_address_are_refused(one: str, other: str) -> None:
    with pytest.raises(ConfigurationError, match=r"GET /a(/{}/b)? is served by two routes"):
        build_site([Wire([_says(one, "one")]), Wire([_says(other, "other")])], Access())


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/a", 405), ("GET", "/b", 404)])
async def test_what_is_not_there_is_an_error(method: str, path: str, status: int) -> None:
    async with exchange(APP, method, path) as one:
        assert one.status == status


async def test_below_another_path_the_site_is_the_same() -> None:
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await APP({**scope, "root_path": "/below"}, receive, send)

    app: ASGIApp = mounted
    async with exchange(app, "GET", "/below/a") as one:
        assert (one.status, await one.rest()) == (200, b"a{}")
