"""Each scenario, briefly. `scripts/faults --nightly` is the proof; these notice when something is broken outright."""

from dataclasses import replace

import pytest
from tests.faults.scenarios import SCENARIOS
from tests.faults.tally import Tally
from tests.faults.world import world
from tests.support.programs import program

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SEED = 3
PATIENCE = 120.0
"""Seconds of a client for one post, its answer included. Whether conversations are usable again soon is not for tests that
share a machine with others, so nothing shorter is judged here: a client that gives up is a fault of its own."""


async def played(name: str) -> Tally:
    scenario = SCENARIOS[name]
    if scenario.plan.store == "redis":
        program("redis-server", variable="TEST_REDIS_SERVER")
    plan = replace(scenario.plan, slack=PATIENCE, patience=PATIENCE)
    async with world(plan, SEED) as scene:
        tally = await scenario.play(scene, scenario.quick, lambda _: None)
    assert tally.faults == []
    assert tally.points > 0
    return tally


@pytest.mark.promise("P6", "P10")
@pytest.mark.parametrize(
    "name", ["kill-1-sqlite", pytest.param("kill-2-redis", marks=pytest.mark.redis)]
)
async def test_after_a_worker_was_killed_nothing_is_lost_or_doubled(name: str) -> None:
    tally = await played(name)
    assert tally.cuts


@pytest.mark.promise("P10")
@pytest.mark.parametrize("name", ["kill-tools-sqlite"])
async def test_a_tool_whose_worker_was_killed_is_not_begun_again(name: str) -> None:
    await played(name)


@pytest.mark.promise("P10")
@pytest.mark.redis
@pytest.mark.parametrize("name", ["freeze-redis", "part-redis"])
async def test_a_worker_that_was_away_for_longer_than_its_lease_does_no_harm(name: str) -> None:
    await played(name)


@pytest.mark.promise("P3", "P10")
@pytest.mark.redis
async def test_a_rolling_deploy_is_not_noticed() -> None:
    await played("deploy-redis")


@pytest.mark.promise("P15")
@pytest.mark.redis
@pytest.mark.parametrize("name", ["kill-store", "lost-replies"])
async def test_faults_of_redis_lose_and_double_nothing(name: str) -> None:
    await played(name)


@pytest.mark.promise("P6", "P15")
@pytest.mark.redis
async def test_histories_are_those_of_lists_whatever_goes_wrong() -> None:
    await played("jepsen-redis")


@pytest.mark.parametrize("name", ["policies-sqlite"])
async def test_fifty_posts_at_once_do_what_their_policy_says(name: str) -> None:
    await played(name)


@pytest.mark.promise("P8")
@pytest.mark.redis
async def test_a_post_that_is_made_eleven_times_is_one_run_and_one_stream() -> None:
    await played("repeats-redis")


@pytest.mark.promise("P3")
@pytest.mark.redis
async def test_a_stream_cut_behind_any_event_adds_up_on_another_worker() -> None:
    await played("cuts-redis")


@pytest.mark.promise("P11")
@pytest.mark.redis
async def test_a_crowd_leaves_nothing_behind() -> None:
    await played("crowds")


@pytest.mark.promise("P3")
async def test_behind_nginx_events_come_at_once() -> None:
    program("nginx", variable="TEST_NGINX")
    await played("nginx")
