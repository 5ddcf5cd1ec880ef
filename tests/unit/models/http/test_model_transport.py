"""Requests and answers over sockets: framing, bad answers, the pool."""

import socket

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute
from tests.unit.models.http.raw_service import OK, Peer, posted, read, serving
from tests.unit.models.http.transporting import (
    CHUNKED,
    SHORT,
    A,
    answers,
    asked,
    once,
    transport,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


# ---------------------------------------------------------------- what goes over the wire
async def test_a_request_is_sent_as_it_is() -> None:
    seen: list[bytes] = []

    async def handle(peer: Peer) -> None:
        seen.append(await peer.asked())
        await peer.send(A)

    async with serving(handle) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url(), b"body"))
        assert (response.status_code, await read(response)) == (200, b"a")
        host = b"127.0.0.1:%d" % service.port
    assert seen == [
        b"POST /v1?a=b HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 4\r\n\r\nbody"
    ]


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (A, b"a"),
        (CHUNKED + b"1\r\na\r\n2;x=y\r\nbc\r\n0\r\ntrailer: z\r\n\r\n", b"abc"),
        (OK + b"\r\nuntil the end", b"until the end"),
        (OK + b"transfer-encoding: gzip\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" + A, b"a"),
    ],
    ids=["length", "chunks", "end", "unknown coding", "HTTP 1.0", "none", "after interim answers"],
)
async def test_each_way_to_say_where_a_body_ends_is_understood(answer: bytes, body: bytes) -> None:
    async with serving(once(answer)) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url()))
        assert "x" not in response.headers
        assert await read(response) == body


async def test_headers_of_an_answer_are_told() -> None:
    reply = b"HTTP/1.1 418 Tea\r\nA: 1\r\na: 2\r\ncontent-length: 0\r\n\r\n"
    async with serving(answers(reply)) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url()))
        await response.aclose()
    assert response.status_code == 418
    assert response.headers.raw == [(b"A", b"1"), (b"a", b"2"), (b"content-length", b"0")]


@pytest.mark.parametrize(
    "request_",
    [
        httpx.Request("GET", "http://x/", headers={"a": "1\r\nb: 2"}),
        httpx.Request("GET", "http://x/", headers={"a": "1\nb: 2"}),
        httpx.Request("GET", "http://x/", headers={"a: 1\r\nb": "2"}),
        httpx.Request("GET", "http://x/", headers={"a b": "2"}),
        httpx.Request("GET / HTTP/1.1\r\nA: B\r\n", "http://x/"),
        httpx.Request("HEAD", "http://x/"),
        httpx.Request("POST", "http://x/", content=b"abc", headers={"content-length": "1"}),
        httpx.Request("POST", "http://x/", headers={"transfer-encoding": "chunked"}),
    ],
)
async def test_a_request_that_could_pass_for_another_is_not_sent(request_: httpx.Request) -> None:
    async with transport() as over:
        with pytest.raises(httpx.LocalProtocolError):
            await over.handle_async_request(request_)


async def test_other_protocols_are_refused() -> None:
    async with transport() as over:
        with pytest.raises(httpx.UnsupportedProtocol):
            await over.handle_async_request(httpx.Request("GET", "ftp://x/"))


# ---------------------------------------------------------------- bad answers
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        OK,
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        OK + b"a: " + b"b" * (1 << 17),
        OK + b"a: b\r\n" * (1 << 14) + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * (1 << 14),
        OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\na",
    ],
    ids=["none", "cut", "ssh", "upgrade", "101", "long line", "long head", "interim", "lengths"],
)
async def test_a_bad_head_is_a_protocol_error_and_closes_the_connection(answer: bytes) -> None:
    gone = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.asked()
        try:
            await peer.send(answer)
            await peer.stream.send_eof()
            await peer.left()
        finally:
            gone.set()

    async with serving(handle) as service, transport() as over:
        with pytest.raises(httpx.RemoteProtocolError):
            await over.handle_async_request(posted(service.url()))
        await gone.wait()
        assert service.connections == 1


@pytest.mark.parametrize(
    "start",
    [OK + b"content-length: 3\r\n\r\nab", CHUNKED + b"2\r\nab\r\n", CHUNKED + b"9\r\nab"],
)
@pytest.mark.parametrize("end", [b"", b"\r\n?"], ids=["cut", "broken"])
async def test_a_body_without_its_end_gives_what_came_and_an_error(
    start: bytes, end: bytes
) -> None:
    if start == CHUNKED + b"9\r\nab" or (end and b"length" in start):
        end = b""  # there, it would be a part of the body
    async with serving(once(start + end)) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url()))
        body = response.aiter_raw()
        assert await anext(body) == b"ab"
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(body)
        await response.aclose()


async def test_a_trailer_without_end_is_a_protocol_error() -> None:
    endless = [b"x" * 1000 + b": y\r\n"] * 1000
    async with serving(once(CHUNKED + b"0\r\n", *endless)) as service, transport() as over:
        with pytest.raises(httpx.RemoteProtocolError):
            await asked(over, service.url())


async def test_a_connection_that_is_reset_is_a_read_error() -> None:
    asked_for = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.asked()
        await peer.send(OK + b"content-length: 9\r\n\r\n")
        await asked_for.wait()
        raw = peer.stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async with serving(handle) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url()))
        asked_for.set()
        with pytest.raises(httpx.ReadError) as caught:
            await read(response)
    assert isinstance(caught.value.__cause__, ConnectionResetError)


