"""Streams over real connections: clients that read late, or not at all."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp
from tests.support.http_connection import REQUEST, Clock, asked
from tests.support.logged_runs import RUN
from tests.support.sse_site import END, Site, done
from tests.support.waiting import wait_until
from uvicorn.config import Config
from uvicorn.server import ServerState

from passback.core.errors import UnknownRun
from passback.core.events import TextDelta
from passback.hotpath.sending import send_now
from passback.http.answers import json_answer, set_owner
from passback.http.body import BODY_RECEIVED, read_object
from passback.http.gate import ANONYMOUS
from passback.http.protocol import HEAD_SECONDS, BoundedHttpProtocol, OpenConnections
from passback.http.routing import Endpoint
from passback.http.wires import PartialBodies, RequestLimits
from passback.native.responses import NativeEncoder
from passback.streams.sse import EventStream

pytestmark = pytest.mark.anyio

MUCH = 4 * 1024 * 1024
"""Characters: more than a connection's buffers hold, here and in the kernel."""


@asynccontextmanager
async def connected(
    app: ASGIApp, send_seconds: float, state: ServerState | None = None
) -> AsyncGenerator[socket.socket]:
    """Connect a client that sends nothing yet to a server on a free port."""
    config, state = Config(app, lifespan="off", log_config=None), state or ServerState()
    config.load()
    connections = OpenConnections(send_seconds=send_seconds)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: BoundedHttpProtocol(config, state, {}, connections=connections), "127.0.0.1", 0
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, server.sockets[0].getsockname())
        with anyio.fail_after(20):
            yield client
            server.close()


@asynccontextmanager
async def client_of(
    site: Site, body: int = 0, send_seconds: float | None = None
) -> AsyncGenerator[socket.socket]:
    """Connect a client that posts a body of this many bytes, and reads nothing by itself.

    The connection has the `send_seconds` of the site, unless others are given.
    """
    loop = asyncio.get_running_loop()
    send_seconds = send_seconds or site.services.limits.send_seconds
    async with connected(site.app(), send_seconds) as client:
        head = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % body
        await loop.sock_sendall(client, head)
        await anyio.wait_all_tasks_blocked()
        await loop.sock_sendall(client, b"x" * body)
        while not site.runs.readers:
            await anyio.wait_all_tasks_blocked()
        yield client


async def read_until(client: socket.socket, end: bytes) -> bytes:
    """Read until an end."""
    loop, got = asyncio.get_running_loop(), bytearray()
    while not got.endswith(end):
        part = await loop.sock_recv(client, 65536)
        assert part, "the connection was closed"
        got += part
    return bytes(got)


async def bytes_until_closed(client: socket.socket) -> int:
    """Count the bytes before the connection is closed."""
    loop, got = asyncio.get_running_loop(), 0
    with suppress(ConnectionResetError):
        while part := await loop.sock_recv(client, 65536):
            got += len(part)
    return got


async def test_the_head_is_sent_with_the_first_comment() -> None:
    site = Site()
    connection, written = asked(site.app())
    await anyio.wait_all_tasks_blocked()
    [begun] = written.parts
    assert begun.startswith(b"HTTP/1.1 200 OK\r\n")
    assert begun.endswith(b"\r\n\r\n12\r\n: conversation c\n\n\r\n")
    site.runs.say(TextDelta("ab"))
    await anyio.wait_all_tasks_blocked()
    assert len(written.parts) == 2
    connection.connection_lost(None)
    await site.no_readers()


@pytest.mark.parametrize("sends_directly", [True, False])
async def test_sending_without_a_task_can_be_switched_off(sends_directly: bool) -> None:
    offered: list[bool] = []

    async def greet(request: Request) -> ASGIApp:
        offered.append(send_now(request.scope) is not None)
        return PlainTextResponse("hello")

    connection, written = asked(
        Endpoint("/", greet, methods=["GET"]),
        b"GET / HTTP/1.1\r\n\r\n",
        sends_directly=sends_directly,
    )
    await anyio.wait_all_tasks_blocked()
    assert offered == [sends_directly]
    assert b"".join(written.parts).endswith(b"hello")
    connection.connection_lost(None)


@pytest.mark.parametrize(("with_head", "is_there"), [(0, False), (5, False), (9, True)])
async def test_a_handler_knows_whether_the_whole_body_has_arrived(
    with_head: int, is_there: bool
) -> None:
    known: list[bool] = []

    async def echo(request: Request) -> ASGIApp:
        set_owner(request.scope, ANONYMOUS)  # as the gate does
        known.append(BODY_RECEIVED in request.scope["extensions"])
        answer = json_answer(
            request.scope, await read_object(request, RequestLimits(), PartialBodies())
        )
        known.append(BODY_RECEIVED in request.scope["extensions"])
        return answer

    head = b"POST / HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
    body = b'{"a":"b"}'
    post = Endpoint("/", echo, methods=["POST"])
    connection, written = asked(post, head + body[:with_head])
    await anyio.wait_all_tasks_blocked()
    connection.data_received(body[with_head:])
    await anyio.wait_all_tasks_blocked()
    assert b"".join(written.parts).endswith(body)
    assert known == [is_there, True]
    connection.connection_lost(None)


