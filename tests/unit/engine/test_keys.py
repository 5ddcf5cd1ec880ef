"""Posts recognised by their key or their messages' ids: a repeated post is one run (P8)."""

import itertools
from pathlib import Path

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.ledgers import open_ledger
from tests.support.runs import (
    ASK,
    KEY,
    OTHER,
    PAINT,
    at_once,
    call_ids,
    contents,
    followed,
    outcome,
    post,
    result,
    says,
    worker,
)

from passback.core.errors import Reused, StoreUnavailable
from passback.core.events import Completed
from passback.core.messages import ConversationKey, MessageId, RunRef, ToolMessage, UserMessage
from passback.core.posts import OnBusy, Parked, StartRun
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

_minted = itertools.count()


def keyed(
    text: str, key: str = "k", *, to: ConversationKey = KEY, on_busy: OnBusy = "reject"
) -> StartRun:
    """A post with a key; its message has another minted id each time."""
    message = UserMessage(MessageId(f"minted_{next(_minted)}"), text)
    return StartRun(to, (message,), idempotency_key=key, on_busy=on_busy)


def named(*texts: str, on_busy: OnBusy = "reject") -> StartRun:
    """A post of messages whose ids, the texts' first letters, were chosen by the client."""
    messages = tuple(UserMessage(MessageId(text[0]), text) for text in texts)
    return StartRun(
        KEY, messages, named=frozenset(message.id for message in messages), on_busy=on_busy
    )


async def start(runs: RunService, command: StartRun) -> RunRef:
    started = await runs.start(command)
    assert isinstance(started, RunRef)
    return started


# ---------------------------------------------------------------- keys
@pytest.mark.promise("P8")
async def test_a_post_with_the_same_key_follows_the_first_ones_run(store: Ledger) -> None:
    """While it goes on, after its end, after later runs, and at another worker."""
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")], words("two")])
    async with worker(store, model) as runs, worker(store, ScriptedModel([])) as other:
        run = await start(runs, keyed("a"))
        assert await start(runs, keyed("a")) == run
        assert await start(other, keyed("a")) == run
        gate.set()
        assert await outcome(runs, run) == Completed()
        whole = await followed(runs, run)
        assert await start(runs, keyed("a")) == run
        await outcome(runs, await post(runs, says("b")))
        assert await start(other, keyed("a")) == run
        assert await followed(other, run) == whole
        assert await contents(runs) == ["a", "one", "b", "two"]


@pytest.mark.promise("P8", "P12")
async def test_another_post_under_the_same_key_is_refused(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one")])) as runs:
        await outcome(runs, await start(runs, keyed("a")))
        before = await runs.status(KEY)
        with pytest.raises(Reused):
            await runs.start(keyed("b"))
        assert await runs.status(KEY) == before


async def test_a_key_is_known_in_its_conversation_only(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([words("one"), words("two")])) as runs:
        run = await start(runs, keyed("a"))
        other = await start(runs, keyed("b", to=OTHER))
        assert await outcome(runs, run) == await outcome(runs, other) == Completed()


@pytest.mark.parametrize("on_busy", ["reject", "enqueue", "interrupt", "rollback"])
@pytest.mark.promise("P8")
async def test_the_same_post_ten_times_at_once_and_once_after_the_end_is_one_run(
    tmp_path: Path, on_busy: OnBusy
) -> None:
    """Two workers stand for two processes; a repeat does not stop the run either."""
    url = f"sqlite:///{tmp_path}/shared.db"
    model = ScriptedModel([words("one")])
    async with (
        open_ledger(url) as one,
        open_ledger(url) as two,
        worker(one, model) as first,
        worker(two, model) as second,
    ):
        started: list[RunRef] = []
        logs: list[object] = []

        async def send(runs: RunService) -> None:
            run = await start(runs, keyed("a", on_busy=on_busy))
            started.append(run)
            logs.append(await followed(runs, run))

        async with at_once() as tasks:
            for runs in (first, second) * 5:
                tasks.start_soon(send, runs)
        await send(second)
        assert len(set(started)) == 1
        assert len(started) == 11
        assert logs == [logs[0]] * 11
        assert await contents(first) == ["a", "one"]
    assert len(model.requests) == 1


@pytest.mark.promise("P8", "P15")
async def test_a_post_whose_reply_was_lost_may_be_sent_again(store: Ledger) -> None:
    """It was stored, and nobody works on it: the repeat finds it, and its run is done."""
    faults = Faults(store)
    faults.plan["begin"] = ["lose reply"]
    async with worker(faults.store, ScriptedModel([words("one")])) as runs:
        with pytest.raises(StoreUnavailable):
            await runs.start(keyed("a"))
        await store.renew(faults.leases, lease=0)  # what time would do
        run = await start(runs, keyed("a"))
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "one"]


