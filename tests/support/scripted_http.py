"""An HTTP server that is a list: each request gets the next answer. For clients on httpx."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeAlias

import httpx
from typing_extensions import override

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
