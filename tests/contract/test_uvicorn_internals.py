"""Undocumented parts of uvicorn that `http/protocol.py` and `http/socket_protocol.py` use exist.

They do what is needed.

A version of uvicorn that changes one of these is not yet supported: `pyproject.toml` bounds it.
"""

import asyncio
import inspect
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.support.http_connection import REQUEST, Written
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import Server, ServerState

pytestmark = pytest.mark.anyio

HEAD: Message = {"type": "http.response.start", "status": 200, "headers": []}


class _Stopping:
    """An application that keeps what it was given, and answers when a test says so."""

    def __init__(self) -> None:
        self.called = anyio.Event()
        self.go_on = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive = scope, receive
        self.called.set()
        await self.go_on.wait()
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _connect(app: Any) -> tuple[HttpToolsProtocol, Written]:
    config = Config(app, log_config=None, ws="none", lifespan="off", server_header=False)
    protocol = HttpToolsProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    transport = Written()
    protocol.connection_made(transport)
    return protocol, transport


@pytest.mark.parametrize(
    "name",
    [
        *("connection_made", "connection_lost", "pause_writing", "resume_writing"),
        *("data_received", "on_message_begin", "on_header", "on_headers_complete", "on_body"),
        *("on_message_complete", "on_response_complete", "timeout_keep_alive_handler"),
        *("send_400_response", "_unsupported_upgrade_warning"),
    ],
)
def test_the_protocol_has_the_methods_that_ours_overrides(name: str) -> None:
    assert inspect.isfunction(vars(HttpToolsProtocol)[name])


@pytest.mark.parametrize("name", ["startup", "capture_signals", "handle_exit"])
def test_the_server_has_the_methods_that_ours_overrides(name: str) -> None:
    assert callable(getattr(Server, name))


async def test_a_connection_and_its_request_have_the_attributes_that_are_read() -> None:
    app = _Stopping()
    protocol, transport = _connect(app)
    assert protocol.transport is transport
    assert protocol in protocol.connections
    protocol.data_received(REQUEST)
    with anyio.fail_after(5):
        await app.called.wait()
    cycle = protocol.cycle
    assert isinstance(cycle, RequestResponseCycle)
    assert protocol.scope is app.scope
    assert (protocol.url, protocol.headers) == (b"/", [(b"host", b"127.0.0.1")])
    assert (len(protocol.pipeline), len(protocol.tasks)) == (0, 1)
    assert (cycle.transport, cycle.flow) == (transport, protocol.flow)
    assert (cycle.disconnected, cycle.response_started, cycle.response_complete) == (
        False,
        False,
        False,
    )
    assert (protocol.flow.write_paused, bool(cycle.chunked_encoding)) == (False, False)
    app.go_on.set()
    with anyio.fail_after(5):
        while not cycle.response_complete:
            await anyio.lowlevel.checkpoint()
    assert bool(cycle.chunked_encoding)
    protocol.timeout_keep_alive_handler()
    assert transport.closed


async def test_an_answer_is_written_to_the_transport_of_its_request() -> None:
    app = _Stopping()
    protocol, transport = _connect(app)
    protocol.data_received(REQUEST)
    with anyio.fail_after(5):
        await app.called.wait()
    other = Written()
    protocol.cycle.transport = other
    app.go_on.set()
    cycle = protocol.cycle
    with anyio.fail_after(5):
        while not cycle.response_complete:
            await anyio.lowlevel.checkpoint()
    head, *chunks = other.parts
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"transfer-encoding: chunked\r\n\r\n" in head
    assert b"".join(chunks) == b"4\r\npart\r\n0\r\n\r\n"
    assert transport.parts == []
    protocol.timeout_keep_alive_handler()


async def test_a_request_marked_as_disconnected_receives_that_and_sends_nothing() -> None:
    app = _Stopping()
    protocol, transport = _connect(app)
    protocol.data_received(REQUEST)
    with anyio.fail_after(5):
        await app.called.wait()
    protocol.cycle.disconnected = True
    protocol.cycle.message_event.set()
    with anyio.fail_after(5):
        assert await app.receive() == {"type": "http.disconnect"}
    app.go_on.set()
    with anyio.fail_after(5):
        while protocol.tasks:
            await anyio.lowlevel.checkpoint()
    assert transport.parts == []


# ---------------------------------------------------------------- WebSockets
@pytest.mark.parametrize(
    "name",
    [
        *("connection_made", "connection_lost", "pause_writing", "resume_writing", "shutdown"),
        *("data_received", "handle_connect", "handle_cont", "handle_text", "handle_bytes"),
        *("handle_ping", "handle_pong", "handle_parser_exception", "keepalive_timeout"),
        *("schedule_ping", "stop_keepalive", "send_receive_event_to_app", "on_task_complete"),
        *("send", "receive"),
    ],
)
def test_the_websocket_protocol_has_the_methods_that_ours_overrides_or_calls(name: str) -> None:
    assert inspect.isfunction(vars(WebSocketsSansIOProtocol)[name])


@pytest.mark.parametrize("name", ["handle_websocket_upgrade", "_should_upgrade"])
def test_the_http_protocol_has_the_methods_of_an_upgrade(name: str) -> None:
    assert inspect.isfunction(vars(HttpToolsProtocol)[name])


async def test_a_websocket_has_the_attributes_that_are_read() -> None:
    config = Config(
        _Stopping(),
        log_config=None,
        lifespan="off",
        ws_max_size=1000,
        ws_per_message_deflate=False,
    )
    config.load()
    protocol = WebSocketsSansIOProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    protocol.connection_made(Written())
    conn = protocol.conn
    assert (conn.max_message_size, conn.eof_sent, conn.close_sent) == (1000, False, None)
    assert (conn.extensions, len(conn.reader.buffer)) == ([], 0)
    states = (protocol.handshake_initiated, protocol.handshake_complete, protocol.close_sent)
    assert (*states, protocol.read_paused, protocol.writable.is_set()) == (*[False] * 4, True)
    assert (protocol.frames, protocol.curr_msg_data_type, protocol.close_timer) == (
        [],
        "bytes",
        None,
    )
    protocol.connection_lost(None)
    assert protocol.disconnected
