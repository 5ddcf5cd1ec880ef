"""Costs of a turn: they grow with what is shown behind the boundary, not with the record.

Counted in calls of our own functions, not in time.
"""

import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
from tests.support.ledgers import open_ledger
from tests.support.runs import KEY, QUICK, outcome, post, worker
from tests.support.runs import says as user
from tests.support.store_values import change
from typing_extensions import override

import passback
from passback.context.compaction import Compaction
from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.events import Completed
from passback.core.ids import new_message_id
from passback.core.messages import AssistantMessage, Message, UserMessage
from passback.core.state import State
from passback.models.scripted import ScriptedModel, Turn, calls, says
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


_OURS = str(Path(passback.__file__).parent)


class Calls:
    """The number of calls so far, in the thread of the event loop."""

    def __init__(self) -> None:
        self.made = 0

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            self.made += 1


@contextmanager
def counted_calls() -> Generator[Calls]:
    assert threading.current_thread() is threading.main_thread()
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls.profile)
    try:
        yield calls
    finally:
        sys.setprofile(before)


STILL = replace(QUICK, heartbeat=3600, log_delay=3600)
"""Nothing is done in the background."""


@tool(read_only=True)
async def look() -> str:
    return "seen"


class Watched(ScriptedModel):
    """Notes what had been called each time it is asked, and how many messages it was shown."""

    def __init__(self, script: Sequence[Turn], made: Calls) -> None:
        super().__init__(script)
        self.at: list[int] = []
        self._made = made

    @override
    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        self.at.append(self._made.made)
        async with super().stream(request) as batches:
            yield batches

    @property
    def shown(self) -> list[int]:
        return [len(request.messages) for request in self.requests]


def talk(messages: int) -> list[Message]:
    """A question, an answer, and so on."""
    return [
        (UserMessage if number % 2 == 0 else AssistantMessage)(
            new_message_id(KEY), f"word {number}"
        )
        for number in range(messages)
    ]


async def cost_of_a_post(record: int, behind: int) -> tuple[int, int]:
    """Return the calls before the model is asked, and the messages that it is shown."""
    async with open_ledger("memory:") as store:
        state = State(history_start=record - behind)
        assert await store.park(replace(change(KEY, 0, *talk(record)), state=state))
        with counted_calls() as made:
            model = Watched([says("so")], made)
            async with worker(store, model, timing=STILL, context=Compaction()) as runs:
                before = made.made
                assert await outcome(runs, await post(runs, user("and?"))) == Completed()
            return model.at[0] - before, model.shown[0]


async def test_a_post_costs_what_is_behind_the_boundary_not_what_the_record_has() -> None:
    short, long = await cost_of_a_post(60, 40), await cost_of_a_post(3_000, 40)
    assert abs(short[0] - long[0]) <= 2  # numbers of more digits
    assert short[1] == long[1] == 41
    # this count can tell: without the boundary all is read, and shown
    whole = await cost_of_a_post(3_000, 3_000)
    assert whole[1] == 3_001
    assert whole[0] > 10 * long[0]


async def test_a_post_costs_in_proportion_to_what_is_behind_the_boundary() -> None:
    one, two, four = [(await cost_of_a_post(n, n))[0] for n in (400, 800, 1_600)]
    assert four - two <= 2.1 * (two - one)


async def turns_of(turns: int) -> tuple[list[int], list[int]]:
    """Return each turn's calls since the turn before, and the number of messages that it shows."""
    async with open_ledger("memory:") as store:
        assert await store.park(replace(change(KEY, 0, *talk(500)), state=State(history_start=500)))
        with counted_calls() as made:
            model = Watched([*([calls(("look", {}))] * turns), says("so")], made)
            context = Compaction()
            async with worker(
                store, model, look, timing=STILL, context=context, max_turns=turns + 1
            ) as runs:
                assert await outcome(runs, await post(runs, user("go"))) == Completed()
        costs = [after - before for before, after in zip(model.at, model.at[1:], strict=False)]
        return costs, model.shown[1:]


async def test_each_turn_of_a_run_costs_in_proportion_to_what_is_behind_the_boundary() -> None:
    costs, shown = await turns_of(160)
    assert shown == [3 + 2 * turn for turn in range(160)]
    first, second, last = costs[19], costs[79], costs[159]
    assert second - first > 0
    # from the 20th turn to the 80th, and from there to the 160th: a line has 60 and 80 times the
    # same step
    assert last - second <= 1.1 * (second - first) * 80 / 60


# ---------------------------------------------------------------- memory that is left
def test_runs_that_are_over_leave_no_more_than_the_last_of_them() -> None:
    command = [sys.executable, "-m", "tests.unit.engine.leftover_objects"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    (completed, *how), (failed, *why) = (line.split() for line in said.splitlines())
    assert (how, why) == (["completed"], ["failed"])
    # loops that look at all runs still know the last one; twenty leave forty without care
    assert int(completed) < 10
    assert int(failed) < 10
