"""Fork: a conversation is copied into a new one, in writes of a bounded size."""

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    KEY,
    OTHER,
    PAINT,
    call_ids,
    contents,
    denial,
    events,
    outcome,
    post,
    record,
    result,
    says,
    until,
    worker,
)
from tests.unit.engine.counted_tools import CountedTools

from passback.core.changes import dump_message
from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import (
    Conflict,
    ConversationBusy,
    InvalidRequest,
    StoreUnavailable,
    UnknownConversation,
    UnknownMessage,
    UnknownToolCall,
)
from passback.core.events import Completed, RunStarted
from passback.core.messages import (
    ConversationKey,
    MessageId,
    RunRef,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.engine.commands import Commands
from passback.engine.copying import SLICE_BYTES
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


async def answered(runs: RunService, text: str, key: ConversationKey = KEY) -> None:
    assert await outcome(runs, await post(runs, says(text, text), key=key)) == Completed()


async def test_a_fork_has_all_that_the_conversation_has(store: Ledger) -> None:
    model = ScriptedModel([words(each) for each in "123"])
    async with worker(store, model) as runs:
        run = await post(runs, says("a", "a"), tools=[PAINT])
        assert await outcome(runs, run) == Completed()
        await answered(runs, "b")
        await runs.rename(KEY, "the title")
        settings = ConversationSettings(mode="ask")
        await runs.configure(KEY, settings)
        before = await store.load(KEY)

        await runs.fork(KEY, OTHER)

        assert await record(runs, OTHER) == await record(runs)
        copy = await store.load(OTHER)
        assert (copy.tools, copy.status.settings) == ((PAINT,), settings)
        assert (copy.status.title, copy.status.named) == ("the title", True)
        assert copy.status.state.usage == before.status.state.usage
        assert copy.status.state.tokens == 0
        assert await store.load(KEY) == before
        await answered(runs, "c", OTHER)
        assert [each.content for each in model.requests[-1].messages] == ["a", "1", "b", "2", "c"]
        assert model.requests[-1].tools == model.requests[0].tools != ()
        assert await contents(runs) == ["a", "1", "b", "2"]


@pytest.mark.parametrize(("after", "kept"), [("", 0), ("a", 1), ("b", 3)])
async def test_a_fork_may_end_earlier(store: Ledger, after: str, kept: int) -> None:
    async with worker(store, ScriptedModel([words("1"), words("2"), words("3")])) as runs:
        await answered(runs, "a")
        await answered(runs, "b")
        await runs.fork(KEY, OTHER, after=MessageId(after))
        assert await contents(runs, OTHER) == ["a", "1", "b", "2"][:kept]
        await answered(runs, "c", OTHER)
        assert (await contents(runs, OTHER))[kept:] == ["c", "3"]


async def test_a_fork_may_be_of_a_branch_that_is_not_read(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("1"), words("2")])) as runs:
        await answered(runs, "a")
        left = (await record(runs))[-1].id
        run = await runs.start(StartRun(KEY, (says("b", "b"),), after=MessageId("")))
        assert isinstance(run, RunRef)
        await events(runs, run)
        await runs.fork(KEY, OTHER, after=left)
        assert await contents(runs, OTHER) == ["a", "1"]
        assert await runs.branches(OTHER) == []


async def test_what_is_owed_is_closed_in_the_fork(store: Ledger) -> None:
    async with worker(store, ScriptedModel([calls(("paint", {})), words("1"), words("2")])) as runs:
        await outcome(runs, await post(runs, says("a", "a"), tools=[PAINT]))
        owed = await call_ids(runs)
        await runs.fork(KEY, OTHER)
        assert await call_ids(runs) == owed
        assert (await runs.status(OTHER)).owed == ()
        *_, closed = await record(runs, OTHER)
        assert isinstance(closed, ToolMessage)
        assert (closed.call_id, closed.synthetic) == (owed[0], "superseded")
        with pytest.raises(UnknownToolCall):
            await post(runs, result(owed[0]), key=OTHER)
        await answered(runs, "b", OTHER)
        # the original goes on as if there were no copy
        assert await outcome(runs, await post(runs, result(owed[0]))) == Completed()


async def test_calls_that_were_answered_later_are_closed_in_a_fork_that_ends_before(
    store: Ledger,
) -> None:
    async with worker(store, ScriptedModel([calls(("paint", {})), words("1"), words("2")])) as runs:
        await outcome(runs, await post(runs, says("a", "a"), tools=[PAINT]))
        [owed] = await call_ids(runs)
        handed_back = (await record(runs))[-1].id
        await outcome(runs, await post(runs, result(owed)))
        await runs.fork(KEY, OTHER, after=handed_back)
        *_, closed = await record(runs, OTHER)
        assert isinstance(closed, ToolMessage)
        assert (closed.call_id, closed.synthetic) == (owed, "superseded")
        await answered(runs, "b", OTHER)


