"""Fifty posts at once from four processes to one conversation: the history is what their policy says."""

import json
import subprocess
import sys
from collections.abc import Sequence

import anyio
from tests.faults.judgement import Evidence, Rules, gather, judge
from tests.faults.ordeal import Progress, tell_why
from tests.faults.records import Operation, Post, from_json, outcome_of, token_of
from tests.faults.tally import Tally
from tests.faults.world import World
from tests.support.wire import Json

POSTS = 50
PROCESSES = 4
SECONDS = 120
STOPPING = {"interrupt", "rollback"}
REFUSALS = {
    "reject": "409 conversation_busy",
    "enqueue": "queue_full",
    "interrupt": "queue_full",
    "rollback": "queue_full",
}


async def policies(world: World, points: int, progress: Progress) -> Tally:
    """Each point is one conversation, whose posts all have one policy, in turn; every fifth mixes them."""
    tally = Tally()
    names = [*REFUSALS, ""]
    for point in range(points):
        policy = names[point % len(names)]
        conversation = world.token(f"{policy or 'mixed'}-")
        posts = [_post(world, conversation, policy) for _ in range(POSTS)]
        with anyio.fail_after(SECONDS):
            operations = await _from_processes(world, posts)
        evidence = await gather(world.fleet.urls()[0], operations)
        stopping = not policy or policy in STOPPING
        outcomes = frozenset({"completed", "cancelled"} if stopping else {"completed"})
        rules = Rules(outcomes, share=0.0, rolls_back=True)
        tally.faults += judge(operations, evidence, world.model.seen, rules)
        tally.faults += as_the_policy_says(operations, evidence, conversation)
        tally.points += 1
        tally.count(operations)
        tell_why(world, evidence, tally)
        progress(tally)
    return tally


def _post(world: World, conversation: str, policy: str) -> Post:
    policy = policy or world.random.choice(list(REFUSALS))
    return Post(conversation, world.token(), policy, words=world.random.randint(3, 10), pace=5)


async def _from_processes(world: World, posts: Sequence[Post]) -> list[Operation]:
    """Let each process send its part, all at the same time."""
    operations: list[Operation] = []
    ready, go = anyio.create_memory_object_stream[None](PROCESSES), anyio.Event()
    urls = list(world.fleet.urls())

    async def send(number: int) -> None:
        job = {"urls": urls, "seed": world.random.random(), "posts": []}
        job["posts"] = [post_as_json(post) for post in posts[number::PROCESSES]]
        command = [sys.executable, "-m", "tests.faults.poster", json.dumps(job)]
        async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            output = await process.stdout.receive()
            await ready[0].send(None)
            await go.wait()
            await process.stdin.send(b"go\n")
            output += b"".join([chunk async for chunk in process.stdout])
        lines = output.decode().splitlines()
        operations.extend(map(from_json, json.loads(lines[-1])))

    async with anyio.create_task_group() as tasks, ready[0], ready[1]:
        for number in range(PROCESSES):
            tasks.start_soon(send, number)
        for _ in range(PROCESSES):
            await ready[1].receive()
        go.set()
    return operations


def post_as_json(post: Post) -> Json:
    return {name: getattr(post, name) for name in post.__dataclass_fields__}


# ---------------------------------------------------------------- the model of a policy
def as_the_policy_says(
    operations: Sequence[Operation], evidence: Evidence, conversation: str
) -> list[str]:
    """What the history must be, given which posts were acknowledged and how their runs ended."""
    history = evidence.histories.get(conversation, [])
    faults: list[str] = []
    ended = {
        each.post.token: outcome_of(evidence.replays.get(each.run_id, ())) for each in operations
    }
    rolled = any(each.post.policy == "rollback" for each in operations)
    exchanges = exchanges_of(history)
    for each in operations:
        if each.verdict == "refused" and not each.refusal.endswith(REFUSALS[each.post.policy]):
            faults.append(f"{each.post.token} ({each.post.policy}) was refused with {each.refusal}")
        if each.verdict == "ok":
            there = exchanges.get(each.post.token)
            faults += _exchange_faults(each, there, ended[each.post.token], rolled=rolled)
    if not any(each.verdict == "ok" for each in operations):
        faults.append("all posts were refused")
    if all(each.post.policy == "rollback" for each in operations):
        stopped = [token for token in exchanges if ended.get(token) == "cancelled"]
        faults += [f"{token} was not taken back" for token in stopped]
    if exchanges and ended.get(list(exchanges)[-1]) != "completed":
        faults.append("the last message has no whole answer")
    return faults


def _exchange_faults(
    operation: Operation, answers: Sequence[Json] | None, outcome: str, *, rolled: bool
) -> list[str]:
    """What is wrong with one acknowledged message and what follows it in the history."""
    token = operation.post.token
    if answers is None:
        return (
            [] if rolled and outcome == "cancelled" else [f"{token} is missing, its run {outcome}"]
        )
    partial = [bool(answer.get("partial")) for answer in answers]
    if outcome == "completed" and partial != [False]:
        return [f"{token} has no whole answer, its run completed"]
    if outcome == "cancelled" and partial not in ([True], []):
        return [f"{token} has a whole answer, its run was cancelled"]
    return []


def exchanges_of(history: Sequence[Json]) -> dict[str, list[Json]]:
    """The answers behind each posted message."""
    exchanges: dict[str, list[Json]] = {}
    for message in history:
        if token := token_of(message):
            exchanges[token] = []
        elif exchanges:
            exchanges[list(exchanges)[-1]].append(message)
    return exchanges
