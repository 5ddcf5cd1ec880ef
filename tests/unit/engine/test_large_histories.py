"""Conversations that became large: what is still taken, and how often they are loaded."""

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import killable_worker
from tests.support.runs import (
    KEY,
    OTHER,
    PAINT,
    QUICK,
    RECOVERING,
    at_once,
    call_ids,
    followed,
    outcome,
    post,
    record,
    reply,
    result,
    says,
    until,
    worker,
)
from tests.support.waiting import moment

from passback.core.changes import LoadedConversation, Status
from passback.core.errors import (
    ConversationBusy,
    HistoryTooLarge,
    NothingToDo,
    ResultConflict,
    Reused,
    ServerBusy,
    UnknownToolCall,
)
from passback.core.events import Completed, HandedBack, TextDelta
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    MessageId,
    OwnerId,
    RunRef,
)
from passback.core.posts import StartRun
from passback.engine.commands import Commands
from passback.engine.ledger import Ledger
from passback.engine.loading import LARGE_HISTORY_BYTES, ConversationLoader
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

LIMIT = 40_000
SMALL = replace(QUICK, history_bytes=LIMIT)
"""A worker for small conversations: scaled down from 32 MiB."""

COMMANDS = Commands(enabled=True)


class Watched:
    """A store that notes how it is asked for conversations.

    Attributes:
        most_at_once: loads of one conversation that overlapped.
        most_whole: loads of whatever size, of any conversation, that overlapped.
        brought: how many messages came with each load.
    """

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self._loading: Counter[ConversationKey] = Counter()
        self._whole = 0
        self.most_at_once = 0
        self.most_whole = 0
        self.brought: list[int] = []

    @property
    def store(self) -> Ledger:
        return cast("Ledger", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, key: ConversationKey, /, **how: Any) -> LoadedConversation:
        is_whole = how.get("within") is None
        self._loading[key] += 1
        self._whole += is_whole
        self.most_at_once = max(self.most_at_once, *self._loading.values())
        self.most_whole = max(self.most_whole, self._whole)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        try:
            loaded = await self._store.load(key, **how)
        finally:
            self._loading[key] -= 1
            self._whole -= is_whole
        self.brought.append(len(loaded.messages))
        return loaded


async def fill(runs: RunService, size: int, key: ConversationKey = KEY) -> None:
    """A conversation of so many bytes, or some more."""
    await followed(runs, await post(runs, says("x" * size, "filling"), key=key))