async def test_a_fork_keeps_what_is_denied_for_good(store: Ledger) -> None:
    wipe = CountedTools().tool("wipe", "ask")
    model = ScriptedModel([calls(("wipe", {})), words("1"), calls(("wipe", {})), words("2")])
    async with worker(store, model, wipe) as runs:
        await outcome(runs, await post(runs, says("a", "a")))
        [call_id] = await call_ids(runs)
        await outcome(runs, await post(runs, denial(call_id, always=True)))
        await runs.fork(KEY, OTHER, after=MessageId("a"))
        await answered(runs, "b", OTHER)
        [denied] = [each for each in await record(runs, OTHER) if isinstance(each, ToolMessage)]
        assert denied.synthetic == "denied"


async def test_a_fork_while_a_run_goes_on_has_what_is_said_so_far(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("1"), words("2")])) as runs:
        await answered(runs, "a")
        run = await post(runs, says("b", "b"))
        await until(runs, run, RunStarted)
        await runs.fork(KEY, OTHER)
        assert (await contents(runs, OTHER))[:3] == ["a", "1", "b"]


async def test_a_fork_needs_a_conversation_and_a_message_of_it(store: Ledger) -> None:
    model = ScriptedModel([calls(("look", {})), words("1")])

    @tool
    def look() -> str:
        """Looks."""
        return "seen"

    async with worker(store, model, look) as runs:
        with pytest.raises(UnknownConversation):
            await runs.fork(KEY, OTHER)
        await answered(runs, "a")
        with pytest.raises(UnknownMessage):
            await runs.fork(KEY, OTHER, after=MessageId("nothing"))
        with pytest.raises(InvalidRequest, match="name the last answer"):
            await runs.fork(KEY, OTHER, after=(await record(runs))[1].id)
        with pytest.raises(Conflict):
            await runs.fork(KEY, KEY)
        with pytest.raises(UnknownConversation):
            await runs.status(OTHER)


