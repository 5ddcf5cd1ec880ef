"""The stream of a conversation: all runs with what was posted for each, until it is deleted."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import Exchange, ask, exchange
from tests.support.ledgers import open_ledger
from tests.support.logged_runs import OPENING, RUN, LoggedRuns
from tests.support.runs import outcome, post, says, worker
from tests.support.sse_site import Direct

from passback.core.changes import Status
from passback.core.errors import CursorExpired, StoreUnavailable
from passback.core.events import (
    Completed,
    Position,
    RunFinished,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import MessageId, RunRef
from passback.core.posts import StartRun
from passback.core.runs import Runs
from passback.core.signals import Signal
from passback.hotpath.sending import SEND_NOW
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words
from passback.pacing import LARGE
from passback.streams.sse import CUT_SHORT
from passback.wire.rest import build

pytestmark = pytest.mark.anyio

KEY = RUN.key
EVENTS = "/conversations/c/events"


def site(runs: Runs, stopping: Signal | None = None) -> ASGIApp:
    return build_site([build(Services(runs, stopping or Signal()))], Access())


def logged(*events: Any) -> LoggedRuns:
    """Return runs with a log in which nothing was posted."""
    runs = LoggedRuns(*events)
    runs.known[KEY] = Status(3, RUN.run_id, running=True)
    return runs


def frames_in(text: bytes) -> list[tuple[str, Any]]:
    """Return id and data of each event; an event without an id has an empty one."""
    found = list[tuple[str, Any]]()
    for frame in text.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if line[:1] != ":")
        if "data" in fields:
            found.append((fields.get("id", ""), json.loads(fields["data"])))
    return found


async def read_until(one: Exchange, last: bytes) -> list[tuple[str, Any]]:
    text = b""
    while last not in text:
        assert not one.ended, text
        text += await one.chunk()
    return frames_in(text)


@asynccontextmanager
async def opened(app: ASGIApp, path: str = EVENTS, **headers: str) -> AsyncGenerator[Exchange]:
    async with exchange(app, "GET", path, headers=headers) as one:
        assert (one.status, one.headers["content-type"]) == (
            200,
            "text/event-stream; charset=utf-8",
        )
        assert await one.chunk() == OPENING.encode()
        yield one


def begins(run_id: str, first: int, *ids: str) -> list[dict[str, Any]]:
    """Return what a run begins with."""
    message = {"role": "user", "content": "hi", "runId": run_id}
    messages = [{"id": each, **message} for each in ids]
    return [
        {"type": "posted", "runId": run_id, "first": first, "messages": messages},
        {"type": "run-start", "runId": run_id},
    ]


async def test_runs_follow_each_other_live_until_the_conversation_is_deleted() -> None:
    model = ScriptedModel([words("one"), words("two"), words("three")])
    async with open_ledger("memory:") as store, worker(store, model) as runs:
        first = await post(runs, says(message_id="u0"), key=KEY)
        assert await outcome(runs, first) == Completed()
        app = site(runs)
        async with opened(app) as live, opened(app, f"{EVENTS}?include=message-ids") as other:
            seen = list[tuple[str, Any]]()
            for number, answer in ((1, "two"), (2, "three")):
                run = await post(runs, says(message_id=f"u{number}"), key=KEY)
                frames = await read_until(live, b"run-end")
                seen += frames
                shown = [data for _, data in frames]
                assert shown[0]["messages"][0].pop("createdAt").endswith("Z")
                assert shown[:2] == begins(run.run_id, 2 * number, f"u{number}")
                assert shown[2:] == [
                    {"type": "text", "content": answer},
                    {
                        "type": "run-end",
                        "outcome": "completed",
                        "reason": "end_turn",
                        "model": "scripted",
                    },
                ]
            await runs.delete(KEY)
            assert frames_in(await live.rest()) == [("", {"type": "deleted"})]
            assert b'"type":"message"' in await other.rest()
        # with the id of any event, the rest comes again
        ids = [event_id for event_id, _ in seen]
        assert [bool(event_id) for event_id in ids] == 2 * [False, True, True, True]
        assert (await ask(app, "GET", EVENTS)).status == 404


async def test_a_stream_waits_for_a_conversation_and_tells_of_another_branch() -> None:
    model = ScriptedModel([words("one"), words("two"), words("three")])
    async with open_ledger("memory:") as store, worker(store, model) as runs:
        async with opened(site(runs), f"{EVENTS}?absent=wait") as live:
            first = await post(runs, says(message_id="u0"), key=KEY)
            [posted, start, *_] = [data for _, data in await read_until(live, b"run-end")]
            del posted["messages"][0]["createdAt"]
            assert [posted, start] == begins(first.run_id, 0, "u0")
            edit = StartRun(KEY, (says(message_id="u1"),), after=MessageId(""))
            assert isinstance(await runs.start(edit), RunRef)
            [*_, (place, _)] = await read_until(live, b"run-end")
            await runs.switch(KEY, MessageId("u0"))
            [answer] = (await runs.messages(KEY, start=1, limit=1)).messages
            told = ("", {"type": "switched", "message": answer.id})
            assert await read_until(live, b"switched") == [told]
        async with opened(site(runs), EVENTS, **{"last-event-id": place}) as again:
            assert await read_until(again, b"switched") == [told]
            await runs.delete(KEY)
            assert await read_until(again, b"deleted") == [("", {"type": "deleted"})]


async def test_a_stream_goes_on_behind_any_event() -> None:
    model = ScriptedModel([words("one"), words("two")])
    async with open_ledger("memory:") as store, worker(store, model) as runs:
        begun = list[RunRef]()
        for number in range(2):
            begun.append(await post(runs, says(message_id=f"u{number}"), key=KEY))
            assert await outcome(runs, begun[-1]) == Completed()
        app = site(runs)
        async with opened(app, f"{EVENTS}?lastEventId={begun[0].run_id}.0-0") as one:
            whole = [*await read_until(one, b"run-end"), *await read_until(one, b"run-end")]
        assert len(whole) == 8
        for cut, (event_id, _) in enumerate(whole[:-1], 1):
            if not event_id:
                continue  # the next event of the same run has one
            async with opened(app, **{"last-event-id": event_id}) as one:
                rest = list[tuple[str, Any]]()
                while len(rest) < len(whole) - cut:
                    rest += await read_until(one, b"\n\n")
                assert rest == whole[cut:]


async def test_large_messages_come_in_frames_of_their_own() -> None:
    large = "x" * (5 * 2**20)
    model = ScriptedModel([words("one")])
    async with open_ledger("memory:") as store, worker(store, model) as runs:
        run = await post(runs, says(large, "a"), says(large, "b"), key=KEY)
        assert await outcome(runs, run) == Completed()
        async with opened(site(runs), f"{EVENTS}?lastEventId={run.run_id}.0-0") as one:
            frames = await read_until(one, b"run-start")
        places = [(data["first"], len(data["messages"])) for _, data in frames[:2]]
        assert places == [(0, 1), (1, 1)]


async def test_an_event_without_a_frame_is_no_chunk() -> None:
    runs = logged(TurnStarted(MessageId("m")))
    async with opened(site(runs)) as one:
        await anyio.wait_all_tasks_blocked()
        runs.say(TextDelta("a"))
        assert frames_in(await one.chunk()) == [("run_1.1-2", {"type": "text", "content": "a"})]


async def test_a_large_batch_is_sent_in_parts() -> None:
    large = "x" * (LARGE + 1)
    runs = logged(TextDelta(large), TextDelta("a"))
    async with opened(site(runs)) as one:
        assert large.encode() in await one.chunk()
        assert frames_in(await one.chunk()) == [("run_1.1-2", {"type": "text", "content": "a"})]


async def test_messages_that_a_rollback_has_removed_are_left_out() -> None:
    runs = logged(RunStarted(RUN.run_id, first=2, posted=1), TextDelta("a"))
    async with opened(site(runs)) as one:
        frames = frames_in(await one.chunk())
    assert [data["type"] for _, data in frames] == ["run-start", "text"]


async def test_a_deletion_while_messages_are_read_ends_it() -> None:
    runs = logged()
    async with opened(site(runs)) as one:
        del runs.known[KEY]
        runs.say(RunStarted(RUN.run_id, first=0, posted=1))
        assert frames_in(await one.rest()) == [("", {"type": "deleted"})]


async def test_a_failure_that_may_pass_is_no_end_and_any_other_is_told() -> None:
    for error, end in (
        (StoreUnavailable("away"), CUT_SHORT.encode()),
        (CursorExpired("gone"), b'"code":"cursor_expired"'),
    ):
        runs = logged(TextDelta("a"))
        async with opened(site(runs)) as one:
            assert await one.chunk()
            runs.breaks(error)
            assert end in await one.rest()


async def test_a_server_that_stops_lets_its_clients_come_back() -> None:
    stopping = Signal()
    async with opened(site(logged(), stopping)) as one:
        stopping.set()
        assert await one.rest() == CUT_SHORT.encode()


async def test_a_rewind_is_always_told() -> None:
    runs = logged(TextDelta("a"), TextDelta("void"))
    async with opened(site(runs)) as one:
        assert await one.chunk()
        runs.is_taken_over(Position(1, 1), TextDelta("good"), RunFinished(Completed()))
        frames = frames_in(await one.chunk())
    assert frames[0] == ("run_1.2-1", {"type": "rewind", "to": "run_1.1-1"})


async def test_the_opening_goes_with_the_head_where_the_server_can() -> None:
    direct, runs = Direct(), logged()
    async with exchange(site(runs), "GET", EVENTS, extensions={SEND_NOW: direct}):
        assert direct.opening == OPENING.encode()
        direct.left.set()


async def test_a_head_has_no_events() -> None:
    answer = await ask(site(logged(TextDelta("a"))), "HEAD", EVENTS)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["x-conversation-id"] == "c"


@pytest.mark.parametrize(
    ("path", "headers", "refused"),
    [
        ("/conversations/unknown/events", {}, (404, "conversation_not_found")),
        (EVENTS, {"last-event-id": "nonsense"}, (422, "invalid_cursor")),
        (f"{EVENTS}?lastEventId=run_1.1-9", {}, (422, "invalid_cursor")),
        (EVENTS, {"last-event-id": "run_2.1-1"}, (410, "cursor_expired")),
        (EVENTS, {"accept": "application/json"}, (406, "not_acceptable")),
        (f"{EVENTS}?include=everything", {}, (422, "invalid_request")),
        (f"{EVENTS}?runId=run_1", {}, (422, "invalid_request")),
        (f"{EVENTS}?absent=maybe", {}, (422, "invalid_request")),
        ("/conversations/unknown/events?absent=refuse", {}, (404, "conversation_not_found")),
    ],
)
async def test_a_request_that_cannot_be_followed_is_refused(
    path: str, headers: dict[str, str], refused: tuple[int, str]
) -> None:
    answer = await ask(site(logged(TextDelta("a"))), "GET", path, headers=headers)
    assert (answer.status, answer.code) == refused


async def test_a_place_whose_events_are_lost_is_gone() -> None:
    runs = logged()
    runs.unreadable = CursorExpired("the history is whole")
    assert (await ask(site(runs), "GET", EVENTS)).code == "cursor_expired"
