"""The access log: one line for each request, with the fields that an operator looks for."""

import logging
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.support.asgi_client import ask, exchange
from tests.support.logged_runs import RUN
from tests.support.raw_socket import CLOSE, TEXT, connected, frame, head
from tests.support.socket_site import OWN as SOCKET_OWN
from tests.support.socket_site import SocketSite
from tests.support.sse_site import Site

from passback.core.errors import ConversationBusy, StoreError, UnknownConversation
from passback.core.events import Completed, Failed, RunFinished, TextDelta
from passback.core.messages import OwnerId
from passback.http.body import read_object
from passback.http.gate import Access
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import PartialBodies, RequestLimits, Wire

pytestmark = pytest.mark.anyio

LOGGER = "passback.http.access_log"
KEY = "the-key-of-alice"
OWN = {"authorization": f"Bearer {KEY}", "x-request-id": "r"}
KNOWN = {"owner": "alice", "request_id": "r"}


async def _answer(request: Request) -> Response:
    if request.path_params["id"] == "busy":
        raise ConversationBusy("a run is going on")
    if request.path_params["id"] == "broken":
        raise StoreError("gone")
    if request.path_params["id"] == "unknown":
        raise UnknownConversation("there is no such conversation")
    if request.method == "POST":
        await read_object(request, RequestLimits(body_bytes=8), PartialBodies())
    return Response("secret", headers={"x-conversation-id": "c", "x-run-id": "run_1"})


