"""Attacks on a real server's sockets, without a key: memory and slots held with few bytes."""

import asyncio
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
from tests.support.server import Server, running_server

from passback.http.protocol import HEAD_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

MIB = 1024 * 1024
KEY = "alice-0123456789abcdef"
CHUNKED = (
    b"POST /send-message HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
REFUSED = (
    b"POST /send-message HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n"
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    """A server with a key, which tests of this module do not use unless they say so."""
    async with running_server(
        "--limits", "connections=64", environment={"PASSBACK_API_KEYS": f"alice:{KEY}"}
    ) as server:
        yield server


def memory_of(server: Server) -> int:
    """Resident bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def open_files_of(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


async def connect(server: Server) -> socket.socket:
    """Connect a client with a small buffer, so that what it does not read stays with the server."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    place = urlsplit(server.url)
    await asyncio.get_running_loop().sock_connect(client, (place.hostname, place.port))
    return client


async def send(client: socket.socket, piece: bytes) -> bool:
    """False: the server has closed the connection."""
    try:
        await asyncio.get_running_loop().sock_sendall(client, piece)
    except ConnectionError:
        return False
    return True


async def rest_of(client: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    loop, got = asyncio.get_running_loop(), bytearray()
    with suppress(ConnectionError):
        while part := await loop.sock_recv(client, 65536):
            got += part
    return bytes(got)


async def healthy(server: Server) -> bool:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"{server.url}/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("first", "piece"), [(b"0\r\n", b"a: b\r\n" * 10_000), (b"0\r\na: ", b"b" * 60_000)]
)
async def test_ten_megabytes_behind_a_body_are_not_kept(
    server: Server, first: bytes, piece: bytes
) -> None:
    before, sent = memory_of(server), 0
    with await connect(server) as client, anyio.fail_after(20):
        assert await send(client, CHUNKED + b"2\r\n{}\r\n" + first)
        while sent < 10 * MIB and await send(client, piece):
            sent += len(piece)
    assert sent < 10 * MIB
    assert await healthy(server)
    assert memory_of(server) - before < 20 * MIB


async def test_three_hundred_heads_of_thirteen_thousand_fields_are_not_kept() -> None:
    head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a:\r\n" * 13_000
    async with running_server() as server:
        assert await healthy(server)
        before = memory_of(server)
        with ExitStack() as stack, anyio.fail_after(30):
            for _ in range(300):
                await send(stack.enter_context(await connect(server)), head)
            assert await healthy(server)
            assert memory_of(server) - before < 80 * MIB


async def test_small_requests_without_end_on_one_connection_are_not_kept(server: Server) -> None:
    before = memory_of(server)
    request, sent = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 0
    with await connect(server) as client, anyio.fail_after(30):
        while sent < 5 * MIB and await send(client, request * 2000):
            sent += len(request) * 2000
    assert await healthy(server)
    assert memory_of(server) - before < 30 * MIB


async def test_answers_that_nobody_reads_keep_nobody_out_who_has_a_key(server: Server) -> None:
    with ExitStack() as stack, anyio.fail_after(30):
        for _ in range(64):
            client = stack.enter_context(await connect(server))
            for _ in range(40):
                await send(client, b"GET /playground/chat.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        async with httpx.AsyncClient(
            base_url=server.url, headers={"authorization": f"Bearer {KEY}"}
        ) as alice:
            answer = await alice.get("/commands")
    assert answer.status_code == 200


async def test_a_request_that_is_answered_before_it_ends_does_not_hold_its_socket(
    server: Server,
) -> None:
    loop = asyncio.get_running_loop()
    with await connect(server) as client, anyio.fail_after(HEAD_SECONDS + 20):
        await loop.sock_sendall(client, REFUSED)
        answer = await loop.sock_recv(client, 65536)
        await loop.sock_sendall(client, b"x")
        assert (answer + await rest_of(client)).startswith(b"HTTP/1.1 401 ")


async def test_who_has_a_key_gets_in_when_all_places_are_held_by_those_who_have_none(
    server: Server,
) -> None:
    beginnings = [b"", b"GET / HT", REFUSED, REFUSED + b"x"]
    with ExitStack() as stack, anyio.fail_after(30):
        for number in range(3 * 64):
            client = stack.enter_context(await connect(server))
            await send(client, beginnings[number % len(beginnings)])
        async with httpx.AsyncClient(
            base_url=server.url, headers={"authorization": f"Bearer {KEY}"}
        ) as alice:
            post = {"messages": [{"role": "user", "content": "hi"}]}
            answer = await alice.post("/send-message", json=post)
    assert answer.status_code == 200
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_junk_is_not_logged_for_each_request(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        async with running_server(stderr=stderr) as server:
            for _ in range(50):
                with await connect(server) as client, anyio.fail_after(20):
                    loop = asyncio.get_running_loop()
                    await loop.sock_sendall(client, b"\x16\x03\x01 hello\r\n\r\n")
                    assert b" 400 " in await loop.sock_recv(client, 65536)
    assert log.read_bytes().count(b"Invalid HTTP request") == 1


async def test_documents_that_nobody_reads_are_dropped() -> None:
    """Small requests with a key ask for a large page, and nobody reads it.

    The sockets would keep what the server has made of them.
    """
    flags = ("--timing", "send_timeout=1", "--model", "demo:fast", "--model-window", "0")
    async with running_server(*flags) as server, httpx.AsyncClient(base_url=server.url) as client:
        post = {"messages": [{"role": "user", "content": "x" * 3 * MIB}]}
        name = (await client.post("/send-message", json=post)).headers["x-conversation-id"]
        request = b"GET /conversations/%b/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        before = open_files_of(server)
        with ExitStack() as stack, anyio.fail_after(30):
            for _ in range(20):
                greedy = stack.enter_context(await connect(server))
                assert await send(greedy, request % name.encode())
                # only its beginning is read: the answer was made
                assert await asyncio.get_running_loop().sock_recv(greedy, 100)
            assert open_files_of(server) > before
            while open_files_of(server) > before:
                assert (await client.get("/healthz")).status_code == 200
