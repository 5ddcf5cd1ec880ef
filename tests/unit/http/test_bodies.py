"""Bodies that are still arriving: bounds for all together and for each owner, and their release."""

import math
from typing import Self

import anyio
import anyio.abc
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Scope
from tests.support.asgi_client import SECONDS, ask

from passback.core.errors import ServerBusy
from passback.core.messages import OwnerId
from passback.http.answers import json_answer
from passback.http.body import BODY_RECEIVED, read_object, read_optional_object
from passback.http.gate import Access
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import PartialBodies, RequestLimits, Wire

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

ANN, BOB = OwnerId("ann"), OwnerId("bob")
KEYS = {"the-key-of-ann": ANN, "the-key-of-bob": BOB}
LIMITS = RequestLimits(body_bytes=100)


def _app(bodies: PartialBodies, limits: RequestLimits = LIMITS) -> ASGIApp:
    async def needed(request: Request) -> Response:
        return json_answer(request.scope, {"read": await read_object(request, limits, bodies)})

    async def optional(request: Request) -> Response:
        read = await read_optional_object(request, limits, bodies)
        return json_answer(request.scope, {"read": read})

    routes = [
        Endpoint("/", needed, methods=["POST"]),
        Endpoint("/optional", optional, methods=["POST"]),
    ]
    return build_site([Wire(routes)], Access(keys=KEYS))


def _headers(owner: str) -> dict[str, str]:
    return {"content-type": "application/json", "authorization": f"Bearer the-key-of-{owner}"}


