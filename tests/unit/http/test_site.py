"""Requests find their endpoints, by path and method."""

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from tests.support.asgi_client import ask, exchange

from passback.core.errors import ConfigurationError
from passback.core.messages import OwnerId
from passback.http.answers import ErrorForm, ErrorView
from passback.http.gate import Access
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
async def test_an_unknown_route_is_an_error(method: str, path: str, status: int) -> None:
    async with exchange(APP, method, path) as one:
        assert one.status == status


def _renamed(error: ErrorView) -> ErrorForm:
    said = {"type": error.code, "status": error.status, "details": error.details}
    return ErrorForm({"error": said})


FORMED = build_site(
    [
        Wire([_says("/own/{id}", "own")], error_form=_renamed, error_root="/own/"),
        Wire([_says("/a", "a")]),
    ],
    Access(keys={"the-key-of-alice": OwnerId("alice")}),
)


@pytest.mark.parametrize(
    ("method", "path", "headers", "code"),
    [
        ("GET", "/own/1", {}, "unauthenticated"),
        ("GET", "/own/1", {"host": "evil.example"}, "foreign_host"),
        ("POST", "/own/1", {"authorization": "Bearer the-key-of-alice"}, "method_not_allowed"),
        ("GET", "/own/1/2", {"authorization": "Bearer the-key-of-alice"}, "not_found"),
    ],
)
async def test_the_errors_of_a_wire_have_its_own_form_at_the_gate_too(
    method: str, path: str, headers: dict[str, str], code: str
) -> None:
    answer = await ask(FORMED, method, path, headers=headers)
    assert answer.json == {"error": {"type": code, "status": answer.status, "details": None}}


async def test_the_errors_of_other_wires_keep_the_usual_form() -> None:
    answer = await ask(FORMED, "GET", "/a")
    assert answer.json.keys() == {"code", "message", "request_id"}


async def test_a_form_of_errors_does_not_touch_websockets() -> None:
    sent = await _open_socket(FORMED, "/own/1")
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def _open_socket(app: ASGIApp, path: str, **headers: str) -> list[Message]:
    """Connect a WebSocket, and return what the application has sent."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    given = {"host": "127.0.0.1"} | headers
    raw = [(name.encode(), value.encode()) for name, value in given.items()]
    await app({"type": "websocket", "path": path, "headers": raw}, receive, send)
    return sent


async def _greet(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(socket.scope["passback.owner"])
    await socket.close()


SOCKETS = build_site(
    [Wire([WebSocketRoute("/ws", _greet), _says("/a", "a")])],
    Access(keys={"the-key-of-alice": OwnerId("alice")}),
)
KEY = "Bearer the-key-of-alice"


async def test_a_wire_may_have_websockets() -> None:
    sent = await _open_socket(SOCKETS, "/ws", authorization=KEY)
    assert [message["type"] for message in sent] == [
        "websocket.accept",
        "websocket.send",
        "websocket.close",
    ]
    assert sent[1]["text"] == "alice"


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/ws", {}),
        ("/ws", {"authorization": KEY, "origin": "https://evil.example"}),
        ("/ws", {"authorization": KEY, "host": "evil.example"}),
        ("/nowhere", {"authorization": KEY}),
        ("/a", {"authorization": KEY}),
    ],
)
async def test_other_websockets_are_closed(path: str, headers: dict[str, str]) -> None:
    sent = await _open_socket(SOCKETS, path, **headers)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_two_websockets_at_one_address_are_refused() -> None:
    routes = [WebSocketRoute("/ws", _greet), WebSocketRoute("/ws", _greet)]
    with pytest.raises(ConfigurationError, match="WebSocket /ws is served by two routes"):
        build_site([Wire(routes)], Access())


async def test_below_another_path_the_site_is_the_same() -> None:
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await APP({**scope, "root_path": "/below"}, receive, send)

    app: ASGIApp = mounted
    async with exchange(app, "GET", "/below/a") as one:
        assert (one.status, await one.rest()) == (200, b"a{}")
