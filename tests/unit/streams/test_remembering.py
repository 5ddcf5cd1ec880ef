"""Encoders with a memory: they are fed the whole run, wherever a reader begins, and may fail."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.requests import Request
from starlette.types import ASGIApp
from tests.support.asgi_client import ask, exchange
from tests.support.logged_runs import OPENING, RUN, LoggedRuns
from tests.support.sse_site import END, Direct
from typing_extensions import override

from passback.core.errors import CursorExpired
from passback.core.events import (
    START,
    Cursor,
    Failed,
    Logged,
    Position,
    Rewound,
    RunEvent,
    RunFinished,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import MessageId, RunRef
from passback.core.runs import TakeBatch
from passback.core.signals import Signal
from passback.hotpath.sending import SEND_NOW
from passback.http.gate import Access
from passback.http.requests import headers_of
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import Services, Wire
from passback.streams.frames import EventId, SseFramer
from passback.streams.sse import EventStream, last_event_id

pytestmark = pytest.mark.anyio


class TextSoFar:
    """An encoder that repeats the text so far with each delta, and fails beyond five letters."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        if isinstance(event, RunFinished):
            return ("end",)
        if not isinstance(event, TextDelta):
            return ()
        self._text += event.text
        if len(self._text) > 5:
            raise CursorExpired("too long")
        return (self._text,)

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        return ()

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return (failed.code,)

    def end(self) -> Sequence[str]:
        return ()


class SingleEvents(LoggedRuns):
    """Runs whose events each come in a batch of their own."""

    @override
    @asynccontextmanager
    async def follow(
        self, run: RunRef, /, *, after: Position = START, take: TakeBatch | None = None
    ) -> AsyncGenerator[AsyncIterator[Sequence[Logged]]]:
        async with super().follow(run, after=after, take=take) as batches:
            yield _split(batches)


async def _split(batches: AsyncIterator[Sequence[Logged]]) -> AsyncGenerator[Sequence[Logged]]:
    async for batch in batches:
        for logged in batch:
            yield (logged,)


def _app(runs: LoggedRuns) -> ASGIApp:
    async def stream(request: Request) -> ASGIApp:
        services = Services(runs, Signal())
        return EventStream(
            services, RUN, TextSoFar(), last_event_id(headers_of(request.scope)), remembers=True
        )

    return build_site([Wire([Endpoint("/", stream, methods=["GET"])])], Access())


def _frame(number: int, data: str) -> bytes:
    return f"id: run_1.1-{number}\ndata: {data}\n\n".encode()


ABC = (TextDelta("a"), TextDelta("b"), TextDelta("c"), END)


@pytest.mark.promise("P3")
@pytest.mark.parametrize("kind", [LoggedRuns, SingleEvents])
@pytest.mark.parametrize(
    ("seen", "rest"),
    [(1, [(3, "abc"), (4, "end")]), (2, [(3, "abc"), (4, "end")]), (3, [(4, "end")]), (4, [])],
)
async def test_events_that_a_reader_has_seen_are_fed_and_not_sent(
    kind: type[LoggedRuns], seen: int, rest: list[tuple[int, str]]
) -> None:
    answer = await ask(_app(kind(*ABC)), "GET", "/", headers={"last-event-id": f"run_1.1-{seen}"})
    frames = [_frame(*each) for each in rest]
    if kind is SingleEvents and seen == 1:
        frames = [_frame(2, "ab"), *frames]
    assert answer.body == OPENING.encode() + b"".join(frames)


async def test_an_encoder_that_fails_ends_the_stream_behind_its_last_frame() -> None:
    log = (TextDelta("abc"), TurnStarted(MessageId("m")), TextDelta("def"), END)
    answer = await ask(_app(LoggedRuns(*log)), "GET", "/")
    frames = _frame(1, "abc") + _frame(2, "cursor_expired")
    assert answer.body == OPENING.encode() + frames


async def test_it_fails_also_where_the_server_sends_without_a_task() -> None:
    runs, direct = LoggedRuns(TurnStarted(MessageId("m"))), Direct()
    async with exchange(_app(runs), "GET", "/", extensions={SEND_NOW: direct}) as one:
        assert direct.opening == OPENING.encode()
        for words in ("abc", "def", "ghi"):
            await anyio.wait_all_tasks_blocked()
            runs.say(TextDelta(words))
        assert await one.rest() == b""
    assert direct.sent == [_frame(2, "abc"), _frame(2, "cursor_expired")]


@pytest.mark.promise("P10")
@pytest.mark.parametrize("remembers", [True, False])
def test_fed_events_without_a_frame_may_become_void_too(remembers: bool) -> None:
    framer = SseFramer(TextSoFar(), RUN.run_id, remembers=remembers)
    assert not framer.frame_batch([Logged(Position(1, 1), TurnStarted(MessageId("m")))])
    frames = framer.frame_batch([Logged(Position(2, 1), Rewound(Position(1, 0)))])
    assert ("rewound" in frames, framer.ended) == (remembers, remembers)


def test_nothing_needs_recall_before_the_first_event() -> None:
    since = EventId(Cursor(RUN.run_id, START), 1)
    assert not SseFramer(TextSoFar(), RUN.run_id, since, remembers=True).needs_recall
