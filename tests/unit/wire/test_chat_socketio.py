"""The chat socket as Socket.IO, by the published client python-socketio, and by hand."""

import json
import logging
import sys
from collections.abc import Sequence

import anyio
import httpx
import pytest
from tests.support.chat_site import ChatSite, chat_site
from tests.support.logged_runs import LoggedRuns
from tests.support.socketio_client import ConnectionRefused, socketio_client
from tests.support.waiting import wait_until
from tests.unit.wire.test_chat_plain import QUESTIONS, agent, told
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from passback.core.messages import OwnerId
from passback.core.signals import Signal
from passback.http.wires import Services
from passback.models.scripted import calls, says
from passback.wire.chat import build

# where it is refused, python-socketio's client leaves a connection to the garbage collector
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WAYS = [["polling"], ["websocket"], ["polling", "websocket"]]
KEY, OTHER_KEY = "the-key-of-alice", "the-key-of-bob-x"
KEYS = {"api_keys": f"alice:{KEY},bob:{OTHER_KEY}"}
ALICE = OwnerId("alice")
OPEN = "/socket.io/?EIO=4&transport=polling"


@pytest.mark.parametrize("transports", WAYS)
async def test_chats_with_a_question(transports: Sequence[str]) -> None:
    script = [
        says("Paris", "."),
        calls(("ask_user", {"questions": [QUESTIONS["questions"][0]]})),
        says("Done."),
    ]
    async with chat_site(agent(*script), settings=KEYS) as site:
        session = await site.create(ALICE)
        async with (
            socketio_client(site.url, token=KEY, transports=transports) as client,
            site.client(additional_headers={"Authorization": f"Bearer {KEY}"}) as plain,
        ):
            await plain.call("session:subscribe", session_id=session)
            # one behind the other, without waiting
            await client.emit("session:subscribe", session_id=session)
            await client.emit("chat:send", session_id=session, message="The capital of France?")
            events = await client.chat()
            assert told(events)[-1] == "chat:end completed completed"
            assert events == await plain.chat()
            ack = await client.call("chat:send", session_id=session, message="Deploy.")
            asked = await client.chat()
            assert ack["chat_run_id"] == asked[-1]["data"]["chat_run_id"]
            [call_id] = asked[-1]["data"]["pending_tool_call_ids"]
            refused = await client.call(
                "chat:send", session_id=session, askuser_answer={"tool_call_id": call_id}
            )
            assert (refused["status"], refused["code"]) == ("error", "invalid_answer")
            await client.emit("chat:send", session_id=session)
            assert (await client.next())["data"]["code"] == "nothing_to_do"
            answer = {"tool_call_id": call_id, "selections": {"0": [0]}}
            await client.emit("chat:send", session_id=session, message="", askuser_answer=answer)
            assert told(await client.chat())[-1] == "chat:end completed completed"
            assert await client.call("chat:stop", session_id=session) == {"status": "ok"}
            await client.library.emit("chat:stop")
            assert (await client.next())["data"]["code"] == "invalid_request"


@pytest.mark.parametrize("token", ["wrong", "", None, 7])
async def test_wrong_keys_are_refused_at_once(token: object) -> None:
    async with chat_site(settings=KEYS) as site:
        with pytest.raises(ConnectionRefused):
            async with socketio_client(site.url, token=token, transports=["polling"]):
                pass
        socket, _ = await handshake(site)
        async with socket:
            await socket.send("40" if token is None else "40" + json.dumps({"token": token}))
            assert str(await socket.recv()).startswith('44{"message":')
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


@pytest.mark.parametrize("transports", WAYS)
async def test_a_key_may_come_in_the_header(transports: Sequence[str]) -> None:
    async with chat_site(settings=KEYS) as site:
        session = await site.create(ALICE)
        headers = {"Authorization": f"Bearer {KEY}"}
        async with socketio_client(
            site.url, token=None, transports=transports, headers=headers
        ) as client:
            ack = await client.call("session:subscribe", session_id=session)
            assert ack == {"status": "ok"}
        # a client that has left is no longer counted
        await wait_until(lambda: site.application.sockets.count == 0)


