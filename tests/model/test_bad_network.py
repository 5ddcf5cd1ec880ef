"""Answers of the store that are lost, and writes that come late, break no promise."""

import pytest
from tests.model.scenes import Lookout, lookouts_of_networks

LOOKOUTS = lookouts_of_networks()

pytestmark = [
    pytest.mark.promise("P2", "P5", "P6", "P8", "P9", "P10", "P15", "P16"),
    pytest.mark.timeout(1800),  # a search takes seconds, on a machine that has nothing else to do
]


@pytest.mark.parametrize("lookout", LOOKOUTS.values(), ids=LOOKOUTS)
def test_no_step_breaks_a_promise(lookout: Lookout) -> None:
    seen = lookout.search()

    assert seen.violation is None, str(seen.violation)
    assert seen.complete or seen.states == lookout.limit


def test_all_that_may_happen_is_played() -> None:
    names = ("lost workers", "lost workers, crashes")
    played = frozenset[str]().union(*(LOOKOUTS[name].search().labels for name in names))

    for what in (
        "Begin applied, its answer lost",
        "Begin known",
        "TakeOver applied, its answer lost",
        "late Begin arrives",
        "late TakeOver arrives",
        "late commit arrives",
        "late end arrives",
        "late text arrives",
        "end applied, its answer lost",
    ):
        assert any(what in label for label in played), what