# ---------------------------------------------------------------- slices and repeats
async def test_a_fork_is_written_in_slices_and_goes_on_after_a_failure(store: Ledger) -> None:
    faults = Faults(store)
    script = [calls(("paint", {})), *(words(f"{number}") for number in range(10))]
    async with worker(faults.store, ScriptedModel(script)) as runs:
        await outcome(runs, await post(runs, says("go", "go"), tools=[PAINT]))
        for number in range(8):
            run = await post(runs, says(f"{number}" * (SLICE_BYTES // 3), f"u{number}"))
            assert await outcome(runs, run) == Completed()
        whole = await record(runs)
        faults.plan["park"] = ["none", "refuse"]
        with pytest.raises(StoreUnavailable):
            await runs.fork(KEY, OTHER)
        part = await record(runs, OTHER)
        assert part == whole[: len(part)]
        assert 0 < sum(len(dump_message(message)) for message in part) <= SLICE_BYTES
        faults.plan["park"] = ["lose reply"]
        with pytest.raises(StoreUnavailable):
            await runs.fork(KEY, OTHER)
        assert len(part) < len(await record(runs, OTHER)) < len(whole)

        await runs.fork(KEY, OTHER)

        assert await record(runs, OTHER) == whole
        assert faults.calls["park"] == 5  # four slices, and the one that was refused
        await answered(runs, "more", OTHER)
        # the copy is whole: a repeat changes nothing, whatever has come behind it
        await runs.fork(KEY, OTHER)
        assert (await contents(runs, OTHER))[-2:] == ["more", "8"]
        with pytest.raises(Conflict):
            await runs.fork(KEY, OTHER, after=MessageId("go"))


@pytest.mark.parametrize("there", ["other", "longer", "running"])
async def test_a_fork_goes_into_no_other_conversation(store: Ledger, there: str) -> None:
    model = ScriptedModel([words("1"), words("2"), words("3")])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        if there == "longer":
            await runs.fork(KEY, OTHER)
            await answered(runs, "b")
        else:
            await answered(runs, "b", OTHER)
        if there == "running":
            await post(runs, says("c", "c"), key=OTHER)
        before = await contents(runs, OTHER)
        with pytest.raises(Conflict, match="already"):
            await runs.fork(KEY, OTHER)
        assert (await contents(runs, OTHER))[: len(before)] == before


async def test_a_copy_that_is_not_whole_is_left_alone_while_a_run_goes_on(store: Ledger) -> None:
    faults = Faults(store)
    model = ScriptedModel([words("1"), [anyio.Event()]])
    async with worker(faults.store, model) as runs:
        run = await post(runs, says("a" * SLICE_BYTES, "a"))
        assert await outcome(runs, run) == Completed()
        faults.plan["park"] = ["none", "refuse"]
        with pytest.raises(StoreUnavailable):
            await runs.fork(KEY, OTHER)
        again = await runs.start(StartRun(OTHER, (), after=MessageId("a")))
        assert isinstance(again, RunRef)
        with pytest.raises(Conflict, match="already"):
            await runs.fork(KEY, OTHER)
        await runs.cancel(again)


async def test_a_fork_behind_a_summary_is_read_from_there(store: Ledger) -> None:
    model = ScriptedModel([words("1"), words("2"), words("3")])
    async with worker(store, model, commands=Commands(enabled=True)) as runs:
        await answered(runs, "a")
        await outcome(runs, await post(runs, says("/clear", "clear")))
        await answered(runs, "b")
        await runs.fork(KEY, OTHER)
        start = (await runs.status(KEY)).state.history_start
        assert (await runs.status(OTHER)).state.history_start == start > 0
        await answered(runs, "c", OTHER)
        assert [each.content for each in model.requests[-1].messages] == ["b", "2", "c"]


async def test_what_others_write_meanwhile_is_not_copied_over(store: Ledger) -> None:
    faults = Faults(store)
    async with worker(faults.store, ScriptedModel([words("1"), words("2")])) as runs:
        run = await post(runs, says("a" * SLICE_BYTES, "a"))  # there are two writes
        assert await outcome(runs, run) == Completed()

        async def write() -> None:
            await answered(runs, "b", OTHER)

        faults.first["park"] = write
        with pytest.raises(Conflict):
            await runs.fork(KEY, OTHER)
        assert await contents(runs, OTHER) == ["b", "2"]


async def test_a_fork_that_others_overtake_is_tried_again_for_some_time(store: Ledger) -> None:
    faults = Faults(store)
    async with worker(faults.store, ScriptedModel([words("1")])) as runs:
        await answered(runs, "a")
        await runs.create(OTHER)

        async def rename() -> None:
            await store.rename(OTHER, "another title")

        async def rename_each_time() -> None:
            faults.first["park"] = rename_each_time
            await rename()

        faults.first["park"] = rename_each_time
        with pytest.raises(ConversationBusy):
            await runs.fork(KEY, OTHER)
        faults.first["park"] = rename
        await runs.fork(KEY, OTHER)
        assert await record(runs, OTHER) == await record(runs)


@pytest.mark.parametrize("before", ["load", "read_branch"])
async def test_a_conversation_that_is_deleted_meanwhile_is_not_copied(
    store: Ledger, before: str
) -> None:
    faults = Faults(store)
    async with worker(faults.store, ScriptedModel([words("1")])) as runs:
        await answered(runs, "a")

        async def delete() -> None:
            await store.delete(KEY)

        faults.first[before] = delete
        with pytest.raises(UnknownConversation):
            await runs.fork(KEY, OTHER)
        with pytest.raises(UnknownConversation):
            await runs.status(OTHER)


async def test_two_copies_at_once_are_one(store: Ledger) -> None:
    faults = Faults(store)
    async with worker(faults.store, ScriptedModel([words("1")])) as runs:
        await answered(runs, "a")

        async def copy() -> None:
            await runs.fork(KEY, OTHER)

        faults.first["park"] = copy
        await runs.fork(KEY, OTHER)
        assert await record(runs, OTHER) == await record(runs)


async def test_a_message_larger_than_a_slice_is_one_of_its_own(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("1"), words("2")])) as runs:
        await answered(runs, "a")
        large = UserMessage(MessageId("large"), "x" * (SLICE_BYTES + 1))
        assert await outcome(runs, await post(runs, large)) == Completed()
        await runs.fork(KEY, OTHER)
        assert await record(runs, OTHER) == await record(runs)


# ---------------------------------------------------------------- hidden runs
async def test_a_run_is_hidden_once_it_is_over(store: Ledger) -> None:
    async with worker(store, ScriptedModel([["so far", anyio.Event()]])) as runs:
        run = await post(runs, says("a", "a"))
        await until(runs, run, RunStarted)
        with pytest.raises(ConversationBusy):
            await runs.hide(run)
        await runs.cancel(run)
        await outcome(runs, run)
        await runs.hide(run)
        assert (await runs.run(run)).hidden
