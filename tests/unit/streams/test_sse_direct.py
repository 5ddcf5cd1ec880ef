"""A stream of a server that can send without waiting: the same promises, without a task of its own."""

import asyncio

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Receive, Scope, Send
from tests.support.asgi_client import SECONDS, exchange
from tests.support.logged_runs import RUN
from tests.support.sse_site import END, Direct, Site, directly, done, text

from passback.core.events import (
    Position,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import MessageId
from passback.http.sending import SEND_NOW
from passback.streams.sse import CUT_SHORT
from passback.streams.writer import PING

pytestmark = pytest.mark.anyio


async def test_what_comes_while_a_stream_waits_is_sent_without_a_task_if_the_server_can() -> None:
    site, direct = Site(), Direct()
    async with directly(site, direct) as one:
        await anyio.wait_all_tasks_blocked()
        site.runs.say(RunStarted(RUN.run_id))
        await anyio.wait_all_tasks_blocked()
        site.runs.say(TurnStarted(MessageId("m")))
        await anyio.wait_all_tasks_blocked()
        site.runs.say(TextDelta("a"))
        await anyio.wait_all_tasks_blocked()
        assert direct.sent == [text(3, "a")]
        direct.ready = False
        site.runs.say(TextDelta("b"))
        assert await one.chunk() == text(4, "b")
        site.runs.say(END)
        assert await one.rest() == done(5)
        assert len(direct.sent) == 1


@pytest.mark.promise("P10")
async def test_a_take_over_is_told_also_where_the_server_sends_without_a_task() -> None:
    site, direct = Site(), Direct()
    async with directly(site, direct) as one:
        site.runs.say(TextDelta("void"))
        assert await one.chunk() == text(1, "void")
        await anyio.wait_all_tasks_blocked()
        site.runs.is_taken_over(Position(1, 0))
        assert b'"code":"rewound"' in await one.rest()
        assert direct.sent == []


async def test_silence_is_filled_without_a_task_if_the_server_can() -> None:
    site, direct = Site(ping=0.01), Direct()
    async with directly(site, direct) as one:
        with anyio.fail_after(SECONDS):
            await direct.came.wait()
        assert direct.sent[0] == PING.encode()
        site.runs.say(END)
        assert await one.rest() == done(1)


async def test_a_silence_is_not_filled_while_there_is_no_room() -> None:
    site, direct = Site(ping=0.01), Direct()
    direct.ready = False
    async with directly(site, direct) as one:
        with anyio.move_on_after(0.05):
            await direct.came.wait()
        site.runs.say(END)
        assert await one.rest() == done(1)
    assert direct.sent == []


@pytest.mark.promise("P11")
async def test_a_client_that_does_not_take_the_end_is_dropped() -> None:
    site, direct = Site(patience=0.02), Direct()
    async with directly(site, direct):
        direct.ready = False
        site.runs.say(END)
        await site.is_left()
    assert direct.dropped


async def test_a_client_that_leaves_is_forgotten() -> None:
    site, direct = Site(), Direct()
    async with directly(site, direct) as one:
        direct.left.set()
        await site.is_left()
        assert not one.ended


async def test_a_client_that_left_before_its_stream_began_is_forgotten() -> None:
    site, direct = Site(), Direct()
    direct.left.set()
    async with exchange(site.app(), "GET", "/", extensions={SEND_NOW: direct}) as one:
        await site.is_left()
        assert not one.ended


async def test_a_stopping_server_sends_its_clients_away() -> None:
    site = Site()
    async with directly(site, Direct()) as one:
        site.stopping.set()
        assert await one.rest() == CUT_SHORT.encode()


@pytest.mark.parametrize("left", [False, True])
async def test_who_cancels_a_stream_sees_it_cancelled_also_when_its_client_left(left: bool) -> None:
    site, direct = Site(), Direct()
    app = site.app()
    streams: list[asyncio.Future[None]] = []

    async def cancellable(scope: Scope, receive: Receive, send: Send) -> None:
        streams.append(asyncio.ensure_future(app(scope, receive, send)))
        await asyncio.wait(streams)

    async with exchange(cancellable, "GET", "/", extensions={SEND_NOW: direct}):
        await anyio.wait_all_tasks_blocked()
        if left:
            direct.left.set()
        streams[0].cancel()
        await site.is_left()
        await asyncio.wait(streams)
    assert streams[0].cancelled()


async def test_a_client_that_left_leaves_its_streams_task_uncancelled() -> None:
    site, direct = Site(), Direct()
    app = site.app()
    ended = asyncio.Event()

    async def outlasting(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await anyio.lowlevel.checkpoint()
        ended.set()

    async with exchange(outlasting, "GET", "/", extensions={SEND_NOW: direct}):
        await anyio.wait_all_tasks_blocked()
        direct.left.set()
        with anyio.fail_after(SECONDS):
            await ended.wait()
