"""A stream that is cut behind each of its events and read on, also on another worker, adds up to the uncut one."""

from itertools import cycle
from typing import Any

import anyio
from tests.faults.caller import ASK
from tests.faults.ordeal import Progress
from tests.faults.records import Post
from tests.faults.tally import Tally
from tests.faults.world import World
from tests.support.wire import DONE, Answer, Client, Frame, Stream, client_of, merged

WORDS = 12
EVENTS = WORDS + 6
"""Of the longest stream: its words and its frame, a call, the ends."""
SECONDS = 30


async def cuts(world: World, points: int, progress: Progress) -> Tally:
    """Each point is one cut; there are as many places as events, and they come in turn."""
    tally = Tally()
    urls = world.fleet.urls()
    async with client_of(urls[0]) as one, client_of(urls[-1]) as other:
        for point, place in zip(range(points), cycle(range(1, EVENTS + 1)), strict=False):
            tool = "ask" if point % 2 else ""
            post = Post(world.token("conversation-"), world.token(), "reject", WORDS, 5, tool)
            with anyio.fail_after(SECONDS):
                tally.faults += await _cut(post, place, one, one if point % 3 == 0 else other)
            tally.points, tally.cuts = point + 1, point + 1
            progress(tally)
    return tally


async def _cut(post: Post, place: int, first: Client, second: Client) -> list[str]:
    """Cut a run's stream behind its event number `place`; meanwhile another reader gets it uncut."""
    uncut: list[Answer] = []
    again: dict[str, Any] = {"tools": [ASK], "headers": {"idempotency-key": post.token}}

    async def read_uncut() -> None:
        uncut.append(await second.post(post.conversation, post.message, **again))

    async with anyio.create_task_group() as tasks:
        async with first.stream(post.conversation, [post.message], **again) as stream:
            tasks.start_soon(read_uncut)
            head = await _head(stream, place)
        rest = await second.replay(post.conversation, after=head[-1].id)
        asked = {**again, "headers": {**again["headers"], "last-event-id": head[-1].id}}
        repeated = await second.post(post.conversation, post.message, **asked)
    whole = await first.post(post.conversation, post.message, **again)
    streams = {
        "read on": [*head, *rest.frames],
        "read on by a repeated post": [*head, *repeated.frames],
        "read by another": uncut[0].frames,
    }
    return [
        f"cut behind event {place}: the stream {how} is not the uncut one"
        for how, frames in streams.items()
        if merged(frames) != merged(whole.frames)
    ]


async def _head(stream: Stream, place: int) -> list[Frame]:
    """So many events, or all of them; not `[DONE]`, behind which nothing follows."""
    head = [await stream.next()]
    while len(head) < place:
        if (frame := await stream.next()).data == DONE:
            break
        head.append(frame)
    return head
