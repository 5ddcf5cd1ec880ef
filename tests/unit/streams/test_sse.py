"""Streams of events: they follow a run to its end, and drop clients that leave or do not read."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Receive, Scope, Send
from tests.support.asgi_client import SECONDS, exchange
from tests.support.logged_runs import OPENING, RUN
from tests.support.sse_site import DONE, END, Direct, Site, directly, done, text

from passback.core.errors import (
    CursorExpired,
    InvalidCursor,
    PassbackError,
    StoreUnavailable,
    UnknownRun,
)
from passback.core.events import Cursor, Position, RunEvent, RunStarted, TextDelta, TurnStarted
from passback.core.messages import ConversationId, MessageId, RunId
from passback.hotpath.sending import SEND_NOW
from passback.pacing import LARGE
from passback.streams.frames import EventId
from passback.streams.sse import CUT_SHORT, opening_comment, stream_headers
from passback.streams.writer import PING

pytestmark = pytest.mark.anyio


async def test_the_headers_and_the_first_byte_come_before_any_event() -> None:
    async with Site().opened() as one:
        assert one.status == 200
        assert dict(one.headers) == {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store, no-transform",
            "x-content-type-options": "nosniff",
            "cross-origin-resource-policy": "same-origin",
            "x-accel-buffering": "no",
            "x-conversation-id": "c",
            "x-run-id": "run_1",
            "x-request-id": "r",
        }


async def test_each_batch_is_one_chunk_and_the_end_comes_with_the_last() -> None:
    site = Site()
    async with site.opened() as one:
        site.runs.say(RunStarted(RUN.run_id), TextDelta("a"), TextDelta("b"))
        assert await one.chunk() == text(3, "ab")
        site.runs.say(TextDelta("c"))
        assert await one.chunk() == text(4, "c")
        site.runs.say(TextDelta("d"), END)
        assert await one.chunk() == text(5, "d") + done(6)
        assert one.ended


async def test_a_large_batch_is_sent_in_parts_of_which_each_waits_for_room() -> None:
    site, large = Site(), "x" * (LARGE + 1)
    async with site.opened() as one:
        site.runs.say(TextDelta(large), TextDelta("a"), TextDelta(large), TextDelta("b"), END)
        assert await one.chunk() == text(1, large)
        assert await one.chunk() == text(3, f"a{large}")
        assert await one.chunk() == text(4, "b") + done(5)
        assert one.ended


async def test_a_batch_without_frames_is_no_chunk() -> None:
    site = Site()
    async with site.opened() as one:
        site.runs.say(RunStarted(RUN.run_id))
        await anyio.wait_all_tasks_blocked()
        site.runs.say(TextDelta("a"))
        assert await one.chunk() == text(2, "a")


async def test_a_stream_begins_after_what_the_client_has() -> None:
    site = Site()
    site.runs.say(TextDelta("a"), TextDelta("b"), END)
    since = EventId(Cursor(RUN.run_id, Position(1, 1)))
    async with exchange(site.app(since=since), "GET", "/") as one:
        assert await one.rest() == OPENING.encode() + text(2, "b") + done(3)


async def test_a_client_that_has_all_events_gets_only_done() -> None:
    site = Site()
    site.runs.say(TextDelta("a"), END)
    since = EventId(Cursor(RUN.run_id, Position(1, 2)))
    async with exchange(site.app(since=since), "GET", "/") as one:
        assert await one.rest() == OPENING.encode() + done(2)


async def test_an_unknown_run_is_an_error_and_no_stream() -> None:
    run = replace(RUN, run_id=RunId("run_2"))
    async with exchange(Site().app(run), "GET", "/") as one:
        assert one.status == 404
        assert b'"code":"run_not_found"' in await one.rest()


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("error", "status"), [(InvalidCursor("beyond"), 422), (CursorExpired("trimmed"), 410)]
)
async def test_a_cursor_that_cannot_be_read_from_is_an_error_and_no_stream(
    error: PassbackError, status: int
) -> None:
    site = Site()
    site.runs.unreadable = error
    async with exchange(site.app(), "GET", "/") as one:
        assert (one.status, one.headers["content-type"]) == (status, "application/json")
        assert error.code.encode() in await one.rest()


# ---------------------------------------------------------------- take-over
@pytest.mark.promise("P10")
async def test_a_reader_with_rewinds_gets_one_and_reads_on() -> None:
    site = Site()
    async with exchange(site.app(RUN, None, "rewind"), "GET", "/") as one:
        assert await one.chunk() == OPENING.encode()
        site.runs.say(TextDelta("good"))
        site.runs.say(TextDelta("void"))
        assert await one.chunk() == text(2, "goodvoid")
        site.runs.is_taken_over(Position(1, 0), TextDelta("a"), END)
        assert await one.rest() == (
            b'id: run_1.2-1\ndata: {"type":"rewind","to":"run_1.1-0"}\n\n'
            b'id: run_1.2-2\ndata: {"type":"text","content":"a"}\n\n'
            b"id: run_1.2-3\n" + DONE
        )


@pytest.mark.promise("P10")
@pytest.mark.parametrize("rest", [(TextDelta("a"),), (TextDelta("a"), END)])
async def test_a_reader_without_rewinds_gets_an_end_and_reads_the_run_again(
    rest: tuple[RunEvent, ...],
) -> None:
    site = Site()
    async with site.opened() as one:
        site.runs.say(TextDelta("void"))
        assert await one.chunk() == text(1, "void")
        site.runs.is_taken_over(Position(1, 0), *rest)
        end = await one.rest()
        assert one.ended
    assert b'"code":"rewound","retryable":true' in end
    assert end.endswith(b"id: run_1.0-0\n" + DONE)
    site.runs.say(END)
    again = EventId(Cursor(RUN.run_id, Position(0, 0)))
    async with exchange(site.app(since=again), "GET", "/") as one:
        whole = await one.rest()
    assert (b"void" in whole, b'"content":"a"' in whole) == (False, True)


async def test_pings_are_sent_while_there_are_no_events() -> None:
    site = Site(ping=0.01)
    async with site.opened() as one:
        assert [await one.chunk(), await one.chunk()] == [PING.encode(), PING.encode()]
        site.runs.say(TextDelta("a"), END)
        assert (await one.rest()).endswith(text(1, "a") + done(2))


async def test_the_time_to_a_ping_begins_when_the_last_chunk_was_read() -> None:
    site = Site(ping=0.1)
    async with exchange(site.app(), "GET", "/") as one:
        with anyio.move_on_after(0.05):  # a client that is slow to take the first chunk
            await anyio.sleep_forever()
        assert await one.chunk() == OPENING.encode()
        taken = anyio.current_time()
        assert await one.chunk() == PING.encode()
        assert anyio.current_time() - taken > 0.09


async def test_a_client_that_leaves_is_forgotten() -> None:
    site = Site()
    async with site.opened() as one:
        one.leave()
        await site.no_readers()
        assert await one.chunk() == b""
        assert not one.ended


@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    ("ping", "send"),
    [
        (0.01, lambda site: site.runs.say(TextDelta("nobody reads this"))),
        (60, lambda site: site.runs.say(TextDelta("nobody reads this"))),
        (0.01, lambda _: None),
        (60, lambda site: site.runs.say(END)),
        (60, lambda site: site.stopping.set()),
    ],
    ids=["text and pings", "text", "pings", "the end of the run", "the stop of the server"],
)
async def test_a_client_that_does_not_read_is_dropped(
    ping: float, send: Callable[[Site], object]
) -> None:
    site = Site(ping=ping, send_seconds=0.02)
    async with site.opened() as one:
        send(site)
        await site.no_readers()
        assert not one.ended


async def test_a_stopping_server_closes_its_streams_without_an_end_of_the_run() -> None:
    site = Site()
    async with site.opened() as one:
        site.runs.say(TextDelta("a"))
        assert await one.chunk() == text(1, "a")
        site.stopping.set()
        assert await one.chunk() == CUT_SHORT.encode()
        assert one.ended
        await site.no_readers()


async def test_a_stream_that_begins_while_the_server_stops_is_closed_too() -> None:
    site = Site()
    site.stopping.set()
    async with exchange(site.app(), "GET", "/") as one:
        assert (await one.rest()).endswith(CUT_SHORT.encode())


@pytest.mark.promise("P11")
@pytest.mark.parametrize("event", ["reads nothing", "leaves", "is stopped"])
async def test_a_client_that_reads_only_the_head_is_dropped(event: str) -> None:
    site = Site(send_seconds=60 if event == "leaves" else 0.05)
    async with exchange(site.app(), "GET", "/") as one:
        await anyio.wait_all_tasks_blocked()
        if event == "leaves":
            one.leave()
        if event == "is stopped":
            site.stopping.set()
        await site.no_readers()


async def test_a_failing_store_closes_the_stream_for_a_reconnect() -> None:
    site = Site()
    async with site.opened() as one:
        site.runs.breaks(StoreUnavailable("away"))
        assert await one.rest() == CUT_SHORT.encode()


@pytest.mark.promise("P12")
async def test_a_run_that_is_gone_ends_the_stream_with_an_error() -> None:
    site = Site()
    async with site.opened() as one:
        site.runs.breaks(UnknownRun("gone"))
        assert await one.rest() == (
            b"id: run_1.0-0\n"
            b'data: {"type":"error","error":"gone","code":"run_not_found","retryable":false}\n\n'
            b"id: run_1.0-0\n" + DONE
        )


async def test_a_head_request_gets_the_headers_only() -> None:
    async with exchange(Site().app(), "HEAD", "/") as one:
        assert (one.status, await one.rest()) == (200, b"")


@pytest.mark.parametrize(
    ("conversation", "header"),
    [
        ("a-B_1.{}", "a-B_1.{}"),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("é\u2028", "%C3%A9%E2%80%A8"),
    ],
)
def test_a_conversations_id_fits_into_a_header(conversation: str, header: str) -> None:
    scope = {"type": "http", "headers": []}
    assert stream_headers(scope, ConversationId(conversation))["x-conversation-id"] == header


@pytest.mark.parametrize(
    ("conversation", "shown"),
    [
        ("conv_0123", "conv_0123"),
        ("Málaga 1 😀", r"M\u00e1laga 1 \ud83d\ude00"),
        ("100%", "100%"),
        ('a"b\\c', r"a\"b\\c"),
        ("a\u2028data: [DONE]", r"a\u2028data: [DONE]"),
        ("\u202eabc\U000e0001", r"\u202eabc\udb40\udc01"),
    ],
)
def test_the_first_comment_has_the_id_as_escaped_json(conversation: str, shown: str) -> None:
    comment = opening_comment(ConversationId(conversation))
    assert comment == f": conversation {shown}\n\n"
    assert json.loads(f'{{"conversationId": "{shown}"}}') == {"conversationId": conversation}
    assert comment.splitlines() == [comment[:-2], ""]


# ---------------------------------------------------------------- sent without a task
async def test_events_are_sent_without_a_task_if_the_server_can() -> None:
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
async def test_a_take_over_ends_a_stream_that_is_sent_without_a_task() -> None:
    site, direct = Site(), Direct()
    async with directly(site, direct) as one:
        site.runs.say(TextDelta("void"))
        assert await one.chunk() == text(1, "void")
        await anyio.wait_all_tasks_blocked()
        site.runs.is_taken_over(Position(1, 0))
        assert b'"code":"rewound"' in await one.rest()
        assert direct.sent == []


async def test_pings_are_sent_without_a_task_if_the_server_can() -> None:
    site, direct = Site(ping=0.01), Direct()
    async with directly(site, direct) as one:
        with anyio.fail_after(SECONDS):
            await direct.has_sent.wait()
        assert direct.sent[0] == PING.encode()
        site.runs.say(END)
        assert await one.rest() == done(1)


async def test_no_pings_are_sent_while_the_buffer_is_full() -> None:
    site, direct = Site(ping=0.01), Direct()
    direct.ready = False
    async with directly(site, direct) as one:
        with anyio.move_on_after(0.05):
            await direct.has_sent.wait()
        site.runs.say(END)
        assert await one.rest() == done(1)
    assert direct.sent == []


@pytest.mark.promise("P11")
async def test_a_client_that_does_not_take_the_end_is_dropped() -> None:
    site, direct = Site(send_seconds=0.02), Direct()
    async with directly(site, direct):
        direct.ready = False
        site.runs.say(END)
        await site.no_readers()
    assert direct.dropped


async def test_a_client_of_a_direct_server_that_leaves_is_forgotten() -> None:
    site, direct = Site(), Direct()
    async with directly(site, direct) as one:
        direct.left.set()
        await site.no_readers()
        assert not one.ended


async def test_a_client_that_left_before_its_stream_began_is_forgotten() -> None:
    site, direct = Site(), Direct()
    direct.left.set()
    async with exchange(site.app(), "GET", "/", extensions={SEND_NOW: direct}) as one:
        await site.no_readers()
        assert not one.ended


async def test_a_stopping_server_closes_streams_that_are_sent_without_a_task() -> None:
    site = Site()
    async with directly(site, Direct()) as one:
        site.stopping.set()
        assert await one.rest() == CUT_SHORT.encode()


@pytest.mark.parametrize("left", [False, True])
async def test_a_cancelled_stream_is_cancelled_even_if_its_client_left(left: bool) -> None:
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
        await site.no_readers()
        await asyncio.wait(streams)
    assert streams[0].cancelled()


async def test_a_client_that_left_does_not_cancel_the_task_of_its_stream() -> None:
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
