"""A conversation that goes on with another branch: what clients were told is the record."""

import pytest
from tests.support.ledgers import open_ledger
from tests.support.runs import KEY, PAINT, call_ids, post, record, result, says, worker
from tests.unit.wire.chat_watcher import Watcher, recorded_turns

from passback.core.messages import MessageId, RunRef
from passback.core.posts import StartRun
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


async def begin_after(runs: RunService, after: str, *texts: str) -> RunRef:
    messages = tuple(says(text, text) for text in texts)
    started = await runs.start(StartRun(KEY, messages, after=MessageId(after)))
    assert isinstance(started, RunRef)
    return started


async def test_clients_are_told_what_is_read_after_an_edit_or_a_switch() -> None:
    model = ScriptedModel([words(f"answer {number}") for number in range(8)])
    async with open_ledger("memory:") as store, worker(store, model) as runs:
        watcher = Watcher(runs)

        async def follow(run: RunRef) -> list[str]:
            await watcher.follow(run)
            assert watcher.client.kept == await recorded_turns(runs)
            return [
                block["content"]
                for turn in watcher.client.kept.values()
                for block in turn["blocks"]
            ]

        await follow(await post(runs, says("a", "a")))
        await follow(await post(runs, says("b", "b")))
        assert await follow(await begin_after(runs, "a")) == ["a", "answer 2"]
        assert await follow(await begin_after(runs, "", "x")) == ["x", "answer 3"]
        # an older branch is read again, and then another one
        await runs.switch(KEY, MessageId("b"))
        told = await follow(await post(runs, says("c", "c")))
        assert told == ["a", "answer 0", "b", "answer 1", "c", "answer 4"]
        assert await follow(await begin_after(runs, "x")) == ["x", "answer 5"]
        left = (await record(runs))[-1].id
        await runs.switch(KEY, MessageId("c"))
        await runs.switch(KEY, left)
        assert await follow(await post(runs, says("d", "d"))) == ["x", "answer 5", "d", "answer 6"]
        await runs.switch(KEY, MessageId("b"))
        told = await follow(await begin_after(runs, "b"))
        assert told == ["a", "answer 0", "b", "answer 7"]


async def test_clients_are_told_of_an_edit_behind_results() -> None:
    model = ScriptedModel([calls(("paint", {})), words("one"), words("two")])
    async with open_ledger("memory:") as store, worker(store, model) as runs:
        watcher = Watcher(runs)
        await watcher.follow(await post(runs, says("a", "a"), tools=[PAINT]))
        [call_id] = await call_ids(runs)
        await watcher.follow(await post(runs, result(call_id, "painted", "t")))
        [painted] = [each.id for each in await record(runs) if each.role == "tool"]
        await watcher.follow(await begin_after(runs, painted))
        assert watcher.client.kept == await recorded_turns(runs)
        assert [turn["blocks"] for turn in watcher.client.kept.values()][-1] == [
            {"type": "text", "content": "two"}
        ]