APP = build_site(
    [
        Wire(
            [
                Endpoint("/things/{id}", _answer, methods=["GET", "POST"]),
                Endpoint("/healthz/{id}", _answer, methods=["GET"], log_level=logging.DEBUG),
            ]
        )
    ],
    Access(keys={KEY: OwnerId("alice")}),
)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a line; of its duration only that there is one."""
    plain = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
    fields = {name: value for name, value in vars(record).items() if name not in plain}
    assert record.getMessage() == "request"
    assert record.levelno == logging.INFO
    assert fields.pop("duration_ms") >= 0
    return fields


def only_line(lines: pytest.LogCaptureFixture) -> dict[str, Any]:
    [line] = [record for record in lines.records if record.name == LOGGER]
    return fields_of(line)


async def test_a_request_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    await ask(APP, "GET", "/things/some%20id?", headers=OWN)
    assert only_line(lines) == {
        "method": "GET",
        "route": "/things/{id}",
        "status": 200,
        "conversation_id": "c",
        "run_id": "run_1",
        **KNOWN,
    }


JSON = {"content-type": "application/json"}


REFUSALS: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("GET", "/things/a", {"authorization": "Bearer wrong"}, 401, "unauthenticated"),
    ("GET", "/things/a", {"origin": "http://evil.example"}, 403, "foreign_origin"),
    ("GET", "/things/a", {"host": "evil.example"}, 421, "foreign_host"),
    ("GET", "/things/unknown", {}, 404, "conversation_not_found"),
    ("GET", "/nowhere/else", {}, 404, "not_found"),
    ("DELETE", "/things/a", {}, 405, "method_not_allowed"),
    ("GET", "/things/busy", {}, 409, "conversation_busy"),
    ("POST", "/things/a", {**JSON, "content-length": "9"}, 413, "body_too_large"),
    ("POST", "/things/a", {}, 415, "unsupported_media_type"),
    ("GET", "/things/a?x=1", {}, 422, "invalid_request"),
    ("POST", "/things/a", JSON, 400, "bad_request"),
    ("GET", "/things/broken", {}, 503, "store_error"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case[-1])
async def test_a_refusal_is_a_line_with_its_code(
    case: tuple[str, str, dict[str, str], int, str], lines: pytest.LogCaptureFixture
) -> None:
    method, path, headers, status, code = case
    answer = await ask(APP, method, path, headers={**OWN, **headers})
    assert (answer.status, answer.code) == (status, code)
    expected = {"method": method, "route": "/things/{id}", "status": status, "code": code, **KNOWN}
    if path == "/nowhere/else":
        del expected["route"]
    if status in {401, 403, 421}:
        del expected["owner"]
    assert only_line(lines) == expected


async def test_a_stream_is_a_line_at_its_end(lines: pytest.LogCaptureFixture) -> None:
    site = Site()
    async with site.opened() as one:
        assert lines.records == []
        site.runs.say(TextDelta("a"), RunFinished(Completed()))
        await one.rest()
    line = only_line(lines)
    assert (line["route"], line["status"], line["run_id"]) == ("/", 200, RUN.run_id)
    assert (line["owner"], "complete" in line) == ("anonymous", False)


async def test_a_client_that_disconnects_is_a_line_too(lines: pytest.LogCaptureFixture) -> None:
    site = Site()
    async with site.opened() as one:
        one.leave()
        await site.no_readers()
        await one.rest()
    line = only_line(lines)
    assert (line["status"], line["complete"]) == (200, False)


async def test_an_early_disconnect_has_no_status(lines: pytest.LogCaptureFixture) -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    async def endpoint(_: Request) -> ASGIApp:
        return silent

    app = build_site([Wire([Endpoint("/", endpoint, methods=["GET"])])], Access())
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", b"localhost")],
    }

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError("nothing is sent")

    await app(scope, receive, send)
    line = only_line(lines)
    assert (line["complete"], "status" in line, "code" in line) == (False, False, False)


async def test_a_failed_run_that_was_waited_for_is_a_line_with_its_code(
    lines: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    site.runs.say(RunFinished(Failed("model_rejected", "no")))
    await ask(site.document(), "GET", "/")
    line = only_line(lines)
    assert (line["status"], line["code"], line["run_id"]) == (502, "model_rejected", RUN.run_id)


async def test_a_cancelled_answer_is_a_line(lines: pytest.LogCaptureFixture) -> None:
    async def endless(_: Request) -> Response:
        async def body() -> Any:
            yield b"a"
            await anyio.sleep_forever()

        return StreamingResponse(body())

    app = build_site([Wire([Endpoint("/", endless, methods=["GET"])])], Access())
    async with exchange(app, "GET", "/") as one:
        assert await one.chunk() == b"a"
    assert only_line(lines)["complete"] is False


async def test_a_health_check_is_no_line_at_info(lines: pytest.LogCaptureFixture) -> None:
    await ask(APP, "GET", "/healthz/a", headers=OWN)
    assert lines.records == []
    lines.set_level(logging.DEBUG, LOGGER)
    await ask(APP, "GET", "/healthz/a", headers=OWN)
    [line] = [record for record in lines.records if record.name == LOGGER]
    assert (line.levelname, line.__dict__["route"]) == ("DEBUG", "/healthz/{id}")


async def test_a_refused_health_check_is_a_line(lines: pytest.LogCaptureFixture) -> None:
    await ask(APP, "GET", "/healthz/a", headers={**OWN, "host": "evil.test"})
    assert only_line(lines)["code"] == "foreign_host"


async def test_no_line_is_written_where_info_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    assert (await ask(APP, "GET", "/things/a", headers=OWN)).status == 200
    assert caplog.records == []


# ---------------------------------------------------------------- WebSockets
@pytest.mark.parametrize(
    ("path", "headers", "content", "expected"),
    [
        (
            "/keyed",
            SOCKET_OWN,
            frame(TEXT, b"end 4001 enough"),
            {"route": "/keyed", "status": 101, "close_code": 4001, "reason": "enough"},
        ),
        (
            "/rooms/secret",
            SOCKET_OWN,
            frame(CLOSE, b"\x0f\xa2secret"),
            {"route": "/rooms/{room}", "status": 101, "close_code": 4002},
        ),
        (
            "/keyed",
            SOCKET_OWN,
            frame(TEXT, b"fail model"),
            {
                "route": "/keyed",
                "status": 101,
                "code": "model_error",
                "close_code": 1011,
                "reason": "model_error: of a test",
            },
        ),
        ("/silent", SOCKET_OWN, b"", {"route": "/silent", "status": 403}),
        ("/keyed", {}, b"", {"route": "/keyed", "status": 401, "code": "unauthenticated"}),
    ],
)
async def test_a_websocket_is_a_line_at_its_end(
    path: str,
    headers: dict[str, str],
    content: bytes,
    expected: dict[str, Any],
    lines: pytest.LogCaptureFixture,
) -> None:
    async with SocketSite().served() as site, connected(site.url) as one:
        await one.send(head(path, {**headers, "X-Request-Id": "r"}))
        await one.answer()
        await one.send(content)
        await one.end()
        await site.until_idle()
    owner = {} if expected["status"] == 401 else {"owner": "alice"}
    assert only_line(lines) == {"method": "GET", "request_id": "r", **owner, **expected}
    assert [each for each in lines.records if each.levelno >= logging.ERROR] == []
