"""Many clients write to few conversations while anything may go wrong at any time; then the histories are read."""

import anyio
from tests.faults.caller import Caller
from tests.faults.judgement import TOLD, WELL, Rules, gather, judge
from tests.faults.nemeses import any_of
from tests.faults.ordeal import Progress, tell_why
from tests.faults.pace import pause
from tests.faults.records import Operation, Post
from tests.faults.tally import Tally
from tests.faults.world import World

RULES = Rules(WELL | {"cancelled"})
WITHOUT_STORE = Rules(RULES.outcomes | TOLD)
POLICIES = ("enqueue",) * 7 + ("reject", "reject", "interrupt")
CLIENTS = 8
SHARING = 4
"""How many clients write to one conversation."""
LENGTH = 25
"""How many posts a client makes to one."""
CALM = 1.5
"""Seconds between two faults at the most."""


async def jepsen(world: World, points: int, progress: Progress) -> Tally:
    """So many posts, by `CLIENTS` clients."""
    each = points // CLIENTS
    tally = Tally()
    operations: list[Operation] = []
    callers = [await world.caller(patience=60) for _ in range(CLIENTS)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_torment, world, tally)
        async with anyio.create_task_group() as working:
            for number, caller in enumerate(callers):
                working.start_soon(_work, world, caller, number, each, operations)
            working.start_soon(_watch, tally, operations, CLIENTS * each, progress)
        tasks.cancel_scope.cancel()
    await _heal(world)
    evidence = await gather(world.fleet.urls()[0], operations)
    tally.points = len(operations)
    tally.count(operations)
    tally.faults += judge(
        operations, evidence, world.model.seen, WITHOUT_STORE if world.redis else RULES
    )
    tally.faults += [*world.model.violations, *world.fleet.deaths]
    tell_why(world, evidence, tally)
    return tally


async def _torment(world: World, tally: Tally) -> None:
    while True:
        await pause(world.random.uniform(0, CALM))
        with anyio.CancelScope(shield=True):
            struck = await any_of(world)
        tally.hits += struck.points
        tally.faults += struck.notes


async def _heal(world: World) -> None:
    for proxy in world.proxies:
        proxy.lose_replies(0)
        proxy.go_on()
    await world.fleet.ready()


async def _work(
    world: World, caller: Caller, number: int, count: int, operations: list[Operation]
) -> None:
    for index in range(count):
        conversation = f"conversation-{number // SHARING}-{index // LENGTH}"
        policy = world.random.choice(POLICIES)
        words = world.random.randint(5, 30)
        post = Post(conversation, world.token(), policy, words=words)
        operations.append(await caller.perform(post, insists=policy == "reject"))


async def _watch(tally: Tally, operations: list[Operation], total: int, progress: Progress) -> None:
    """Tell now and then how far it is."""
    while len(operations) < total:
        await pause(1)
        seen = Tally(len(operations), tally.hits)
        seen.count(operations)
        progress(seen)
