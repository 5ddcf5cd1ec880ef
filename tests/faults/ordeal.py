"""Conversations go on while faults happen: one fault at a random moment of each round, then a look at everything."""

from collections.abc import Callable
from time import monotonic

import anyio
from anyio.lowlevel import checkpoint
from tests.faults import checkers
from tests.faults.caller import Caller
from tests.faults.judgement import Evidence, Rules, gather, judge
from tests.faults.nemeses import Strike, Struck
from tests.faults.pace import pause
from tests.faults.places import AGENT, work_done
from tests.faults.records import Operation, Post, open_calls
from tests.faults.tally import Tally
from tests.faults.world import World

CONVERSATIONS = 3
ROUNDS = 8
"""Rounds after which the histories are judged, and others begun."""
LONGEST = 0.4
"""Seconds after which an answer is over: faults come within."""

Progress = Callable[[Tally], None]


async def ordeal(
    world: World, strike: Strike, points: int, rules: Rules, progress: Progress
) -> Tally:
    """Go on until there were so many faults, or until faults were found."""
    tally = Tally()
    callers = [await world.caller(forgets=True) for _ in range(CONVERSATIONS)]
    while tally.points < points and not tally.faults:
        operations: list[Operation] = []
        names = [world.token("conversation-") for _ in callers]
        for _ in range(min(ROUNDS, points - tally.points)):
            await _round(world, strike, dict(zip(names, callers, strict=True)), operations, tally)
        await world.fleet.ready()
        evidence = await gather(world.fleet.urls()[0], operations)
        tally.count(operations)
        tally.faults += judge(operations, evidence, world.model.seen, rules)
        tally.faults += checkers.usable(tally.usable, world.bound)
        tally.faults += [*world.model.violations, *world.fleet.deaths]
        tally.faults += checkers.done_once(work_done(world.folder))
        tell_why(world, evidence, tally)
        progress(tally)
    return tally


async def _round(
    world: World,
    strike: Strike,
    callers: dict[str, Caller],
    operations: list[Operation],
    tally: Tally,
) -> None:
    """In each conversation a post; a fault; a second post, whose time tells since when it is usable."""
    strikes: list[Struck] = []
    ended: list[Operation] = []
    probes: list[Operation] = []
    async with anyio.create_task_group() as tasks:
        for conversation, caller in callers.items():
            post = _post(world, conversation)
            tasks.start_soon(converse, world, caller, post, ended)
        await pause(world.random.uniform(0, LONGEST))
        tally.hits += len(callers) - len({each.post.conversation for each in ended})

        async def hit() -> None:
            strikes.append(await strike(world))

        tasks.start_soon(hit)
        await checkpoint()
        for conversation, caller in callers.items():
            probe = Post(conversation, world.token(), words=5)
            tasks.start_soon(_probe, caller, probe, probes)
    operations += [*ended, *probes]
    [struck] = strikes
    tally.points += struck.points
    tally.faults += struck.notes
    tally.usable += [
        None if each.acknowledged is None else max(0.0, each.acknowledged - struck.healed)
        for each in probes
    ]


def _post(world: World, conversation: str) -> Post:
    tools = ("once", "again", "ask") if AGENT in world.plan.settings else ("ask", "", "")
    tool = world.random.choice(tools)
    return Post(conversation, world.token(), words=world.random.randint(10, 30), tool=tool)


async def converse(world: World, caller: Caller, post: Post, operations: list[Operation]) -> None:
    """Post, and answer the calls of the run."""
    operation = await caller.perform(post, insists=True)
    operations.append(operation)
    for call in open_calls(operation.frames):
        answer = Post(post.conversation, world.token(), answers=call)
        operations.append(await caller.perform(answer))


async def _probe(caller: Caller, post: Post, probes: list[Operation]) -> None:
    probes.append(await caller.perform(post, insists=True))


def tell_why(world: World, evidence: Evidence, tally: Tally) -> None:
    """Keep what helps to find the reason."""
    if not tally.faults:
        return
    for log in sorted(world.folder.glob("worker-*.log")):
        lines = log.read_text(errors="replace").splitlines()
        tally.clues += [f"{log.name}: {line}" for line in lines[-200:]]
    tally.clues += [f"{name}: {history}" for name, history in evidence.histories.items()]
    tally.clues.append(f"judged at {monotonic():.3f}")
