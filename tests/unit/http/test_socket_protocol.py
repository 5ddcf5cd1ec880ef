"""Bounds of a WebSocket's connection, over real connections, byte by byte."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.raw_socket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawFrame,
    RawSocket,
    connected,
    frame,
    head,
    opened,
)
from tests.support.socket_site import OWN, SocketSite
from tests.support.waiting import wait_until

from passback.core.messages import OwnerId
from passback.http.open_sockets import OpenSockets
from passback.http.protocol import OpenConnections
from passback.http.socket_protocol import CONTROL_FRAMES, FRAGMENT_BYTES, FRAGMENTS, KEYLESS_BYTES
from passback.http.wires import PartialBodies, RequestLimits

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

KIB = 1024
HELLO = RawFrame(TEXT, b"hello alice")
HTTP = b"GET /polled/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer the-key-of-alice\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def site(**changes: object) -> AsyncGenerator[SocketSite]:
    async with SocketSite(**changes).served() as one:  # type: ignore[arg-type]  # of a test
        with anyio.fail_after(20):
            yield one
            await one.until_idle()


@asynccontextmanager
async def greeted(one: SocketSite, *, small: bool = False) -> AsyncGenerator[RawSocket]:
    async with opened(one.url, "/keyed", OWN, small=small) as socket:
        assert await socket.frame() == HELLO
        yield socket


# ---------------------------------------------------------------- messages
async def test_a_message_may_come_in_fragments_with_pings_between() -> None:
    async with site() as one, greeted(one) as socket:
        content = frame(TEXT, b"a", last=False) + frame(PING, b"p") + frame(CONTINUATION, b"b")
        for place in range(len(content)):
            await socket.send(content[place : place + 1])
        assert await socket.frame() == RawFrame(PONG, b"p")
        assert await socket.frame() == RawFrame(TEXT, b"echo ab")
        await socket.send(frame(BINARY, b"c", last=False) + frame(CONTINUATION, b""))
        assert await socket.frame() == RawFrame(BINARY, b"echo c")
        await socket.send(frame(CLOSE, b"\x03\xe8") + b"junk")
        assert await socket.close_frame() == (1000, "")


async def test_many_messages_at_once_are_answered_in_order() -> None:
    async with site() as one, greeted(one) as socket:
        await socket.send(b"".join(frame(TEXT, b"%d" % number) for number in range(3000)))
        for number in range(3000):
            assert await socket.frame() == RawFrame(TEXT, b"echo %d" % number)


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (frame(TEXT, b"x" * (KIB + 1)), 1009),
        (frame(TEXT, b"x" * KIB, last=False) + frame(CONTINUATION, b"x"), 1009),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, b"x", masked=False), 1002),
        (frame(CONTINUATION, b"x"), 1002),
        (frame(TEXT, b"x", last=False) + frame(TEXT, b"x"), 1002),
        (frame(TEXT, b"x", last=False) + frame(CLOSE), 1002),
    ],
)
async def test_what_is_no_message_ends_the_socket(content: bytes, end: int) -> None:
    async with site(limits=RequestLimits(socket_bytes=KIB)) as one, greeted(one) as socket:
        await socket.send(frame(TEXT, b"x" * KIB))
        assert await socket.frame() == RawFrame(TEXT, b"echo " + b"x" * KIB)
        await socket.send(content + frame(TEXT, b"never answered"))
        assert (await socket.close_frame())[0] == end
        await socket.end()


async def test_without_a_key_only_small_messages_are_taken() -> None:
    async with site() as one, opened(one.url, "/ws") as socket:
        await socket.send(frame(TEXT, b"x" * KEYLESS_BYTES))
        assert await socket.frame() == RawFrame(TEXT, b"hello None")
        assert len((await socket.frame()).content) == KEYLESS_BYTES + 5
        await socket.send(frame(TEXT, b"x" * (KEYLESS_BYTES + 1)))
        assert (await socket.close_frame())[0] == 1009


async def test_a_flood_of_small_fragments_ends_the_socket() -> None:
    async with site() as one, greeted(one) as socket:
        most = FRAGMENTS + 2
        pieces = [frame(CONTINUATION, b"x" * FRAGMENT_BYTES, last=False)] * most
        await socket.send(frame(TEXT, b"", last=False) + b"".join(pieces) + frame(CONTINUATION))
        assert len((await socket.frame()).content) == 5 + FRAGMENT_BYTES * most
        await socket.send(frame(TEXT, b"", last=False))
        await socket.send(frame(CONTINUATION, last=False) * 2000)
        end = (1008, "a message comes in too many small fragments")
        assert await socket.close_frame() == end


async def test_messages_that_arrive_in_part_are_counted_with_the_bodies() -> None:
    bodies = PartialBodies(100 * KIB)
    async with site(bodies=bodies) as one, greeted(one) as socket, greeted(one) as second:
        large = frame(TEXT, b"x" * 90 * KIB)
        await socket.send(large[:-1])
        await wait_until(lambda: bodies.held >= 80 * KIB)
        await second.send(large[:-1])
        reason = "too many messages are arriving at once; send this one later"
        assert await second.close_frame() == (1013, reason)
        await socket.send(large[-1:])
        assert len((await socket.frame()).content) == 5 + 90 * KIB
        assert bodies.held == 0
        await socket.send(large[:-1])
        await wait_until(lambda: bodies.held >= 80 * KIB)
        await socket.stream.aclose()
        await one.until_idle()
        assert bodies.held == 0


async def test_a_client_that_answers_a_close_with_junk_is_not_waited_for() -> None:
    async with site() as one, greeted(one) as socket:
        await socket.send(frame(TEXT, b"end 4001 enough"))
        assert await socket.close_frame() == (4001, "enough")
        await socket.send(b"\xff" * 10)
        await socket.end()


# ---------------------------------------------------------------- control frames
@pytest.mark.parametrize("opcode", [PING, PONG])
async def test_a_flood_of_control_frames_ends_the_socket(opcode: int) -> None:
    async with site() as one, greeted(one) as socket:
        await socket.send(frame(opcode) * (CONTROL_FRAMES // 2))
        await socket.send(frame(opcode) * 20_000)
        assert await socket.close_frame() == (1008, "too many pings or pongs in one second")
        for _ in range(100):  # it can still send, so that no reset hides the close frame
            assert await socket.send(b"x")


async def test_a_client_that_does_not_answer_pings_is_closed() -> None:
    async with site(ping=0.1, pong_timeout=0.1) as one, greeted(one) as socket:
        assert (await socket.frame()).opcode == PING
        assert await socket.close_frame() == (1011, "the client does not answer pings")


async def test_a_client_that_answers_pings_is_kept_also_while_its_messages_wait() -> None:
    async with site(ping=0.05, pong_timeout=0.05) as one, greeted(one) as socket:
        for _ in range(3):
            ping = await socket.frame()
            await socket.send(frame(PONG, ping.content))
        # behind an order that takes long a message waits, and the pong behind it
        await socket.send(frame(TEXT, b"stay") + frame(TEXT, b"x"))
        pings = [await socket.frame() for _ in range(4)]
        assert {each.opcode for each in pings} == {PING}
        one.stopping.set()
        assert (await socket.close_frame())[0] == 1012


# ---------------------------------------------------------------- handshakes
async def test_frames_may_come_with_the_handshake() -> None:
    async with site() as one, connected(one.url) as socket:
        await socket.send(head("/keyed", OWN) + frame(TEXT, b"a"))
        assert (await socket.answer())[0] == 101
        assert await socket.frame() == HELLO
        assert await socket.frame() == RawFrame(TEXT, b"echo a")


async def test_a_connection_may_serve_requests_before_it_is_a_websocket() -> None:
    async with site() as one, connected(one.url) as socket:
        for _ in range(2):
            await socket.send(HTTP)
            assert await socket.answer() == (200, b'{"owner":"alice"}')
        await socket.send(head("/keyed", OWN))
        assert (await socket.answer())[0] == 101
        assert await socket.frame() == HELLO


async def test_a_handshake_behind_a_request_that_waits_is_no_handshake() -> None:
    async with site() as one, connected(one.url) as socket:
        await socket.send(HTTP + head("/keyed", OWN))
        assert (await socket.answer())[0] == 200
        status, body = await socket.answer()
        assert (status, b"upgrade_required" in body) == (426, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Long": "x" * 8001}, 431),
        ({"Cookie": "x" * 7000}, 101),
        ({"Content-Length": "5"}, 426),
    ],
)
async def test_a_long_head_is_refused_before_it_is_parsed_again(
    headers: dict[str, str], status: int
) -> None:
    async with site() as one, connected(one.url) as socket:
        await socket.send(head("/keyed", {**OWN, **headers}))
        assert (await socket.answer())[0] == status


async def test_a_handshake_is_not_logged_with_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with site() as one, connected(one.url) as socket:
        await socket.send(head("/keyed?token=hidden", OWN))
        assert (await socket.answer())[0] == 101
        await socket.send(frame(TEXT, b"hidden") + frame(CLOSE, b"\x03\xe8hidden"))
        assert (await socket.close_frame())[0] == 1000
        await one.until_idle()
    logged = [str(vars(each)) for each in caplog.records]
    assert [each for each in logged if "hidden" in each or "the-key-of" in each] == []


# ---------------------------------------------------------------- places
async def test_a_socket_without_a_key_gives_its_place_to_other_connections() -> None:
    connections = OpenConnections(2)
    async with site(connections=connections) as one, opened(one.url, "/ws") as keyless:
        assert (await keyless.frame()).content == b"hello None"
        async with greeted(one), connected(one.url) as third:
            await third.send(HTTP)
            assert (await third.answer())[0] == 200
            reason = "another connection has taken the place of this one, which had no key"
            assert await keyless.close_frame() == (1013, reason)


async def test_a_socket_with_a_key_keeps_its_place() -> None:
    connections = OpenConnections(1)
    async with site(connections=connections) as one, greeted(one) as socket:
        async with connected(one.url) as second:
            await second.end()
        await socket.send(frame(TEXT, b"a"))
        assert await socket.frame() == RawFrame(TEXT, b"echo a")


async def test_a_handshake_that_is_not_answered_gives_its_place() -> None:
    connections = OpenConnections(1)
    async with site(connections=connections) as one, connected(one.url) as waiting:
        await waiting.send(head("/slow", OWN))
        await wait_until(lambda: one.sockets.count > 0)
        async with connected(one.url) as second:
            await second.send(HTTP)
            assert (await second.answer())[0] == 200
        await waiting.end()
        one.stopping.set()


# ---------------------------------------------------------------- counts
class _Socket:
    def __init__(self) -> None:
        self.gave_way = False

    def give_way(self) -> None:
        self.gave_way = True


def test_the_socket_that_is_without_a_key_for_longest_gives_way() -> None:
    sockets = OpenSockets(3)
    first, second, third, fourth = (_Socket() for _ in range(4))
    for each in (first, second, third):
        sockets.enter(each)
    sockets.claim(first, OwnerId("alice"))
    sockets.enter(fourth)
    assert [each.gave_way for each in (first, second, third, fourth)] == [False, True, False, False]
    assert sockets.count == 3
    for each in (first, second, third, fourth):
        sockets.leave(each)
        sockets.leave(each)
    assert sockets.count == 0
