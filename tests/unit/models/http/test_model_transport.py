"""A client and real servers: connections, bad answers, time, cancellation."""

import gc
import socket

import anyio
import pytest
from anyio.abc import SocketAttribute
from tests.unit.models.http.raw_service import (
    ANSWER,
    CHUNKED,
    LARGE,
    OK,
    Peer,
    answers,
    chunk,
    once,
    serving,
)
from tests.unit.models.openai_chat.chat_service import (
    AB,
    AB_DELTAS,
    AB_STOP,
    HI,
    SHORT_TIMEOUT,
    client_at,
    deltas_of,
    failure_of,
)

from passback.core.deltas import ModelRequest, TextChunk
from passback.core.errors import ModelIncomplete, ModelRejected, ModelUnavailable
from passback.core.messages import MessageId, UserMessage
from passback.models.openai_chat import Bounds

pytestmark = pytest.mark.anyio

ONE_TRY = Bounds(retries=0)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


# ---------------------------------------------------------------- answers
@pytest.mark.parametrize(
    "answer",
    [
        ANSWER,
        OK + b"content-length: %d\r\n\r\n" % len(AB_STOP) + AB_STOP,
        OK + b"\r\n" + AB_STOP,
        b"HTTP/1.0 200 OK\r\n\r\n" + AB_STOP,
        b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" + ANSWER,
    ],
    ids=["chunks", "length", "until the end", "HTTP 1.0", "after interim answers"],
)
async def test_each_framing_of_an_answer_is_understood(answer: bytes) -> None:
    async with serving(once(answer)) as service, client_at(service.url()) as client:
        assert await deltas_of(client) == AB_DELTAS


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        OK,
        b"SSH-2.0-OpenSSH\r\n\r\n",
        OK + b"a: " + b"b" * (1 << 17),
        OK + b"a: b\r\n" * (1 << 14) + b"\r\n",
        OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\na",
    ],
    ids=["none", "cut", "ssh", "long line", "long head", "lengths"],
)
async def test_a_bad_head_is_no_answer_and_closes_the_connection(answer: bytes) -> None:
    gone = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.request()
        try:
            await peer.stream.send(answer)
            await peer.stream.send_eof()
            await peer.wait_closed()
        finally:
            gone.set()

    async with serving(handle) as service, client_at(service.url(), ONE_TRY) as client:
        _, failure = await failure_of(client)
        assert type(failure) is ModelUnavailable
        await gone.wait()
        assert service.connections == 1


async def test_endless_interim_answers_time_out() -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        while True:
            await peer.stream.send(b"HTTP/1.1 102 Processing\r\n\r\n")
            await anyio.wait_all_tasks_blocked()  # until the client has read it

    bounds = Bounds(content_timeout=0.1, connect_timeout=0.5)
    async with serving(handle) as service, client_at(service.url(), bounds) as client:
        _, failure = await failure_of(client)
        assert (type(failure), service.connections) == (ModelUnavailable, 1)


async def test_another_protocol_is_no_answer() -> None:
    switch = b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"
    async with serving(once(switch)) as service, client_at(service.url()) as client:
        _, failure = await failure_of(client)
        assert type(failure) is ModelRejected


@pytest.mark.parametrize(
    "start",
    [
        OK + b"content-length: 9999\r\n\r\n" + AB,
        CHUNKED + chunk(AB),
        CHUNKED + b"999\r\n" + AB,
        CHUNKED + chunk(AB) + b"0\r\n" + (b"x" * 1000 + b": y\r\n") * 1000,
    ],
    ids=["length", "between chunks", "in a chunk", "endless trailer"],
)
async def test_an_answer_without_its_end_is_incomplete(start: bytes) -> None:
    async with serving(once(start)) as service, client_at(service.url()) as client:
        deltas, failure = await failure_of(client)
        assert (deltas, type(failure)) == ([TextChunk("ab")], ModelIncomplete)
        assert service.connections == 1


async def test_a_connection_that_is_reset_makes_the_answer_incomplete() -> None:
    begun = anyio.Event()

    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send(CHUNKED + chunk(AB))
        await begun.wait()
        raw = peer.stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async with (
        serving(handle) as service,
        client_at(service.url()) as client,
        client.stream(HI) as batches,
    ):
        assert await anext(batches) == [TextChunk("ab")]
        begun.set()
        with pytest.raises(ModelIncomplete):
            await anext(batches)


