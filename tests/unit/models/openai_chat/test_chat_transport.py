"""Requests and answers over sockets: framing, the pool, time, cuts, cancellation, trust."""

import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
import trustme
from anyio.abc import SocketAttribute
from tests.unit.models.openai_chat.raw_service import OK, Peer, posted, read, serving

from passback.models.openai_chat.transport import Transport

pytestmark = pytest.mark.anyio

A = OK + b"content-length: 1\r\n\r\na"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
SHORT = 0.05
LARGE = 1 << 26
"""More bytes than two sockets take."""


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@asynccontextmanager
async def transport(
    trusted: ssl.SSLContext | None = None, *, most: int = 100, keep_alive: float = 30
) -> AsyncGenerator[Transport]:
    over = Transport(trusted, max_connections=most, keep_alive=keep_alive)
    try:
        yield over
    finally:
        await over.aclose()


def answers(*pieces: bytes) -> Callable[[Peer], Coroutine[Any, Any, None]]:
    """The same to every request."""

    async def handle(peer: Peer) -> None:
        while True:
            await peer.asked()
            await peer.send(*pieces)

    return handle


def once(*pieces: bytes) -> Callable[[Peer], Coroutine[Any, Any, None]]:
    """To one request; then the connection is closed."""

    async def handle(peer: Peer) -> None:
        await peer.asked()
        await peer.send(*pieces)

    return handle


async def silent(peer: Peer) -> None:
    await peer.left()


async def asked(over: Transport, url: str, **seconds: float) -> bytes:
    return await read(await over.handle_async_request(posted(url, b"{}", **seconds)))


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
        assert service.connections == 50
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


# ---------------------------------------------------------------- time
async def test_silence_before_the_head_is_a_read_timeout_and_is_not_repeated() -> None:
    async def handle(peer: Peer) -> None:
        await peer.asked()
        if not peer.number % 2:
            await peer.send(A)
        await peer.left()

    async with serving(handle) as service, transport() as over:
        with pytest.raises(httpx.ReadTimeout):
            await asked(over, service.url(), read=SHORT)
        assert await asked(over, service.url(), read=5) == b"a"
        with pytest.raises(httpx.ReadTimeout):  # over the used connection
            await asked(over, service.url(), read=SHORT)
        assert service.connections == 2


async def test_silence_in_the_body_is_a_read_timeout_after_what_came() -> None:
    async with serving(answers(CHUNKED, b"1\r\na\r\n")) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url(), read=SHORT))
        body = response.aiter_raw()
        assert await anext(body) == b"a"
        with pytest.raises(httpx.ReadTimeout):
            await anext(body)
        await response.aclose()


async def test_time_in_which_nobody_waits_does_not_count() -> None:
    gate = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.asked()
        await peer.send(CHUNKED + b"1\r\na\r\n")
        await gate.wait()
        await peer.send(b"1\r\nb\r\n0\r\n\r\n")

    async with serving(handle) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url(), read=2 * SHORT))
        body = response.aiter_raw()
        assert await anext(body) == b"a"
        with anyio.move_on_after(4 * SHORT):
            await anyio.Event().wait()
        gate.set()
        assert [data async for data in body] == [b"b"]
        await response.aclose()


async def test_a_request_that_is_not_taken_is_a_write_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # connections stand, and nothing reads
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        with anyio.fail_after(10):
            async with transport() as over:
                request = posted(url, bytes(LARGE), write=SHORT, read=5)
                with pytest.raises(httpx.WriteTimeout):
                    await over.handle_async_request(request)


async def test_the_time_for_reading_begins_when_the_request_is_taken() -> None:
    async def handle(peer: Peer) -> None:
        with anyio.move_on_after(4 * SHORT):
            await anyio.Event().wait()
        await peer.stream.receive()
        await peer.left()

    async with serving(handle) as service, transport() as over:
        request = posted(service.url(), bytes(LARGE), read=2 * SHORT)
        with pytest.raises(httpx.ReadTimeout):
            await over.handle_async_request(request)


async def test_an_answer_before_the_request_is_taken_is_read_and_ends_the_connection() -> None:
    done = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 1\r\n\r\na")
        await done.wait()

    async with serving(handle) as service, transport() as over:
        for number in (1, 2):
            request = posted(service.url(), bytes(LARGE))
            response = await over.handle_async_request(request)
            assert (response.status_code, await read(response)) == (413, b"a")
            assert service.connections == number
        done.set()


