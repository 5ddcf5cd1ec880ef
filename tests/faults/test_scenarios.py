"""The short form of the scenarios: it notices what is broken outright.

`scripts/faults --nightly` is the full test.
"""

from dataclasses import replace

import pytest
from tests.faults.results import Result
from tests.faults.scenarios import SCENARIOS
from tests.support.programs import program

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SEED = 3
CLIENT_TIMEOUT = 120.0
"""Seconds of a client for one post, its answer included. These tests share a machine with others,
so that a shorter time to recover is not checked here; but a client that gives up is a violation."""


async def play(name: str) -> Result:
    scenario = SCENARIOS[name]
    if scenario.plan.store == "redis":
        program("redis-server", variable="TEST_REDIS_SERVER")
    patient = replace(scenario.plan, recovery_slack=CLIENT_TIMEOUT, client_timeout=CLIENT_TIMEOUT)
    result = await replace(scenario, plan=patient).run(scenario.quick, SEED, lambda _: None)
    assert result.violations == []
    assert result.points > 0
    return result


@pytest.mark.promise("P6", "P10")
@pytest.mark.parametrize(
    "name",
    [
        "kill-1-sqlite",
        pytest.param("kill-2-redis", marks=pytest.mark.redis),
        pytest.param("kill-2-postgres", marks=pytest.mark.postgres),
    ],
)
async def test_after_a_worker_was_killed_nothing_is_lost_or_doubled(name: str) -> None:
    result = await play(name)
    # of two workers, the one that is killed may have no reader at that moment
    assert result.hits
    assert None not in result.recovery_times


@pytest.mark.promise("P10")
@pytest.mark.parametrize("name", ["kill-tools-sqlite"])
async def test_a_tool_whose_worker_was_killed_is_not_started_again(name: str) -> None:
    await play(name)


@pytest.mark.promise("P10")
@pytest.mark.redis
@pytest.mark.parametrize("name", ["freeze-redis", "partition-redis"])
async def test_a_worker_that_was_away_for_longer_than_its_lease_does_no_harm(name: str) -> None:
    await play(name)


@pytest.mark.promise("P3", "P10")
@pytest.mark.redis
async def test_a_rolling_deploy_is_not_noticed() -> None:
    await play("deploy-redis")


@pytest.mark.promise("P15")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("kill-store-redis", marks=pytest.mark.redis),
        pytest.param("lost-replies-redis", marks=pytest.mark.redis),
        pytest.param("lost-replies-postgres", marks=pytest.mark.postgres),
    ],
)
async def test_faults_of_the_store_lose_and_double_nothing(name: str) -> None:
    await play(name)


@pytest.mark.promise("P6", "P15")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("jepsen-redis", marks=pytest.mark.redis),
        pytest.param("jepsen-postgres", marks=pytest.mark.postgres),
    ],
)
async def test_histories_are_append_only_lists_under_any_fault(name: str) -> None:
    await play(name)


@pytest.mark.parametrize("name", ["policies-sqlite"])
async def test_fifty_posts_at_once_do_what_their_policy_says(name: str) -> None:
    await play(name)


@pytest.mark.promise("P8")
@pytest.mark.redis
async def test_a_post_that_is_made_eleven_times_is_one_run_and_one_stream() -> None:
    await play("repeats-redis")


@pytest.mark.promise("P3")
@pytest.mark.redis
async def test_a_stream_cut_after_any_event_is_complete_when_another_worker_resumes_it() -> None:
    await play("disconnects-redis")


@pytest.mark.promise("P11")
@pytest.mark.redis
async def test_many_readers_leave_nothing_behind() -> None:
    await play("many-readers")


@pytest.mark.promise("P3")
async def test_behind_nginx_events_come_at_once() -> None:
    program("nginx", variable="TEST_NGINX")
    await play("nginx")