async def test_a_redirect_is_not_followed_and_cookies_are_not_kept() -> None:
    requests: list[bytes] = []

    async def elsewhere(peer: Peer) -> None:
        raise AssertionError("the key went to another service")

    async def handle(peer: Peer) -> None:
        requests.append(await peer.request())
        await peer.stream.send(
            b"HTTP/1.1 307 There\r\nset-cookie: a=b\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n"
            % other.url().encode()
        )
        requests.append(await peer.request())
        await peer.stream.send(ANSWER)

    async with (
        serving(elsewhere) as other,
        serving(handle) as service,
        client_at(service.url()) as client,
    ):
        _, failure = await failure_of(client)
        assert "redirects" in failure.message
        assert await deltas_of(client) == AB_DELTAS
    assert len(requests) == 2
    assert b"cookie" not in requests[1].lower()


# ---------------------------------------------------------------- connections
async def test_a_request_is_repeated_if_a_kept_connection_closes() -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send(ANSWER)
        if peer.number == 1:
            await peer.request()

    async with serving(handle) as service, client_at(service.url()) as client:
        assert [await deltas_of(client) for _ in range(2)] == [AB_DELTAS] * 2
        assert service.connections == 2


async def test_closed_connections_are_replaced_by_new_ones() -> None:
    async with serving(once(ANSWER)) as service, client_at(service.url()) as client:
        assert [await deltas_of(client) for _ in range(3)] == [AB_DELTAS] * 3
        assert service.connections == 3


async def test_many_answers_are_read_at_once_and_their_connections_kept() -> None:
    gate, begun = anyio.Event(), 0

    async def handle(peer: Peer) -> None:
        nonlocal begun
        while True:
            await peer.request()
            begun += 1
            if begun == 120:
                gate.set()
            await gate.wait()
            await peer.stream.send(ANSWER)

    async with serving(handle) as service, client_at(service.url()) as client:

        async def ask() -> None:
            assert await deltas_of(client) == AB_DELTAS

        async with anyio.create_task_group() as tasks:
            for _ in range(120):
                tasks.start_soon(ask)
        await ask()
        assert service.connections == 120


@pytest.mark.parametrize("stage", ["connecting", "head", "body"])
async def test_being_cancelled_closes_the_connection(stage: str) -> None:
    begun, left = anyio.Event(), anyio.Event()

    async def handle(peer: Peer) -> None:
        if stage != "connecting":
            await peer.request()
        if stage == "body":
            await peer.stream.send(CHUNKED)
        begun.set()
        await peer.wait_closed()
        left.set()

    scheme = "https" if stage == "connecting" else "http"  # the TLS handshake gets no answer
    async with serving(handle) as service, client_at(service.url(scheme)) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deltas_of, client)
            await begun.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await left.wait()


async def test_a_client_that_is_closed_leaves_nothing_open() -> None:
    async with serving(answers(ANSWER)) as service, client_at(service.url()) as client:
        await deltas_of(client)
        await client.aclose()
        del client
        gc.collect()  # an open connection would warn here


# ---------------------------------------------------------------- time
async def test_silence_before_the_head_is_not_repeated() -> None:
    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.wait_closed()

    async with serving(handle) as service, client_at(service.url(), SHORT_TIMEOUT) as client:
        _, failure = await failure_of(client)
        assert "too long" in failure.message
        assert service.connections == 1


async def test_a_request_that_is_not_read_times_out() -> None:
    large = ModelRequest([UserMessage(MessageId("m1"), "x" * LARGE)])
    bounds = Bounds(content_timeout=0.1, connect_timeout=0.1)
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # connections stand, and nothing reads
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        async with client_at(url, bounds) as client:
            with pytest.raises(ModelUnavailable, match="too long"):
                await deltas_of(client, large)


async def test_a_connection_that_is_not_made_in_time_is_an_error() -> None:
    async def silent(peer: Peer) -> None:
        await peer.wait_closed()

    bounds = Bounds(connect_timeout=0.1, retry_delay=0)
    async with serving(silent) as service, client_at(service.url("https"), bounds) as client:
        _, failure = await failure_of(client)
        assert failure.message == "the model's service cannot be reached"
        assert service.connections == 3


async def test_an_unknown_host_cannot_be_reached() -> None:
    async with client_at("http://x.invalid/v1") as client:
        _, failure = await failure_of(client)
        assert failure.message == "the model's service cannot be reached"


# ---------------------------------------------------------------- slow readers
async def test_a_slow_reader_stops_the_service_from_sending() -> None:
    blocked = anyio.Event()
    event = b"data: %b\n\n" % (b" " * (1 << 16))

    async def handle(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send(CHUNKED + chunk(AB))
        for _ in range(LARGE // len(event)):
            with anyio.move_on_after(0.5) as waiting:
                await peer.stream.send(chunk(event))
            if waiting.cancelled_caught:
                blocked.set()
                await peer.wait_closed()

    async with (
        serving(handle) as service,
        client_at(service.url()) as client,
        client.stream(HI) as batches,
    ):
        assert await anext(batches) == [TextChunk("ab")]
        await blocked.wait()
