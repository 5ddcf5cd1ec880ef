"""Attacks on the WebSockets of a real server: bad handshakes, bad frames, floods, idle sockets."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx
import pytest
from tests.support.raw_socket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawFrame,
    connected,
    frame,
    head,
    opened,
)
from tests.support.server import Server, running_server
from tests.support.waiting import moment
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11"), pytest.mark.promise("P13")]

KEY = "alice-0123456789abcdef"
OWN: Mapping[str, str | None] = {"Authorization": f"Bearer {KEY}"}
KIB = 1024
IDLE = 1000  # sockets at once
IDLE_BYTES = 64 * KIB  # of memory for each


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    async with running_server(
        *("--limits", "socket_bytes=65536 socket_queue_bytes=65536 owner_sockets=8 sockets=16"),
        *("--timing", "key_timeout=1 send_timeout=1"),
        module="tests.support.echo_wire",
        environment={"PASSBACK_API_KEYS": f"alice:{KEY}"},
    ) as server:
        yield server


def memory_of(server: Server) -> int:
    """Resident bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text("utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * KIB


async def check_health(server: Server) -> None:
    """Open a socket of an owner, and use it."""
    async with opened(server.url, "/keyed", OWN) as socket:
        assert await socket.frame() == RawFrame(TEXT, b"hello alice")
        await socket.send(frame(TEXT, b"a"))
        assert await socket.frame() == RawFrame(TEXT, b"echo a")
        await socket.send(frame(CLOSE, b"\x03\xe8"))
        assert await socket.close_frame() == (1000, "")


# ---------------------------------------------------------------- handshakes
def _changed(**changes: str | None) -> bytes:
    return head("/keyed", {**OWN, **{k.replace("_", "-"): v for k, v in changes.items()}})


SPOOFED = b"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
HANDSHAKES: dict[str, tuple[bytes, int]] = {
    "no key": (head("/keyed"), 401),
    "a wrong key": (head("/keyed", {"Authorization": "Bearer wrong"}), 401),
    "a wrong key where it may come later": (head("/ws", {"Authorization": "Bearer x"}), 401),
    "a password": (head("/ws", {"Authorization": "Basic YTpi"}), 401),
    "the key in the address": (head(f"/keyed?token={KEY}"), 401),
    "two keys": (_changed(Authorization=f"Bearer {KEY}\r\nAuthorization: Bearer {KEY}"), 401),
    "a foreign page": (_changed(Origin="https://evil.example"), 403),
    "a foreign page without a key": (head("/ws", {"Origin": "https://evil.example"}), 403),
    "a foreign page that says so": (_changed(Sec_Fetch_Site="cross-site"), 403),
    "a page without an origin": (head("/ws", {"Origin": "null"}), 403),
    "a page of a like name": (head("/ws", {"Origin": "http://127.0.0.1.evil.example"}), 403),
    "two origins": (_changed(Origin="http://127.0.0.1\r\nOrigin: https://evil.example"), 403),
    "a foreign host": (_changed(Host="evil.example"), 421),
    "a foreign host without a key": (head("/ws", {"Host": "evil.example"}), 421),
    "no host": (_changed(Host=None), 421),
    "two hosts": (_changed(Host="127.0.0.1\r\nHost: 127.0.0.1"), 421),
    "an unknown address": (head("/nowhere", OWN), 404),
    "a file beside it": (head("/ws/../keyed"), 401),
    "an escaped path": (head("/%77s"), 401),
    "no version": (_changed(Sec_WebSocket_Version=None), 426),
    "an old version": (_changed(Sec_WebSocket_Version="8"), 426),
    "two versions": (_changed(Sec_WebSocket_Version="13\r\nSec-WebSocket-Version: 13"), 426),
    "no nonce": (_changed(Sec_WebSocket_Key=None), 426),
    "a short nonce": (_changed(Sec_WebSocket_Key="c2hvcnQ="), 426),
    "a nonce that is no base64": (_changed(Sec_WebSocket_Key="!" * 24), 426),
    "two nonces": (_changed(Sec_WebSocket_Version="13")[:-4] + SPOOFED, 426),
    "no upgrade": (_changed(Upgrade=None), 426),
    "no connection": (_changed(Connection=None), 426),
    "another connection": (_changed(Connection="keep-alive"), 426),
    "a malformed connection": (_changed(Connection="Upgrade, @@"), 426),
    "another upgrade": (_changed(Upgrade="h2c"), 426),
    "two upgrades": (_changed(Upgrade="websocket, h2c"), 426),
    "a malformed protocol": (_changed(Sec_WebSocket_Protocol="a b;c"), 426),
    "a body": (_changed(Content_Length="2") + b"{}", 426),
    "an old HTTP": (_changed().replace(b"HTTP/1.1", b"HTTP/1.0"), 426),
    "another method": (_changed().replace(b"GET", b"POST"), 426),
    "a long line": (_changed(Cookie="x" * 9000), 431),
    "a long head": (_changed(Cookie="x" * 70_000), 431),
    "many fields": (_changed(Cookie="a" + "\r\nX: y" * 101), 431),
    "an upgrade on an HTTP path": (head("/healthz"), 200),
    "an upgrade of a page": (head("/"), 200),
    "an upgrade of a page to HTTP/2": (head("/healthz", {"Upgrade": "h2c"}), 200),
    "an upgrade of a polled address": (head("/polled/", {"Upgrade": "h2c"}), 200),
}


@pytest.mark.parametrize("case", HANDSHAKES.values(), ids=HANDSHAKES)
async def test_a_bad_handshake_is_refused_with_a_reason(
    server: Server, case: tuple[bytes, int]
) -> None:
    content, expected = case
    async with connected(server.url) as socket:
        await socket.send(content)
        status, body = await socket.answer()
    assert (status, KEY.encode() in body) == (expected, False)
    if status != 200:
        assert json.loads(body).keys() >= {"code", "message", "request_id"}
    await check_health(server)


async def test_a_request_without_an_upgrade_is_told_what_the_address_takes(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, headers={"x-request-id": "r"}) as client:
        assert (await client.get("/keyed")).status_code == 401
        answer = await client.get("/keyed", headers={"authorization": f"Bearer {KEY}"})
        polled = await client.get("/polled/")
        wrong = await client.get("/polled/", headers={"authorization": "Bearer wrong"})
    assert answer.status_code == 426
    assert answer.headers["upgrade"] == "websocket"
    assert answer.headers["sec-websocket-version"] == "13"
    assert answer.json() == {
        "code": "upgrade_required",
        "message": "this address takes only WebSockets (RFC 6455, version 13)",
        "request_id": "r",
    }
    assert (polled.status_code, polled.json(), wrong.status_code) == (200, {"owner": None}, 401)


async def test_nothing_is_compressed(server: Server) -> None:
    """A small message could be a very large one."""
    offered = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
    async with opened(server.url, "/keyed", {**OWN, **offered}) as socket:
        assert "sec-websocket-extensions" not in socket.headers
        plain = frame(TEXT, b"x")
        await socket.send(bytes((plain[0] | 0x40,)) + plain[1:])
        assert (await socket.close_frame())[0] == 1002


# ---------------------------------------------------------------- frames
LARGE = 65536
FRAMES: dict[str, tuple[bytes, int]] = {
    "a message that is too large": (frame(TEXT, b"x" * (LARGE + 1)), 1009),
    "a message that says it is huge": (b"\x81\xff\x7f" + b"\xff" * 7 + b"\0" * 4, 1009),
    "a length with its first bit": (b"\x81\xff" + b"\xff" * 8 + b"\0" * 4, 1009),
    "bytes that are too many": (frame(BINARY, b"x" * (LARGE + 1)), 1009),
    "fragments that are too large together": (
        frame(TEXT, b"x" * LARGE, last=False) + frame(CONTINUATION, b"x"),
        1009,
    ),
    "a flood of empty fragments": (
        frame(TEXT, last=False) + frame(CONTINUATION, last=False) * 5000,
        1008,
    ),
    "a flood of fragments of one byte": (
        frame(TEXT, last=False) + frame(CONTINUATION, b"x", last=False) * 5000,
        1008,
    ),
    "a flood of pings": (frame(PING, b"x" * 125) * 5000, 1008),
    "a flood of pongs": (frame(PONG) * 5000, 1008),
    "no mask": (frame(TEXT, b"x", masked=False), 1002),
    "a reserved bit": (b"\xc1\x80\0\0\0\0", 1002),
    "an unknown kind": (frame(3, b"x"), 1002),
    "an unknown control frame": (frame(11, b"x"), 1002),
    "a ping in fragments": (frame(PING, b"x", last=False), 1002),
    "a ping that is too long": (frame(PING, b"x" * 126), 1002),
    "a fragment without a beginning": (frame(CONTINUATION, b"x"), 1002),
    "a message within another": (frame(TEXT, b"x", last=False) + frame(TEXT, b"x"), 1002),
    "a close of one byte": (frame(CLOSE, b"x"), 1002),
    "a close with a reserved code": (frame(CLOSE, b"\x03\xec"), 1002),
    "a close whose reason is no text": (frame(CLOSE, b"\x03\xe8\xff"), 1007),
    "a text that is no UTF-8": (frame(TEXT, b"\xff\xfe"), 1007),
    "a text with half a character": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "a request": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 1002),
}


