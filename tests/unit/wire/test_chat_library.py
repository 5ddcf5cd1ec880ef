"""What `wire/chat/socketio.py` uses of python-socketio and python-engineio beyond their documents.

Its docstring has the list. A version that lacks something of it fails here, and says what.
"""

import asyncio
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import anyio
import pytest

from passback.wire.chat.socketio import MOST_PACKETS

pytestmark = pytest.mark.anyio

SECONDS = 20
VERSIONS = ", ".join(f"{name} {version(name)}" for name in ("python-socketio", "python-engineio"))
MARK = "passback.test"


def of(owner: Any, name: str) -> Any:
    """Return an attribute, which the library has to have."""
    assert hasattr(owner, name), (
        f"{VERSIONS}: {type(owner).__name__} has no {name!r}, which wire/chat/socketio.py uses: "
        "mend that module, or lower the bound of the version in pyproject.toml"
    )
    return getattr(owner, name)


@dataclass
class Library:
    """A server of the library, as the product makes one, that is asked without a network.

    Attributes:
        server: the library's.
        engine_id: the library's id of the connection that has been made.
        scope: of its first request.
        heard: what the handlers were called with.
        handling: a handler waits for it, if there is one.
    """

    server: Any
    engine_id: str = ""
    scope: dict[str, Any] = field(default_factory=dict[str, Any])
    heard: list[Sequence[Any]] = field(default_factory=list[Sequence[Any]])
    handling: anyio.Event | None = None

    async def ask(
        self, method: str, body: str = "", marks: Mapping[str, object] | None = None
    ) -> str:
        """Poll, or send; return the body of the answer, behind its status if that is not 200."""
        engine = f"&sid={self.engine_id}" if self.engine_id else ""
        headers = [(b"content-length", str(len(body)).encode())]
        scope = {
            "type": "http",
            "method": method,
            "path": "/socket.io/",
            "headers": headers,
            "query_string": f"EIO=4&transport=polling{engine}".encode(),
            **(marks or {}),
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body.encode(), "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        application = importlib.import_module("socketio").ASGIApp(
            self.server, socketio_path="socket.io"
        )
        with anyio.fail_after(SECONDS):
            await application(scope, receive, send)
        self.scope = self.scope or scope
        answer = b"".join(each.get("body", b"") for each in sent).decode()
        status = sent[0]["status"]
        return answer if status == 200 else f"{status} {answer}"

    async def connect(self) -> str:
        """Connect, and return the library's id of the client."""
        opened = await self.ask("GET", marks={MARK: self})
        self.engine_id = json.loads(opened[1:])["sid"]
        assert await self.ask("POST", "40") == "OK"
        sid: str = json.loads((await self.ask("GET"))[2:])["sid"]
        return sid

    async def hear(self, *given: Any) -> Any:
        self.heard.append(given)
        if self.handling is not None:
            await self.handling.wait()
        return {"status": "ok"}

    @property
    def engine(self) -> Any:
        """The library's connection."""
        sockets = of(of(self.server, "eio"), "sockets")
        return sockets[self.engine_id]


@pytest.fixture
def library() -> Library:
    socketio = importlib.import_module("socketio")
    server = socketio.AsyncServer(
        async_mode="asgi",
        async_handlers=False,
        cors_allowed_origins=[],
        http_compression=False,
        max_http_buffer_size=1000,
        ping_interval=10,
    )
    made = Library(server)
    for name in ("connect", "disconnect", "*"):
        server.on(name, made.hear)
    return made


async def test_the_scope_of_a_clients_first_request_is_kept_to_its_end(library: Library) -> None:
    sid = await library.connect()
    engine_of = of(of(library.server, "manager"), "eio_sid_from_sid")
    assert engine_of(sid, "/") == library.engine_id
    kept = of(library.server, "environ")[library.engine_id]["asgi.scope"]
    assert kept[MARK] is library
    assert library.server.get_environ(sid)["asgi.scope"] is kept
    [(heard_sid, environ, *_)] = library.heard
    assert (heard_sid, environ["asgi.scope"]) == (sid, kept)
    ended: list[Any] = []
    library.server.on(
        "disconnect",
        lambda sid, _: ended.append(
            library.server.environ[engine_of(sid, "/")]["asgi.scope"][MARK]
        ),
    )
    async with anyio.create_task_group() as tasks:
        # it ends when the client was told
        tasks.start_soon(of(library.server.eio, "disconnect"), library.engine_id)
        assert await library.ask("GET") == "1"
    assert ended == [library]
    assert (await library.ask("GET")).startswith("400")


async def test_packets_are_sent_from_a_queue_without_a_bound_that_counts_them(
    library: Library,
) -> None:
    packets = importlib.import_module("engineio.packet")
    await library.connect()
    queue = of(library.engine, "queue")
    assert isinstance(queue, asyncio.Queue)
    assert queue.maxsize == 0
    assert of(library.engine, "upgraded") is False
    for text in ('2["a",{"b":1}]', "2[]"):
        queue.put_nowait(of(packets, "Packet")(of(packets, "MESSAGE"), data=text))
    assert queue.qsize() == 2
    assert await library.ask("GET") == '42["a",{"b":1}]\x1e42[]'
    with anyio.fail_after(SECONDS):
        await queue.join()
    queue.put_nowait(packets.Packet(of(packets, "NOOP")))
    assert await library.ask("GET") == "6"


async def test_events_of_a_client_are_handled_one_after_the_other(library: Library) -> None:
    sid = await library.connect()
    library.handling = anyio.Event()
    library.heard.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(library.ask, "POST", '42["a",{"b":1}]\x1e427["c",2]')
        with anyio.fail_after(SECONDS):
            while not library.heard:
                await anyio.lowlevel.checkpoint()
        for _ in range(20):  # the next one would begin meanwhile
            await anyio.lowlevel.checkpoint()
        assert library.heard == [("a", sid, {"b": 1})]
        library.handling.set()
    assert library.heard == [("a", sid, {"b": 1}), ("c", sid, 2)]
    assert await library.ask("GET") == '437[{"status":"ok"}]'


async def test_a_payload_has_as_many_packets_as_the_product_lets_through(library: Library) -> None:
    await library.connect()
    library.heard.clear()
    assert await library.ask("POST", "\x1e".join(['42["a"]'] * MOST_PACKETS)) == "OK"
    assert len(library.heard) == MOST_PACKETS, (
        f"{VERSIONS}: MOST_PACKETS of wire/chat/socketio.py is not the library's bound"
    )
