"""Bounds of a connection, in bytes and in time. They hold before any key is checked."""

import logging

import anyio
import pytest
from starlette.requests import Request
from starlette.types import ASGIApp
from tests.support.http_connection import REQUEST, Clock, asked
from tests.support.sse_site import END, Site
from uvicorn.server import ServerState

from passback.http.answers import json_answer
from passback.http.protocol import (
    HEAD_BYTES,
    HEAD_SECONDS,
    HEADERS,
    PIPELINED,
    READ_BYTES,
    UNREAD_BYTES,
    OpenConnections,
)
from passback.http.routing import Endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

CHUNKED = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n"
LONG = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n"


async def greet(request: Request) -> ASGIApp:
    """Answer without reading the body."""
    return json_answer(request.scope, {"headers": len(request.headers)})


async def echo(request: Request) -> ASGIApp:
    """Read the body, then answer with the names of the headers."""
    await request.body()
    return json_answer(request.scope, {"names": list(request.headers.keys())})


GREETING = Endpoint("/", greet, methods=["GET", "POST"])
ECHO = Endpoint("/", echo, methods=["GET", "POST"])


def with_headers(number: int) -> bytes:
    return b"GET / HTTP/1.1\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(number)) + b"\r\n"


async def answer_to(app: ASGIApp, request: bytes) -> bytes:
    """Return everything that is sent on a connection with this request."""
    connection, written = asked(app, request)
    await anyio.wait_all_tasks_blocked()
    connection.connection_lost(None)
    return written.text


# ---------------------------------------------------------------- chunks and trailers
@pytest.mark.parametrize(
    "piece",
    [b"a: b\r\n" * 1000, b"a: " + b"b" * 8000, b"x" * 8000],
    ids=["trailers", "one trailer", "its name"],
)
async def test_endless_trailers_are_cut_off(piece: bytes) -> None:
    connection, written = asked(ECHO, CHUNKED + b"\r\n5\r\nhello\r\n0\r\n")
    sent = 0
    while not written.aborted:
        assert sent <= 2 * HEAD_BYTES
        connection.data_received(piece)
        sent += len(piece)
    connection.connection_lost(None)
    await anyio.wait_all_tasks_blocked()
    assert written.parts == []


async def test_an_endless_chunk_extension_is_cut_off() -> None:
    connection, written = asked(ECHO, CHUNKED + b"\r\n5;")
    for _ in range(2 * HEAD_BYTES // 8000):
        connection.data_received(b"x" * 8000)
    assert written.aborted
    connection.connection_lost(None)


async def test_a_body_in_small_chunks_may_be_large() -> None:
    """The framing of its chunks is larger than they are, and than a head may be."""
    connection, written = asked(ECHO, CHUNKED + b"\r\n")
    for _ in range(3 * HEAD_BYTES // 100):
        connection.data_received(b"1;" + b"x" * 94 + b"\r\ny\r\n")
    connection.data_received(b"0\r\n\r\n")
    await anyio.wait_all_tasks_blocked()
    assert written.text.startswith(b"HTTP/1.1 200 OK\r\n")
    connection.connection_lost(None)


async def test_a_trailer_is_no_header() -> None:
    answer = await answer_to(ECHO, CHUNKED + b"\r\n0\r\nauthorization: Bearer key\r\n\r\n")
    assert b'{"names":["host","transfer-encoding"]}' in answer


# ---------------------------------------------------------------- heads
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (with_headers(HEADERS), 200),
        (with_headers(HEADERS + 1), 431),
        (b"GET / HTTP/1.1\r\nx: %b\r\n\r\n" % (b"v" * (HEAD_BYTES - 100)), 200),
        (b"GET / HTTP/1.1\r\nx: %b\r\n\r\n" % (b"v" * HEAD_BYTES), 431),
        (b"GET /%b HTTP/1.1\r\nx: v\r\n\r\n" % (b"p" * HEAD_BYTES), 431),
        (
            b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (2 * HEAD_BYTES)
            + b"x" * 2 * HEAD_BYTES,
            200,
        ),
    ],
    ids=["fields", "a field too many", "a large value", "too large a value", "a long path", "body"],
)
async def test_the_fields_and_the_size_of_a_head_are_limited(
    request_bytes: bytes, status: int
) -> None:
    assert (await answer_to(GREETING, request_bytes)).startswith(b"HTTP/1.1 %d " % status)


