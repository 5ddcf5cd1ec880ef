"""A server by streamable HTTP: answers are bounded, and what refuses a request is noticed."""

from collections.abc import AsyncIterator

import httpx2
from typing_extensions import override

from passback.toolsets.mcp.line import MESSAGE_BYTES, Line
from passback.toolsets.mcp.targets import Address

_CONNECT_SECONDS = 10.0
_WRITE_SECONDS = 30.0
_SESSION = "mcp-session-id"


class TooLarge(httpx2.StreamError):
    """An answer was larger than may be read."""

    def __init__(self) -> None:
        super().__init__(f"more than {MESSAGE_BYTES} bytes")


def http_client(address: Address, line: Line) -> httpx2.AsyncClient:
    """Calls have deadlines of their own: reading has none, as a stream may be silent for long."""

    async def look(response: httpx2.Response) -> None:
        request = response.request
        if request.method == "POST":
            refused = response.status_code >= 400
            line.refusal = (
                f"it answered with the status {response.status_code}" if refused else None
            )
        if response.status_code == 404 and _SESSION in request.headers:
            line.forget()
        if response.headers.get("content-encoding", "identity") != "identity":
            line.finish("it answered with an encoding that was not asked for")
            raise httpx2.DecodingError("an encoding that was not asked for", request=request)
        stream = response.stream
        kind = response.headers.get("content-type", "")
        if isinstance(stream, httpx2.AsyncByteStream) and not kind.startswith("text/event-stream"):
            response.stream = _Bounded(stream, line)

    return httpx2.AsyncClient(
        # an answer that unpacks to more than it is long could not be bounded
        headers={**address.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None, write=_WRITE_SECONDS),
        event_hooks={"response": [look]},
        # a proxy of the environment would be sent the headers, in which there may be a key
        trust_env=False,
    )


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends when it becomes too large. That of an event stream is bounded event by event."""

    def __init__(self, stream: httpx2.AsyncByteStream, line: Line) -> None:
        self._stream = stream
        self._line = line

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = MESSAGE_BYTES
        async for chunk in self._stream:
            room -= len(chunk)
            if room < 0:
                self._line.finish(f"it sent a message of more than {MESSAGE_BYTES} bytes")
                raise TooLarge
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()
