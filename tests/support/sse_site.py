"""A site that streams one run, and a stand-in for a server that sends without a task."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
from starlette.requests import Request
from starlette.types import ASGIApp
from tests.support.asgi_client import SECONDS, Exchange, exchange
from tests.support.logged_runs import OPENING, RUN, LoggedRuns

from passback.core.events import Completed, RunFinished
from passback.core.messages import RunRef
from passback.core.signals import Signal
from passback.hotpath.sending import SEND_NOW
from passback.http.gate import Access
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import RequestLimits, Services, Wire
from passback.native.document import WaitedAnswer
from passback.native.responses import TEXT, NativeEncoder, PlainEncoder
from passback.streams.frames import EventId
from passback.streams.sse import EventStream

END = RunFinished(Completed())
DONE = b"data: [DONE]\n\n"


def text(number: int, text: str) -> bytes:
    return f'id: run_1.1-{number}\ndata: {{"type":"text","content":"{text}"}}\n\n'.encode()


def done(number: int) -> bytes:
    return f"id: run_1.1-{number}\n".encode() + DONE


class Site:
    """One route that streams `RUN`."""

    def __init__(self, *, ping: float = 60, send_seconds: float = 60, chars: int = 1000) -> None:
        self.runs = LoggedRuns()
        self.stopping = Signal()
        self.services = Services(
            self.runs,
            self.stopping,
            RequestLimits(send_seconds=send_seconds, answer_chars=chars),
            ping_seconds=ping,
        )

    def app(self, run: RunRef = RUN, since: EventId | None = None, *include: str) -> ASGIApp:
        async def stream(request: Request) -> ASGIApp:
            await request.body()
            return EventStream(self.services, run, NativeEncoder(frozenset(include)), since)

        return _site(stream)

    def text(self) -> ASGIApp:
        """Return a site that streams the run as plain text."""

        async def words(request: Request) -> ASGIApp:
            return EventStream(self.services, RUN, PlainEncoder(), form=TEXT)

        return _site(words)

    def document(
        self,
        run: RunRef = RUN,
        *,
        seconds: float = SECONDS,
        goes_on: Mapping[str, object] | None = None,
    ) -> ASGIApp:
        """Return a site that sends the run as one document, after `seconds` at the latest."""

        async def wait(request: Request) -> ASGIApp:
            return WaitedAnswer(self.services, run, seconds=seconds, goes_on=goes_on)

        return _site(wait)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Exchange]:
        """Open a stream, and read its first chunk."""
        async with exchange(self.app(), "GET", "/", headers={"x-request-id": "r"}) as one:
            assert await one.chunk() == OPENING.encode()
            yield one

    async def no_readers(self) -> None:
        """Wait until nobody follows the run."""
        with anyio.fail_after(SECONDS):
            while self.runs.readers:
                await anyio.wait_all_tasks_blocked()


def _site(endpoint: Callable[[Request], Awaitable[ASGIApp]]) -> ASGIApp:
    return build_site([Wire([Endpoint("/", endpoint, methods=["GET", "POST"])])], Access())


class Direct:
    """The part of a server that sends without a task; it records what is sent."""

    def __init__(self) -> None:
        self.ready = True
        self.left = Signal()
        self.sent: list[bytes] = []
        self.has_sent = anyio.Event()
        self.dropped = False
        self.broken_off = False
        self.opening = b""

    async def begin(self, head: Awaitable[None], chunk: bytes) -> None:
        await head
        self.opening = chunk

    def break_off(self) -> None:
        self.broken_off = True

    def drop(self) -> None:
        self.dropped = True

    def send(self, chunk: bytes) -> None:
        self.sent.append(chunk)
        self.has_sent.set()


@asynccontextmanager
async def directly(site: Site, direct: Direct) -> AsyncGenerator[Exchange]:
    """Open a stream of a server that sends without a task, and has sent its opening."""
    async with exchange(site.app(), "GET", "/", extensions={SEND_NOW: direct}) as one:
        assert direct.opening == OPENING.encode()
        yield one