@pytest.mark.promise("P8", "P15")
async def test_a_queued_post_whose_reply_was_lost_may_be_sent_again(store: Ledger) -> None:
    faults = Faults(store)
    faults.plan["enqueue"] = ["lose reply"]
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")], words("two")])
    async with worker(faults.store, model) as runs:
        await post(runs, says("a"))
        with pytest.raises(StoreUnavailable):
            await runs.start(keyed("b", on_busy="enqueue"))
        run = await start(runs, keyed("b", on_busy="enqueue"))
        assert (await runs.status(KEY)).queued == (run.run_id,)
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "one", "b", "two"]


@pytest.mark.promise("P8")
async def test_a_post_that_waits_is_known_again_all_its_life(store: Ledger) -> None:
    gates = [anyio.Event(), anyio.Event()]
    model = ScriptedModel([[gates[0], *words("one")], [gates[1], *words("two")]])
    async with worker(store, model) as runs, worker(store, ScriptedModel([])) as other:
        first = await post(runs, says("a"))
        run = await start(runs, keyed("b", on_busy="enqueue"))
        for reader in (runs, other):
            assert await start(reader, keyed("b", on_busy="enqueue")) == run
            with pytest.raises(Reused):
                await reader.start(keyed("other", on_busy="enqueue"))
        gates[0].set()
        await outcome(runs, first)
        assert await start(other, keyed("b")) == run
        gates[1].set()
        assert await outcome(runs, run) == Completed()
        assert await start(other, keyed("b")) == run
        assert await contents(runs) == ["a", "one", "b", "two"]


@pytest.mark.promise("P8", "P9")
async def test_a_keyed_post_of_some_results_stays_known(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {}), ("ask", {})), words("done")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT, ASK]))
        one, two = await call_ids(runs)
        command = StartRun(KEY, (result(one),), idempotency_key="k")
        for _ in range(2):
            parked = await runs.start(command)
            assert isinstance(parked, Parked)
            assert [owing.id for owing in parked.owed] == [two]
        with pytest.raises(Reused):
            await runs.start(StartRun(KEY, (result(one, "other"),), idempotency_key="k"))
        run = await post(runs, result(two))
        assert await start(runs, command) == run
        assert await outcome(runs, run) == Completed()


# ---------------------------------------------------------------- named messages
@pytest.mark.promise("P8")
async def test_a_message_of_the_same_name_is_known_again(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")]])
    async with worker(store, model) as runs, worker(store, ScriptedModel([])) as other:
        run = await start(runs, named("a"))
        assert await start(other, named("a")) == run
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert await start(runs, named("a")) == run
        with pytest.raises(Reused):
            await runs.start(named("a, but changed"))
        assert await contents(other) == ["a", "one"]


async def test_of_known_and_new_messages_the_new_ones_are_added(store: Ledger) -> None:
    """A client that sends its whole list again."""
    model = ScriptedModel([words("one"), words("two")])
    async with worker(store, model) as runs:
        await outcome(runs, await start(runs, named("a")))
        run = await start(runs, named("a", "b", "c"))
        assert await outcome(runs, run) == Completed()
        assert await start(runs, named("a", "b", "c")) == run
        assert await contents(runs) == ["a", "one", "b", "c", "two"]


@pytest.mark.promise("P8")
async def test_named_messages_at_once_are_one_run(store: Ledger) -> None:
    model = ScriptedModel([words("one")])
    async with worker(store, model) as one, worker(store, model) as two:
        started: list[RunRef] = []

        async def send(runs: RunService) -> None:
            started.append(await start(runs, named("a", on_busy="enqueue")))

        async with at_once() as tasks:
            for runs in (one, two) * 5:
                tasks.start_soon(send, runs)
        assert len(set(started)) == 1
        assert await outcome(one, started[0]) == Completed()
        assert await contents(one) == ["a", "one"]
    assert len(model.requests) == 1


async def test_a_named_message_that_waits_is_known_again(memory: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")], words("two")])
    async with worker(memory, model) as runs:
        await post(runs, says("a"))
        run = await start(runs, named("b", on_busy="enqueue"))
        assert await start(runs, named("b", on_busy="interrupt")) == run
        with pytest.raises(Reused):
            await runs.start(named("bb", on_busy="enqueue"))
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "one", "b", "two"]


async def test_a_known_message_with_a_result_brings_only_the_result(memory: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), words("done")])
    async with worker(memory, model) as runs:
        command = named("a")
        declared = StartRun(KEY, command.messages, (PAINT,), named=command.named)
        await outcome(runs, await start(runs, declared))
        (call_id,) = await call_ids(runs)
        answer: tuple[UserMessage | ToolMessage, ...] = (*_users(command), result(call_id))
        run = await start(runs, StartRun(KEY, answer, named=command.named))
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "", "done", "done"]


def _users(command: StartRun) -> list[UserMessage]:
    return [message for message in command.messages if isinstance(message, UserMessage)]