class Upload:
    """A post whose body the test sends in pieces; `status` is 0 until it is answered."""

    def __init__(self, app: ASGIApp, owner: str, path: str = "/") -> None:
        self.status = 0
        self.raised: BaseException | None = None
        self.scope = anyio.CancelScope()
        self._app, self._owner, self._path = app, owner, path
        self._send, self._receive = anyio.create_memory_object_stream[Message](math.inf)
        self._over = anyio.Event()

    def begin(self, tasks: anyio.abc.TaskGroup) -> Self:
        tasks.start_soon(self._run)
        return self

    async def _run(self) -> None:
        headers = _headers(self._owner) | {"host": "127.0.0.1"}
        scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        }
        with self._send, self._receive, self.scope:
            await self._app(scope, self._receive.receive, self._note)
        self._over.set()

    async def _note(self, message: Message) -> None:
        self.status = message.get("status", self.status)

    async def send_piece(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece, and wait until it is read or the post is answered."""
        self._send.send_nowait({"type": "http.request", "body": body, "more_body": more})
        await anyio.wait_all_tasks_blocked()

    def leave(self) -> None:
        self._send.send_nowait({"type": "http.disconnect"})

    async def ended(self) -> int:
        with anyio.fail_after(SECONDS):
            await self._over.wait()
        return self.status


# ---------------------------------------------------------------- counting
def test_a_body_beyond_a_bound_is_refused_and_not_counted() -> None:
    bodies = PartialBodies(100, 60)
    bodies.take(ANN, 60)
    with pytest.raises(ServerBusy):  # ann has her share
        bodies.take(ANN, 1)
    bodies.take(BOB, 40)
    with pytest.raises(ServerBusy):  # bob has not, but there is no room
        bodies.take(BOB, 1)
    assert bodies.held == 100
    bodies.release(ANN, 60)
    bodies.take(BOB, 20)
    bodies.release(BOB, 40)
    bodies.release(BOB, 20)
    assert bodies.held == 0
    bodies.take(ANN, 60)


# ---------------------------------------------------------------- reading
@pytest.mark.parametrize("path", ["/", "/optional"])
async def test_endless_bodies_leave_room_for_other_owners(path: str) -> None:
    bodies = PartialBodies(100, 50)
    app = _app(bodies)
    async with anyio.create_task_group() as tasks:
        first = Upload(app, "ann", path).begin(tasks)
        second = Upload(app, "ann", path).begin(tasks)
        bob = Upload(app, "bob", path).begin(tasks)
        await first.send_piece(b"{" + b" " * 39)
        await second.send_piece(b"{" + b" " * 9)
        assert bodies.held == 50
        await second.send_piece(b" ")
        assert (await second.ended(), bodies.held) == (503, 40)
        await bob.send_piece(b"{" + b" " * 49)
        assert (bob.status, bodies.held) == (0, 90)
        await bob.send_piece(b"}", more=False)
        await first.send_piece(b"}", more=False)
        assert (await first.ended(), await bob.ended(), bodies.held) == (200, 200, 0)


async def test_a_refusal_says_when_to_retry() -> None:
    headers = _headers("ann")
    answer = await ask(
        _app(PartialBodies(100, 5)), "POST", "/", headers=headers, body=[b"{    ", b" ", b"}"]
    )
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "server_busy", "1")


async def test_a_body_that_arrives_whole_does_not_count_as_partial() -> None:
    bodies = PartialBodies(10, 10)
    bodies.take(ANN, 10)
    offers: list[dict[str, object]] = [{}, {BODY_RECEIVED: {}}]
    for extensions in offers:
        answer = await ask(
            _app(bodies),
            "POST",
            "/",
            headers=_headers("ann"),
            body=b'{"a": 1}',
            extensions=extensions,
        )
        assert (answer.status, answer.json) == (200, {"read": {"a": 1}})
    assert bodies.held == 10


@pytest.mark.parametrize("extensions", [{}, {BODY_RECEIVED: {}}])
async def test_a_body_that_arrives_whole_may_not_be_too_large(
    extensions: dict[str, object],
) -> None:
    body = b"{" + b" " * 99 + b"}"
    answer = await ask(
        _app(PartialBodies()),
        "POST",
        "/",
        headers=_headers("ann"),
        body=body,
        extensions=extensions,
    )
    assert answer.status == 413


# ---------------------------------------------------------------- release
async def test_a_body_is_released_when_its_client_leaves() -> None:
    bodies = PartialBodies()
    async with anyio.create_task_group() as tasks:
        upload = Upload(_app(bodies), "ann").begin(tasks)
        await upload.send_piece(b"{" + b" " * 9)
        assert bodies.held == 10
        upload.leave()
        assert (await upload.ended(), bodies.held) == (400, 0)


async def test_a_body_is_released_when_it_turns_out_too_large() -> None:
    bodies = PartialBodies()
    async with anyio.create_task_group() as tasks:
        upload = Upload(_app(bodies), "ann").begin(tasks)
        await upload.send_piece(b"{" + b" " * 60)
        assert bodies.held == 61
        await upload.send_piece(b" " * 60)
        assert (await upload.ended(), bodies.held) == (413, 0)


async def test_a_body_is_released_when_it_comes_too_late() -> None:
    bodies = PartialBodies()
    app = _app(bodies, RequestLimits(body_seconds=0.05))
    async with anyio.create_task_group() as tasks:
        upload = Upload(app, "ann").begin(tasks)
        await upload.send_piece(b"{")
        assert (await upload.ended(), bodies.held) == (408, 0)


async def test_a_body_is_released_when_its_request_is_cancelled() -> None:
    bodies = PartialBodies()
    async with anyio.create_task_group() as tasks:
        upload = Upload(_app(bodies), "ann").begin(tasks)
        await upload.send_piece(b"{ ")
        assert bodies.held == 2
        upload.scope.cancel()
        assert (await upload.ended(), bodies.held) == (0, 0)


async def test_a_piece_without_a_byte_counts_for_nothing() -> None:
    bodies = PartialBodies(0, 0)
    async with anyio.create_task_group() as tasks:
        upload = Upload(_app(bodies), "ann").begin(tasks)
        await upload.send_piece(b"")
        await upload.send_piece(b"{}", more=False)
        assert (await upload.ended(), bodies.held) == (200, 0)
