"""The same post many times at once and once after its end: one call of the model, and everyone gets the same stream."""

import anyio
from tests.faults import checkers
from tests.faults.caller import ASK
from tests.faults.ordeal import Progress
from tests.faults.records import Post
from tests.faults.tally import Tally
from tests.faults.world import World
from tests.support.wire import Answer, Client, client_of, merged

TIMES = 10


async def repeats(world: World, points: int, progress: Progress) -> Tally:
    """In each point one post is made `TIMES` times at once by its key, and in the next by its message's id."""
    tally = Tally()
    for point in range(points):
        post = Post(
            world.token("conversation-"), world.token(), tool="ask" if point % 3 == 2 else ""
        )
        answers = await _post_at_once(world, post, keyed=point % 2 == 0)
        tally.points += 1
        tally.posts += len(answers)
        tally.acknowledged += sum(answer.status == 200 for answer in answers)
        tally.faults += _compare(post, answers, world.model.asked[post.token])
        tally.faults += await _history(world, post)
        progress(tally)
    return tally


async def _post_at_once(world: World, post: Post, *, keyed: bool) -> list[Answer]:
    answers: list[Answer] = []
    headers = {"idempotency-key": post.token} if keyed else {}

    async def ask(url: str) -> None:
        async with client_of(url) as client:
            answers.append(
                await client.post(
                    post.conversation, post.message, headers=headers, tools=[ASK], include=["run"]
                )
            )

    urls = world.fleet.urls()
    async with anyio.create_task_group() as tasks:
        for number in range(TIMES):
            tasks.start_soon(ask, urls[number % len(urls)])
    await ask(urls[0])
    return answers


def _compare(post: Post, answers: list[Answer], asked: int) -> list[str]:
    faults = (
        [] if asked == 1 else [f"{post.token} was posted again, and the model called {asked} times"]
    )
    streams = [merged(answer.frames) for answer in answers]
    for answer, stream in zip(answers, streams, strict=True):
        if answer.status != 200:
            faults.append(f"a repeat of {post.token} got {answer.status} {answer.body[:100]!r}")
        elif stream != streams[-1]:
            faults.append(f"a repeat of {post.token} got another stream")
        else:
            faults += checkers.ended_once(post.token, answer.frames)
    return faults


async def _history(world: World, post: Post) -> list[str]:
    async with client_of(world.fleet.urls()[0]) as client:
        return _once(post, await _messages(client, post))


async def _messages(client: Client, post: Post) -> list[object]:
    stands = await client.conversation(post.conversation)
    return list(stands.get("messages", ()))


def _once(post: Post, messages: list[object]) -> list[str]:
    if len(messages) == 2:
        return []
    return [f"{post.token} and its answer are {len(messages)} messages"]