async def handshake(site: ChatSite) -> tuple[ClientConnection, str]:
    """Open a connection by hand, and return it with the id that the library gives it."""
    address = site.url.replace("http", "ws", 1) + "/socket.io/?EIO=4&transport=websocket"
    socket = await connect(address, compression=None)
    return socket, json.loads(str(await socket.recv())[1:])["sid"]


MALFORMED = [
    "", "x", "7", "0", "6", "2", "2hello", "b4aGk=", "4", "42", "42[", "42{}", "42[]", "42[1]", "42[[]]",
    '42["connect"]', '42["disconnect",1]', '42/admin,["chat:send"]', "42x", "43[1]", "44{}", "45", '451-["a"]',
    "46", "48", "4\u0661", "40[]", "40{", "407{}", "41[]", "42" + "1" * 50 + '["a"]', "42" + "[" * 20_000,
    "42" + "[" * 20_000 + "]" * 20_000,
]  # fmt: skip
REFUSED = {
    "half of an emoji": '["chat:stop","\\ud83d"]',
    "not a number": '["chat:stop",NaN]',
    "a number too large": '["chat:stop",1e999]',
    "deep": '["chat:stop",' + "[" * 100 + "]" * 100 + "]",
}
STOP = '["chat:stop",{"session_id":"nothing"}]'


@pytest.mark.parametrize("packet", [*MALFORMED, b"binary"], ids=lambda one: str(one)[:16])
async def test_malformed_packets_end_the_connection(
    packet: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with chat_site() as site:
        socket, _ = await handshake(site)
        async with socket:
            await socket.send("40")
            assert str(await socket.recv()).startswith("40")
            caplog.clear()
            await socket.send(packet)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason[:11]) == (1008, "bad_request")
        lines = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert [each.getMessage().split(":")[0] for each in lines] == [
            "a client of Socket.IO sent a malformed packet"
        ]


@pytest.mark.parametrize("event", REFUSED.values(), ids=REFUSED)
async def test_an_event_of_refused_json_is_answered_and_the_connection_goes_on(event: str) -> None:
    async with chat_site() as site:
        socket, _ = await handshake(site)
        async with socket:
            await socket.send("40")
            await socket.recv()
            await socket.send(f"42{event}")
            name, data = json.loads(str(await socket.recv())[2:])
            assert (name, data["code"]) == ("system:error", "bad_request")
            for number, sent, code in (
                (7, event, "bad_request"),
                (8, STOP, "conversation_not_found"),
            ):
                await socket.send(f"42{number}{sent}")
                answer = str(await socket.recv())
                [ack] = json.loads(answer[3:])
                assert answer.startswith(f"43{number}")
                assert (ack["status"], ack["code"]) == ("error", code)


async def test_an_event_of_refused_json_in_a_payload_leaves_the_others() -> None:
    async with chat_site() as site, httpx.AsyncClient(base_url=site.url, timeout=30) as http:
        opened = await http.get(OPEN)
        address = f"{OPEN}&sid={json.loads(opened.text[1:])['sid']}"
        await http.post(address, content=b"40")
        await http.get(address)
        refused = f"427{REFUSED['half of an emoji']}"
        heard: list[str] = []
        for payload, numbers in ((refused, ["437"]), (f"{refused}\x1e428{STOP}", ["437", "438"])):
            assert (await http.post(address, content=payload.encode())).status_code == 200
            heard.clear()
            with anyio.fail_after(30):
                while len(heard) < len(numbers):
                    packets = (await http.get(address)).text.split("\x1e")
                    heard += [each[:3] for each in packets if each.startswith("43")]
            assert sorted(heard) == numbers


