"""The published client of Socket.IO, as tests of the chat socket use it."""

import asyncio
import http
import importlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
from tests.support.chat_site import SECONDS, Json

_library: Any = importlib.import_module("socketio")  # it has no types

ConnectionRefused: type[Exception] = _library.exceptions.ConnectionError


class SocketIoChat:
    """A connected client.

    Attributes:
        library: the library's client.
        left: set when the connection has ended.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.left = anyio.Event()
        self._send, self._events = anyio.create_memory_object_stream[Json](1000)
        library.on("*", self._take)
        library.on("disconnect", self._leave)

    def _take(self, name: str, data: Any) -> None:
        self._send.send_nowait({"event": name, "data": data})

    def _leave(self, _reason: str) -> None:
        self.left.set()

    async def emit(self, event: str, **data: Any) -> None:
        await self.library.emit(event, data)

    async def call(self, event: str, **data: Any) -> Json:
        """Send an event, and return its ack."""
        ack: Json = await self.library.call(event, data, timeout=SECONDS)
        return ack

    async def next(self) -> Json:
        """Return the next event."""
        with anyio.fail_after(SECONDS):
            return await self._events.receive()

    def waiting(self) -> list[Json]:
        """Return the events that have come and were not read."""
        count = self._events.statistics().current_buffer_used
        return [self._events.receive_nowait() for _ in range(count)]

    async def rest(self) -> list[Json]:
        """Return the events up to the end of the connection."""
        with anyio.fail_after(SECONDS):
            await self.left.wait()
        return self.waiting()

    async def chat(self) -> list[Json]:
        """Return the events of the next chat, to its end."""
        events = [await self.next()]
        while events[-1]["event"] != "chat:end":
            events.append(await self.next())
        return events

    def close(self) -> None:
        self._send.close()
        self._events.close()


async def _read(response: aiohttp.ClientResponse) -> None:
    """Read what the library leaves unread, which would keep its connection open."""
    if response.status != http.HTTPStatus.SWITCHING_PROTOCOLS:
        await response.read()


async def _end_tasks(library: Any) -> None:
    """End what the library leaves waiting for 30 seconds where the server ends a connection."""
    found = (library.write_loop_task, library.read_loop_task)
    tasks = [task for task in found if task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def socketio_client(
    url: str, *, token: Any = "", transports: Sequence[str] = ("polling", "websocket"), **more: Any
) -> AsyncGenerator[SocketIoChat]:
    """Connect a client with a token."""
    auth = {"token": token, "sdk": "a-test", "sdk_version": "1"} if token is not None else None
    async with aiohttp.ClientSession(raise_for_status=_read) as session:
        # its handler cancels all tasks of the loop, also those of other tests
        library = _library.AsyncClient(
            reconnection=False, http_session=session, handle_sigint=False
        )
        client = SocketIoChat(library)
        try:
            await library.connect(
                url, auth=auth, transports=list(transports), wait_timeout=SECONDS, **more
            )
            yield client
        finally:
            await library.disconnect()
            await library.eio.disconnect()  # which is connected where the key is refused
            await _end_tasks(library.eio)
            client.close()