async def test_a_head_of_thousands_of_fields_is_refused_at_the_first_too_many() -> None:
    """Kept whole, three hundred of them would take two hundred MiB."""
    connection, written = asked(GREETING, with_headers(HEAD_BYTES // 9))
    assert b'"code":"headers_too_large"' in written.text
    assert len(connection.headers) == HEADERS + 1
    connection.connection_lost(None)


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"cow, chunked", b"identity, chunked"])
async def test_only_the_transfer_coding_chunked_is_accepted(coding: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: %b\r\n\r\n" % coding
    answer = await answer_to(GREETING, head + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


# ---------------------------------------------------------------- malformed and pipelined requests
@pytest.mark.parametrize(
    ("requests", "junk"),
    [
        (1, b"what is this\r\n\r\n"),
        (2, b"what is this\r\n\r\n"),
        (1, REQUEST[:9] + b"p" * HEAD_BYTES),
    ],
    ids=["behind it", "behind one that waits for its turn", "a head that is too large"],
)
async def test_junk_while_an_answer_goes_on_ends_the_connection(requests: int, junk: bytes) -> None:
    """No refusal stands in the middle of an answer."""
    site = Site()
    connection, written = asked(site.app(), REQUEST * requests)
    await anyio.wait_all_tasks_blocked()
    before = written.text
    connection.data_received(junk)
    assert written.aborted
    assert written.text == before
    connection.connection_lost(None)
    await site.no_readers()


async def test_the_number_of_pipelined_requests_is_limited() -> None:
    """Each is a whole request of some bytes that costs some KB, behind a body that is not read."""
    site = Site()
    connection, written = asked(site.app(), REQUEST * (PIPELINED + 1))
    await anyio.wait_all_tasks_blocked()
    assert not written.aborted
    connection.data_received(REQUEST)
    assert written.aborted
    connection.connection_lost(None)
    assert not connection.pipeline
    await site.no_readers()


async def test_nothing_more_is_read_while_requests_wait() -> None:
    """Nor after each answer: one read brings thousands."""
    connection, written = asked(GREETING, REQUEST * 10)
    for left in range(9, 0, -1):
        assert connection.flow.read_paused
        while len(connection.pipeline) == left:
            await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()
    assert not connection.flow.read_paused
    assert written.text.count(b"HTTP/1.1 200 ") == 10
    connection.connection_lost(None)


async def test_all_waiters_learn_of_a_lost_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Also the request that is being answered: it would write to a closed connection."""
    site = Site()
    connection, written = asked(site.app(), REQUEST * 3)
    await anyio.wait_all_tasks_blocked()
    before = written.text
    connection.connection_lost(None)
    await site.no_readers()
    assert written.text == before
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


async def test_junk_in_place_of_a_body_is_answered_once() -> None:
    connection, written = asked(ECHO, CHUNKED + b"\r\n")
    await anyio.wait_all_tasks_blocked()
    connection.data_received(b"no length\r\n")
    await anyio.wait_all_tasks_blocked()
    assert written.text.startswith(b"HTTP/1.1 400 ")
    assert written.text.count(b"HTTP/1.1 ") == 1
    connection.connection_lost(None)


async def test_a_malformed_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "passback.http.access_log")
    connection, written = asked(ECHO, b"secret\r\n\r\n")
    [line] = [each for each in caplog.records if each.levelname == "INFO"]
    assert (line.__dict__["status"], line.__dict__["code"]) == (400, "bad_request")
    assert f"x-request-id: {line.__dict__['request_id']}\r\n".encode() in written.text
    assert "secret" not in str(vars(line))
    connection.connection_lost(None)


async def test_an_upgrade_not_offered_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    upgrade = REQUEST[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    assert (await answer_to(GREETING, upgrade)).startswith(b"HTTP/1.1 200 ")
    assert [each for each in caplog.records if each.levelname == "WARNING"] == []


# ---------------------------------------------------------------- times
@pytest.mark.parametrize("behind", [b"", b"x"])
async def test_the_rest_of_a_request_that_is_answered_is_not_waited_for(behind: bytes) -> None:
    clock = Clock()
    connection, written = asked(GREETING, LONG, clock)
    await anyio.wait_all_tasks_blocked()
    assert written.text.startswith(b"HTTP/1.1 200 ")
    if behind:
        connection.data_received(behind)
    assert not written.closed
    clock.ring(HEAD_SECONDS)
    assert written.closed
    connection.connection_lost(None)
    assert clock.set_to == []


@pytest.mark.parametrize("more", [b"\r\n", b"G"])
async def test_a_byte_behind_a_request_does_not_abort_its_answer(more: bytes) -> None:
    """Old clients send a line break behind a body (RFC 9112, section 2.2).

    The rest of the next head is due when the answer is complete.
    """
    site, clock = Site(), Clock()
    connection, written = asked(site.app(), REQUEST, clock)
    await anyio.wait_all_tasks_blocked()
    connection.data_received(more)
    assert HEAD_SECONDS not in clock.set_to
    site.runs.say(END)
    await anyio.wait_all_tasks_blocked()
    assert written.text.endswith(b"0\r\n\r\n")
    clock.ring(HEAD_SECONDS)
    assert written.closed
    connection.connection_lost(None)


async def test_a_head_behind_a_request_has_the_usual_time() -> None:
    clock = Clock()
    connection, written = asked(GREETING, REQUEST + REQUEST[:9], clock)
    await anyio.wait_all_tasks_blocked()
    assert written.text.startswith(b"HTTP/1.1 200 ")
    clock.ring(HEAD_SECONDS)
    assert written.closed
    connection.connection_lost(None)


async def test_after_the_rest_of_an_answered_request_the_next_one_is_served() -> None:
    clock = Clock()
    connection, written = asked(GREETING, LONG, clock)
    await anyio.wait_all_tasks_blocked()
    connection.data_received(b"x" * 9)
    assert HEAD_SECONDS in clock.set_to
    connection.data_received(REQUEST)
    await anyio.wait_all_tasks_blocked()
    assert written.text.count(b"HTTP/1.1 200 ") == 2
    assert HEAD_SECONDS not in clock.set_to
    connection.connection_lost(None)


async def test_an_idle_connection_is_closed_and_dropped_if_nobody_reads() -> None:
    clock = Clock()
    connections = OpenConnections(send_seconds=30)
    connection, written = asked(GREETING, REQUEST, clock, connections=connections)
    await anyio.wait_all_tasks_blocked()
    written.unread = 5000
    connection.timeout_keep_alive_handler()
    assert written.closed
    assert not written.aborted
    clock.ring(30)
    assert written.aborted
    connection.connection_lost(None)


async def test_a_closing_connection_is_dropped_if_nobody_reads() -> None:
    """It stays open while a slow client reads."""
    clock, closing = Clock(), REQUEST[:-2] + b"connection: close\r\n\r\n"
    connection, written = asked(GREETING, b"", clock)
    written.unread = 3 * READ_BYTES
    connection.data_received(closing)
    await anyio.wait_all_tasks_blocked()
    assert written.closed
    connection.pause_writing()
    for left in (2 * READ_BYTES, READ_BYTES, READ_BYTES // 2):
        written.unread = left
        if left < READ_BYTES:
            connection.resume_writing()
        else:
            clock.ring(30)
        assert not written.aborted
    clock.ring(30)
    assert written.aborted
    connection.connection_lost(None)


async def test_a_client_that_has_read_everything_is_not_timed_any_more() -> None:
    clock = Clock()
    connection, written = asked(GREETING, REQUEST, clock)
    connection.pause_writing()
    connection.resume_writing()
    assert 30 not in clock.set_to
    assert not written.aborted
    connection.connection_lost(None)


# ---------------------------------------------------------------- numbers and memory
async def test_a_new_connection_replaces_the_one_that_is_idle_for_longest() -> None:
    """Not of one whose request is being answered: clients without a key cannot keep others out."""
    site, state, connections = Site(), ServerState(), OpenConnections(most=3)
    arrived = [
        asked(site.app(), request, connections=connections, state=state)
        for request in (REQUEST, b"", b"", b"", REQUEST, REQUEST)
    ]
    await anyio.wait_all_tasks_blocked()
    assert [written.closed for _, written in arrived] == [False, True, True, True, False, False]
    assert not any(written.aborted for _, written in arrived)
    for connection, written in arrived:
        if written.closed:
            connection.connection_lost(None)
    last, refused = asked(site.app(), b"", connections=connections, state=state)
    assert refused.aborted
    last.connection_lost(None)
    assert len(state.connections) == 3
    assert not connections.waiting
    for remaining in tuple(state.connections):
        remaining.connection_lost(None)
    await site.no_readers()


async def test_a_connection_that_gives_way_with_an_unread_answer_is_dropped() -> None:
    """It would keep its place and its unread bytes for as long as nobody reads."""
    state, connections = ServerState(), OpenConnections(most=1)
    first, answered = asked(GREETING, REQUEST, connections=connections, state=state)
    await anyio.wait_all_tasks_blocked()
    answered.unread = 1
    second, _ = asked(GREETING, b"", connections=connections, state=state)
    assert answered.aborted
    for connection in (first, second):
        connection.connection_lost(None)


async def test_a_new_connection_replaces_the_one_whose_answer_is_unread_for_longest() -> None:
    """If no connection waits for a request: reading slowly needs no key, either."""
    site, state, connections = Site(), ServerState(), OpenConnections(most=2)
    arrived = [asked(site.app(), connections=connections, state=state) for _ in range(2)]
    await anyio.wait_all_tasks_blocked()
    for connection, written in reversed(arrived):
        written.unread = 1000
        connection.pause_writing()
    last, accepted = asked(site.app(), b"", connections=connections, state=state)
    assert [written.aborted for _, written in arrived] == [False, True]
    assert not accepted.aborted
    for connection in (arrived[0][0], arrived[1][0], last):
        connection.connection_lost(None)
    await site.no_readers()


async def test_unread_bytes_of_all_connections_together_are_bounded() -> None:
    site, connections = Site(), OpenConnections()
    arrived = [asked(site.app(), connections=connections) for _ in range(4)]
    await anyio.wait_all_tasks_blocked()
    for connection, written in arrived:
        written.unread = UNREAD_BYTES // 2
        connection.pause_writing()
    assert [written.aborted for _, written in arrived] == [True, True, False, False]
    reads, written = arrived[2]
    written.unread = 0
    reads.resume_writing()
    again, more = asked(site.app(), connections=connections)
    more.unread = UNREAD_BYTES // 2
    again.pause_writing()
    assert not arrived[3][1].aborted
    for connection, _ in (*arrived, (again, more)):
        connection.connection_lost(None)
    await site.no_readers()


async def test_a_connection_waits_again_when_its_request_is_answered() -> None:
    state, connections = ServerState(), OpenConnections(most=2)
    first, answered = asked(GREETING, REQUEST, connections=connections, state=state)
    second, silent = asked(GREETING, b"", connections=connections, state=state)
    await anyio.wait_all_tasks_blocked()
    assert list(connections.waiting) == [second, first]
    first.data_received(REQUEST + REQUEST)
    assert list(connections.waiting) == [second]
    await anyio.wait_all_tasks_blocked()
    assert answered.text.count(b"HTTP/1.1 200 ") == 3
    assert list(connections.waiting) == [second, first]
    third, _ = asked(GREETING, b"", connections=connections, state=state)
    assert (silent.closed, answered.closed) == (True, False)
    for connection in (first, second, third):
        connection.connection_lost(None)
    assert not connections.waiting