@pytest.mark.promise("P11")
async def test_a_later_head_that_does_not_end_closes_the_connection() -> None:
    async def greet(request: Request) -> ASGIApp:
        return json_answer(request.scope, {"a": "b"})

    site = Endpoint("/", greet, methods=["GET"])
    clock = Clock()
    connection, written = asked(site, REQUEST + REQUEST, clock)
    await anyio.wait_all_tasks_blocked()
    assert b"".join(written.parts).count(b"HTTP/1.1 200 OK") == 2
    connection.data_received(REQUEST[:9])
    connection.data_received(REQUEST[9:12])
    assert not written.closed
    clock.ring(HEAD_SECONDS)
    assert written.closed
    connection.connection_lost(None)


async def test_nothing_is_written_to_a_client_that_disconnected_before_the_answer() -> None:
    site = Site()

    async def stream(_: Request) -> ASGIApp:
        return EventStream(site.services, RUN, NativeEncoder(frozenset()))

    connection, written = asked(Endpoint("/", stream, methods=["GET"]))
    connection.connection_lost(None)
    await anyio.wait_all_tasks_blocked()
    assert written.parts == []
    await site.no_readers()


async def test_a_failed_text_answer_gets_no_final_chunk() -> None:
    site = Site()
    _, written = asked(site.text())
    site.runs.say(TextDelta("ab"))
    await anyio.wait_all_tasks_blocked()
    site.runs.breaks(UnknownRun("gone"))
    await anyio.wait_all_tasks_blocked()
    assert written.closed
    assert not b"".join(written.parts).endswith(b"0\r\n\r\n")


async def test_malformed_http_is_refused_with_the_servers_own_error() -> None:
    _, written = asked(Site().app(), b"what is this\r\n\r\n")
    assert b"".join(written.parts).startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in b"".join(written.parts)


@pytest.mark.promise("P11")
async def test_a_client_that_does_not_read_is_dropped() -> None:
    """Its connection is closed even with unsent bytes, which would hold up the server's stop."""
    site = Site(send_seconds=0.1)
    async with client_of(site) as client:
        site.runs.say(TextDelta("x" * MUCH))
        await site.no_readers()
        assert await bytes_until_closed(client) < MUCH


@pytest.mark.promise("P11")
async def test_a_client_that_does_not_read_an_answer_of_json_is_dropped() -> None:
    """Not only a stream: sixty held answers cost sixty times the memory of one."""

    async def answer(request: Request) -> ASGIApp:
        return json_answer(request.scope, {"a": "x" * 2 * MUCH})

    state = ServerState()
    async with connected(Endpoint("/", answer, methods=["GET"]), 0.1, state) as client:
        await asyncio.get_running_loop().sock_sendall(client, REQUEST)
        await wait_until(lambda: bool(state.connections))
        # the server drops it, whether or not anything is read
        await wait_until(lambda: not state.connections)


@pytest.mark.promise("P11")
async def test_a_client_that_does_not_read_the_end_of_a_stopping_server_is_dropped() -> None:
    site = Site(send_seconds=0.1)
    async with client_of(site, send_seconds=60) as client:
        site.runs.say(TextDelta("x" * MUCH))
        await anyio.wait_all_tasks_blocked()
        site.stopping.set()
        await site.no_readers()
        assert await bytes_until_closed(client) < MUCH


@pytest.mark.promise("P11")
async def test_a_client_that_reads_late_gets_everything() -> None:
    site = Site(ping=0.02, send_seconds=20)
    async with client_of(site) as client:
        site.runs.say(TextDelta("x" * MUCH))
        await anyio.wait_all_tasks_blocked()
        site.runs.say(END)
        got = await read_until(client, done(2) + b"\r\n0\r\n\r\n")
    assert got.count(b"x" * MUCH) == 1


@pytest.mark.promise("P11")
async def test_a_client_that_read_late_once_is_not_dropped() -> None:
    """Its time begins anew when it has read."""
    site = Site(ping=0.02, send_seconds=0.6)
    async with client_of(site) as client:
        site.runs.say(TextDelta("x" * MUCH))
        await read_until(client, b": ping\n\n\r\n")
        with anyio.move_on_after(1):
            await read_until(client, b"never")
        assert site.runs.readers
        site.runs.say(END)
        assert done(2) in await read_until(client, b"0\r\n\r\n")


@pytest.mark.promise("P7")
@pytest.mark.parametrize("body", [0, 90_000, 250_000])
async def test_a_client_that_disconnects_is_forgotten(body: int) -> None:
    """Also after a body so large that reading was paused."""
    site = Site()
    async with client_of(site, body) as client:
        client.close()
        await site.no_readers()


async def test_a_request_that_comes_during_a_stream_is_served_after_it() -> None:
    site = Site()
    async with client_of(site) as client:
        again = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(client, again)
        for _ in range(10):  # the server has room to read it
            await anyio.wait_all_tasks_blocked()
        site.runs.say(TextDelta("a"), END)
        first = await read_until(client, b"0\r\n\r\n")
        second = first if first.count(done(2)) == 2 else await read_until(client, b"0\r\n\r\n")
    assert done(2) in first
    assert done(2) in second


@pytest.mark.promise("P11", "P12")
async def test_bytes_behind_a_refused_head_are_not_read() -> None:
    site, loop = Site(), asyncio.get_running_loop()
    async with connected(site.app(), 60) as client:
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000)
        assert (await loop.sock_recv(client, 65536)).startswith(b"HTTP/1.1 431 ")
        await loop.sock_sendall(client, b"\r\nhost: 127.0.0.1\r\n\r\n")
        for _ in range(10):  # the server has room to read it
            await anyio.wait_all_tasks_blocked()
        assert await bytes_until_closed(client) == 0
    assert not site.runs.readers
