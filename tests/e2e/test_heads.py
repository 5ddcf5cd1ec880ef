"""Heads that are no request, or not yet: too large, too slow, or no HTTP."""

import json
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
from tests.support.server import Server, running_server

from passback.http.protocol import HEAD_BYTES, HEAD_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    async with running_server() as server:
        yield server


async def exchange(server: Server, *pieces: bytes, seconds: float = 5) -> bytes:
    """Send pieces, then read to the end of the connection."""
    place = urlsplit(server.url)
    assert place.hostname is not None
    assert place.port is not None
    received = b""
    with anyio.fail_after(seconds):
        async with await anyio.connect_tcp(place.hostname, place.port) as connection:
            try:
                for piece in pieces:
                    await connection.send(piece)
            except anyio.BrokenResourceError:
                pass  # the server has seen enough
            try:
                async for chunk in connection:
                    received += chunk
            except anyio.BrokenResourceError:
                pass
    return received


def error_of(answer: bytes) -> tuple[bytes, str, set[str]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    error = json.loads(body)
    return head.split(b"\r\n")[0], error["code"], set(error)


@pytest.mark.parametrize(
    "header",
    [b"X: " + b"x" * HEAD_BYTES, b"".join(b"X%d: y\r\n" % n for n in range(HEAD_BYTES // 6))],
    ids=["one large header", "many headers"],
)
async def test_a_head_that_is_too_large_is_refused(server: Server, header: bytes) -> None:
    pieces = [header[at : at + 8192] for at in range(0, len(header), 8192)]
    status, code, keys = error_of(await exchange(server, HEAD, *pieces))
    assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
    assert (code, keys) == ("headers_too_large", {"code", "message", "request_id"})


async def test_a_large_body_does_not_count_as_a_head(server: Server) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 3 * HEAD_BYTES}]}).encode()
    head = b"POST /send-message HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = await exchange(server, head, body[:100], body[100:], seconds=20)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_many_requests_on_one_connection_are_counted_one_by_one(server: Server) -> None:
    request = HEAD + b"X: " + b"x" * (HEAD_BYTES // 2) + b"\r\n\r\n"
    last = HEAD + b"Connection: close\r\n\r\n"
    answer = await exchange(server, *[request] * 5, last)
    assert answer.count(b"HTTP/1.1 200 OK") == 6


async def test_bytes_that_are_no_http_get_a_400(server: Server) -> None:
    status, code, _ = error_of(await exchange(server, b"\x16\x03\x01 hello\r\n\r\n"))
    assert (status, code) == (b"HTTP/1.1 400 Bad Request", "bad_request")


async def test_a_head_that_does_not_come_is_not_waited_for_and_an_idle_connection_stays(
    server: Server,
) -> None:
    """Clients and proxies keep connections for seconds: the client must be the first to close."""

    async def gives_up(beginning: bytes) -> None:
        assert await exchange(server, beginning, seconds=HEAD_SECONDS + 5) == b""

    async with httpx.AsyncClient(limits=httpx.Limits(keepalive_expiry=None)) as client:
        before = await client.get(f"{server.url}/healthz")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gives_up, b"")
            tasks.start_soon(gives_up, HEAD)
        behind = await client.get(f"{server.url}/healthz")
    assert behind.extensions["network_stream"] is before.extensions["network_stream"]
