"""Every interleaving of clients, workers that crash, and recovery keeps the promises.

The rules are pure, so a search plays them: crashes and ends of leases may come between any two
steps. A failure prints a shortest path to it.
"""

import pytest
from tests.model.checker import Search
from tests.model.scenes import SCENES, Lookout, lookouts_of_crashes, with_many_faults

LOOKOUTS = lookouts_of_crashes()
LEAST_STATES = 100_000
NIGHTLY_STATES = 5_000_000

pytestmark = [
    pytest.mark.promise("P2", "P5", "P6", "P8", "P9", "P10", "P15", "P16"),
    pytest.mark.timeout(1800),  # a search takes seconds, on a machine that has nothing else to do
]


@pytest.mark.parametrize("lookout", LOOKOUTS.values(), ids=LOOKOUTS)
def test_no_step_breaks_a_promise(lookout: Lookout) -> None:
    seen = lookout.search()

    assert seen.violation is None, str(seen.violation)
    assert seen.complete or seen.states == lookout.limit


def test_the_search_is_wide() -> None:
    assert sum(each.search().states for each in LOOKOUTS.values()) >= LEAST_STATES


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCENES)
def test_no_step_among_millions_breaks_a_promise(name: str) -> None:
    seen = Search(with_many_faults(SCENES[name])).run(NIGHTLY_STATES // len(SCENES))

    assert seen.violation is None, str(seen.violation)


def test_all_that_may_happen_is_played() -> None:
    """A search in which something never happens would prove nothing of it."""
    names = (
        "lost workers",
        "queued posts",
        "partial results",
        "rollbacks",
        "branches that wait",
        "switches",
        "claims",
    )
    played = frozenset[str]().union(*(LOOKOUTS[name].search().labels for name in names))

    for what in (
        "Begin applied",
        "Park applied",
        "Queue applied",
        "Cancel applied",
        "TakeOver applied",
        "FailLost applied",
        "commit applied",
        "end applied",
        "release applied",
        "text in the log",
        "comes too late",
        "write refused",
        "finds its lease lost",
        "renews its lease",
        "is told to end",
        "ResultConflict",
        "ConversationBusy",
        "a repeat",
        "(rollback): Queue",
        "after message -1 (reject): Begin",
        "after message 0 (interrupt): Queue",
        "switches to message 0",
        "claims a call",
        "releases a call",
        "CallClaimed",
        "it is not owed",
        "time passes",
        "crashes",
    ):
        assert any(what in label for label in played), what