# ---------------------------------------------------------------- the limit
async def test_a_post_too_large_for_its_history_is_refused_until_cleared(store: Ledger) -> None:
    model = ScriptedModel([words("hi")] * 2)
    async with worker(store, model, timing=SMALL, commands=COMMANDS) as runs:
        await fill(runs, LIMIT // 2)
        before = await record(runs), await store.status(KEY)
        for on_busy in ("reject", "enqueue"):
            with pytest.raises(HistoryTooLarge, match="post /clear") as refused:
                await post(runs, says("y" * (LIMIT // 2), "y"), on_busy=on_busy)
            assert refused.value.details == {"limit": LIMIT}
        assert (await record(runs), await store.status(KEY)) == before
        assert await outcome(runs, await post(runs, says("/clear", "clear"))) == Completed()
        assert await reply(runs, says("y" * (LIMIT // 2), "y")) == "hi"


async def test_a_first_post_that_is_too_large_begins_no_conversation(store: Ledger) -> None:
    async with worker(store, ScriptedModel([]), timing=SMALL) as runs:
        with pytest.raises(HistoryTooLarge, match=r"begin a new one$"):
            await post(runs, says("x" * LIMIT))
        assert await store.status(KEY) == Status()


async def test_results_that_have_no_room_are_refused_and_the_way_out_is_open(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {}), ("paint", {})), words("hi")])
    async with worker(store, model, timing=SMALL, commands=COMMANDS) as runs:
        run = await post(runs, says("x" * (LIMIT // 2)), tools=[PAINT])
        ended = await outcome(runs, run)
        assert isinstance(ended, HandedBack)
        for owed in ended.owed:
            with pytest.raises(HistoryTooLarge):
                await runs.start(StartRun(KEY, (result(owed.id, "y" * (LIMIT // 2)),)))
        assert len((await store.status(KEY)).owed) == 2
        assert await outcome(runs, await post(runs, says("/clear", "clear"))) == Completed()
        assert await reply(runs, says("more", "m")) == "hi"


async def test_what_waits_counts_too(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")], words("two")])
    async with worker(store, model, timing=SMALL) as runs:
        going_on = await post(runs, says("a"))
        queued = await post(runs, says("x" * (LIMIT // 2), "x"), on_busy="enqueue")
        with pytest.raises(HistoryTooLarge):
            await post(runs, says("y" * (LIMIT // 2), "y"), on_busy="enqueue")
        gate.set()
        await followed(runs, going_on)
        assert await outcome(runs, queued) == Completed()


async def test_a_large_command_needs_room_as_any_message(memory: Ledger) -> None:
    async with worker(
        memory, ScriptedModel([words("hi")]), timing=SMALL, commands=COMMANDS
    ) as runs:
        await fill(runs, LIMIT - 2_000)
        for text in ("/help", "/clear " + "x" * 5_000):
            with pytest.raises(HistoryTooLarge):
                await post(runs, says(text + "x" * 2_000 * (text == "/help"), "large"))


async def test_a_run_goes_on_however_large_its_conversation_becomes(store: Ledger) -> None:
    """A worker that takes it over goes on, too; only the next post is refused."""
    gate = anyio.Event()
    async with killable_worker(store, ScriptedModel([["on", gate]]), timing=SMALL) as dying:
        run = await post(dying.runs, says("x" * (LIMIT // 2)))
        await until(dying.runs, run, TextDelta)
        await dying.kill()
    model = ScriptedModel([words("y" * LIMIT)])
    seeking = replace(RECOVERING, history_bytes=LIMIT)
    async with worker(store, model, timing=seeking, commands=COMMANDS) as runs:
        assert await outcome(runs, run) == Completed()
        with pytest.raises(HistoryTooLarge):
            await post(runs, says("more", "m"))
        assert len((await runs.messages(KEY, start=0, limit=10)).messages) == 2
        await runs.delete(KEY)


# ---------------------------------------------------------------- loading
async def test_posts_load_a_conversation_one_at_a_time(store: Ledger) -> None:
    """Eight small posts were eight times the history in memory at once."""
    watched = Watched(store)
    gate = anyio.Event()
    refused: list[str] = []

    async def try_to_post(runs: RunService) -> None:
        try:
            await post(runs, says("more", "m"))
        except ConversationBusy as error:
            refused.append(error.code)

    async with worker(watched.store, ScriptedModel([[gate, *words("hi")]])) as runs:
        run = await post(runs, says())
        async with at_once() as tasks:
            for _ in range(8):
                tasks.start_soon(try_to_post, runs)
        gate.set()
        await followed(runs, run)
    assert refused == ["conversation_busy"] * 8
    assert (len(watched.brought), watched.most_at_once) == (8, 1)


async def stored(store: Ledger, key: ConversationKey = KEY) -> Watched:
    """A conversation with a large history, and a store that notes how it is loaded."""
    async with worker(store, ScriptedModel([words("hi")])) as runs:
        await fill(runs, LARGE_HISTORY_BYTES, key)
    return Watched(store)


async def test_what_receipts_say_of_a_large_conversation_loads_no_message(store: Ledger) -> None:
    gate = anyio.Event()
    two_calls = calls(("paint", {}), ("paint", {}))
    model = ScriptedModel([two_calls, [gate, *words("hi")]])
    watched = await stored(store)
    async with worker(watched.store, model) as runs:
        keyed = StartRun(KEY, (says("paint", "p"),), (PAINT,), "key", frozenset({MessageId("p")}))
        run = await runs.start(keyed)
        assert isinstance(run, RunRef)
        ended = await outcome(runs, run)
        assert isinstance(ended, HandedBack)
        first, second = (owed.id for owed in ended.owed)
        parked = await runs.start(StartRun(KEY, (result(first),)))
        watched.brought.clear()

        unkeyed = replace(keyed, idempotency_key=None)
        assert [await runs.start(each) for each in (keyed, unkeyed)] == [run, run]
        assert await runs.start(StartRun(KEY, (result(first),))) == parked
        refusals: list[tuple[type[Exception], StartRun]] = [
            (NothingToDo, StartRun(KEY, ())),
            (NothingToDo, StartRun(KEY, (), continues=True)),
            (Reused, replace(keyed, messages=(says("other", "p"),))),
            (Reused, replace(unkeyed, messages=(says("other", "p"),))),
            (ResultConflict, StartRun(KEY, (result(first, "other"),))),
            (UnknownToolCall, StartRun(KEY, (result(CallId("never")),))),
        ]
        for error, refused in refusals:
            with pytest.raises(error):
                await runs.start(refused)
        assert sum(watched.brought) == 0

        last = await runs.start(StartRun(KEY, (result(second),)))
        assert isinstance(last, RunRef)
        watched.brought.clear()
        assert await runs.start(StartRun(KEY, (result(first),))) == last
        with pytest.raises(ConversationBusy):
            await post(runs, says("more", "m"))
        assert sum(watched.brought) == 0
        gate.set()
        assert await outcome(runs, last) == Completed()


async def test_what_receipts_do_not_say_is_judged_by_the_messages(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")], words("two"), words("three")])
    watched = await stored(store)
    async with worker(watched.store, model) as runs:
        run = await post(runs, says("more", "m"))
        resent = StartRun(KEY, (says("more", "n"), says("and more", "o")), resends=True)
        with pytest.raises(ConversationBusy):
            await runs.start(resent)
        with pytest.raises(UnknownToolCall):
            await runs.start(StartRun(KEY, (result(CallId("never")),)))
        queued = await post(runs, says("later", "l"), on_busy="enqueue")
        gate.set()
        await followed(runs, run)
        assert await outcome(runs, queued) == Completed()
        assert await reply(runs, says("last", "z")) == "three"
    assert watched.most_at_once == 1


async def test_a_post_takes_over_a_large_conversation(store: Ledger) -> None:
    await stored(store)
    async with killable_worker(store, ScriptedModel([["on", anyio.Event()]])) as dying:
        lost = await post(dying.runs, says("more", "m"))
        await until(dying.runs, lost, TextDelta)
        await dying.kill()
    gate = anyio.Event()
    async with worker(store, ScriptedModel([[gate, *words("on")]])) as runs:
        with pytest.raises(ConversationBusy):
            await post(runs, says("again", "a"))
        gate.set()
        assert await outcome(runs, lost) == Completed()


async def test_what_is_too_large_already_is_not_loaded_to_refuse_a_post(store: Ledger) -> None:
    watched = await stored(store)
    timing = replace(QUICK, history_bytes=LARGE_HISTORY_BYTES)
    model = ScriptedModel([words("hi")])
    async with worker(watched.store, model, timing=timing, commands=COMMANDS) as runs:
        for text in ("more", "/help"):
            with pytest.raises(HistoryTooLarge):
                await post(runs, says(text, "m"))
        assert sum(watched.brought) == 0
        assert await outcome(runs, await post(runs, says("/clear", "clear"))) == Completed()
        assert await reply(runs, says("more", "m")) == "hi"


async def test_a_large_conversation_whose_answers_are_overdue_goes_on_without(
    store: Ledger,
) -> None:
    """Recovery loads no messages to see that there is nothing to do."""
    watched = await stored(store)
    timing = replace(QUICK, tool_timeout=0.001)
    model = ScriptedModel([calls(("paint", {})), words("without")])
    async with worker(watched.store, model, timing=timing) as runs:
        await followed(runs, await post(runs, says("paint", "p"), tools=[PAINT]))
        while (await runs.status(KEY)).owed or (await runs.status(KEY)).running:
            await moment()
        assert len(model.requests) == 2


async def test_a_post_that_waits_for_what_is_owed_loads_no_large_conversation(
    store: Ledger,
) -> None:
    """Not when the run before it ends, either: there is nothing to do yet."""
    watched, gate = await stored(store), anyio.Event()
    model = ScriptedModel([[gate, *calls(("paint", {}))], words("painted"), words("more")])
    async with worker(watched.store, model) as runs:
        first = await post(runs, says("paint", "p"), tools=[PAINT])
        queued = await post(runs, says("more", "m"), on_busy="enqueue")
        watched.brought.clear()
        gate.set()
        await followed(runs, first)
        while not watched.brought:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert sum(watched.brought) == 0
        [paint] = await call_ids(runs)
        await outcome(runs, await post(runs, result(paint, "blue")))
        await followed(runs, queued)
    assert len(model.requests) == 3


# ---------------------------------------------------------------- turns
async def test_waiting_too_long_for_other_loads_is_a_retryable_error(memory: Ledger) -> None:
    loads = ConversationLoader(memory, timeout=0.01)
    with anyio.fail_after(10):
        async with loads.locked(KEY):
            with pytest.raises(ConversationBusy):
                await enter(loads.locked(KEY))
            await enter(loads.locked(OTHER))
        await enter(loads.locked(KEY))
        async with loads.load_whole(KEY):
            with pytest.raises(ServerBusy):
                await enter(loads.load_whole(OTHER))
        await enter(loads.load_whole(OTHER))


async def test_an_owner_keeps_no_other_from_reading_a_large_conversation(memory: Ledger) -> None:
    bobs = ConversationKey(OwnerId("bob"), KEY.id)
    loads = ConversationLoader(memory)
    with anyio.fail_after(10):
        async with loads.load_whole(KEY), anyio.create_task_group() as tasks:
            for n in range(10):
                tasks.start_soon(
                    enter, loads.load_whole(ConversationKey(KEY.owner, ConversationId(f"c{n}")))
                )
            await anyio.wait_all_tasks_blocked()
            await enter(loads.load_whole(bobs))
            tasks.cancel_scope.cancel()


async def test_recovery_waits_for_no_large_conversation_of_a_post(memory: Ledger) -> None:
    """It waits for its own conversation as long as that takes, while a post gives up."""
    loads = ConversationLoader(memory, timeout=0.01)
    with anyio.fail_after(10):
        async with loads.load_whole(KEY):
            await enter(loads.load_whole(OTHER, recovers=True))
        async with anyio.create_task_group() as tasks, loads.locked(KEY):
            tasks.start_soon(enter, loads.locked(KEY, recovers=True))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ConversationBusy):
                await enter(loads.locked(KEY))


async def test_so_many_posts_wait_for_a_conversation_and_no_more(memory: Ledger) -> None:
    loads = ConversationLoader(memory)
    with anyio.fail_after(10):
        async with loads.locked(KEY), anyio.create_task_group() as tasks:
            for _ in range(64):
                tasks.start_soon(enter, loads.locked(KEY))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ConversationBusy):
                await enter(loads.locked(KEY))
            await enter(loads.locked(OTHER))
            tasks.cancel_scope.cancel()
        await enter(loads.locked(KEY))


async def enter(context: AbstractAsyncContextManager[object]) -> None:
    """Enter and leave, in a task of its own: who holds a lock cannot wait for it."""

    async def enter_here() -> None:
        async with context:
            pass

    await asyncio.create_task(enter_here())


async def test_large_histories_of_many_conversations_are_loaded_in_turn(store: Ledger) -> None:
    keys = [ConversationKey(KEY.owner, ConversationId(f"c{n}")) for n in range(4)]
    for key in keys:
        await stored(store, key)
    watched = Watched(store)

    async def ask(runs: RunService, key: ConversationKey) -> None:
        await post(runs, says("more", "m"), key=key)

    async with worker(watched.store, ScriptedModel([words("hi")] * 4)) as runs, at_once() as tasks:
        for key in keys:
            tasks.start_soon(ask, runs, key)
    assert 1 <= watched.most_whole <= 2
