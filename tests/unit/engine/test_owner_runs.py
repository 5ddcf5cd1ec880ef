"""How many runs one owner may have in a process."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    KEY,
    OTHER,
    QUICK,
    RECOVERING,
    at_once,
    followed,
    post,
    reply,
    says,
    worker,
)

from passback.core.changes import Status
from passback.core.errors import StoreFull, TooManyRuns
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunRef
from passback.core.ports import Store
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

ELSEWHERE = ConversationKey(OwnerId("another"), ConversationId("conversation"))


def conversations(count: int) -> list[ConversationKey]:
    return [ConversationKey(KEY.owner, ConversationId(f"c{n}")) for n in range(count)]


async def test_posts_beyond_an_owners_runs_are_refused_and_nothing_is_stored(store: Store) -> None:
    """Three at once where two have room, and another owner has room of its own; scaled down from 500."""
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")]] * 4)
    begun: list[RunRef] = []
    refused: list[ConversationKey] = []

    async def try_to_post(runs: RunService, key: ConversationKey) -> None:
        try:
            begun.append(await post(runs, says(), key=key))
        except TooManyRuns:
            refused.append(key)

    async with worker(store, model, timing=replace(QUICK, owner_runs=2)) as runs:
        async with at_once() as tasks:
            for key in conversations(3):
                tasks.start_soon(try_to_post, runs, key)
        assert (len(begun), len(refused)) == (2, 1)
        assert await store.status(refused[0]) == Status()
        await post(runs, says(), key=ELSEWHERE)
        gate.set()
        for run in begun:
            await followed(runs, run)
        await post_until_it_begins(runs, refused[0])


async def post_until_it_begins(runs: RunService, key: ConversationKey) -> RunRef:
    while True:
        try:
            return await post(runs, says(), key=key)
        except TooManyRuns:
            await anyio.lowlevel.checkpoint()


async def test_a_run_that_could_not_begin_takes_no_room(memory: Store) -> None:
    faults = Faults(memory)
    faults.plan["begin"] = ["full"]
    async with worker(
        faults.store, ScriptedModel([words("hi")]), timing=replace(QUICK, owner_runs=1)
    ) as runs:
        with pytest.raises(StoreFull):
            await post(runs, says())
        assert await reply(runs, says()) == "hi"


async def test_runs_that_are_taken_over_or_were_queued_count_and_are_not_refused(
    store: Store,
) -> None:
    """A worker with room for one run takes over two, one of them with a post behind it."""
    gate, both, held = anyio.Event(), anyio.Event(), anyio.Event()
    async with killable_worker(store, ScriptedModel([["on", gate], ["on", gate]])) as dying:
        lost = [await post(dying.runs, says(), key=key) for key in (KEY, OTHER)]
        queued = await post(dying.runs, says("more"), on_busy="enqueue")
        await dying.kill()
    over = [both, *words("taken over")]
    model = ScriptedModel([over, over, ["queued", held]])
    async with worker(store, model, timing=replace(RECOVERING, owner_runs=1)) as runs:
        while model.open_streams < 2:
            await anyio.lowlevel.checkpoint()
        both.set()
        for run in lost:
            await followed(runs, run)
        while (await store.status(KEY)).run_id != queued.run_id:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(TooManyRuns):
            await post(runs, says(), key=OTHER)
        held.set()
        await followed(runs, queued)