@pytest.mark.parametrize("case", FRAMES.values(), ids=FRAMES)
async def test_a_bad_frame_ends_its_socket_alone(server: Server, case: tuple[bytes, int]) -> None:
    content, code = case
    async with opened(server.url, "/keyed", OWN) as other:
        async with opened(server.url, "/keyed", OWN) as socket:
            await socket.send(content + frame(TEXT, b"never answered"))
            assert (await socket.close_frame())[0] == code
            await socket.end()
        await other.send(frame(TEXT, b"b"))
        assert [(await other.frame()).content for _ in range(2)] == [b"hello alice", b"echo b"]
    await check_health(server)


# ---------------------------------------------------------------- keys that come late
async def test_a_key_that_does_not_come_in_time_ends_the_socket(server: Server) -> None:
    async with opened(server.url, "/ws") as socket:
        assert await socket.frame() == RawFrame(TEXT, b"hello None")
        await socket.send(frame(TEXT, b"x"))  # other messages do not help
        late = "no key came within 1 seconds (key_timeout in PASSBACK_TIMING)"
        assert await socket.close_frame() == (1008, late)


async def test_one_wrong_key_is_one_too_many(server: Server) -> None:
    async with opened(server.url, "/ws") as socket:
        await socket.send(frame(TEXT, b"key wrong") + frame(TEXT, f"key {KEY}".encode()))
        assert [(await socket.frame()).content for _ in range(2)] == [
            b"hello None",
            b"refused unauthenticated",
        ]
        assert await socket.close_frame() == (1008, "unauthenticated: a valid API key is needed")


