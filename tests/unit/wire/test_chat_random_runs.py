"""Whatever a run does, what clients of the chat socket are told adds up to its record."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import KEY, PAINT, record, worker
from tests.unit.engine.sub_agents import erase, helper
from tests.unit.wire.chat_watcher import Stop, Watcher, recorded_turns
from tests.unit.wire.random_turns import TURNS, answer, breaks, look

from passback.core.errors import UnknownMessage
from passback.core.messages import (
    UNNAMED,
    MessageId,
    Owed,
    PostedMessage,
    RunRef,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.core.questions import ASK_USER
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step
from passback.toolsets.agents import AgentTools
from passback.wire.chat.history import find_end_of_turn, project

pytestmark = pytest.mark.anyio

REACTIONS = st.lists(st.sampled_from(["answer", "deny", "go on", "close"]), min_size=3, max_size=3)
STOPS: st.SearchStrategy[list[Stop]] = st.lists(
    st.sampled_from(["rollback", "rollback", "interrupt", "cancel"]), max_size=3
)


async def _react(runs: RunService, owed: Sequence[Owed], reaction: str) -> RunRef | None:
    if reaction == "close" and owed:
        return await runs.close_calls(KEY)
    if reaction == "go on" or not owed:
        messages: tuple[PostedMessage, ...] = (UserMessage(UNNAMED, "and now?"),)
    else:
        messages = tuple(answer(each, reaction == "deny") for each in owed)
    started = await runs.start(StartRun(KEY, messages))
    assert isinstance(started, RunRef)
    return started


async def check_ends_of_turns(runs: RunService) -> None:
    """The messages up to the end of each turn have that turn, those before it, and no other."""
    messages = await record(runs)
    places = {message.id: place for place, message in enumerate(messages, 1)}
    turns = project(messages)
    for turn in turns:
        if turn["parent_fork_tool_call_id"] is None:
            end = await find_end_of_turn(runs, KEY, turn["sequence"])
            kept = [each["id"] for each in project(messages[: places[end]])]
            assert kept == [each["id"] for each in turns[: len(kept)]]
            roots = [each for each in turns[: len(kept)] if not each["parent_fork_tool_call_id"]]
            assert roots[-1] == turn
    with pytest.raises(UnknownMessage):
        await find_end_of_turn(runs, KEY, len(messages) + 1)


@examples(60)
@given(TURNS, TURNS, REACTIONS, STOPS)
async def test_patches_add_up_to_turns_and_turns_to_the_record(
    script: list[list[Step]], helpers: list[list[Step]], reactions: list[str], stops: list[Stop]
) -> None:
    model = ScriptedModel(script)
    agent = helper(ScriptedModel(helpers), look, erase)
    async with (
        open_ledger("memory:") as store,
        worker(
            store,
            model,
            look,
            breaks,
            erase,
            toolsets=[AgentTools([agent])],
            offers=[ASK_USER],
        ) as runs,
    ):
        watcher = Watcher(runs, stops)
        first = StartRun(KEY, (UserMessage(MessageId("u"), "go"),), (PAINT,))
        run: object = await runs.start(first)
        for reaction in [*reactions, ""]:
            assert isinstance(run, RunRef)
            await watcher.follow(run)
            assert watcher.client.kept == await recorded_turns(runs)
            if reaction:
                run = await _react(runs, (await runs.status(KEY)).owed, reaction)
        await check_ends_of_turns(runs)
