"""The scenarios by name: what each does, in which deployment, and how long."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.faults.checkers import COMPLETED, STORE_FAILED, Expectations
from tests.faults.deployment import (
    RECOVERY_SLACK,
    Deployment,
    DeploymentPlan,
    StoreKind,
    running_deployment,
)
from tests.faults.fault_scenarios import play_random_faults, play_rounds
from tests.faults.faults import (
    InjectFault,
    freeze_worker,
    kill_store,
    kill_worker,
    lose_replies,
    partition_worker,
    restart_store,
    stop_worker,
)
from tests.faults.many_readers import play_many_readers
from tests.faults.post_scenarios import play_policies, play_repeats
from tests.faults.results import Progress, Result
from tests.faults.stream_scenarios import play_disconnects, play_nginx
from tests.faults.workers import AGENT, COUNTING_TASKS

Play: TypeAlias = Callable[[Deployment, int, Progress], Awaitable[Result]]
"""Plays so many points in a deployment."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario.

    Attributes:
        about: a few words for the table.
        play: the function that plays it.
        plan: the deployment in which it is played.
        quick: points of the short form.
        nightly: points of the full test.
    """

    about: str
    play: Play
    plan: DeploymentPlan
    quick: int
    nightly: int

    async def run(self, points: int, seed: int, progress: Progress) -> Result:
        async with running_deployment(self.plan, seed) as deployment:
            result = await self.play(deployment, points, progress)
            if result.violations:
                result.diagnostics += deployment.read_worker_logs()
            return result


def rounds_with(inject: InjectFault, expected: Expectations | None = None) -> Play:
    async def play(deployment: Deployment, points: int, progress: Progress) -> Result:
        return await play_rounds(deployment, inject, points, expected or Expectations(), progress)

    return play


def workers_on(
    store: StoreKind,
    workers: int = 2,
    *settings: str,
    proxied: bool = False,
    counting_tasks: bool = False,
) -> DeploymentPlan:
    # an answer with a server tool in its middle takes longer
    slack = RECOVERY_SLACK + 1 if AGENT in settings else RECOVERY_SLACK
    return DeploymentPlan(
        store,
        workers,
        proxied=proxied,
        recovery_slack=slack,
        settings=settings,
        module=COUNTING_TASKS if counting_tasks else "passback",
    )


KILL, FREEZE, STOP = map(rounds_with, (kill_worker, freeze_worker, stop_worker))
KILL_ONLY, KILL_ONE = "kill -9 of the only worker", "kill -9 of one worker of two"
KILL_TOOLS = "kill -9 while the server's tools run"
STORE_AWAY = Expectations(COMPLETED | STORE_FAILED)
FREEZE_LONG = "SIGSTOP for longer than the lease"
ANY_FAULT = "8 clients, any fault at any time"
# so short that most answers have to be handed over
SHORT_GRACE = ("--timing", "shutdown_grace=0.2")
# faults come as they like, so several workers may die under one run, which is then no violation
MANY_ATTEMPTS = ("--timing", "max_attempts=100")
# the model's silence must not end the answer before nginx could
LONG_SILENCE = ("--timing", "ping=15", "--model-timeout", "120")

SERVERS: tuple[StoreKind, ...] = ("redis", "postgres")
STORES: tuple[StoreKind, ...] = ("sqlite", *SERVERS)


def on_each(
    name: str, stores: Sequence[StoreKind], scenario: Callable[[StoreKind], Scenario]
) -> dict[str, Scenario]:
    return {f"{name}-{store}": scenario(store) for store in stores}


SCENARIOS = {
    **on_each("kill-1", STORES, lambda on: Scenario(KILL_ONLY, KILL, workers_on(on, 1), 2, 250)),
    **on_each("kill-2", STORES, lambda on: Scenario(KILL_ONE, KILL, workers_on(on), 2, 250)),
    **on_each(
        "kill-tools",
        STORES,
        lambda on: Scenario(KILL_TOOLS, KILL, workers_on(on, 2, AGENT), 2, 100),
    ),
    **on_each("freeze", STORES, lambda on: Scenario(FREEZE_LONG, FREEZE, workers_on(on), 1, 100)),
    **on_each(
        "partition",
        SERVERS,
        lambda on: Scenario(
            "a worker cut off from the store for longer than the lease",
            rounds_with(partition_worker),
            workers_on(on, 2, AGENT, proxied=True),
            1,
            100,
        ),
    ),
    **on_each(
        "deploy",
        STORES,
        lambda on: Scenario("SIGTERM under load", STOP, workers_on(on, 2, *SHORT_GRACE), 1, 50),
    ),
    **on_each(
        "kill-store",
        SERVERS,
        lambda on: Scenario(
            "kill -9 of the store's server, which syncs each write",
            rounds_with(kill_store, STORE_AWAY),
            workers_on(on, 2, AGENT),
            1,
            200,
        ),
    ),
    **on_each(
        "restart-store",
        SERVERS,
        lambda on: Scenario(
            "the store's server is stopped and started under load",
            rounds_with(restart_store, STORE_AWAY),
            workers_on(on, 2, AGENT),
            1,
            50,
        ),
    ),
    **on_each(
        "lost-replies",
        SERVERS,
        lambda on: Scenario(
            "replies of the store get lost",
            rounds_with(lose_replies),
            workers_on(on, 2, AGENT, proxied=True),
            2,
            500,
        ),
    ),
    **on_each(
        "jepsen",
        STORES,
        lambda on: Scenario(
            ANY_FAULT,
            play_random_faults,
            workers_on(on, 2, *MANY_ATTEMPTS, proxied=on in SERVERS),
            10,
            4000,
        ),
    ),
    **on_each(
        "policies",
        STORES,
        lambda on: Scenario(
            "50 posts at once from 4 processes to 2 workers, or 4 on a server",
            play_policies,
            workers_on(on, 4 if on in SERVERS else 2),
            2,
            50,
        ),
    ),
    **on_each(
        "repeats",
        STORES,
        lambda on: Scenario("one post eleven times", play_repeats, workers_on(on), 2, 200),
    ),
    **on_each(
        "disconnects",
        STORES,
        lambda on: Scenario(
            "a disconnect after each event", play_disconnects, workers_on(on), 18, 360
        ),
    ),
    "many-readers": Scenario(
        "readers of one run, visitors",
        play_many_readers,
        workers_on("redis", counting_tasks=True),
        50,
        1000,
    ),
    "nginx": Scenario(
        "nginx with default buffering and gzip",
        play_nginx,
        workers_on("sqlite", 1, *LONG_SILENCE),
        1,
        2,
    ),
}
