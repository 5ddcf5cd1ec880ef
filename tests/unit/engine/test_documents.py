"""Conversations that are exported and imported through the service of runs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.support.runs import (
    KEY,
    PAINT,
    QUICK,
    call_ids,
    contents,
    outcome,
    park,
    post,
    reply,
    result,
    says,
    worker,
)
from typing_extensions import override

from passback.core.conversation.document import read_document
from passback.core.conversation.store import Guard, Wanted, Write
from passback.core.errors import (
    Conflict,
    HistoryTooLarge,
    InvalidRequest,
    ResultConflict,
    StoreError,
    ToolNameClash,
    UnknownConversation,
    UnknownRun,
    UnknownToolCall,
)
from passback.core.events import HandedBack
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    MessageContext,
    OwnerId,
    RunRef,
)
from passback.core.posts import Parked, StartRun
from passback.core.transcript import SYNTHETIC_TEXT
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.stores.memory import MemoryStore
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio

COPY = ConversationKey(OwnerId("another"), ConversationId("copy"))


async def exported(runs: RunService, key: ConversationKey = KEY) -> dict[str, Any]:
    pieces = [piece async for piece in await runs.export(key)]
    document: dict[str, Any] = json.loads(b"".join(pieces))
    return document


async def copied(runs: RunService, key: ConversationKey = COPY) -> dict[str, Any]:
    """Import what is exported of `KEY`; return the document."""
    document = await exported(runs)
    await runs.import_conversation(key, read_document(document))
    return document


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each for name, each in document.items() if name not in ("id", "created", "updated")
    }


# ---------------------------------------------------------------- export and import
async def test_a_copy_goes_on_as_the_conversation_does(memory: Ledger) -> None:
    model = ScriptedModel([words("one"), words("two"), words("three")])
    async with worker(memory, model) as runs:
        data = MessageContext(data={"a": 1})
        await reply(runs, replace(says("hello"), context=data))
        document = await copied(runs)
        assert without_times(await exported(runs, COPY)) == without_times(document)
        assert await contents(runs, COPY) == await contents(runs)
        assert (await runs.status(COPY)).title == "hello"
        assert await runs.data(COPY) == {"a": 1}
        run = await post(runs, says("and?", "u2"), key=COPY)
        await outcome(runs, run)
        assert await contents(runs, COPY) == ["hello", "one", "and?", "two"]
        assert await contents(runs) == ["hello", "one"]
        assert [each.content for each in model.requests[-1].messages[:2]] == ["hello", "one"]


async def test_all_messages_are_in_it_however_many(memory: Ledger) -> None:
    count = 100
    model = ScriptedModel([words(str(number)) for number in range(count)])
    async with worker(memory, model) as runs:
        for number in range(count):
            await reply(runs, says(f"say {number}", f"u{number}"))
        document = await copied(runs)
        assert len(document["messages"]) == 2 * count
        assert await contents(runs, COPY) == await contents(runs)


async def test_a_conversation_that_is_not_there_is_not_exported(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([])) as runs:
        with pytest.raises(UnknownConversation):
            await runs.export(KEY)


async def test_one_that_is_deleted_meanwhile_has_no_end(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([words("one")])) as runs:
        await reply(runs, says())
        pieces = await runs.export(KEY)
        assert (await anext(pieces)).endswith(b"[\n")
        await runs.delete(KEY)
        with pytest.raises(UnknownConversation):
            await anext(pieces)


async def test_the_client_answers_what_it_owes_in_the_copy(memory: Ledger) -> None:
    """First result wins, an equal repeat joins, and an unknown call is unknown (P9)."""
    model = ScriptedModel([calls(("paint", {}), ("paint", {})), words("done")])
    async with worker(memory, model) as runs:
        run = await post(runs, says(), tools=[PAINT])
        assert isinstance(await outcome(runs, run), HandedBack)
        first, second = await call_ids(runs)
        await park(runs, result(first, "red", "t1"))
        await copied(runs, other := replace(KEY, id=ConversationId("copy")))
        assert [each.id for each in (await runs.status(other)).owed] == [second]
        again = StartRun(other, (result(first, "red", "t9"),))
        assert isinstance(await runs.start(again), Parked)
        with pytest.raises(ResultConflict):
            await runs.start(StartRun(other, (result(first, "blue", "t9"),)))
        with pytest.raises(UnknownToolCall):
            await runs.start(StartRun(other, (result(CallId("never")),)))
        [inbox] = (await runs.inbox(KEY.owner, limit=9)).owing[1:]
        assert inbox.key == other
        started = await runs.start(StartRun(other, (result(second, "blue", "t2"),)))
        assert isinstance(started, RunRef)
        await outcome(runs, started)
        assert (await contents(runs, other))[-3:] == ["red", "blue", "done"]


async def test_a_repeated_post_begins_no_second_run_in_the_copy(memory: Ledger) -> None:
    """It joins a run whose log is not there any more (P8)."""
    async with worker(memory, ScriptedModel([words("one")])) as runs:
        first = StartRun(
            KEY,
            (says("hello", "mine"),),
            named=frozenset({says("", "mine").id}),
            idempotency_key="k",
        )
        started = await runs.start(first)
        assert isinstance(started, RunRef)
        await outcome(runs, started)
        await copied(runs)
        for repeat in (first, replace(first, idempotency_key=None)):
            joined = await runs.start(replace(repeat, key=COPY))
            assert joined == RunRef(COPY, started.run_id)
        with pytest.raises(UnknownRun):
            await outcome(runs, RunRef(COPY, started.run_id))
        assert await contents(runs, COPY) == ["hello", "one"]


async def test_what_is_committed_of_a_run_is_exported_and_the_copy_does_not_run(
    memory: Ledger,
) -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    begun = anyio.Event()
    model = ScriptedModel([words("one"), calls(("wait", {})), words("three")])
    async with worker(memory, model, wait) as runs:
        await reply(runs, says("first"))
        run = await post(runs, says("second", "u2"))
        await begun.wait()
        document = await copied(runs)
        assert document["running"]
        status = await runs.status(COPY)
        assert not (status.running)
        assert not (status.owed)
        assert not (status.queued)
        assert (await runs.status(KEY)).running
        said = await contents(runs, COPY)
        assert said[:3] == ["first", "one", "second"]
        assert said[3:] in ([], ["", SYNTHETIC_TEXT["interrupted"]])
        await runs.cancel(run)
        await outcome(runs, run)
        await outcome(runs, await post(runs, says("third", "u3"), key=COPY))
        assert (await contents(runs, COPY))[-1] == "three"


async def test_a_post_that_waits_is_not_in_the_copy_and_can_be_posted_there(
    memory: Ledger,
) -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    begun = anyio.Event()
    model = ScriptedModel([calls(("wait", {})), words("two"), words("two")])
    async with worker(memory, model, wait) as runs:
        run = await post(runs, says("first"))
        await begun.wait()
        second = StartRun(KEY, (says("second", "u2"),), idempotency_key="k", on_busy="enqueue")
        waits = await runs.start(second)
        assert isinstance(waits, RunRef)
        await copied(runs)
        assert (await runs.status(KEY)).queued == (waits.run_id,)
        started = await runs.start(replace(second, key=COPY))
        assert isinstance(started, RunRef)
        assert started.run_id != waits.run_id
        await outcome(runs, started)
        assert (await contents(runs, COPY))[-2:] == ["second", "two"]
        await runs.cancel(run)
        await outcome(runs, waits)


# ---------------------------------------------------------------- refusals
async def test_a_conversation_is_never_replaced(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([words("one"), words("two")])) as runs:
        await reply(runs, says())
        document = read_document(await exported(runs))
        with pytest.raises(Conflict):
            await runs.import_conversation(KEY, document)
        await runs.import_conversation(COPY, document)
        with pytest.raises(Conflict):
            await runs.import_conversation(COPY, document)
        await runs.delete(COPY)
        await runs.import_conversation(COPY, document)


async def test_nothing_is_stored_of_what_is_refused(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([words("one")])) as runs:
        await reply(runs, says())
        document = read_document(await exported(runs))
        for wrong in (
            replace(document, leaf=9),
            replace(document, messages=document.messages[1:], leaf=0),
            replace(document, title="a\nb"),
        ):
            with pytest.raises(InvalidRequest):
                await runs.import_conversation(COPY, wrong)
        assert (await memory.store.read(COPY, Wanted())).version == 0


async def test_a_history_that_could_not_be_loaded_is_refused(memory: Ledger) -> None:
    timing = replace(QUICK, history_bytes=2000)
    model = ScriptedModel([words("one"), words("x" * 1500)])
    async with worker(memory, model) as runs:
        await reply(runs, says())
        small = read_document(await exported(runs))
        await reply(runs, says("more", "u2"))
        large = read_document(await exported(runs))
    async with worker(memory, ScriptedModel([]), timing=timing) as runs:
        await runs.import_conversation(COPY, small)
        with pytest.raises(HistoryTooLarge):
            await runs.import_conversation(replace(COPY, id=ConversationId("large")), large)
        # only what a run loads counts
        later = replace(large, state=replace(large.state, history_start=4))
        await runs.import_conversation(replace(COPY, id=ConversationId("large")), later)


async def test_a_client_tool_with_the_name_of_the_servers_is_refused(memory: Ledger) -> None:
    @tool
    def paint() -> str:
        """Paint."""
        return ""

    async with worker(memory, ScriptedModel([words("one")])) as runs:
        run = await post(runs, says(), tools=[PAINT])
        await outcome(runs, run)
        document = read_document(await exported(runs))
    async with worker(memory, ScriptedModel([]), paint) as runs:
        with pytest.raises(ToolNameClash):
            await runs.import_conversation(COPY, document)
        await runs.import_conversation(COPY, replace(document, tools=None))


# ---------------------------------------------------------------- erasing
async def begin(runs: RunService, owner: str, *names: str) -> Sequence[RunRef]:
    keys = [ConversationKey(OwnerId(owner), ConversationId(name)) for name in names]
    return [await post(runs, says(), key=key) for key in keys]


async def listed(runs: RunService, owner: str) -> list[str]:
    page = await runs.conversations(OwnerId(owner), limit=1000)
    return [each.key.id for each in page.conversations]


async def test_all_conversations_of_an_owner_are_erased_in_steps(memory: Ledger) -> None:
    model = ScriptedModel([words("one")] * 8)
    async with worker(memory, model) as runs:
        for run in [*await begin(runs, "ann", *"abcde"), *await begin(runs, "annie", "a")]:
            await outcome(runs, run)
        steps = [await runs.erase(OwnerId("ann"), limit=2) for _ in range(4)]
        assert [(each.deleted, each.more) for each in steps] == [
            (2, True),
            (2, True),
            (1, False),
            (0, False),
        ]
        assert await listed(runs, "ann") == []
        assert await listed(runs, "annie") == ["a"]
        [run] = await begin(runs, "ann", "a")
        await outcome(runs, run)
        assert await listed(runs, "ann") == ["a"]
        assert (await runs.erase(OwnerId("ann"), limit=1)).more is False


async def test_a_run_of_an_erased_conversation_is_stopped(memory: Ledger) -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        try:
            begun.set()
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return ""

    begun, stopped = anyio.Event(), anyio.Event()
    unaware = replace(QUICK, heartbeat=3600)  # it would not notice for itself
    model = ScriptedModel([calls(("wait", {}))])
    async with worker(memory, model, wait, timing=unaware) as runs:
        run = await post(runs, says())
        await begun.wait()
        assert (await runs.erase(KEY.owner, limit=9)).deleted == 1
        await stopped.wait()
        with pytest.raises(UnknownConversation):
            await runs.status(run.key)


class Stubborn(MemoryStore):
    """Some of its conversations cannot be deleted."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names

    @override
    async def delete(self, key: ConversationKey, /) -> bool:
        if key.id in self._names:
            raise StoreError("damaged")
        return await super().delete(key)


async def test_what_cannot_be_deleted_does_not_stop_the_rest() -> None:
    model = ScriptedModel([words("one")] * 5)
    async with Ledger(Stubborn("b", "d")) as ledger, worker(ledger, model) as runs:
        for run in await begin(runs, "ann", *"abcde"):
            await outcome(runs, run)
        steps = [await runs.erase(OwnerId("ann"), limit=2) for _ in range(2)]
        assert [(each.deleted, each.more) for each in steps] == [(2, True), (1, True)]
        with pytest.raises(StoreError):
            await runs.erase(OwnerId("ann"), limit=2)
        assert await listed(runs, "ann") == ["d", "b"]


async def test_what_cannot_be_read_is_erased_too(memory: Ledger) -> None:
    key = replace(KEY, id=ConversationId("damaged"))
    await memory.store.apply(Write(key, "a", Guard(version=0), head=b"{"))
    async with worker(memory, ScriptedModel([])) as runs:
        assert await listed(runs, KEY.owner) == []
        assert (await runs.erase(KEY.owner, limit=9)).deleted == 1
        assert (await memory.store.read(key, Wanted())).version == 0
