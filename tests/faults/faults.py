"""The faults. Each function injects one and returns when it is over: a dead worker is replaced."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

import anyio
from tests.faults.deployment import Deployment
from tests.faults.workers import Worker
from tests.support.waiting import pause

OUTAGE_LEASES = 1.6
"""Leases for which a worker is frozen or cut off."""
EXIT_SECONDS = 12
REPLY_INTERVAL = 0.15
"""Longest time in seconds between two lost replies."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that happened.

    Attributes:
        recoverable_at: since when the conversations that it hit have what they need to continue.
        count: how many faults it was.
        violations: what a worker did wrong in it.
    """

    recoverable_at: float
    count: int = 1
    violations: tuple[str, ...] = ()


InjectFault: TypeAlias = Callable[[Deployment], Awaitable[InjectedFault]]


def _choose_worker(deployment: Deployment) -> Worker:
    assert deployment.workers.running, deployment.workers.unexpected_exits
    return deployment.random.choice(deployment.workers.running)


# ---------------------------------------------------------------- workers
async def kill_worker(deployment: Deployment) -> InjectedFault:
    """SIGKILL a worker. Others take over; if there is no other, the next one that starts."""
    _choose_worker(deployment).kill()
    killed_at, others = monotonic(), deployment.workers.urls()
    await deployment.workers.start()
    return InjectedFault(killed_at if others else monotonic())


async def freeze_worker(deployment: Deployment) -> InjectedFault:
    """SIGSTOP a worker for longer than its lease; it wakes up and takes its runs for its own."""
    worker = _choose_worker(deployment)
    worker.freeze()
    frozen_at, holds_lock = monotonic(), await _holds_file_lock(worker.pid)
    await pause(deployment.plan.lease * OUTAGE_LEASES)
    worker.thaw()
    # frozen within a transaction, it holds the SQLite file's lock: others write only afterwards
    return InjectedFault(monotonic() if holds_lock else frozen_at)


async def _holds_file_lock(pid: int) -> bool:
    """Return True if Linux lists an exclusive file lock of the process."""
    locks = (await anyio.Path("/proc/locks").read_text()).splitlines()
    return any(f" {pid} " in line and " WRITE " in line for line in locks)


async def stop_worker(deployment: Deployment) -> InjectedFault:
    """SIGTERM a worker and start its replacement: a rolling deploy."""
    worker = _choose_worker(deployment)
    stopped_at, codes = monotonic(), list[int]()

    async def stop() -> None:
        with anyio.move_on_after(EXIT_SECONDS):
            codes.append(await worker.stop())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        await deployment.workers.start()
    if not codes:
        worker.kill()
        late = f"no exit within {EXIT_SECONDS} s of SIGTERM"
        return InjectedFault(stopped_at, violations=(late,))
    failed = (f"exit code {codes[0]} after SIGTERM",) if codes[0] else ()
    return InjectedFault(stopped_at, violations=failed)


# ---------------------------------------------------------------- the store
async def kill_store(deployment: Deployment) -> InjectedFault:
    """SIGKILL the store's server, and start it again."""
    assert deployment.store is not None
    await deployment.store.kill()
    await pause(deployment.random.uniform(0, 0.3))
    await deployment.store.start()
    return InjectedFault(monotonic())


async def restart_store(deployment: Deployment) -> InjectedFault:
    """Stop the store's server as an administrator does, and start it again."""
    assert deployment.store is not None
    await deployment.store.stop()
    await deployment.store.start()
    return InjectedFault(monotonic())


async def lose_replies(deployment: Deployment) -> InjectedFault:
    """Drop some replies of the store, one after the other: it did what it was asked."""
    began_at, proxy = monotonic(), deployment.random.choice(deployment.proxies)
    before = proxy.lost
    for _ in range(deployment.random.randint(1, 8)):
        proxy.lose_replies(1)
        await pause(deployment.random.uniform(0, REPLY_INTERVAL))
    proxy.lose_replies(0)
    return InjectedFault(began_at, count=proxy.lost - before)


async def partition_worker(deployment: Deployment) -> InjectedFault:
    """Cut a worker off from the store for longer than its lease; then its writes arrive late."""
    worker = _choose_worker(deployment)
    proxy = deployment.proxies[worker.number % len(deployment.proxies)]
    worker.unreachable = True
    proxy.hold()
    cut_off_at = monotonic()
    await pause(deployment.plan.lease * OUTAGE_LEASES)
    proxy.go_on()
    worker.unreachable = False
    return InjectedFault(cut_off_at)


# ---------------------------------------------------------------- any
async def inject_random_fault(deployment: Deployment) -> InjectedFault:
    """Inject one of the faults that this deployment allows."""
    choices: list[InjectFault] = [kill_worker]
    if deployment.plan.workers > 1:
        choices += [freeze_worker, stop_worker]
    if deployment.store:
        choices += [kill_store, restart_store]
    if deployment.proxies:
        choices += [lose_replies, partition_worker]
    return await deployment.random.choice(choices)(deployment)