# ---------------------------------------------------------------- the pool
async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with serving(answers(CHUNKED + b"1\r\na\r\n0\r\n\r\n")) as service, transport() as over:
        assert [await asked(over, service.url()) for _ in range(5)] == [b"a"] * 5
        assert service.connections == 1


async def test_a_whole_answer_that_is_not_read_leaves_the_connection_usable() -> None:
    async with serving(answers(A)) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url()))
        await response.aclose()
        assert await asked(over, service.url()) == b"a"
        assert service.connections == 1
        with pytest.raises(httpx.StreamError):
            await response.aread()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na",
        OK + b"connection: close\r\ncontent-length: 1\r\n\r\na",
        A + OK + b"content-length: 1\r\n\r\nb",
        A + b"?",
    ],
    ids=["HTTP 1.0", "close", "two answers", "rubbish"],
)
async def test_a_connection_that_cannot_be_trusted_is_not_used_again(answer: bytes) -> None:
    async with serving(answers(answer)) as service, transport() as over:
        assert [await asked(over, service.url()) for _ in range(2)] == [b"a", b"a"]
        assert service.connections == 2


async def test_leaving_an_answer_early_closes_its_connection_only() -> None:
    left = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.asked()
        await peer.send(OK + b"content-length: 2\r\n\r\na")
        await peer.left()
        left.set()

    async with serving(handle) as service, transport(most=1) as over:
        for number in (1, 2):
            response = await over.handle_async_request(posted(service.url()))
            assert await anext(response.aiter_raw()) == b"a"
            await response.aclose()
            await response.aclose()
            await left.wait()
            assert service.connections == number
            left = anyio.Event()
            with pytest.raises(httpx.StreamClosed):
                await anext(aiter(response.stream))  # type: ignore[arg-type]  # httpx allows more


async def test_a_connection_closed_while_idle_is_not_used() -> None:
    async with serving(once(A)) as service, transport() as over:
        assert [await asked(over, service.url()) for _ in range(3)] == [b"a"] * 3
        assert service.connections == 3


@pytest.mark.parametrize("said", [b"", b"H"], ids=["without a byte", "after a byte"])
async def test_a_request_is_repeated_once_only_if_a_used_connection_says_nothing(
    said: bytes,
) -> None:
    async def handle(peer: Peer) -> None:
        await peer.asked()
        if peer.number == 1:
            await peer.send(A)
            await peer.asked()
            await peer.send(said)
        else:
            await peer.send(A)

    async with serving(handle) as service, transport() as over:
        assert await asked(over, service.url()) == b"a"
        if said:
            with pytest.raises(httpx.RemoteProtocolError):
                await asked(over, service.url())
            assert service.connections == 1
        else:
            assert await asked(over, service.url()) == b"a"
            assert service.connections == 2


async def test_a_new_connection_that_says_nothing_is_an_error_at_once() -> None:
    async with serving(once()) as service, transport() as over:
        with pytest.raises(httpx.RemoteProtocolError):
            await asked(over, service.url())
        assert service.connections == 1


async def test_an_idle_connection_is_closed_after_a_time() -> None:
    left = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.asked()
        await peer.send(A)
        await peer.left()
        left.set()

    async with serving(handle) as service, transport(keep_alive=SHORT) as over:
        await asked(over, service.url())
        await left.wait()


async def test_idle_connections_make_room_for_busy_ones() -> None:
    left = anyio.Event()

    async def first(peer: Peer) -> None:
        await peer.asked()
        await peer.send(A)
        await peer.left()
        left.set()

    async with serving(first) as one, serving(answers(A)) as other, transport(most=1) as over:
        assert [await asked(over, place.url()) for place in (one, other)] == [b"a", b"a"]
        await left.wait()


async def test_fifty_answers_are_read_at_once_and_their_connections_kept() -> None:
    gate, begun, bodies = anyio.Event(), 0, list[tuple[int, bytes]]()

    async def handle(peer: Peer) -> None:
        nonlocal begun
        while True:
            body = (await peer.asked()).rpartition(b"\r\n\r\n")[2]
            begun += 1
            await peer.send(CHUNKED)
            if begun == 50:
                gate.set()
            await gate.wait()
            await peer.send(*[b"%x\r\n%b\r\n" % (len(body), body)] * 20, b"0\r\n\r\n")

    async with serving(handle) as service, transport() as over:

        async def ask(number: int) -> None:
            request = posted(service.url(), b"%d" % number)
            bodies.append((number, await read(await over.handle_async_request(request))))

        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(ask, number)
        assert 50 <= service.connections <= 51  # one may be ready for the next
    assert sorted(bodies) == sorted((n, b"%d" % n * 20) for n in range(50) for _ in range(2))


async def test_who_finds_all_connections_busy_waits_for_one() -> None:
    async with serving(answers(A)) as service, transport(most=1) as over:
        first = await over.handle_async_request(posted(service.url()))
        with pytest.raises(httpx.PoolTimeout):
            await asked(over, service.url(), pool=SHORT)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked, over, service.url())
            await anyio.wait_all_tasks_blocked()
            assert await read(first) == b"a"
        assert service.connections == 1


async def test_closing_the_transport_ends_what_is_being_read() -> None:
    left = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.asked()
        await peer.send(OK + b"\r\na")
        await peer.left()
        left.set()

    async with serving(handle) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url()))
        await over.aclose()
        with pytest.raises(httpx.ReadError):
            await read(response)
        await left.wait()
