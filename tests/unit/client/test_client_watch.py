"""Following a conversation with the Python client, and deleting one, with a scripted server."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
import httpx
import pytest
from tests.support.python_client import Script, frame, refusal, stream

from passback_client import (
    BadAnswer,
    BadSetup,
    Client,
    CursorExpired,
    Deleted,
    Failure,
    LimitExceeded,
    Limits,
    Posted,
    Refused,
    Retry,
    RunEnd,
    RunStart,
    Switched,
    Text,
    Unknown,
    Unreachable,
    WatchEvent,
    Watching,
)
from passback_client import sync as plain

pytestmark = pytest.mark.anyio

QUICK = Retry(attempts=3, first=0, longest=0)
HI = {"id": "m1", "role": "user", "content": "hi"}
LOST = httpx.ReadError("gone")
ENDED = {"type": "run-end", "outcome": "completed"}


def unplaced(**event: object) -> bytes:
    """One event without an id."""
    return f"data: {json.dumps(event)}\n\n".encode()


def posted(run: str, first: int = 0) -> bytes:
    return unplaced(type="posted", runId=run, first=first, messages=[HI])


def run_of(run: str, said: str, first: int = 0) -> list[bytes]:
    """The frames of a run."""
    return [
        posted(run, first),
        frame(f"{run}.1-1", type="run-start", runId=run),
        frame(f"{run}.1-2", type="text", content=said),
        frame(f"{run}.1-3", **ENDED),
    ]


def events_in(run: str, said: str, first: int = 0) -> list[WatchEvent]:
    """The events of that run."""
    return [
        Posted(run, first, [HI]),  # type: ignore[list-item]  # a dict that a test has written
        RunStart(run, id=f"{run}.1-1"),
        Text(said, id=f"{run}.1-2"),
        RunEnd("completed", id=f"{run}.1-3"),
    ]


FRAMES = [*run_of("one", "a"), *run_of("two", "b", 2)]
EVENTS = [*events_in("one", "a"), *events_in("two", "b", 2)]
DELETED = unplaced(type="deleted")


def watched(*chunks: bytes, error: Exception | None = None) -> httpx.Response:
    return stream(b": open\n\n", *chunks, run=None, error=error)


async def collect(script: Script, after: str | None = None, **options: Any) -> list[WatchEvent]:
    """Return all events of the conversation `a/b`."""
    async with client_of(script) as client:
        with anyio.fail_after(5):
            return [event async for event in client.watch("a/b", after=after, **options)]


def client_of(script: Script) -> Client:
    limits = Limits(frame_chars=2000)
    return Client("http://host/p", retry=QUICK, transport=script.transport, limits=limits)


async def test_the_events_of_all_runs_come_until_the_deletion() -> None:
    script = Script(watched(*FRAMES, DELETED, *FRAMES))
    events = await collect(script, include=["usage"])
    assert events == [Watching(), *EVENTS, Deleted()]
    [request] = script.requests
    assert (request.method, request.url.path) == ("GET", "/p/conversations/a/b/events")
    assert request.url.raw_path.startswith(b"/p/conversations/a%2Fb/events?")
    assert request.url.params["include"] == "rewind,run,owed,output,usage"
    assert script.headers("last-event-id") == [None]


@pytest.mark.parametrize("at", range(len(FRAMES) + 1))
async def test_a_cut_at_any_event_loses_nothing(at: int) -> None:
    seen = [event.id for event in EVENTS[:at] if isinstance(event, RunStart | Text | RunEnd)]
    places = ["zero.1-9", *seen]
    # the server goes on behind the place; an event without one comes again
    rest = next(index for index in range(at, -1, -1) if index == 0 or b"id:" in FRAMES[index - 1])
    script = Script(watched(*FRAMES[:at], error=LOST), watched(*FRAMES[rest:], DELETED))
    events = await collect(script, after="zero.1-9")
    assert events == [*EVENTS[:at], *EVENTS[rest:], Deleted()]
    assert script.headers("last-event-id") == ["zero.1-9", places[-1]]


async def test_another_branch_is_told_and_no_event_of_a_run() -> None:
    switched = unplaced(type="switched", message="msg_1")
    script = Script(watched(*FRAMES[:4], switched, error=LOST), watched(*FRAMES[4:], DELETED))
    events = await collect(script)
    assert events == [Watching(), *EVENTS[:4], Switched("msg_1"), *EVENTS[4:], Deleted()]
    assert script.headers("last-event-id") == [None, "one.1-3"]
    with pytest.raises(BadAnswer):
        await collect(Script(watched(unplaced(type="switched"))))


async def test_a_watch_tells_the_place_of_the_last_event_that_has_one() -> None:
    script = Script(watched(*FRAMES, DELETED))
    async with client_of(script) as client, client.watch("c") as watch:
        places = [(watch.cursor, type(event).__name__) async for event in watch]
    assert places == [
        (None, "Watching"),
        (None, "Posted"),
        ("one.1-1", "RunStart"),
        ("one.1-2", "Text"),
        ("one.1-3", "RunEnd"),
        ("one.1-3", "Posted"),
        ("two.1-1", "RunStart"),
        ("two.1-2", "Text"),
        ("two.1-3", "RunEnd"),
        ("two.1-3", "Deleted"),
    ]


async def test_a_reconnect_without_a_place_says_that_it_begins_anew() -> None:
    script = Script(watched(posted("one")), watched(DELETED))
    events = await collect(script)
    assert events == [Watching(), EVENTS[0], Watching(), Deleted()]


async def test_a_conversation_that_is_gone_was_deleted() -> None:
    gone = refusal(404, "conversation_not_found")
    assert await collect(Script(watched(), gone)) == [Watching(), Deleted()]
    assert await collect(Script(gone), after="one.1-1") == [Deleted()]
    with pytest.raises(Refused) as refused:
        await collect(Script(gone))
    assert refused.value.code == "conversation_not_found"


# ---------------------------------------------------------------- retries
def pinged(*chunks: bytes) -> httpx.Response:
    return watched(b": ping\n\n", *chunks)


async def test_connections_with_pings_are_no_failures() -> None:
    script = Script(*[pinged() for _ in range(7)], watched(DELETED))
    assert await collect(script, after="one.1-1") == [Deleted()]


@pytest.mark.parametrize(
    "chunks", [(), (posted("one"),), (frame("one.1-1", type="text", content="a"),)]
)
async def test_connections_without_progress_are_failures(chunks: Sequence[bytes]) -> None:
    script = Script(*[watched(*chunks) for _ in range(3)])
    with pytest.raises(Unreachable):
        await collect(script, after="one.1-1")
    assert len(script.requests) == 3


async def test_progress_begins_the_count_of_failures_anew() -> None:
    script = Script(*[watched(each, error=LOST) for each in FRAMES], watched(DELETED))
    assert (await collect(script, after="zero.1-1"))[-1] == Deleted()


@pytest.mark.parametrize("code", ["store_unavailable", "shutting_down"])
async def test_a_server_that_refuses_for_now_is_asked_again(code: str) -> None:
    script = Script(refusal(503, code), watched(DELETED))
    assert await collect(script) == [Watching(), Deleted()]


# ---------------------------------------------------------------- errors
EXPIRED = {"type": "error", "error": "gone", "code": "cursor_expired"}


@pytest.mark.parametrize("before", [[], FRAMES[1:3]])
@pytest.mark.parametrize(("code", "kind"), [("cursor_expired", CursorExpired), ("bad", Refused)])
async def test_an_error_of_the_stream_ends_the_watch(
    before: Sequence[bytes], code: str, kind: type[Refused]
) -> None:
    script = Script(watched(*before, unplaced(**{**EXPIRED, "code": code})))
    with pytest.raises(kind, match="gone") as raised:
        await collect(script, after="zero.1-1")
    assert raised.value.code == code
    assert len(script.requests) == 1


async def test_lost_events_are_an_error_that_says_so() -> None:
    with pytest.raises(CursorExpired):
        await collect(Script(refusal(410, "cursor_expired")), after="one.1-1")


async def test_a_run_that_fails_is_an_event_and_the_next_one_follows() -> None:
    failed = {"type": "error", "error": "no", "code": "model_rejected", "retryable": False}
    script = Script(watched(frame("one.1-4", **failed), *FRAMES[4:], DELETED))
    events = await collect(script, after="one.1-3")
    failure = Failure("no", "model_rejected", id="one.1-4")
    assert events == [failure, *EVENTS[4:], Deleted()]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "posted", "runId": "one", "messages": [HI]},
        {"type": "posted", "runId": "one", "first": 0},
        {"type": "posted", "first": 0, "messages": [HI]},
        {"type": "posted", "runId": "one", "first": 0, "messages": [{}]},
        {"no": "type"},
    ],
)
async def test_a_broken_event_is_a_bad_answer(event: dict[str, object]) -> None:
    with pytest.raises(BadAnswer):
        await collect(Script(watched(unplaced(**event))))


async def test_an_event_that_is_too_large_is_refused() -> None:
    large = unplaced(type="text", content="a" * 3000)
    with pytest.raises(LimitExceeded):
        await collect(Script(watched(large)))


async def test_an_event_of_a_newer_server_is_passed_on() -> None:
    script = Script(watched(unplaced(type="renamed", title="A"), DELETED))
    renamed = Unknown("renamed", {"type": "renamed", "title": "A"})
    assert await collect(script) == [Watching(), renamed, Deleted()]


@pytest.mark.parametrize("name", ["", "a" * 257])
async def test_what_names_no_conversation_is_refused_before_anything_is_sent(name: str) -> None:
    script = Script()
    async with client_of(script) as client:
        with pytest.raises(BadSetup):
            await anext(client.watch(name))
        with pytest.raises(BadSetup):
            await client.delete(name)
    assert script.requests == []


# ---------------------------------------------------------------- closing
async def test_leaving_the_watch_closes_its_connection() -> None:
    response = watched(*FRAMES)
    async with client_of(Script(response)) as client:
        async with client.watch("c") as watch:
            assert await anext(watch) == Watching()
            assert await anext(watch) == EVENTS[0]
        assert response.is_closed
        assert [event async for event in watch] == []


def test_a_conversation_is_watched_without_async() -> None:
    responses = [watched(*FRAMES, DELETED), watched(*FRAMES)]
    script = Script(*responses)
    with plain.Client("http://host", retry=QUICK, transport=script.transport) as client:
        assert list(client.watch("c", include=["usage"])) == [Watching(), *EVENTS, Deleted()]
        with client.watch("c", after="zero.1-1") as watch:
            assert [next(watch), next(watch)] == EVENTS[:2]
            assert watch.cursor == "one.1-1"
        assert list(watch) == []
    assert [each.is_closed for each in responses] == [True, True]
    assert script.headers("last-event-id") == [None, "zero.1-1"]


# ---------------------------------------------------------------- deletion
async def test_a_conversation_is_deleted() -> None:
    done = httpx.Response(204, headers={"x-request-id": "req_1"})
    script = Script(done, refusal(404, "conversation_not_found"))
    async with client_of(script) as client:
        await client.delete("a/b")
        with pytest.raises(Refused) as refused:
            await client.delete("a/b")
    assert refused.value.code == "conversation_not_found"
    assert script.routes == ["DELETE /p/conversations/a%2Fb"] * 2


def test_a_conversation_is_deleted_without_async() -> None:
    script = Script(httpx.Response(204, headers={"x-request-id": "req_1"}))
    with plain.Client("http://host", transport=script.transport) as client:
        client.delete("c")
    assert script.routes == ["DELETE /conversations/c"]