async def test_a_connection_that_does_not_stand_in_time_is_a_connect_timeout() -> None:
    async with serving(silent) as service, transport(most=1) as over:
        for _ in range(2):
            with pytest.raises(httpx.ConnectTimeout):
                await asked(over, service.url("https"), connect=SHORT, pool=5)


async def test_a_closed_port_and_an_unknown_host_are_connect_errors() -> None:
    async with serving(silent) as service, transport(most=1) as over:
        pass
    async with transport(most=1) as over:
        for url in (service.url(), "http://x.invalid/", f"http://{'x' * 70}.invalid/"):
            with pytest.raises(httpx.ConnectError):
                await asked(over, url, connect=5, pool=5)


# ---------------------------------------------------------------- cancellation
@pytest.mark.parametrize("place", ["connecting", "head", "body"])
async def test_being_cancelled_closes_the_connection_and_frees_its_place(place: str) -> None:
    begun, left = anyio.Event(), anyio.Event()

    async def handle(peer: Peer) -> None:
        if place != "connecting":
            await peer.asked()
        if place == "body":
            await peer.send(OK + b"content-length: 2\r\n\r\n")
        begun.set()
        await peer.left()
        left.set()

    async with serving(handle) as service, transport(most=1) as over:
        for _ in range(2):
            begun, left = anyio.Event(), anyio.Event()
            url = service.url("https" if place == "connecting" else "http")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asked, over, url)
                await begun.wait()
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            await left.wait()


async def test_being_cancelled_in_the_queue_takes_no_place() -> None:
    async with serving(answers(A)) as service, transport(most=1) as over:
        first = await over.handle_async_request(posted(service.url()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked, over, service.url())
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await first.aclose()
        assert await asked(over, service.url(), pool=5) == b"a"


# ---------------------------------------------------------------- slow readers
async def test_a_reader_that_does_not_read_holds_the_service_up() -> None:
    sent, whole = 0, 1 << 25

    async def handle(peer: Peer) -> None:
        nonlocal sent
        await peer.asked()
        await peer.send(OK + b"content-length: %d\r\n\r\n" % whole)
        while sent < whole:
            await peer.send(bytes(1 << 16))
            sent += 1 << 16

    async with serving(handle) as service, transport() as over:
        response = await over.handle_async_request(posted(service.url()))
        with anyio.move_on_after(4 * SHORT):
            await anyio.Event().wait()
        assert sent < whole
        assert await read(response) == bytes(whole)


# ---------------------------------------------------------------- TLS and addresses
@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def certified(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


async def test_a_service_is_asked_by_name_over_tls(authority: trustme.CA) -> None:
    names: list[str | None] = []
    tls = certified(authority, "localhost")
    tls.set_servername_callback(lambda _socket, name, _context: names.append(name))
    async with (
        serving(answers(A), tls=tls) as service,
        transport(trusting(authority)) as over,
    ):
        url = service.url("https", "localhost")
        assert [await asked(over, url) for _ in range(2)] == [b"a", b"a"]
        assert service.connections == 1
    assert names == ["localhost"]


@pytest.mark.parametrize("wrong", ["host", "authority"])
async def test_a_service_that_is_not_who_it_should_be_is_not_asked(
    authority: trustme.CA, wrong: str
) -> None:
    tls = certified(authority, "elsewhere" if wrong == "host" else "localhost")
    trusted = trusting(authority) if wrong == "host" else None
    requests: list[bytes] = []

    async def handle(peer: Peer) -> None:
        requests.append(await peer.asked())

    async with serving(handle, tls=tls) as service, transport(trusted) as over:
        with pytest.raises(httpx.ConnectError) as caught:
            await asked(over, service.url("https", "localhost"))
    assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
    assert requests == []


async def test_an_answer_over_tls_that_is_cut_is_a_protocol_error(authority: trustme.CA) -> None:
    tls = certified(authority, "localhost")
    async with (
        serving(once(CHUNKED + b"1\r\na\r\n"), tls=tls) as service,
        transport(trusting(authority)) as over,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await asked(over, service.url("https", "localhost"))


async def test_an_address_of_ipv6_is_reached() -> None:
    try:
        async with serving(answers(A), host="::1") as service, transport() as over:
            assert await asked(over, service.url(host="[::1]")) == b"a"
    except OSError:
        pytest.skip("no IPv6 on this machine")


def test_a_transport_can_be_made_before_there_is_an_event_loop() -> None:
    over = Transport()

    async def ask() -> bytes:
        async with serving(answers(A)) as service:
            try:
                return await asked(over, service.url())
            finally:
                await over.aclose()

    assert anyio.run(ask) == b"a"
