"""WebSockets as a wire's handler sees them, over real connections."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from starlette.types import Message, Scope
from tests.support.echo_wire import SECRET
from tests.support.logged_runs import LoggedRuns
from tests.support.raw_socket import TEXT, RawFrame, connected, frame, head, opened
from tests.support.socket_site import KEY, OTHER_KEY, OWN, SocketSite
from tests.support.waiting import wait_until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.open_sockets import OpenSockets
from passback.http.wires import RequestLimits, Services
from passback.streams.sockets import Socket, SocketEndpoint

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

NO_KEY = {"x-none": "1"}
STOPPED = (1012, "the server stops: connect again, to another worker")
LOG = "passback.http.access_log"
WAYS = [
    pytest.param({}, id="directly"),
    pytest.param({"direct": False}, id="by the queue"),
    pytest.param({"has_link": False}, id="on another server"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def site(**changes: object) -> AsyncGenerator[SocketSite]:
    async with SocketSite(**changes).served() as one:  # type: ignore[arg-type]  # of a test
        with anyio.fail_after(20):
            yield one


@asynccontextmanager
async def client(
    site: SocketSite, path: str = "/keyed", **headers: str
) -> AsyncGenerator[ClientConnection]:
    given = headers or OWN
    async with connect(site.ws + path, additional_headers=given, proxy=None) as one:
        yield one


async def end_of(one: ClientConnection) -> tuple[int, str]:
    """Return the close code and the reason that come when all messages are read."""
    with suppress(ConnectionClosed):
        while True:
            await one.recv()
    assert one.close_code is not None
    return one.close_code, one.close_reason or ""


async def refusal(site: SocketSite, path: str, **headers: str) -> tuple[int, str]:
    """Return the status and the code of the answer to a handshake."""
    with pytest.raises(InvalidStatus) as refused:
        async with client(site, path, **headers):
            pass
    response = refused.value.response
    return response.status_code, json.loads(response.body or b"{}")["code"]


@pytest.mark.parametrize("way", WAYS)
async def test_messages_go_both_ways_in_order(way: dict[str, object]) -> None:
    async with site(**way) as one, client(one) as socket:
        assert await socket.recv() == "hello alice"
        await socket.send("é\U0001f600")
        await socket.send(b"\xff")
        assert [await socket.recv(), await socket.recv()] == ["echo é\U0001f600", b"echo \xff"]
        await socket.send("flood 100 10000")
        sizes = [len(await socket.recv()) for _ in range(100)]
        assert (sizes, await socket.recv()) == ([10_000] * 100, "sent 100")


@pytest.mark.parametrize("way", WAYS)
async def test_a_handler_ends_a_socket_with_a_reason(way: dict[str, object]) -> None:
    async with site(**way) as one:
        async with client(one) as socket:
            await socket.send("end 4001 enough")
            assert await end_of(socket) == (4001, "enough")
        await one.until_idle()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("order", "end"),
    [
        ("fail busy", (1013, "server_busy: of a test")),
        ("fail stop", (1012, "shutting_down: of a test")),
        ("fail model", (1011, "model_error: of a test")),
        ("fail run", (1008, "run_not_found: of a test")),
        ("break", (1011, "internal: the server met an unexpected error")),
    ],
)
async def test_an_error_of_a_handler_is_the_reason_of_the_end(
    way: dict[str, object],
    order: str,
    end: tuple[int, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site(**way) as one, client(one) as socket:
        await socket.send(order)
        assert await end_of(socket) == end
    logged = [each for each in caplog.records if each.name == "passback.streams.sockets"]
    assert [SECRET in str(each.exc_info) for each in logged] == [True] * (order == "break")


async def test_an_error_before_the_handshake_is_its_answer() -> None:
    async with site() as one:
        with pytest.raises(InvalidStatus) as refused:
            async with client(one, "/refusing"):
                pass
        assert refused.value.response.status_code == 404
        assert b"conversation_not_found" in refused.value.response.body
        await one.until_idle()


# ---------------------------------------------------------------- late keys
@pytest.mark.parametrize("way", WAYS)
async def test_a_key_may_come_later_where_the_wire_says_so(way: dict[str, object]) -> None:
    async with site(**way) as one, client(one, "/ws", **NO_KEY) as socket:
        assert await socket.recv() == "hello None"
        for _ in range(2):  # the same again changes nothing
            await socket.send(f"key {KEY}")
            assert await socket.recv() == "owner alice"


async def test_large_messages_are_taken_when_the_key_has_come() -> None:
    async with site() as one:
        for orders, size in (([f"key {KEY}"], 100_005), ([], None)):
            async with client(one, "/ws", **NO_KEY) as socket:
                await socket.recv()
                for order in orders:
                    await socket.send(order)
                    await socket.recv()
                await socket.send("x" * 100_000)
                if size:
                    assert len(await socket.recv()) == size
                else:
                    assert (await end_of(socket))[0] == 1009


async def test_a_key_may_come_with_the_handshake_there_too() -> None:
    async with site() as one, client(one, "/ws") as socket:
        assert await socket.recv() == "hello alice"


async def test_without_configured_keys_none_is_waited_for() -> None:
    limits = RequestLimits(key_seconds=0.1)
    async with site(access=Access(), limits=limits) as one, client(one, "/ws", **NO_KEY) as socket:
        assert await socket.recv() == "hello anonymous"
        await socket.send("key anything")
        assert await socket.recv() == "owner anonymous"


@pytest.mark.promise("P13")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", ["wrong", "", "the-key-of-alic", "\ud800"])
async def test_one_wrong_key_ends_the_socket(way: dict[str, object], key: str) -> None:
    async with site(**way) as one, client(one, "/ws", **NO_KEY) as socket:
        await socket.send("key half" if key == "\ud800" else f"key {key}")
        await socket.send(f"key {KEY}")
        end = (1008, "unauthenticated: a valid API key is needed")
        assert await end_of(socket) == end
        await one.until_idle()


@pytest.mark.promise("P13")
async def test_a_socket_does_not_change_its_owner() -> None:
    async with site() as one, client(one, "/ws") as socket:
        await socket.send(f"key {OTHER_KEY}")
        assert await end_of(socket) == (
            1008,
            "unauthenticated: the WebSocket has another owner already",
        )


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_has_to_come_in_time(way: dict[str, object]) -> None:
    limits = RequestLimits(key_seconds=0.1)
    async with site(limits=limits, **way) as one, client(one, "/ws", **NO_KEY) as socket:
        late = "no key came within 0.1 seconds (key_timeout in PASSBACK_TIMING)"
        assert await end_of(socket) == (1008, late)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("path", ["/ws", "/keyed", "/polled/", "/rooms/a"])
async def test_a_wrong_key_is_refused_with_the_handshake_everywhere(path: str) -> None:
    async with site() as one:
        assert await refusal(one, path, authorization="Bearer wrong") == (401, "unauthenticated")


@pytest.mark.promise("P13")
@pytest.mark.parametrize("path", ["/keyed", "/rooms/a", "/wsx", "/ws/", "/polled", "/%2Fws"])
async def test_where_keys_come_with_the_handshake_one_has_to(path: str) -> None:
    async with site() as one:
        status, code = await refusal(one, path, **NO_KEY)
        assert (status, code) == (401, "unauthenticated")


# ---------------------------------------------------------------- limits
async def test_an_owner_has_so_many_sockets_and_no_more() -> None:
    async with site(sockets=OpenSockets(most_of_owner=2)) as one:
        async with client(one), client(one, "/ws", **NO_KEY) as late:
            await late.send(f"key {KEY}")
            assert await late.recv() == "hello None"
            assert await late.recv() == "owner alice"
            assert await refusal(one, "/keyed", **OWN) == (429, "too_many_sockets")
            async with client(one, "/ws", **NO_KEY) as third:
                await third.send(f"key {KEY}")
                code, reason = await end_of(third)
            assert (code, reason[:38]) == (1013, "too_many_sockets: 2 WebSockets of this")
            async with client(one, authorization=f"Bearer {OTHER_KEY}") as other:
                assert await other.recv() == "hello bob"
        await one.until_idle()
        async with client(one) as again:
            assert await again.recv() == "hello alice"


async def test_a_worker_has_so_many_sockets_and_those_without_a_key_give_way() -> None:
    async with (
        site(sockets=OpenSockets(2)) as one,
        client(one),
        client(one, "/ws", **NO_KEY) as keyless,
        client(one) as third,
    ):
        assert await third.recv() == "hello alice"
        assert (await end_of(keyless))[0] == 1013
        assert await refusal(one, "/keyed", **OWN) == (503, "server_busy")


@pytest.mark.parametrize("way", WAYS[:2])
async def test_a_client_that_does_not_read_is_closed_when_its_queue_is_full(
    way: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with site(**way) as one, opened(one.url, "/keyed", OWN, small=True) as greedy:
        await greedy.send(frame(TEXT, b"flood 1000 100000"))
        await one.until_idle()
        assert one.sockets.queued == 0
    [line] = [vars(each) for each in caplog.records if each.name == LOG]
    assert (line["close_code"], line["reason"]) == (
        1013,
        "the client reads too slowly: connect again",
    )


@pytest.mark.parametrize("way", WAYS[:2])
async def test_a_client_that_does_not_read_is_closed_in_time(way: dict[str, object]) -> None:
    limits = RequestLimits(send_seconds=0.2, socket_queue_bytes=100_000_000)
    async with (
        site(limits=limits, **way) as one,
        opened(one.url, "/keyed", OWN, small=True) as greedy,
    ):
        await greedy.send(frame(TEXT, b"flood 100 100000"))
        await one.until_idle()


async def test_a_client_that_reads_late_gets_everything() -> None:
    limits = RequestLimits(socket_queue_bytes=100_000_000)
    async with site(limits=limits) as one, opened(one.url, "/keyed", OWN) as socket:
        await socket.send(frame(TEXT, b"flood 300 100000"))
        await wait_until(lambda: one.sockets.queued > 0)
        assert (await socket.frame()).content == b"hello alice"
        assert [len((await socket.frame()).content) for _ in range(300)] == [100_000] * 300
        assert await socket.frame() == RawFrame(TEXT, b"sent 300")
        await wait_until(lambda: one.sockets.queued == 0)


async def test_a_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    limits = RequestLimits(socket_queue_bytes=100_000_000)
    async with site(limits=limits) as one, opened(one.url, "/keyed", OWN, small=True) as socket:
        await socket.send(frame(TEXT, b"flood 100 100000"))
        await wait_until(lambda: one.sockets.queued > 0)
        one.stopping.set()
        await one.until_idle()


@pytest.mark.parametrize("path", ["/keyed", "/library"])
async def test_an_answer_to_a_client_that_was_closed_meanwhile_is_dropped(path: str) -> None:
    async with site() as one, opened(one.url, path, OWN) as socket:
        await socket.send(frame(TEXT, b"a") + frame(TEXT, b"\xff"))
        assert (await socket.close_frame())[0] == 1007
        await one.until_idle()


async def test_what_is_sent_while_a_slow_socket_is_closed_changes_nothing() -> None:
    """The server takes a message only after the socket was closed for want of a key."""
    taken, sending, sent = anyio.Event(), anyio.Event(), list[Message]()
    asked: list[Message] = [{"type": "websocket.connect"}]

    async def receive() -> Message:
        if not asked:
            await anyio.sleep_forever()
        return asked.pop()

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "websocket.send":
            sending.set()
            await taken.wait()

    async def handler(socket: Socket) -> None:
        await socket.accept()
        assert socket.send("a")
        await sending.wait()
        assert await socket.receive() is None
        assert not socket.send("b")
        taken.set()
        await anyio.wait_all_tasks_blocked()

    limits = RequestLimits(key_seconds=0.1)
    services = Services(LoggedRuns(), Signal(), limits)
    scope: Scope = {"type": "websocket", "path": "/", "headers": []}
    with anyio.fail_after(10):
        await SocketEndpoint("/", handler, services).handle(scope, receive, send)
    assert [each["type"][10:] for each in sent] == ["accept", "send", "close"]
    assert (sent[2]["code"], services.sockets.queued, services.sockets.count) == (1008, 0, 0)


async def test_on_another_server_a_client_that_does_not_read_is_closed_too() -> None:
    limits = RequestLimits(send_seconds=0.2)
    async with (
        site(limits=limits, has_link=False, pong_timeout=1, ping=1) as one,
        opened(one.url, "/keyed", OWN, small=True) as greedy,
    ):
        await greedy.send(frame(TEXT, b"flood 100 100000"))
        await one.until_idle()


async def test_what_waits_for_all_clients_together_is_bounded() -> None:
    sockets = OpenSockets(most_queued=200_000)
    limits = RequestLimits(socket_queue_bytes=100_000_000)
    async with (
        site(sockets=sockets, limits=limits) as one,
        opened(one.url, "/keyed", OWN, small=True) as greedy,
    ):
        await greedy.send(frame(TEXT, b"flood 1000 100000"))
        await one.until_idle()


async def test_a_large_message_passes_an_empty_queue() -> None:
    limits = RequestLimits(socket_queue_bytes=1000)
    async with site(limits=limits) as one, client(one) as socket:
        await socket.send("flood 1 1000000")
        assert [await socket.recv(), len(await socket.recv())] == ["hello alice", 1_000_000]


@pytest.mark.parametrize("way", WAYS)
async def test_lone_surrogates_are_replaced(way: dict[str, object]) -> None:
    async with site(**way) as one, client(one) as socket:
        await socket.recv()
        await socket.send("surrogate")
        assert await socket.recv() == "a?b"


# ---------------------------------------------------------------- the end
@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_stops_says_a_last_word_and_why(way: dict[str, object]) -> None:
    async with site(**way) as one, client(one) as socket, client(one, "/library") as library:
        assert await socket.recv() == "hello alice"
        one.stopping.set()
        assert await socket.recv() == "the last word"
        assert await end_of(socket) == STOPPED
        assert await library.recv() == "1012"
        assert await end_of(library) == STOPPED
        await one.until_idle()


async def test_a_server_that_stops_opens_no_socket() -> None:
    async with site() as one:
        one.stopping.set()
        assert await refusal(one, "/keyed", **OWN) == (503, "shutting_down")


async def test_a_handler_that_does_not_end_is_cancelled() -> None:
    async with site() as one, client(one) as socket:
        await socket.send("stay")
        await socket.send("never read")
        assert await socket.recv() == "hello alice"
        one.stopping.set()
        assert await end_of(socket) == STOPPED


async def test_a_client_that_leaves_ends_its_handler() -> None:
    async with site() as one:
        async with client(one) as socket:
            await socket.close(4002, "I leave")
        async with opened(one.url, "/keyed", OWN):
            pass
        async with opened(one.url, "/keyed", OWN) as rude:
            await rude.send(frame(TEXT, b"flood 100 100000"))
        await one.until_idle()


# ---------------------------------------------------------------- other applications
@pytest.mark.parametrize("way", WAYS)
async def test_another_application_serves_a_socket(way: dict[str, object]) -> None:
    async with site(**way) as one:
        asked = connect(
            one.ws + "/library",
            additional_headers=OWN,
            subprotocols=[Subprotocol("echo")],
            proxy=None,
        )
        async with asked as socket:
            assert socket.subprotocol == "echo"
            await socket.send("a")
            await socket.send(b"b")
            assert [await socket.recv(), await socket.recv()] == ["a", b"b"]
            await socket.send("end")
            assert await end_of(socket) == (4000, "as asked")
        async with connect(one.ws + "/library", additional_headers=OWN, proxy=None) as socket:
            pass
        await one.until_idle()


@pytest.mark.parametrize("way", WAYS[:2])
async def test_a_handler_that_returns_before_the_handshake_refuses_it(
    way: dict[str, object],
) -> None:
    async with site(**way) as one, connected(one.url) as socket:
        await socket.send(head("/silent", OWN))
        assert (await socket.answer())[0] == 403
        await one.until_idle()


@pytest.mark.parametrize("way", WAYS[:2])
async def test_another_application_refuses_a_socket(way: dict[str, object]) -> None:
    async with site(**way) as one:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(one.ws + "/library?refuse", additional_headers=OWN, proxy=None):
                pass
        assert refused.value.response.status_code == 403
        await one.until_idle()
