"""Requests to an ASGI application without a socket, chunk by chunk; the client can leave.

A ready-made ASGI transport gives the answer only when the application has ended, so it cannot test
a stream.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from anyio.to_thread import current_default_thread_limiter
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Scope

SECONDS = 20
"""Time that anything may take."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Headers
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        code: str = self.headers.get("x-error-code") or self.json["code"]
        return code


@dataclass
class Exchange:
    """A request in progress: the application waits in each send until the client takes it."""

    scope: Scope
    body: list[bytes]
    sent: MemoryObjectSendStream[Message]
    answer: MemoryObjectReceiveStream[Message]
    left: anyio.Event = field(default_factory=anyio.Event)
    stalled_body: bool = False
    status: int = 0
    headers: Headers = field(default_factory=Headers)
    ended: bool = False

    def leave(self) -> None:
        """Close the connection from the client's side."""
        self.left.set()

    async def receive(self) -> Message:
        if self.body:
            chunk = self.body.pop(0)
            more = bool(self.body) or self.stalled_body
            return {"type": "http.request", "body": chunk, "more_body": more}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.sent.send(message)

    async def start(self) -> None:
        """Wait for status and headers."""
        with anyio.fail_after(SECONDS):
            message = await self.answer.receive()
        assert message["type"] == "http.response.start"
        self.status, self.headers = message["status"], Headers(raw=message["headers"])

    async def chunk(self) -> bytes:
        """Return the next chunk; empty at the end, also when the application just returned."""
        with anyio.fail_after(SECONDS):
            try:
                message = await self.answer.receive()
            except anyio.EndOfStream:
                return b""
        self.ended = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body

    async def rest(self) -> bytes:
        """Return all that is still to come."""
        whole = b""
        while not self.ended and (chunk := await self.chunk()):
            whole += chunk
        return whole


@asynccontextmanager
async def exchange(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes | Iterable[bytes] = b"",
    stalled_body: bool = False,
    leaves_at_once: bool = False,
    extensions: Mapping[str, object] | None = None,
) -> AsyncGenerator[Exchange]:
    """Send a request; leaving the context disconnects, and the application has to end then.

    Args:
        app: what answers.
        method: such as GET.
        path: as it stands in a request line, percent-encoded, with its query.
        headers: `Host` is added where none is given.
        body: whole, or in chunks.
        stalled_body: never send the end of the body.
        leaves_at_once: close the connection after the last chunk of the body.
        extensions: what the server offers beyond ASGI.
    """
    given = list(headers.items() if isinstance(headers, Mapping) else headers)
    if all(name.lower() != "host" for name, _ in given):
        given.append(("host", "127.0.0.1:8000"))
    raw_path, _, query = path.partition("?")
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "extensions": extensions or {},
    }
    sent, answer = anyio.create_memory_object_stream[Message](0)
    chunks = [body] if isinstance(body, bytes) else list(body)
    one = Exchange(scope, chunks, sent, answer, stalled_body=stalled_body)
    if leaves_at_once:
        one.leave()

    async def serve() -> None:
        with sent:
            await app(scope, one.receive, one.send)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        with answer:
            await one.start()
            yield one
            one.leave()
            with anyio.move_on_after(SECONDS):
                await one.rest()


async def ask(app: ASGIApp, method: str, path: str, **request: Any) -> Answer:
    """Send a request and read the whole answer."""
    async with exchange(app, method, path, **request) as one:
        return Answer(one.status, one.headers, await one.rest())


async def ask_json(
    app: ASGIApp,
    method: str,
    path: str,
    value: object,
    *,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
) -> Answer:
    """Send a JSON body."""
    given = headers.items() if isinstance(headers, Mapping) else headers
    typed = [("content-type", "application/json"), *given]
    return await ask(app, method, path, headers=typed, body=json.dumps(value).encode())


@asynccontextmanager
async def exhaust_threads() -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Take all threads of this event loop; yields a function that waits until one is asked for."""
    limiter = current_default_thread_limiter()
    borrowers = [object() for _ in range(int(limiter.available_tokens))]
    for each in borrowers:
        limiter.acquire_on_behalf_of_nowait(each)

    async def awaited() -> None:
        with anyio.fail_after(20):
            while not limiter.statistics().tasks_waiting:
                await anyio.lowlevel.checkpoint()

    try:
        yield awaited
    finally:
        for each in borrowers:
            limiter.release_on_behalf_of(each)
