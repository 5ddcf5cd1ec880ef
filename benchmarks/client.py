"""A client that costs little: raw HTTP/1.1 over asyncio's protocols, one request at a time."""

import asyncio
import json
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, cast
from urllib.parse import urlsplit

import httptools
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of requests and answers: one of our wires', or the model's own.

    Attributes:
        first_text: bytes that show that text has come.
    """

    path: str
    first_text: bytes

    def request_body(self, prompt: str, conversation: str) -> bytes:
        messages = [{"role": "user", "content": prompt}]
        request: dict[str, object] = {"conversationId": conversation, "messages": messages}
        if self is MODEL:
            request = {"model": "mock", "stream": True, "messages": messages}
        elif self is AGENT_API:
            message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
            request = {"session_id": conversation, "input": [message]}
        elif self is AG_UI:
            message = {"id": uuid.uuid4().hex, **messages[0]}
            request = {"threadId": conversation, "runId": uuid.uuid4().hex, "messages": [message]}
            request |= {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
        elif self is AI_SDK:
            message = {"role": "user", "parts": [{"type": "text", "text": prompt}]}
            request = {"id": conversation, "messages": [{"id": uuid.uuid4().hex, **message}]}
        return json.dumps(request).encode()

    def event_text(self, event: dict[str, Any]) -> str:
        if self is MODEL:
            choices = event["choices"]
            return (choices[0]["delta"].get("content") or "") if choices else ""
        if self is AGENT_API:
            return str(event["text"]) if event.get("delta") else ""
        if self in {AG_UI, AI_SDK}:
            is_text = event["type"] in {"TEXT_MESSAGE_CONTENT", "text-delta"}
            return str(event["delta"]) if is_text else ""
        return str(event["content"]) if event["type"] == "text" else ""

    def stream_text(self, body: bytes) -> str:
        """Return the text of a stream's whole events; what came of the next one is left out."""
        whole, _, _ = body.replace(b"\r\n", b"\n").rpartition(b"\n\n")
        return "".join(
            self.event_text(json.loads(item)) for item in _data_lines(whole) if item != _DONE
        )

    def has_answer(self, body: bytes, text: str) -> bool:
        """Return True if the stream carries exactly this text and ends as it must."""
        if self in {CHAT, ACP}:  # whose clients have read it
            return body.decode() == text
        data = _data_lines(body)
        if self is AGENT_API:
            ended = bool(data) and json.loads(data[-1])["status"] == "completed"
        elif self is AG_UI:
            ended = bool(data) and json.loads(data[-1])["type"] == "RUN_FINISHED"
        else:
            ended = data[-1:] == [_DONE]
        return ended and self.stream_text(body) == text


WIRE = Dialect("/send-message", b'"content"')
CHAT = Dialect("/ws", b'"text_delta"')
ACP = Dialect("/acp", b"agent_message_chunk")
MODEL = Dialect("/v1/chat/completions", b'"content":"')
AGENT_API = Dialect("/process", b'"delta":true')
AG_UI = Dialect("/ag-ui", b'"TEXT_MESSAGE_CONTENT"')
AI_SDK = Dialect("/api/chat", b'"text-delta"')
DIALECTS = {
    "wire": WIRE,
    "model": MODEL,
    "agent-api": AGENT_API,
    "ag-ui": AG_UI,
    "ai-sdk": AI_SDK,
    "chat": CHAT,
    "acp": ACP,
}
_DONE = "[DONE]"


def _data_lines(body: bytes) -> list[str]:
    return [line[5:].strip() for line in body.decode().split("\n") if line.startswith("data:")]


def new_conversation_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to one request; `first_ms` from the request's write until text was there."""

    status: int
    body: bytes
    first_ms: float


class Connection(asyncio.Protocol):
    """A keep-alive connection with one request at a time.

    Attributes:
        text_came: is set when the answer's first text is there.
    """

    def __init__(self, netloc: str, dialect: Dialect) -> None:
        self._netloc = netloc
        self._dialect = dialect
        self._body = bytearray()
        self.text_came = asyncio.Event()
        self._reply: asyncio.Future[Reply] | None = None

    @classmethod
    async def open(cls, url: str, dialect: Dialect = WIRE) -> Self:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        loop = asyncio.get_running_loop()
        make = partial(cls, address.netloc, dialect)
        _, connection = await loop.create_connection(make, address.hostname, address.port)
        return connection

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionResetError("closed in the middle"))

    def ask(self, prompt: str, conversation: str) -> "asyncio.Future[Reply]":
        """Post the prompt to a conversation."""
        body = self._dialect.request_body(prompt, conversation)
        head = (
            f"POST {self._dialect.path} HTTP/1.1\r\nhost: {self._netloc}\r\n"
            "content-type: application/json\r\naccept: text/event-stream\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return self._send(head.encode() + body)

    def follow(self, conversation: str) -> "asyncio.Future[Reply]":
        """Ask for the stream of a conversation's newest run, from its start."""
        head = f"GET /conversations/{conversation}/stream HTTP/1.1\r\nhost: {self._netloc}\r\n"
        return self._send(f"{head}accept: text/event-stream\r\n\r\n".encode())

    def _send(self, request: bytes) -> "asyncio.Future[Reply]":
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
        if not self._first and self._dialect.first_text in self._body:
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
        """The part of the answer that has come."""
        return bytes(self._body)

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()