async def test_a_client_that_polls_and_leaves_the_namespace_is_ended() -> None:
    async with chat_site() as site, httpx.AsyncClient(base_url=site.url, timeout=30) as http:
        opened = await http.get(OPEN)
        address = f"{OPEN}&sid={json.loads(opened.text[1:])['sid']}"
        for content in ("40", "41"):
            assert (await http.post(address, content=content)).status_code == 200
        with anyio.fail_after(10):
            while (await http.get(address)).status_code == 200:
                pass
        assert site.application.sockets.count == 0


async def test_an_event_before_the_connection_ends_it() -> None:
    async with chat_site() as site:
        socket, _ = await handshake(site)
        async with socket:
            await socket.send('42["chat:stop",{}]')
            with pytest.raises(ConnectionClosed):
                await socket.recv()


async def test_malformed_payloads_of_a_client_that_polls() -> None:
    async with chat_site(settings=KEYS) as site, httpx.AsyncClient(base_url=site.url) as http:
        for payload, status in (
            (b"42[", 400),
            (b"\xff", 400),
            (b"\x1e".join([b"3"] * 17), 400),
            (b"4" * 20_000, 413),
        ):
            opened = await http.get(OPEN)
            engine_id = json.loads(opened.text[1:])["sid"]
            answer = await http.post(f"{OPEN}&sid={engine_id}", content=payload)
            assert answer.status_code == status, payload[:8]
        for payload in (b"3", b"\xff"):
            unknown = await http.post(f"{OPEN}&sid=nothing", content=payload)
            assert unknown.status_code == 400
        assert (await http.get("/socket.io/?EIO=3&transport=polling")).status_code == 400


async def test_a_client_that_polls_without_a_key_is_ended() -> None:
    settings = {**KEYS, "timing": "key_timeout=0.1"}
    async with chat_site(settings=settings) as site, httpx.AsyncClient(base_url=site.url) as http:
        opened = await http.get(OPEN)
        engine_id = json.loads(opened.text[1:])["sid"]
        with anyio.fail_after(30):
            while (await http.get(f"{OPEN}&sid={engine_id}")).status_code == 200:
                pass
        assert site.application.sockets.count == 0


@pytest.mark.parametrize("packets", [[], ["40", "41"]])
async def test_a_client_that_is_ended_and_polls_no_more_leaves_nothing(packets: list[str]) -> None:
    settings = {**KEYS, "timing": "key_timeout=0.1"} if not packets else {}
    async with chat_site(settings=settings) as site, httpx.AsyncClient(base_url=site.url) as http:
        engine_id = json.loads((await http.get(OPEN)).text[1:])["sid"]
        for packet in packets:
            await http.post(f"{OPEN}&sid={engine_id}", content=packet)
        name = f"end of {engine_id}"
        await wait_until(lambda: name in names_of_tasks())
        await wait_until(lambda: name not in names_of_tasks())
        assert site.application.sockets.count == 0


def names_of_tasks() -> set[str | None]:
    return {task.name for task in anyio.get_running_tasks()}


async def test_polling_clients_are_counted_and_the_longest_keyless_one_gives_way() -> None:
    settings = {**KEYS, "limits": "sockets=2 owner_sockets=1"}
    async with chat_site(settings=settings) as site, httpx.AsyncClient(base_url=site.url) as http:
        ids = [json.loads((await http.get(OPEN)).text[1:])["sid"] for _ in range(3)]
        with anyio.fail_after(30):
            while (await http.get(f"{OPEN}&sid={ids[0]}")).status_code == 200:
                pass
        async with socketio_client(site.url, token=KEY, transports=["polling"]):
            with pytest.raises(ConnectionRefused):
                async with socketio_client(site.url, token=KEY, transports=["polling"]):
                    pass


