"""A client that costs little: raw HTTP/1.1 over asyncio's protocols, one request after the other on a connection."""

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import httptools
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to ask, and how the answer's text looks: our wires', or the model's own for a look without a server."""

    path: str
    first_text: bytes  # shows that text has come

    def body(self, prompt: str, conversation: str) -> bytes:
        messages = [{"role": "user", "content": prompt}]
        request: dict[str, object] = {"conversationId": conversation, "messages": messages}
        if self is MODEL:
            request = {"model": "mock", "stream": True, "messages": messages}
        elif self is AGENT_API:
            said = {"role": "user", "content": [{"type": "text", "text": prompt}]}
            request = {"session_id": conversation, "input": [said]}
        return json.dumps(request).encode()

    def text_of(self, event: dict[str, Any]) -> str:
        if self is MODEL:
            choices = event["choices"]
            return (choices[0]["delta"].get("content") or "") if choices else ""
        if self is AGENT_API:
            return str(event["text"]) if event.get("delta") else ""
        return str(event["content"]) if event["type"] == "text" else ""


WIRE = Dialect("/send-message", b'"content"')
MODEL = Dialect("/v1/chat/completions", b'"content":"')
AGENT_API = Dialect("/process", b'"delta":true')
DIALECTS = {"wire": WIRE, "model": MODEL, "agent-api": AGENT_API}
_DONE = "[DONE]"


def new_conversation() -> str:
    return uuid.uuid4().hex


def request_bytes(dialect: Dialect, netloc: str, prompt: str, conversation: str) -> bytes:
    """A whole HTTP request."""
    body = dialect.body(prompt, conversation)
    head = (
        f"POST {dialect.path} HTTP/1.1\r\nhost: {netloc}\r\ncontent-type: application/json\r\n"
        f"accept: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def follow_bytes(netloc: str, conversation: str) -> bytes:
    """A request for the stream of a conversation's newest run, from its start."""
    head = f"GET /conversations/{conversation}/stream HTTP/1.1\r\nhost: {netloc}\r\n"
    return f"{head}accept: text/event-stream\r\n\r\n".encode()


def says(dialect: Dialect, body: bytes, text: str) -> bool:
    """Whether the stream carries exactly this text and ends as it must."""
    data = _data(body)
    if dialect is AGENT_API:
        ended = bool(data) and json.loads(data[-1])["status"] == "completed"
    else:
        ended = data[-1:] == [_DONE]
    return ended and text_so_far(dialect, body) == text


def text_so_far(dialect: Dialect, body: bytes) -> str:
    """The text of a stream's whole events; what came of the next one is left out."""
    whole, _, _ = body.replace(b"\r\n", b"\n").rpartition(b"\n\n")
    return "".join(dialect.text_of(json.loads(item)) for item in _data(whole) if item != _DONE)


def _data(body: bytes) -> list[str]:
    return [line[5:].strip() for line in body.decode().split("\n") if line.startswith("data:")]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for one request; `first_ms` from the request's write until text was there."""

    status: int
    body: bytes
    first_ms: float


class Connection(asyncio.Protocol):
    """A keep-alive connection; `ask` one at a time. `text_came` is set when the answer's first text is there."""

    def __init__(self, dialect: Dialect) -> None:
        self._first_text = dialect.first_text
        self._body = bytearray()
        self.text_came = asyncio.Event()
        self._reply: asyncio.Future[Reply] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionResetError("closed in the middle"))

    def ask(self, request: bytes) -> "asyncio.Future[Reply]":
        self._parser = httptools.HttpResponseParser(self)
        self._body.clear()
        self._first = 0.0
        self.text_came.clear()
        self._reply = asyncio.get_running_loop().create_future()
        self._asked = time.perf_counter()
        self._transport.write(request)
        return self._reply

    @override
    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._parser.feed_data(data)
        if not self._first and self._first_text in self._body:
            self._first = now
            self.text_came.set()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        assert self._reply is not None
        first = (self._first or time.perf_counter()) - self._asked
        reply = Reply(self._parser.get_status_code(), bytes(self._body), first * 1000)
        self._reply.set_result(reply)

    @property
    def body(self) -> bytes:
        """What has come of the answer."""
        return bytes(self._body)

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()


C = TypeVar("C", bound=Connection)


async def connect(url: str, kind: Callable[[], C]) -> C:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    loop = asyncio.get_running_loop()
    made = await loop.create_connection(kind, address.hostname, address.port)
    return made[1]
