"""An answer, fed in pieces: no socket, so that every cut is where the test wants it."""

import asyncio

import anyio
import httpx
import pytest
from tests.unit.models.http.raw_service import OK, Wire

from passback.models.http.connection import MAX_UNREAD, Answer, Connection, Patience

pytestmark = pytest.mark.anyio

CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    + OK
    + b"A: b\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n00a;x=y\r\n0123456789\r\n0\r\nt: u\r\n\r\n"
)


def opened() -> tuple[Connection, Wire, Answer]:
    connection, wire = Connection(lambda _: None), Wire()
    connection.connection_made(wire)
    return connection, wire, connection.ask(b"request", Patience())


async def whole(answer: Answer) -> bytes:
    with anyio.fail_after(5):
        await answer.head()
        return b"".join([data async for data in answer])


async def test_an_answer_may_be_cut_between_any_two_bytes() -> None:
    for cut in range(1, len(CHUNKED)):
        connection, wire, answer = opened()
        connection.data_received(CHUNKED[:cut])
        connection.data_received(CHUNKED[cut:])
        assert await whole(answer) == b"abc0123456789"
        assert (answer.status, answer.headers) == (
            200,
            [(b"A", b"b"), (b"transfer-encoding", b"chunked")],
        )
        assert (answer.reusable, wire.aborted, wire.written) == (True, False, b"request")
        await answer.aclose()


async def test_an_answer_may_come_byte_by_byte() -> None:
    connection, _, answer = opened()
    for byte in CHUNKED:
        connection.data_received(bytes([byte]))
    assert await whole(answer) == b"abc0123456789"
    assert answer.reusable
    await answer.aclose()


async def test_one_step_gives_all_that_has_come() -> None:
    connection, _, answer = opened()
    connection.data_received(OK + b"content-length: 6\r\n\r\na")
    connection.data_received(b"b")
    await answer.head()
    assert await anext(answer) == b"ab"
    connection.data_received(b"cd")
    connection.data_received(b"ef")
    assert [data async for data in answer] == [b"cdef"]
    await answer.aclose()


async def test_reading_from_the_socket_stops_while_too_much_is_unread() -> None:
    connection, wire, answer = opened()
    connection.data_received(OK + b"content-length: %d\r\n\r\n" % (2 * MAX_UNREAD))
    connection.data_received(bytes(MAX_UNREAD))
    assert not wire.paused
    connection.data_received(b"x")
    assert wire.paused
    assert await anext(answer) == bytes(MAX_UNREAD) + b"x"
    assert not wire.paused
    await answer.aclose()
    assert wire.aborted


async def test_a_connection_left_paused_reads_the_next_answer() -> None:
    connection, wire, answer = opened()
    body = bytes(2 * MAX_UNREAD)
    connection.data_received(OK + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert (wire.paused, answer.reusable) == (True, True)
    await answer.aclose()
    connection.rest(30)
    again = connection.ask(b"again", Patience())
    assert not wire.paused
    connection.data_received(OK + b"content-length: 1\r\n\r\na")
    assert await whole(again) == b"a"
    await again.aclose()
    connection.close()


async def test_bytes_that_nobody_asked_for_close_an_idle_connection() -> None:
    connection, wire, answer = opened()
    connection.data_received(OK + b"content-length: 0\r\n\r\n")
    await answer.aclose()
    connection.rest(30)
    connection.data_received(OK)
    assert wire.aborted


async def test_a_connection_that_ended_before_it_was_asked_fails_the_request() -> None:
    connection, wire = Connection(lambda _: None), Wire()
    connection.connection_made(wire)
    connection.connection_lost(None)
    answer = connection.ask(b"request", Patience())
    with anyio.fail_after(5), pytest.raises(httpx.RemoteProtocolError):
        await answer.head()
    assert (wire.written, answer.begun) == (b"", False)


async def test_a_reader_cancelled_as_the_head_comes_closes_the_connection() -> None:
    connection, wire, answer = opened()
    waiting = asyncio.create_task(answer.head())
    await anyio.wait_all_tasks_blocked()
    connection.data_received(OK + b"\r\n")
    waiting.cancel()
    with anyio.fail_after(5), pytest.raises(asyncio.CancelledError):
        await waiting
    assert wire.aborted
