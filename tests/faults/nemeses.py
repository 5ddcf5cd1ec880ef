"""What goes wrong. A strike returns when its fault is over: the dead are replaced, the frozen move again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

import anyio
from tests.faults.fleet import Worker
from tests.faults.pace import pause
from tests.faults.world import World

OVERSLEPT = 1.6
"""How many leases a frozen worker sleeps."""
EXIT_SECONDS = 12
STILL = 0.15
"""Seconds that a lost reply's client has for the next one."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that happened.

    Args:
        healed: since when the conversations that it hit have what they need to go on.
        points: how many faults that were.
        notes: what a worker did wrong in it.
    """

    healed: float
    points: int = 1
    notes: tuple[str, ...] = ()


Strike: TypeAlias = Callable[[World], Awaitable[Struck]]


def _victim(world: World) -> Worker:
    assert world.fleet.workers, world.fleet.deaths
    return world.random.choice(world.fleet.workers)


async def kill_worker(world: World) -> Struck:
    """SIGKILL. Others take over; if there is no other, the next one that starts."""
    _victim(world).kill()
    struck, others = monotonic(), world.fleet.urls()
    await world.fleet.start()
    return Struck(struck if others else monotonic())


async def freeze_worker(world: World) -> Struck:
    """SIGSTOP for longer than the lease, then SIGCONT: it wakes up and believes that its runs are its own."""
    victim = _victim(world)
    victim.freeze()
    struck, locks = monotonic(), await _locks_a_file(victim.pid)
    await pause(world.plan.lease * OVERSLEPT)
    victim.thaw()
    # within a transaction it keeps the SQLite file to itself: nobody else can write until it wakes up
    return Struck(monotonic() if locks else struck)


async def _locks_a_file(pid: int) -> bool:
    """Whether a process holds a lock that shuts out others, as Linux tells."""
    locks = (await anyio.Path("/proc/locks").read_text()).splitlines()
    return any(f" {pid} " in line and " WRITE " in line for line in locks)


async def stop_worker(world: World) -> Struck:
    """SIGTERM, and a replacement: a rolling deploy."""
    victim = _victim(world)
    struck, codes = monotonic(), list[int]()

    async def stop() -> None:
        with anyio.move_on_after(EXIT_SECONDS):
            codes.append(await victim.stop())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        await world.fleet.start()
    if not codes:
        victim.kill()
        return Struck(struck, notes=(f"no exit within {EXIT_SECONDS} s of SIGTERM",))
    return Struck(struck, notes=(f"exit code {codes[0]} after SIGTERM",) if codes[0] else ())


async def kill_redis(world: World) -> Struck:
    """SIGKILL of the store, and a restart."""
    assert world.redis is not None
    await world.redis.kill()
    await pause(world.random.uniform(0, 0.3))
    await world.redis.start()
    return Struck(monotonic())


async def lose_replies(world: World) -> Struck:
    """The store did what it was asked, and nobody hears of it: some times, one after the other."""
    struck, proxy = monotonic(), world.random.choice(world.proxies)
    before = proxy.lost
    for _ in range(world.random.randint(1, 8)):
        proxy.lose_replies(1)
        await pause(world.random.uniform(0, STILL))
    proxy.lose_replies(0)
    return Struck(struck, points=proxy.lost - before)


async def part_worker(world: World) -> Struck:
    """A worker and the store cannot reach each other for longer than the lease; what it wrote meanwhile comes late."""
    victim = _victim(world)
    proxy = world.proxies[victim.number % len(world.proxies)]
    victim.away = True
    proxy.hold()
    struck = monotonic()
    await pause(world.plan.lease * OVERSLEPT)
    proxy.go_on()
    victim.away = False
    return Struck(struck)


async def any_of(world: World) -> Struck:
    """One of those that this world has the means for."""
    choices: list[Strike] = [kill_worker]
    if world.plan.workers > 1:
        choices += [freeze_worker, stop_worker]
    if world.redis:
        choices.append(kill_redis)
    if world.proxies:
        choices += [lose_replies, part_worker]
    return await world.random.choice(choices)(world)
