"""Whatever a run does, the events of its response add up to its end, to a replay, and to the record.

What the record does not keep is left out: thoughts of a turn that was lost, and why a call was
stopped.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import KEY, PAINT, followed, worker
from tests.unit.engine.sub_agents import erase, helper
from tests.unit.wire.random_turns import HANG, ODD, WHOLE, answer, breaks, look
from tests.unit.wire.responses_events import (
    Json,
    added_up,
    encoder,
    event_of,
    events_of,
    framer,
    frames_of,
    note,
    numbers_of,
    streamed,
)

from passback.core.events import Logged, TextDelta, innermost_event
from passback.core.messages import UNNAMED, MessageContext, MessageId, Owed, RunRef, UserMessage
from passback.core.posts import StartRun
from passback.core.questions import ASK_USER
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, says
from passback.native.earlier import Calls, earlier_calls
from passback.toolsets.agents import AgentTools
from passback.wire.responses.record import read_run, recorded_response

pytestmark = pytest.mark.anyio

OBJECT = {"type": "object", "properties": {"a": {"type": "number"}}}
ASKED = {
    "free": note(),
    "json": note(text={"format": {"type": "json_schema", "name": "n", "schema": OBJECT}}),
}
JSON = st.builds(
    lambda text: says(*text),
    st.sampled_from([['{"a"', ": 1}"], ['```json\n{"a": 2}\n', "```"], ['{"a": "no"}'], ["{}"]]),
)
TURNS = st.lists(WHOLE | WHOLE | JSON | ODD, min_size=1, max_size=6)
REACTIONS = st.lists(st.sampled_from(["answer", "deny", "go on"]), min_size=2, max_size=2)


class Reader:
    """Reads each response live, in the batches in which it comes, and compares."""

    def __init__(self, runs: RunService, asked: Json) -> None:
        self.runs = runs
        self.asked = asked

    async def read(self, run: RunRef) -> None:
        known = await earlier_calls(self.runs, run)
        one = framer(encoder(run_id=run.run_id, note=self.asked, known=known), run.run_id)
        text = ""
        async with self.runs.follow(run) as batches:
            async for batch in batches:
                text += one.frame_batch(batch)
                if any(innermost_event(each.event) == TextDelta(HANG) for each in batch):
                    await self.runs.cancel(run)
        text += one.end_frames()
        final = added_up(events_of(text))
        await self._check_replays(run, text, known)
        found = await read_run(self.runs, run)
        check_record(final, recorded_response(found, self.asked, ()))

    async def _check_replays(self, run: RunRef, text: str, known: Calls) -> None:
        log = await followed(self.runs, run)
        frames = frames_of(text)

        def replay(after: int, log: Sequence[Logged]) -> str:
            return streamed(log, after, run_id=run.run_id, note=self.asked, known=known)

        for after in range(-1, len(frames) - 1):
            assert frames_of(replay(after, log)) == frames[after + 1 :]
        assert numbers_of(map(event_of, frames[:-1])) == list(range(len(frames) - 1))


def check_record(final: Json, recorded: Json) -> None:
    """The record gives the response of the stream, but for what it does not keep."""
    loose = {"output", "usage"}
    assert {k: v for k, v in final.items() if k not in loose} == {
        k: v for k, v in recorded.items() if k not in loose
    }
    kept = {each["id"] for each in recorded["output"]}
    shown = [
        each
        for each in final["output"]
        if each["type"] not in {"reasoning", "mcp_call"} or each["id"] in kept
    ]
    begun = {each["id"] for each in final["output"]}
    # calls that were stopped before they began have a result in the record
    stopped = final["status"] in {"cancelled", "failed"}
    told = [each for each in recorded["output"] if not stopped or each["id"] in begun]
    assert comparable(shown, stopped=stopped) == comparable(told, stopped=stopped)


def comparable(items: Sequence[Json], *, stopped: bool) -> list[Json]:
    """Items in their order, but calls of the server at once, which end in any order, by their ids.

    `stopped`: why a call has failed does not count.
    """
    made = sorted((each for each in items if each["type"] == "mcp_call"), key=lambda one: one["id"])
    if stopped:
        made = [{**each, "error": each["error"] and "stopped"} for each in made]
    return [*(each for each in items if each["type"] != "mcp_call"), *made]


async def react(runs: RunService, owed: Sequence[Owed], reaction: str, asked: Json) -> RunRef:
    if reaction == "go on" or not owed:
        command = StartRun(KEY, (question("and now?", asked),))
    else:
        command = StartRun(KEY, tuple(answer(each, reaction == "deny") for each in owed))
    started = await runs.start(command)
    assert isinstance(started, RunRef)
    return started


def question(text: str, asked: Json) -> UserMessage:
    schema = asked["text"]["format"].get("schema")
    return UserMessage(
        MessageId("u") if text == "go" else UNNAMED,
        text,
        context=MessageContext(output_schema=schema),
    )


@examples(40)
@given(TURNS, TURNS, REACTIONS, st.sampled_from([*ASKED]))
async def test_events_add_up_to_the_end_the_replay_and_the_record(
    script: list[list[Step]], helpers: list[list[Step]], reactions: list[str], form: str
) -> None:
    asked = ASKED[form]
    agent = helper(ScriptedModel(helpers), look, erase)
    async with (
        open_ledger("memory:") as store,
        worker(
            store,
            ScriptedModel(script),
            look,
            breaks,
            erase,
            toolsets=[AgentTools([agent])],
            offers=[ASK_USER],
        ) as runs,
    ):
        reader = Reader(runs, asked)
        run = await runs.start(StartRun(KEY, (question("go", asked),), (PAINT,)))
        for reaction in [*reactions, ""]:
            assert isinstance(run, RunRef)
            await reader.read(run)
            if reaction:
                run = await react(runs, (await runs.status(KEY)).owed, reaction, asked)
