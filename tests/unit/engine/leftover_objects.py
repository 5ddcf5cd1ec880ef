"""A program that reports what ended runs leave to the garbage collector.

`python -m tests.unit.engine.leftover_objects`

It has no tests before it, and nothing that looks on.
"""

import asyncio
import gc
import sys

from tests.support.ledgers import open_ledger
from tests.support.runs import outcome, post, says, worker

from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.engine.log import RunLog
from passback.engine.spending import Meter
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words

RUNS = 20


async def left_by(model: ScriptedModel) -> tuple[int, set[str]]:
    """Return the number of a run's objects when all are over, and how the runs ended."""
    ends: set[str] = set()
    async with open_ledger("memory:") as store, worker(store, model) as runs:
        for number in range(RUNS):
            key = ConversationKey(OwnerId(""), ConversationId(f"c{number}"))
            ends.add((await outcome(runs, await post(runs, says(), key=key))).type)
        held = sum(type(each) in {RunLog, Meter} for each in gc.get_objects())
    return held, ends


async def main() -> None:
    gc.collect()
    gc.disable()
    nobody: list[Step] = [*calls(("nobody", {}))]
    for model in (ScriptedModel([words("one")] * RUNS), ScriptedModel([nobody] * 3 * RUNS)):
        held, ends = await left_by(model)
        sys.stdout.write(f"{held} {' '.join(ends)}\n")


if __name__ == "__main__":
    asyncio.run(main())
