"""Random writes have the same answers, and leave the same, in each store as in memory.

DOOR_WRITES says how many there are on each kind, DOOR_SEED walks again what a failure has named.
"""

import os
from typing import TYPE_CHECKING

import pytest
from tests.contract.door.random_writes import RandomWrites
from tests.support.lanes import rounds

from passback.stores.memory import MemoryStore
from passback.stores.options import StoreOptions

if TYPE_CHECKING:
    from tests.contract.door.conftest import Doors

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P15", "P16")]

SETTINGS = {
    "large": StoreOptions(),
    "small": StoreOptions(log_bytes=400),
    "brief": StoreOptions(log_bytes=400, ttl=0.0001, log_ttl=0.0001),
}
COUNT = int(os.environ.get("DOOR_WRITES") or rounds(2000, nightly=50_000))
PER_WALK = 200  # writes
WALKS = -(-COUNT // (PER_WALK * len(SETTINGS)))
SEEDS = [int(os.environ["DOOR_SEED"])] if "DOOR_SEED" in os.environ else range(WALKS)


@pytest.mark.timeout(60 + COUNT / 20)
@pytest.mark.parametrize("settings", SETTINGS)
async def test_random_writes_leave_what_they_leave_in_memory(doors: "Doors", settings: str) -> None:
    options = SETTINGS[settings]
    other = await doors.open(options)
    async with MemoryStore(options) as reference:
        for seed in SEEDS:
            with RandomWrites(reference, other, seed, has_hints=doors.kind.has_hints) as walk:
                await walk.walk(PER_WALK)