async def test_sockets_without_a_key_keep_nobody_out(server: Server) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(40):
            await stack.enter_async_context(opened(server.url, "/ws"))
        await check_health(server)


async def test_an_owner_has_so_many_sockets_and_no_more(server: Server) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(opened(server.url, "/keyed", OWN))
        ninth = await stack.enter_async_context(connected(server.url))
        await ninth.send(head("/keyed", OWN))
        status, body = await ninth.answer()
        assert (status, json.loads(body)["code"]) == (429, "too_many_sockets")
        assert "owner_sockets in PASSBACK_LIMITS" in json.loads(body)["message"]
    while not await _has_room(server):  # the server notices the ends a moment later
        await moment()


async def _has_room(server: Server) -> bool:
    """Return whether its owner may open as many sockets as another test needs."""
    async with AsyncExitStack() as stack:
        statuses = list[int]()
        for _ in range(4):
            socket = await stack.enter_async_context(connected(server.url))
            await socket.send(head("/keyed", OWN))
            statuses.append((await socket.answer())[0])
        return statuses == [101] * 4


# ---------------------------------------------------------------- memory
async def test_a_client_that_never_reads_is_closed_and_its_memory_freed(server: Server) -> None:
    await check_health(server)
    before = memory_of(server)
    async with opened(server.url, "/keyed", OWN, small=True) as greedy:
        await greedy.send(frame(TEXT, b"flood 10000 60000"))
        with anyio.fail_after(20):
            while await greedy.send(frame(PING, b"x" * 100)):
                await anyio.lowlevel.checkpoint()
        assert memory_of(server) - before < 30 * KIB * KIB
    await check_health(server)


async def test_idle_sockets_take_little_memory() -> None:
    async with running_server(
        *("--limits", f"sockets={IDLE + 10} owner_sockets={IDLE + 10} connections={IDLE + 50}"),
        module="tests.support.echo_wire",
        environment={"PASSBACK_API_KEYS": f"alice:{KEY}"},
    ) as server:
        await check_health(server)
        before = memory_of(server)
        async with AsyncExitStack() as stack:
            for _ in range(IDLE):
                socket = await stack.enter_async_context(opened(server.url, "/keyed", OWN))
                assert await socket.frame() == RawFrame(TEXT, b"hello alice")
            each = (memory_of(server) - before) // IDLE
            assert each < IDLE_BYTES, f"{each} bytes for each idle socket"


# ---------------------------------------------------------------- the end
async def test_a_server_that_stops_ends_all_sockets_with_a_last_word() -> None:
    async with running_server(
        module="tests.support.echo_wire", environment={"PASSBACK_API_KEYS": f"alice:{KEY}"}
    ) as server:
        address = server.url.replace("http", "ws")
        async with AsyncExitStack() as stack:
            given = {"authorization": f"Bearer {KEY}"}
            sockets = [
                await stack.enter_async_context(
                    connect(f"{address}/keyed", additional_headers=given, proxy=None)
                )
                for _ in range(10)
            ]
            stubborn = await stack.enter_async_context(
                opened(server.url, "/keyed", OWN, small=True)
            )
            await stubborn.send(frame(TEXT, b"flood 10 100000"))
            server.terminate()
            for socket in sockets:
                assert [await socket.recv(), await socket.recv()] == [
                    "hello alice",
                    "the last word",
                ]
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
                assert socket.close_code == 1012
                assert socket.close_reason == "the server stops: connect again, to another worker"
            assert await server.exit_code() == 0
