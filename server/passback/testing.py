"""The parts that tests of an agent need: a scripted model, a server in memory, a transport to it.

async def test_the_cook_reads_the_menu() -> None:
    model = ScriptedModel([calls(("menu", {})), says("There is soup.")])
    async with serve_in_memory(Agent(model=model, tools=[menu])) as transport:
        async with passback_client.Client("http://127.0.0.1", transport=transport) as client:
            assert (await client.ask("hungry")).text == "There is soup."
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
import httpx
from anyio.abc import TaskGroup
from starlette.types import ASGIApp, Message, Scope
from typing_extensions import override

from passback.agent import Agent
from passback.app import Application
from passback.models.scripted import ScriptedModel, Step, Turn, calls, says
from passback.session import ContextHolder
from passback.settings import load_settings, variable_name

__all__ = [
    "AsgiTransport",
    "ScriptedModel",
    "Step",
    "Turn",
    "calls",
    "says",
    "serve_in_memory",
]


@asynccontextmanager
async def serve_in_memory(
    *agents: Agent, settings: Mapping[str, str] | None = None
) -> AsyncGenerator["AsgiTransport"]:
    """Serve agents as `passback serve` does, without a socket; yield the transport to reach it by.

    Args:
        agents: the first one answers requests that name none.
        settings: by their names without `PASSBACK_`, such as `{"store": "sqlite:///t.db"}`. Those
            of the environment do not count, and conversations are kept in memory.

    Raises:
        ConfigurationError: the agents or the settings cannot work.
    """
    given = {"store": "memory:", **(settings or {})}
    app = Application(
        load_settings({variable_name(name): value for name, value in given.items()}), *agents
    )

    @asynccontextmanager
    async def serve() -> AsyncGenerator[AsgiTransport]:
        async with app.running(), anyio.create_task_group() as tasks:
            yield AsgiTransport(app.asgi, tasks)
            await app.drain()
            tasks.cancel_scope.cancel()

    # in a task of its own: what a test raises is not to come out as a group of errors
    server = await ContextHolder(serve()).open()
    try:
        yield server.value
    finally:
        await server.close()


class AsgiTransport(httpx.AsyncBaseTransport):
    """An httpx transport to an ASGI application, which hands on each chunk as it is sent.

    httpx's own `ASGITransport` returns an answer when the application has ended, so it cannot be
    used for a stream.

    Args:
        app: the application; its lifespan is not run.
        tasks: requests are answered in it.
    """

    def __init__(self, app: ASGIApp, tasks: TaskGroup, /) -> None:
        self._app = app
        self._tasks = tasks

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and wait for the head of its answer.

        Raises:
            httpx.RemoteProtocolError: the application ended without an answer.
        """
        exchange = _Exchange(await request.aread())
        url = request.url
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.partition(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 50000),
            "server": (url.host, url.port or (443 if url.scheme == "https" else 80)),
            "extensions": {},
        }
        self._tasks.start_soon(exchange.serve, self._app, scope)
        return await exchange.response()


class _Exchange(httpx.AsyncByteStream):
    """One request, and the stream of its answer's body."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._left = anyio.Event()
        self._sent, self._arriving = anyio.create_memory_object_stream[Message](0)

    async def serve(self, app: ASGIApp, scope: Scope) -> None:
        with self._sent, suppress(anyio.BrokenResourceError):  # the client has left
            await app(scope, self._receive, self._sent.send)

    async def response(self) -> httpx.Response:
        try:
            head = await self._arriving.receive()
        except anyio.EndOfStream:
            self._arriving.close()
            raise httpx.RemoteProtocolError("the application gave no answer") from None
        return httpx.Response(head["status"], headers=head["headers"], stream=self)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for message in self._arriving:
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return

    @override
    async def aclose(self) -> None:
        self._left.set()
        self._arriving.close()
