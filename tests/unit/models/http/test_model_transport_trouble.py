"""Requests and answers over sockets: time, cancellation, slow readers, trust."""

import socket
import ssl

import anyio
import httpx
import pytest
import trustme
from tests.unit.models.http.raw_service import OK, Peer, posted, read, serving
from tests.unit.models.http.transporting import (
    CHUNKED,
    LARGE,
    SHORT,
    A,
    answers,
    asked,
    once,
    silent,
    transport,
)

from passback.models.http.transport import Transport

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


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
