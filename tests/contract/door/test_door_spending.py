"""Spending: each lease counts once for its owner and day, whatever is repeated."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.door.writes import made, new_owner
from tests.support.lanes import examples

from passback.core.conversation.store import Amounts, SpentUnder, Store
from passback.core.messages import OwnerId

pytestmark = pytest.mark.anyio

DAY, NEXT = "2026-01-31", "2026-02-01"
NOTHING = Amounts(0, 0, 0)
MOST = 2**53 - 1

_leases = count(1)


def new_lease() -> str:
    return f"run-{next(_leases)}:1"


def report(owner: OwnerId, lease: str, seq: int, *amounts: int, day: str = DAY) -> SpentUnder:
    tokens, milliseconds, billionths = (*amounts, 0, 0, 0)[:3]
    return SpentUnder(owner, day, lease, Amounts(tokens, milliseconds, billionths), seq)


async def total(store: Store, owner: OwnerId, day: str = DAY) -> Amounts:
    return await store.spend(report(owner, "nobody", 0, day=day))


async def test_leases_of_an_owner_add_up_with_their_last_reports(door: Store) -> None:
    owner, one, other = new_owner(), new_lease(), new_lease()
    assert await total(door, owner) == NOTHING
    assert await door.spend(report(owner, one, 1, 10, 1500, 25)) == (10, 1500, 25)
    assert await door.spend(report(owner, other, 1, 5, 500)) == (15, 2000, 25)
    assert await door.spend(report(owner, one, 2, 30, 2000, 50)) == (35, 2500, 50)
    assert await total(door, owner) == Amounts(35, 2500, 50)


async def test_what_was_reserved_is_given_back(door: Store) -> None:
    """The last that a lease reports may be less; of each amount by itself."""
    owner, one, other = new_owner(), new_lease(), new_lease()
    await door.spend(report(owner, other, 1, 5, 500, 50))
    assert await door.spend(report(owner, one, 1, 90, 1000, 50)) == (95, 1500, 100)
    assert await door.spend(report(owner, one, 2, 20, 2000, 25)) == (25, 2500, 75)
    assert await door.spend(report(owner, one, 3)) == (5, 500, 50)


@pytest.mark.promise("P15")
async def test_a_report_that_arrives_again_or_late_changes_nothing(door: Store) -> None:
    owner, lease = new_owner(), new_lease()
    first, second = report(owner, lease, 1, 30, 4, 5), report(owner, lease, 2, 20, 5, 2)
    for each in (first, first, second, first, second):
        await door.spend(each)
    assert await door.spend(first) == second.amounts
    assert await door.spend(replace(second, amounts=Amounts(99, 99, 99))) == second.amounts
    assert await door.spend(report(owner, lease, 0, 99)) == second.amounts
    assert await total(door, owner) == second.amounts


async def test_each_day_counts_its_own_spending_and_never_less_than_nothing(door: Store) -> None:
    owner, lease = new_owner(), new_lease()
    await door.spend(report(owner, lease, 1, 10, 0, 5))
    assert await door.spend(report(owner, lease, 2, 14, 0, 5, day=NEXT)) == (4, 0, 0)
    assert await total(door, owner) == Amounts(10, 0, 5)
    assert await door.spend(report(owner, lease, 3, 1, day=NEXT)) == NOTHING
    assert await total(door, owner) == Amounts(10, 0, 5)


async def test_owners_do_not_count_for_each_other(door: Store) -> None:
    one, other, lease = new_owner(), new_owner(), new_lease()
    await door.spend(report(one, lease, 1, 10))
    assert await total(door, other) == NOTHING
    assert await door.spend(report(other, lease, 1, 3)) == (3, 0, 0)
    assert await total(door, one) == Amounts(10, 0, 0)


@pytest.mark.promise("P11")
async def test_a_total_that_is_too_large_to_be_exact_stays_where_it_is(door: Store) -> None:
    """It never becomes small, which would lift the owner's limit, even if a part is given back."""
    owner, lease = new_owner(), new_lease()
    huge = report(owner, lease, 1, MOST, 7, MOST - 1)
    assert await door.spend(huge) == (MOST, 7, MOST - 1)
    assert await door.spend(report(owner, new_lease(), 1, MOST, MOST, 1)) == (MOST, MOST, MOST)
    assert await door.spend(report(owner, new_lease(), 1, 5, 5, 5)) == (MOST, MOST, MOST)
    assert await door.spend(report(owner, lease, 2)) == (MOST, MOST, MOST)


async def test_another_worker_reads_the_same_total(door: Store, peer: Store) -> None:
    owner = new_owner()
    await door.spend(report(owner, new_lease(), 1, 2**40, 1, 3))
    assert await total(peer, owner) == Amounts(2**40, 1, 3)


async def test_leases_that_report_at_the_same_time_lose_nothing(door: Store, peer: Store) -> None:
    owner, leases = new_owner(), [new_lease() for _ in range(10)]
    await asyncio.gather(
        *(
            each.spend(report(owner, lease, seq, tokens))
            for lease in leases
            for seq, tokens in ((1, 4), (2, 2), (3, 3))
            for each in (door, peer)
        )
    )
    assert await total(door, owner) == Amounts(30, 0, 0)


@settings(examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    reports=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 9)), max_size=12
    )
)
async def test_a_total_is_the_sum_of_each_leases_newest_report(
    door: Store, reports: list[tuple[int, int, int]]
) -> None:
    """Reports may arrive in any order."""
    owner, leases = new_owner(), [new_lease() for _ in range(3)]
    newest: dict[int, tuple[int, int]] = {}
    for number, seq, tokens in reports:
        answer = await door.spend(report(owner, leases[number], seq, tokens))
        if seq > newest.get(number, (0, 0))[0]:
            newest[number] = seq, tokens
        assert answer == Amounts(sum(tokens for _, tokens in newest.values()), 0, 0)


async def test_totals_outlive_the_conversation(door: Store) -> None:
    owner = new_owner()
    key = await made(door, owner=owner)
    await door.spend(report(owner, new_lease(), 1, 10))
    await door.delete(key)
    assert await total(door, owner) == Amounts(10, 0, 0)


@pytest.mark.parametrize("name", ["naïve 会話", "a:b", "x" * 1000, "\ud800"])
async def test_names_are_any_text(door: Store, name: str) -> None:
    owner = OwnerId(f"{new_owner()}{name}")
    assert await door.spend(report(owner, f"run:{new_lease()}", 1, 3)) == (3, 0, 0)
    assert await total(door, owner) == Amounts(3, 0, 0)