async def test_a_client_that_polls_and_does_not_read_is_ended() -> None:
    settings = {"limits": "socket_queue_bytes=65536"}
    text = "x" * 50_000
    async with chat_site(agent(*[says(text)] * 40), settings=settings) as site:
        session = await site.create()
        async with httpx.AsyncClient(base_url=site.url) as http, site.subscribed(session) as plain:
            opened = await http.get(OPEN)
            address = f"{OPEN}&sid={json.loads(opened.text[1:])['sid']}"
            subscribe = json.dumps(["session:subscribe", {"session_id": session}])
            await http.post(address, content="40")
            await http.post(address, content=f"42{subscribe}")
            for _ in range(2):
                await plain.emit("chat:send", session_id=session, message="go")
                await plain.chat()
            with anyio.fail_after(30):
                while (await http.get(address)).status_code == 200:
                    pass


@pytest.mark.parametrize("transports", WAYS)
async def test_a_server_that_stops_says_so(transports: Sequence[str]) -> None:
    async with chat_site() as site:
        session = await site.create()
        async with socketio_client(site.url, transports=transports) as client:
            await client.call("session:subscribe", session_id=session)
            await site.application.drain()
            assert (await client.next())["data"]["code"] == "shutting_down"
        async with httpx.AsyncClient(base_url=site.url) as http:
            assert (await http.get(OPEN)).status_code == 503


async def test_a_client_with_a_key_goes_from_polling_to_a_websocket_by_hand() -> None:
    async with chat_site(settings=KEYS) as site, httpx.AsyncClient(base_url=site.url) as http:
        session = await site.create(ALICE)
        engine_id = json.loads((await http.get(OPEN)).text[1:])["sid"]
        await http.post(f"{OPEN}&sid={engine_id}", content="40" + json.dumps({"token": KEY}))
        assert (await http.get(f"{OPEN}&sid={engine_id}")).text.startswith("40")
        address = f"{site.url.replace('http', 'ws', 1)}{OPEN}".replace("polling", "websocket")
        async with connect(f"{address}&sid={engine_id}", compression=None) as socket:
            await socket.send("2probe")
            assert await socket.recv() == "3probe"
            await socket.send("5")
            subscribe = json.dumps(["session:subscribe", {"session_id": session}])
            await socket.send(f"420{subscribe}")
            assert await next_packet(socket) == '430[{"status":"ok"}]'
            assert site.application.sockets.count == 1


async def next_packet(socket: ClientConnection) -> str:
    """Return the next packet of Socket.IO."""
    with anyio.fail_after(20):
        while not (packet := str(await socket.recv())).startswith("4"):
            pass
    return packet


async def test_a_client_resumes_a_chat() -> None:
    async with chat_site(agent(says("Par", "is."))) as site:
        session = await site.create()
        async with socketio_client(site.url) as client:
            await client.emit("session:subscribe", session_id=session)
            await client.emit("chat:send", session_id=session, message="go")
            events = await client.chat()
        async with socketio_client(site.url) as client:
            after = events[0]["data"]["stream_sequence"]
            await client.emit("session:subscribe", session_id=session, after_sequence=after)
            assert await client.chat() == events[1:]


async def test_a_websocket_that_does_not_read_is_closed() -> None:
    settings = {"limits": "socket_queue_bytes=65536"}
    text = "x" * 1_000_000
    async with chat_site(agent(*[says(text)] * 10), settings=settings) as site:
        session = await site.create()
        address = f"{site.url.replace('http', 'ws', 1)}{OPEN}".replace("polling", "websocket")
        async with site.subscribed(session) as plain:
            socket = await connect(address, compression=None, max_queue=1)
            await socket.send("40")
            subscribe = json.dumps(["session:subscribe", {"session_id": session}])
            await socket.send(f"42{subscribe}")
            with anyio.fail_after(30):
                while site.application.sockets.count > 1:
                    await plain.emit("chat:send", session_id=session, message="go")
                    await plain.chat()
            socket.transport.abort()


def test_nothing_is_served_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socketio", None)
    assert build(Services(LoggedRuns(), Signal())).routes == []
