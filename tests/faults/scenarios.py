"""The scenarios by name. Each plays in worlds of its own, and gives a tally."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.faults.crowds import crowds
from tests.faults.cuts import cuts
from tests.faults.jepsen import jepsen
from tests.faults.judgement import Rules
from tests.faults.nemeses import (
    Strike,
    freeze_worker,
    kill_redis,
    kill_worker,
    lose_replies,
    stop_worker,
)
from tests.faults.ordeal import Progress, ordeal
from tests.faults.places import AGENT, WATCHED
from tests.faults.policies import policies
from tests.faults.proxied import behind_nginx
from tests.faults.repeats import repeats
from tests.faults.tally import Tally
from tests.faults.world import Plan, World, world

Play: TypeAlias = Callable[[int, int, Progress], Awaitable[Tally]]
"""Points, seed, whom to tell."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario.

    Args:
        play: does it.
        quick: points for a look.
        nightly: points for a proof.
        about: what it shows.
    """

    play: Play
    quick: int
    nightly: int
    about: str


def struck_by(strike: Strike, plan: Plan, rules: Rules | None = None) -> Play:
    async def play(points: int, seed: int, progress: Progress) -> Tally:
        async with world(plan, seed) as scene:
            return await ordeal(scene, strike, points, rules or Rules(), progress)

    return play


def played(scene_play: Callable[[World, int, Progress], Awaitable[Tally]], plan: Plan) -> Play:
    async def play(points: int, seed: int, progress: Progress) -> Tally:
        async with world(plan, seed) as scene:
            return await scene_play(scene, points, progress)

    return play


# a grace so short that most answers have to be handed over
DEPLOY = ("--shutdown-grace", "0.2")

SCENARIOS = {
    "kill-1-sqlite": Scenario(
        struck_by(kill_worker, Plan("sqlite", 1)), 3, 250, "kill -9 of the only worker"
    ),
    "kill-1-redis": Scenario(
        struck_by(kill_worker, Plan("redis", 1)), 3, 250, "kill -9 of the only worker"
    ),
    "kill-2-sqlite": Scenario(
        struck_by(kill_worker, Plan("sqlite", 2)), 3, 250, "kill -9 of one worker of two"
    ),
    "kill-2-redis": Scenario(
        struck_by(kill_worker, Plan("redis", 2)), 3, 250, "kill -9 of one worker of two"
    ),
    "kill-tools-sqlite": Scenario(
        struck_by(kill_worker, Plan("sqlite", 2, settings=(AGENT,))),
        2,
        100,
        "kill -9 while the server's tools run",
    ),
    "kill-tools-redis": Scenario(
        struck_by(kill_worker, Plan("redis", 2, settings=(AGENT,))),
        2,
        100,
        "kill -9 while the server's tools run",
    ),
    "freeze-sqlite": Scenario(
        struck_by(freeze_worker, Plan("sqlite", 2)), 1, 100, "SIGSTOP for longer than the lease"
    ),
    "freeze-redis": Scenario(
        struck_by(freeze_worker, Plan("redis", 2)), 1, 100, "SIGSTOP for longer than the lease"
    ),
    "deploy-sqlite": Scenario(
        struck_by(stop_worker, Plan("sqlite", 2, settings=DEPLOY)), 2, 50, "SIGTERM under load"
    ),
    "deploy-redis": Scenario(
        struck_by(stop_worker, Plan("redis", 2, settings=DEPLOY)), 2, 50, "SIGTERM under load"
    ),
    "kill-store": Scenario(
        struck_by(kill_redis, Plan("redis", 2)), 3, 200, "kill -9 of Redis, appendfsync always"
    ),
    "lost-replies": Scenario(
        struck_by(lose_replies, Plan("redis", 2, proxied=True)),
        20,
        500,
        "replies of Redis get lost",
    ),
    "jepsen": Scenario(
        played(jepsen, Plan("redis", 2, proxied=True)),
        80,
        4000,
        "8 clients, any fault at any time",
    ),
    "jepsen-sqlite": Scenario(
        played(jepsen, Plan("sqlite", 2)), 80, 4000, "8 clients, any fault at any time"
    ),
    "policies-redis": Scenario(
        played(policies, Plan("redis", 4)), 5, 50, "50 posts at once from 4 processes, 4 workers"
    ),
    "policies-sqlite": Scenario(
        played(policies, Plan("sqlite", 2)), 5, 50, "50 posts at once from 4 processes, 2 workers"
    ),
    "repeats-redis": Scenario(
        played(repeats, Plan("redis", 2)), 6, 200, "one post ten times at once, and once later"
    ),
    "repeats-sqlite": Scenario(
        played(repeats, Plan("sqlite", 2)), 6, 200, "one post ten times at once, and once later"
    ),
    "cuts-redis": Scenario(
        played(cuts, Plan("redis", 2)), 18, 360, "a cut behind every event, read on elsewhere"
    ),
    "cuts-sqlite": Scenario(
        played(cuts, Plan("sqlite", 2)), 18, 360, "a cut behind every event, read on elsewhere"
    ),
    "crowds": Scenario(
        played(crowds, Plan("redis", 2, command=WATCHED)), 100, 1000, "readers of one run, visitors"
    ),
    "nginx": Scenario(
        played(behind_nginx, Plan("sqlite", 1, settings=("--ping", "15"))),
        1,
        2,
        "nginx with default buffering and gzip",
    ),
}
