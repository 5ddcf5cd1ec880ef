"""A scripted HTTP server for tests of the Python client, and the events to expect from it."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeAlias

import httpx
from tests.support.wire import Client as RawClient
from typing_extensions import override

from passback_client import Event, Retry, Stream, Text

Reply: TypeAlias = httpx.Response | Exception

DONE = b"data: [DONE]\n\n"


class Script:
    """Use `transport`; what was asked is in `requests`."""

    def __init__(self, *replies: Reply) -> None:
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)
        self._replies = list(replies)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    @property
    def routes(self) -> list[str]:
        """Method and path of each request."""
        return [f"{each.method} {each.url.raw_path.decode()}" for each in self.requests]

    def headers(self, name: str) -> list[str | None]:
        return [each.headers.get(name) for each in self.requests]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(each.content) for each in self.requests if each.content]


class Chunks(httpx.AsyncByteStream):
    """A body that comes in pieces, and may break."""

    def __init__(self, chunks: Sequence[bytes], error: Exception | None = None) -> None:
        self.closed = False
        self._chunks = chunks
        self._error = error

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._error is not None:
            raise self._error

    @override
    async def aclose(self) -> None:
        self.closed = True


def frame(place: str, **event: object) -> bytes:
    """One event, with its id."""
    return f"id: {place}\ndata: {json.dumps(event)}\n\n".encode()


def stream(
    *chunks: bytes, run: str | None = "run", error: Exception | None = None
) -> httpx.Response:
    """A stream of events as a passback server sends it."""
    headers = {"content-type": "text/event-stream; charset=utf-8", "x-conversation-id": "c%20d"}
    headers |= {} if run is None else {"x-run-id": run}
    return httpx.Response(200, headers=headers, stream=Chunks(chunks, error))


def document(body: object) -> httpx.Response:
    """An answer that is no stream, as a passback server gives it."""
    return httpx.Response(200, headers={"x-request-id": "req_1"}, json=body)


def refusal(status: int, code: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"code": code, "message": f"it is {code}", "request_id": "req_1"}
    return httpx.Response(status, headers=named, json=body)


QUICK = Retry(attempts=10, first=0.01, longest=0.05)
BRISK = Retry(attempts=10, first=0.01, longest=0.05, claim=1)
"""A client whose claims are renewed three times a second."""

# ---------------------------------------------------------------- scripted answers
PAINT = {"id": "call", "name": "paint", "arguments": "{}", "kind": "tool_result"}
IDLE: dict[str, Any] = {
    "id": "c",
    "running": None,
    "queued": [],
    "owed": [],
    "messageCount": 0,
    "runId": None,
}


def owes(*calls: dict[str, str], run: str | None = "run") -> httpx.Response:
    """Return the end of a run that hands these calls back; without a run: what is left of them."""
    data = json.dumps({"type": "owed", "toolCalls": calls}).encode()
    place = b"" if run is None else f"id: {run}.1-9\n".encode()
    return stream(place + b"data: " + data + b"\n\n", DONE, run=run)


# ---------------------------------------------------------------- orders to the model
def order(*calls: Sequence[str]) -> str:
    """Return a message that makes the agent call these tools; after their results it says Done."""
    return json.dumps({"calls": calls})


# ---------------------------------------------------------------- results
async def results_of(raw: RawClient, conversation: str) -> list[tuple[object, bool]]:
    """Content of the results in the history, and whether they are errors."""
    kept = await raw.messages(conversation)
    return [(m["content"], m.get("isError", False)) for m in kept if m["role"] == "tool"]


def kinds(events: list[Event]) -> list[str]:
    """Neighbours of one kind counted once: how a text is cut into pieces may differ."""
    names = [type(event).__name__ for event in events]
    return [name for name, before in zip(names, ["", *names], strict=False) if name != before]


def joined(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Text))


async def until_text(events: AsyncIterator[Event]) -> None:
    async for event in events:
        if isinstance(event, Text):
            return
    raise AssertionError("no text came")


async def collect(stream: Stream, collected: list[Event]) -> None:
    async with stream:
        collected.extend([event async for event in stream])


def of_kind(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def answers_in(raw: RawClient, conversation: str) -> list[tuple[str, object]]:
    """Return the decisions and the tools' results."""
    kept = await raw.messages(conversation)
    return [
        (each["role"], each.get("content", each.get("approved")))
        for each in kept
        if each["role"] in {"approval", "tool"}
    ]
