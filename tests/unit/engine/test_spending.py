"""What a run used is told of once, whoever told of it and in whatever order."""

from collections.abc import Sequence

import pytest

from passback.core.changes import Lease
from passback.core.events import UsageReported
from passback.core.limits import Budget, Price
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId, RunRef, Usage
from passback.core.ports import Store
from passback.core.state import State
from passback.engine.spending import Meter

pytestmark = pytest.mark.anyio

WHOLE, CUT, NOTHING = Usage(3, 2), Usage(10, 5, estimated=True), Usage()


@pytest.mark.parametrize(
    ("told", "rest"),
    [
        ([], [UsageReported(WHOLE + CUT)]),
        ([WHOLE], [UsageReported(CUT)]),
        ([CUT, WHOLE], []),
        ([WHOLE, CUT], []),
        ([NOTHING, WHOLE, CUT], []),
    ],
)
async def test_the_rest_is_what_no_event_told_of(
    memory: Store, told: Sequence[Usage], rest: Sequence[UsageReported]
) -> None:
    run = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("r"))
    meter = Meter(Budget(), State(), Lease(run, 1, "fence"), memory)
    for usage in (None, NOTHING, WHOLE, CUT):
        meter.add(usage, Price())
    for usage in told:
        meter.with_left([UsageReported(usage)], 1)
    assert list(meter.untold()) == rest
