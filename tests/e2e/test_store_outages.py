"""A Redis that crashes and comes back, and one that does not answer, in the middle of a run."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from tests.e2e.workers import LEASE, SECONDS, held, transcript, whole, worker
from tests.support.model_server import ModelServer
from tests.support.redis_server import StoppableRedis, stoppable_redis
from tests.support.wire import (
    DONE,
    PATH,
    Client,
    Frame,
    check_refusal,
    keyed,
    merged,
    user,
    without_void,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.redis,
    pytest.mark.promise("P10", "P12"),
    pytest.mark.timeout(120),
]

REWINDS = ["run", "rewind"]


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncGenerator[StoppableRedis]:
    """A Redis that writes each change to the disk before it answers."""
    async with stoppable_redis(tmp_path) as redis:
        yield redis


@pytest.fixture
async def pair(redis: StoppableRedis, model: ModelServer) -> AsyncGenerator[Sequence[Client]]:
    place = ("--store", redis.url, "--timing", f"lease={LEASE}")
    flags = (*place, "--model", "openai:mock", "--model-base-url", model.base_url)
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker(*flags)) for _ in range(2)]
        yield [one.client for one in workers]


REFUSED = user("refused")


async def refused(client: Client, conversation: str) -> None:
    """The store is away: a post is refused, and the worker is not ready."""
    body = {"conversationId": conversation, "messages": [REFUSED]}
    answer = await client.http.post(PATH, json=body, headers=keyed("refused"), timeout=SECONDS)
    check_refusal(answer, 503, "store_unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    check_refusal(await client.http.get("/readyz", timeout=SECONDS), 503, "store_unavailable")
    assert (await client.http.get("/healthz")).status_code == 200


async def ready(client: Client) -> httpx.Response:
    """Ask until the worker is."""
    while (answer := await client.http.get("/readyz", timeout=SECONDS)).status_code != 200:
        pass
    return answer


async def followed_to_the_end(
    client: Client, conversation: str, seen: Sequence[Frame]
) -> list[Frame]:
    """Come back with the last id until the run has ended."""
    frames = list(seen)
    while frames[-1].data != DONE:
        rest = await client.replay(conversation, after=frames[-1].id, include=REWINDS)
        frames += rest.frames
    return frames


@asynccontextmanager
async def away(redis: StoppableRedis, *, crashes: bool) -> AsyncGenerator[None]:
    """Stop the store, which then comes back with all that it had acknowledged."""
    if crashes:
        await redis.kill()
        yield
        await redis.start()
    else:
        redis.server.pause()
        yield
        redis.server.resume()


@pytest.mark.promise("P3", "P6", "P8", "P15")
@pytest.mark.parametrize("crashes", [True, False], ids=["killed", "paused"])
async def test_a_run_outlives_a_redis_that_is_away_for_some_seconds(
    redis: StoppableRedis,
    pair: Sequence[Client],
    model: ModelServer,
    conversation: str,
    crashes: bool,
) -> None:
    gate, hi, refusals = anyio.Event(), user("hi"), f"{conversation}-2"
    model.play(held("half ", gate, "an answer"))
    one, other = pair
    with anyio.fail_after(3 * SECONDS):
        async with (
            one.stream(conversation, [hi], headers=keyed("key"), include=REWINDS) as stream,
            other.follow(conversation, include=REWINDS) as followed,
        ):
            await stream.until("text")
            await followed.until("text")
            async with away(redis, crashes=crashes):
                gate.set()
                async with anyio.create_task_group() as tasks:
                    for client in pair:
                        tasks.start_soon(refused, client, refusals)
            for client in pair:
                await ready(client)
            seen, seen_elsewhere = await stream.whole(), await followed.whole()
        frames = await followed_to_the_end(one, conversation, seen.frames)
        frames_elsewhere = await followed_to_the_end(other, conversation, seen_elsewhere.frames)
        good = await whole(other, conversation)
        repeated = await other.post(conversation, hi, headers=keyed("key"), include=REWINDS)
        # what became of a refused post nobody knows: under its key, it can be sent again
        again = await one.post(refusals, REFUSED, headers=keyed("refused"))
    for each in (without_void(frames), without_void(frames_elsewhere), repeated.frames):
        assert merged(each) == merged(good.frames)
    assert again.text == "half an answer"
    for name, words in ((conversation, "hi"), (refusals, "refused")):
        assert await transcript(one, name) == [
            ("user", words, False),
            ("assistant", "half an answer", False),
        ]
