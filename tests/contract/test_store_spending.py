"""Promises of every store: each run counts once for its owner, whatever is repeated."""

import asyncio
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.redis_server import RedisServer
from tests.support.store_values import new_key, new_run

from passback.core.budgets import Spending, Spent
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunRef
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

DAY, NEXT = "2026-01-31", "2026-02-01"
NOTHING = Spent()

_owners = count(1)


def new_owner() -> OwnerId:
    return OwnerId(f"owner \u00fc {next(_owners)}")


def spending(run: RunRef, epoch: int, seq: int, spent: Spent, day: str = DAY) -> Spending:
    """Return a lease's report of what it has spent, with its number."""
    return Spending(run, epoch, day, spent, seq)


def asked(run: RunRef, day: str = DAY) -> Spending:
    return Spending(run, 0, day, NOTHING)


def run_of(owner: OwnerId) -> RunRef:
    return RunRef(ConversationKey(owner, ConversationId("c")), new_run())


async def test_runs_of_an_owner_add_up_with_their_last_reports(
    store: Ledger,
) -> None:
    owner = new_owner()
    one, other = run_of(owner), run_of(owner)
    assert await store.spend(spending(one, 1, 1, Spent(10, 1.5, 0.25))) == Spent(10, 1.5, 0.25)
    assert await store.spend(spending(other, 1, 1, Spent(5, 0.5))) == Spent(15, 2, 0.25)
    assert await store.spend(spending(one, 1, 2, Spent(30, 2, 0.5))) == Spent(35, 2.5, 0.5)
    assert await store.spend(asked(one)) == Spent(35, 2.5, 0.5)


async def test_what_was_reserved_is_given_back(store: Ledger) -> None:
    """The last that a lease says may be less; of each amount by itself."""
    owner = new_owner()
    one, other = run_of(owner), run_of(owner)
    await store.spend(spending(other, 1, 1, Spent(5, 0.5, 0.5)))
    assert await store.spend(spending(one, 1, 1, Spent(90, 1, 0.5))) == Spent(95, 1.5, 1)
    assert await store.spend(spending(one, 1, 2, Spent(20, 2, 0.25))) == Spent(25, 2.5, 0.75)
    assert await store.spend(spending(one, 1, 3, NOTHING)) == Spent(5, 0.5, 0.5)


@pytest.mark.promise("P15")
async def test_a_count_that_arrives_again_or_late_changes_nothing(store: Ledger) -> None:
    run = run_of(new_owner())
    first, second = spending(run, 1, 1, Spent(30, 4, 0.5)), spending(run, 1, 2, Spent(20, 5, 0.25))
    for each in (first, first, second, first, second):
        await store.spend(each)
    assert await store.spend(first) == second.spent
    assert await store.spend(spending(run, 1, 0, Spent(99))) == second.spent


async def test_a_worker_that_goes_on_counts_beside_the_one_before(store: Ledger) -> None:
    """The lost one's spending, and its reservation, count, committed or not."""
    run = run_of(new_owner())
    await store.spend(spending(run, 1, 8, Spent(10)))
    await store.spend(spending(run, 4, 1, Spent(3)))
    assert await store.spend(spending(run, 1, 9, Spent(12))) == Spent(15)


async def test_each_day_counts_its_own_spending_and_never_less_than_nothing(
    store: Ledger,
) -> None:
    run = run_of(new_owner())
    await store.spend(spending(run, 1, 1, Spent(10, cost=0.5)))
    assert await store.spend(spending(run, 1, 2, Spent(14, cost=0.5), NEXT)) == Spent(4)
    assert await store.spend(asked(run)) == Spent(10, cost=0.5)
    assert await store.spend(spending(run, 1, 3, Spent(1), NEXT)) == NOTHING
    assert await store.spend(asked(run)) == Spent(10, cost=0.5)


async def test_owners_do_not_count_for_each_other(store: Ledger) -> None:
    run = run_of(new_owner())
    await store.spend(spending(run, 1, 1, Spent(10)))
    elsewhere = RunRef(ConversationKey(new_owner(), run.key.id), run.run_id)
    assert await store.spend(asked(elsewhere)) == NOTHING


@pytest.mark.promise("P11")
async def test_a_count_that_gets_too_large_to_be_exact_stays_where_it_is(store: Ledger) -> None:
    """It never becomes small, which would lift the owner's limit, even if a part is given back."""
    owner = new_owner()
    huge = Spent(10**30, cost=1e30)
    run = run_of(owner)
    most = await store.spend(spending(run, 1, 1, huge))
    assert most.tokens == 2**53 - 1
    assert await store.spend(spending(run_of(owner), 1, 1, huge)) == most
    assert await store.spend(spending(run_of(owner), 1, 1, Spent(5))) == most
    assert await store.spend(spending(run, 1, 2, NOTHING)) == most


async def test_another_worker_reads_the_same_count(store: Ledger, peer: Ledger) -> None:
    run = run_of(new_owner())
    tiny = Spent(2**40, 0.001, 0.000000001)
    await store.spend(spending(run, 1, 1, tiny))
    assert await peer.spend(asked(run)) == tiny


async def test_runs_that_count_at_the_same_time_lose_nothing(store: Ledger, peer: Ledger) -> None:
    owner = new_owner()
    runs = [run_of(owner) for _ in range(10)]
    await asyncio.gather(
        *(
            each.spend(spending(run, 1, seq, Spent(tokens)))
            for run in runs
            for seq, tokens in ((1, 4), (2, 2), (3, 3))
            for each in (store, peer)
        )
    )
    assert await store.spend(asked(runs[0])) == Spent(30)


@settings(examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    reports=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 4), st.integers(0, 9)),
        max_size=12,
    )
)
async def test_spending_is_the_sum_of_each_leases_newest_report(
    store: Ledger, reports: list[tuple[int, int, int, int]]
) -> None:
    """Reports may arrive in any order."""
    owner = new_owner()
    runs = [run_of(owner) for _ in range(3)]
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    for number, epoch, seq, tokens in reports:
        sum_of_day = await store.spend(spending(runs[number], epoch, seq, Spent(tokens)))
        if seq > newest.get((number, epoch), (0, 0))[0]:
            newest[number, epoch] = seq, tokens
        assert sum_of_day == Spent(sum(tokens for _, tokens in newest.values()))


async def test_counts_outlive_the_conversation(store: Ledger) -> None:
    key = new_key()
    run = RunRef(key, new_run())
    before = await store.spend(spending(run, 1, 1, Spent(10)))
    await store.delete(key)
    assert await store.spend(asked(run)) == before


@pytest.mark.redis
async def test_redis_keeps_counts_for_two_days(redis_url: str, shared_redis: RedisServer) -> None:
    async with open_ledger(redis_url) as opened:
        run = run_of(new_owner())
        await opened.spend(asked(run))
        assert shared_redis.command("KEYS", "*spent*") == []
        await opened.spend(spending(run, 1, 1, Spent(1)))
    names = shared_redis.command("KEYS", "*spent*")
    ends = {name.decode().partition("}:")[2].partition(":run-")[0] for name in names}
    assert ends == {f"spent:day:{DAY}", "spent:run"}
    lives = [int(shared_redis.command("PTTL", name)) for name in names]
    assert all(47 * 3600 * 1000 < left <= 48 * 3600 * 1000 for left in lives)
