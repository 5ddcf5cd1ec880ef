"""The scenarios by name."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from tests.faults.crowds import crowds
from tests.faults.cuts import cuts
from tests.faults.jepsen import jepsen
from tests.faults.judgement import TOLD, WELL, Rules
from tests.faults.nemeses import (
    Strike,
    freeze_worker,
    kill_redis,
    kill_worker,
    lose_replies,
    part_worker,
    stop_worker,
)
from tests.faults.ordeal import Progress, ordeal
from tests.faults.places import AGENT, WATCHED
from tests.faults.policies import policies
from tests.faults.proxied import behind_nginx
from tests.faults.repeats import repeats
from tests.faults.tally import Tally
from tests.faults.world import SLACK, Plan, StoreKind, World, world

Play: TypeAlias = Callable[[World, int, Progress], Awaitable[Tally]]
"""Plays so many points in a world, and says how far it is."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario.

    Args:
        about: what it does.
        play: does it.
        plan: the world that it is played in.
        quick: points for a look.
        nightly: points for a proof.
    """

    about: str
    play: Play
    plan: Plan
    quick: int
    nightly: int

    async def run(self, points: int, seed: int, progress: Progress) -> Tally:
        async with world(self.plan, seed) as scene:
            return await self.play(scene, points, progress)


def struck_by(strike: Strike, rules: Rules | None = None) -> Play:
    async def play(scene: World, points: int, progress: Progress) -> Tally:
        return await ordeal(scene, strike, points, rules or Rules(), progress)

    return play


def on(
    store: StoreKind, workers: int = 2, *settings: str, proxied: bool = False, watched: bool = False
) -> Plan:
    plan = Plan(store, workers, proxied=proxied, settings=settings)
    # answers with a tool in their middle take longer by themselves
    plan = replace(plan, slack=SLACK + 1) if AGENT in settings else plan
    return replace(plan, command=WATCHED) if watched else plan


KILL, TOOLS = struck_by(kill_worker), "kill -9 while the server's tools run"
FREEZE, DEPLOY = struck_by(freeze_worker), struck_by(stop_worker)
# a grace so short that most answers have to be handed over
SHORT_GRACE = ("--timing", "shutdown_grace=0.2")
# the model's silence must not end the answer before nginx could
SILENT = ("--timing", "ping=15", "--model-timeout", "120")

SCENARIOS = {
    "kill-1-sqlite": Scenario("kill -9 of the only worker", KILL, on("sqlite", 1), 2, 250),
    "kill-1-redis": Scenario("kill -9 of the only worker", KILL, on("redis", 1), 2, 250),
    "kill-2-sqlite": Scenario("kill -9 of one worker of two", KILL, on("sqlite"), 2, 250),
    "kill-2-redis": Scenario("kill -9 of one worker of two", KILL, on("redis"), 2, 250),
    "kill-tools-sqlite": Scenario(TOOLS, KILL, on("sqlite", 2, AGENT), 2, 100),
    "kill-tools-redis": Scenario(TOOLS, KILL, on("redis", 2, AGENT), 2, 100),
    "freeze-sqlite": Scenario("SIGSTOP for longer than the lease", FREEZE, on("sqlite"), 1, 100),
    "freeze-redis": Scenario("SIGSTOP for longer than the lease", FREEZE, on("redis"), 1, 100),
    "part-redis": Scenario(
        "a worker cut off from Redis for longer than the lease",
        struck_by(part_worker),
        on("redis", 2, AGENT, proxied=True),
        1,
        100,
    ),
    "deploy-sqlite": Scenario("SIGTERM under load", DEPLOY, on("sqlite", 2, *SHORT_GRACE), 1, 50),
    "deploy-redis": Scenario("SIGTERM under load", DEPLOY, on("redis", 2, *SHORT_GRACE), 1, 50),
    "kill-store": Scenario(
        "kill -9 of Redis, appendfsync always",
        struck_by(kill_redis, Rules(WELL | TOLD)),
        on("redis", 2, AGENT),
        1,
        200,
    ),
    "lost-replies": Scenario(
        "replies of Redis get lost",
        struck_by(lose_replies),
        on("redis", 2, AGENT, proxied=True),
        2,
        500,
    ),
    "jepsen-redis": Scenario(
        "8 clients, any fault at any time", jepsen, on("redis", proxied=True), 10, 4000
    ),
    "jepsen-sqlite": Scenario("8 clients, any fault at any time", jepsen, on("sqlite"), 10, 4000),
    "policies-redis": Scenario(
        "50 posts at once from 4 processes to 4 workers", policies, on("redis", 4), 2, 50
    ),
    "policies-sqlite": Scenario(
        "50 posts at once from 4 processes to 2 workers", policies, on("sqlite"), 2, 50
    ),
    "repeats-redis": Scenario("one post eleven times", repeats, on("redis"), 2, 200),
    "repeats-sqlite": Scenario("one post eleven times", repeats, on("sqlite"), 2, 200),
    "cuts-redis": Scenario("a cut behind each event", cuts, on("redis"), 18, 360),
    "cuts-sqlite": Scenario("a cut behind each event", cuts, on("sqlite"), 18, 360),
    "crowds": Scenario("readers of one run, visitors", crowds, on("redis", watched=True), 50, 1000),
    "nginx": Scenario(
        "nginx with default buffering and gzip", behind_nginx, on("sqlite", 1, *SILENT), 1, 2
    ),
}
