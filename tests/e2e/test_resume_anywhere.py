"""Streams cut behind each event and resumed, on two workers, by both ways of coming back."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import count

import anyio
import pytest
from tests.e2e.workers import SECONDS
from tests.support.model_server import ModelServer, Reply, calls, event, says
from tests.support.wire import COLOR, DONE, Client, Frame, Json, Stream, keyed, merged, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3")]

EVERYTHING = ["reasoning", "usage", "message-ids", "run", "owed", "rewind"]
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
LAST_BEFORE_THE_GATE = "only "


def long_run(gate: anyio.Event) -> Sequence[Reply]:
    """Return two turns with every kind of event; the second waits at the gate in its middle."""
    asks = calls(("a", "price", '{"drink": "tea"}')).steps
    paints = calls(("b", "set-color", '{"color": "blue"}')).steps
    thinks = [event(reasoning_content="hm "), event(reasoning_content="hm"), event(content="Tea? ")]
    says_so = [event(content=piece) for piece in ("It ", "costs ", LAST_BEFORE_THE_GATE)]
    return (
        Reply([*thinks, *asks[:-1], USAGE, asks[-1]]),
        Reply([*says_so, gate, event(content="3 "), event(content="euros."), *paints]),
    )


async def head_of(stream: Stream, length: int, gate: anyio.Event) -> list[Frame]:
    """Read so many frames, or all; the gate stays closed if they come before it."""
    head = [await stream.next()]
    while len(head) < length and head[-1].data != DONE:
        if head[-1].event.get("content", "").endswith(LAST_BEFORE_THE_GATE):
            gate.set()
        head.append(await stream.next())
    return head


@pytest.mark.promise("P8")
@pytest.mark.timeout(180)
async def test_a_stream_cut_behind_any_event_and_read_on_in_any_way_is_the_uncut_one(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    one, other = played_pair
    for place in count(1):
        gate, name = anyio.Event(), f"{conversation}-{place}"
        model.play(*long_run(gate))
        body: Json = {"tools": [COLOR], "include": EVERYTHING}
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            async with one.stream(name, [user("tea?")], headers=keyed(name), **body) as stream:
                uncut = await enter(other.stream(name, [user("tea?")], headers=keyed(name), **body))
                head = await head_of(stream, place, gate)
            after = head[-1].id
            body["headers"] = keyed(name, after=after)
            ways = [
                way
                for client in played_pair
                for way in (
                    client.follow(name, after=after, include=EVERYTHING),
                    client.stream(name, [user("tea?")], **body),
                )
            ]
            readers = [await enter(way) for way in ways]
            gate.set()
            with anyio.fail_after(SECONDS):
                expected = merged((await uncut.whole()).frames)
                rests = [await reader.whole() for reader in readers]
        late = [
            await client.replay(name, after=after, include=EVERYTHING) for client in played_pair
        ]
        if head[-1].data == DONE:
            assert [rest.types for rest in (*rests, *late)] == [[DONE]] * 6
            break
        for rest in (*rests, *late):
            assert merged((*head, *rest.frames)) == expected
        assert len(model.requests) == 2
    assert place > 15


async def test_a_reader_who_comes_after_the_end_gets_the_whole_run_on_any_worker(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    model.play(says("It ", "is ", "tea."))
    asked = await played_pair[0].post(conversation, user("tea?"), headers=keyed(conversation))
    model.play(says("Coffee."))
    newer = await played_pair[1].post(conversation, user("coffee?"))
    run_id = asked.headers["x-run-id"]
    for client in played_pair:
        replayed = await client.replay(conversation, run_id=run_id)
        assert merged(replayed.frames) == merged(asked.frames)
        repeated = await client.post(conversation, user("tea?"), headers=keyed(conversation))
        assert merged(repeated.frames) == merged(asked.frames)
        newest = await client.replay(conversation)
        assert merged(newest.frames) == merged(newer.frames)
    assert len(model.requests) == 1
