"""Behind a real nginx with its defaults for buffering and gzip on: events come at once, and a silence is survived."""

import time
from dataclasses import dataclass

import anyio
import httpx
from tests.faults import checkers
from tests.faults.nginx import nginx
from tests.faults.ordeal import Progress
from tests.faults.pace import pause
from tests.faults.records import Post, token_of
from tests.faults.tally import Tally
from tests.faults.world import World
from tests.support.wire import PATH, Frame, FrameReader, text_of

WORDS, PACE = 20, 100
AT_ONCE = 1.0
"""Seconds that an event may take at the most, on a machine that has other work too."""
SILENCE = 65
"""Seconds: longer than nginx waits for a server by default."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw, and how many seconds after its post."""

    frames: list[Frame]
    times: list[float]
    encoding: str


async def behind_nginx(world: World, points: int, progress: Progress) -> Tally:
    """Each point is an answer; from the second one on there is a silence in the middle of it."""
    tally = Tally()
    async with nginx(world.fleet.urls()[0], world.folder) as url:
        for point in range(points):
            post = Post(world.token("conversation-"), world.token(), words=WORDS, pace=PACE)
            seen = await _answer(world, url, post, SILENCE if point else 0)
            tally.points, tally.posts = point + 1, point + 1
            tally.acknowledged += 1
            tally.faults += _judge(post, seen, SILENCE if point else 0)
            progress(tally)
    return tally


async def _answer(world: World, url: str, post: Post, silence: float) -> Seen:
    gate = world.model.gates[post.token] = anyio.Event()
    seen, began = Seen([], [], ""), time.monotonic()
    body = {"conversationId": post.conversation, "messages": [post.message], "include": ["run"]}

    async def open_gate() -> None:
        await pause(silence)
        gate.set()

    async with anyio.create_task_group() as tasks, httpx.AsyncClient(trust_env=False) as http:
        tasks.start_soon(open_gate)
        headers = {"accept-encoding": "gzip"}
        with anyio.fail_after(silence + 30):
            async with http.stream(
                "POST", url + PATH, json=body, headers=headers, timeout=silence + 10
            ) as response:
                reader = FrameReader()
                async for chunk in response.aiter_bytes():
                    frames = reader.feed(chunk)
                    seen.frames.extend(frames)
                    seen.times.extend([time.monotonic() - began] * len(frames))
                encoding = response.headers.get("content-encoding", "")
    return Seen(seen.frames, seen.times, encoding)


def _judge(post: Post, seen: Seen, silence: float) -> list[str]:
    faults = checkers.ended_once(post.token, seen.frames)
    if token_of(post.message) and (problem := checkers.torn(text_of(seen.frames))):
        faults.append(f"the answer came torn: {problem}")
    if seen.encoding != "gzip":
        faults.append(f"nginx did not compress: {seen.encoding!r}; this proves nothing")
    if seen.times and seen.times[0] > AT_ONCE:
        faults.append(f"the first event came after {seen.times[0]:.1f} s")
    pairs = zip(seen.times, seen.times[1:], strict=False)
    stalls = [later - earlier for earlier, later in pairs if later - earlier > AT_ONCE]
    if len(stalls) > bool(silence):
        faults.append(f"it stalled for {max(stalls):.1f} s")
    return faults
