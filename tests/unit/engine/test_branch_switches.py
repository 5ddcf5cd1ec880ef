"""Other branches are read from where they begin, taken over, and switched to."""

from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    EXPIRING_FLUSHED,
    KEY,
    PAINT,
    QUICK,
    approval,
    call_ids,
    contents,
    outcome,
    post,
    record,
    result,
    says,
    until,
    worker,
)
from tests.unit.engine.branched import anew, answered, begin_after, counted, edited, id_of, shown

from passback.core.changes import Change
from passback.core.conversation.tree import NO_MESSAGE
from passback.core.errors import (
    Conflict,
    ConversationBusy,
    HistoryTooLarge,
    UnknownConversation,
    UnknownMessage,
)
from passback.core.events import Completed, HandedBack, TextDelta
from passback.core.ids import new_nonce
from passback.core.messages import (
    AssistantMessage,
    CallId,
    MessageId,
    RunRef,
    SummaryMessage,
    ToolCall,
    ToolMessage,
    Usage,
)
from passback.core.posts import StartRun
from passback.engine.branching import MOST_FORKS, on_branch
from passback.engine.commands import Commands
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- summaries
async def test_an_edit_before_a_summary_is_read_from_the_beginning(store: Ledger) -> None:
    model = ScriptedModel([counted(each) for each in "12345"])
    async with worker(store, model, commands=Commands(enabled=True)) as runs:
        await answered(runs, "a")
        await answered(runs, "b")
        place = await id_of(runs, "1")
        await outcome(runs, await post(runs, says("/clear", "clear")))
        await answered(runs, "c")
        assert shown(model) == ["c"]
        before = await runs.status(KEY)
        assert before.state.history_start > 0
        cleared = (await record(runs))[-3]
        assert isinstance(cleared, SummaryMessage)

        await edited(runs, place, "d")

        assert shown(model) == ["a", "1", "d"]
        status = await runs.status(KEY)
        loaded = await store.load(KEY)
        assert (status.state.history_start, len(loaded.messages)) == (0, 4)
        assert await contents(runs) == ["a", "1", "d", "4"]
        assert (before.state.usage, status.state.usage) == (Usage(30, 3), Usage(20, 2))
        assert status.state.tokens > before.state.tokens  # what was spent stays spent
        # back behind the summary, the model has forgotten again
        await edited(runs, cleared.id, "e")
        assert shown(model) == ["e"]
        assert (await runs.status(KEY)).state.usage == Usage(30, 3)


async def test_an_edit_right_before_a_summary_shows_what_it_summed_up(store: Ledger) -> None:
    model = ScriptedModel([words("1"), words("2")])
    async with worker(store, model, commands=Commands(enabled=True)) as runs:
        await answered(runs, "a")
        await outcome(runs, await post(runs, says("/clear", "clear")))
        *_, reply, summary = await record(runs)
        assert isinstance(summary, SummaryMessage)
        assert (await runs.status(KEY)).state.history_start == 4
        await edited(runs, reply.id, "b")
        assert shown(model) == ["a", "1", "b"]


async def test_a_branch_that_is_too_large_is_not_loaded(store: Ledger) -> None:
    model = ScriptedModel([words(each) for each in "1234"])
    timing = replace(QUICK, history_bytes=19_500)
    async with worker(store, model, commands=Commands(enabled=True), timing=timing) as runs:
        for text in ("a", "b"):
            await outcome(runs, await post(runs, says(text * 9_000, text)))
        place = (await record(runs))[-1].id
        await outcome(runs, await post(runs, says("/clear", "clear")))
        await answered(runs, "c")
        large = says("d" * 3_000, "d")
        for after, message in ((place, large), (place, says("d" * 30_000, "d"))):
            with pytest.raises(HistoryTooLarge):
                await begin_after(runs, after, message)
        await edited(runs, "a", "e")
        assert shown(model) == ["a" * 9_000, "e"]
        with pytest.raises(HistoryTooLarge):
            await runs.switch(KEY, MessageId("c"))


async def test_an_early_message_is_edited_though_the_conversation_is_full(store: Ledger) -> None:
    model = ScriptedModel([words("1"), words("2" * 300_000), words("3")])
    timing = replace(QUICK, history_bytes=3_000_000)
    async with worker(store, model, timing=timing) as runs:
        for text in ("a", "b"):
            run = await post(runs, says(text * 1_400_000, text))
            assert await outcome(runs, run) == Completed()
        with pytest.raises(HistoryTooLarge):
            await post(runs, says("c" * 300_000, "c"))
        run = await begin_after(runs, await id_of(runs, "1"), says("c" * 300_000, "c"))
        assert await outcome(runs, run) == Completed()
        assert [each.id for each in await record(runs)][::2] == ["a", "c"]


async def test_permissions_that_only_messages_tell_stay(store: Ledger) -> None:
    """So it is in records of before the state had them."""
    yes = replace(approval(CallId("c"), always=True), tool="look", digest="d")
    asks = AssistantMessage(MessageId("1"), "", (ToolCall(CallId("c"), "look", "{}"),))
    done = ToolMessage(MessageId("2"), CallId("c"), "seen")
    await store.park(Change(KEY, new_nonce(), 0, (says("a", "a"), asks, yes, done)))
    loaded = await store.load(KEY)
    assert loaded.status.state.lasting is None
    moved = await on_branch(store, KEY, loaded, 0)
    assert [each.tool for each in moved.status.state.permissions(moved.messages)] == ["look"]


# ---------------------------------------------------------------- lost workers
@pytest.mark.promise("P10")
async def test_a_run_on_another_branch_is_taken_over_there(store: Ledger) -> None:
    model = ScriptedModel([words("one"), words("two"), ["half", anyio.Event()]])
    after = ScriptedModel([words("three")])
    async with worker(store, after) as other:
        async with worker(store, model) as runs:
            await answered(runs, "a")
            await answered(runs, "b")
        dying = ScriptedModel([["half", anyio.Event()]])
        async with killable_worker(store, dying, timing=EXPIRING_FLUSHED) as one:
            run = await begin_after(one.runs, "a")
            await until(one.runs, run, TextDelta)
            await one.kill()
        await other.status(KEY)
        assert await outcome(other, run) == Completed()
        assert shown(after) == ["a"]
        assert await contents(other) == ["a", "three"]
        [point] = await other.branches(KEY)
        assert (point.after, len(point.versions)) == ("a", 2)


# ---------------------------------------------------------------- switches
async def test_a_switch_goes_to_the_newest_leaf_under_a_message(store: Ledger) -> None:
    model = ScriptedModel([words(each) for each in "123456"])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        await answered(runs, "b")
        await anew(runs, "b")
        await edited(runs, "", "x")
        before = await runs.status(KEY)

        await runs.switch(KEY, MessageId("a"))

        assert await contents(runs) == ["a", "1", "b", "3"]
        versions = await runs.branches(KEY)
        assert [point.current for point in versions] == ["a", await id_of(runs, "3")]
        status = await runs.status(KEY)
        assert (status.running, status.run_id) == (False, before.run_id)
        await runs.switch(KEY, MessageId("b"))  # it is read already
        assert (await runs.status(KEY)).version == status.version
        await runs.switch(KEY, versions[1].versions[0])
        assert await contents(runs) == ["a", "1", "b", "2"]
        await answered(runs, "c")
        assert shown(model) == ["a", "1", "b", "2", "c"]


async def test_a_switch_that_others_overtake_is_tried_again_for_some_time(store: Ledger) -> None:
    faults, model = Faults(store), ScriptedModel([words("1"), words("2")])
    async with worker(faults.store, model) as runs:
        await answered(runs, "a")
        await edited(runs, "", "b")

        async def rename() -> None:
            await store.rename(KEY, "another title")

        async def rename_each_time() -> None:
            faults.first["park"] = rename_each_time
            await rename()

        faults.first["park"] = rename
        await runs.switch(KEY, MessageId("a"))
        assert await contents(runs) == ["a", "1"]
        faults.first["park"] = rename_each_time
        with pytest.raises(ConversationBusy):
            await runs.switch(KEY, MessageId("b"))
        assert await contents(runs) == ["a", "1"]


async def test_a_switch_needs_a_message(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one")])) as runs:
        with pytest.raises(UnknownConversation):
            await runs.switch(KEY, MessageId("a"))
        await answered(runs, "a")
        for name in ("", "nothing"):
            with pytest.raises(UnknownMessage):
                await runs.switch(KEY, MessageId(name))


async def test_a_switch_closes_what_is_owed_with_its_deadline(store: Ledger) -> None:
    model = ScriptedModel([words("one"), calls(("paint", {}))])
    timing = replace(QUICK, tool_timeout=3600)
    async with worker(store, model, timing=timing) as runs:
        await answered(runs, "a")
        edit = StartRun(KEY, (says("b", "b"),), (PAINT,), after=MessageId(""))
        run = await runs.start(edit)
        assert isinstance(run, RunRef)
        assert isinstance(await outcome(runs, run), HandedBack)
        assert (await runs.status(KEY)).answer_by is not None
        [call_id] = await call_ids(runs)
        await runs.switch(KEY, MessageId("a"))
        status = await runs.status(KEY)
        assert (status.owed, status.answer_by, status.overdue) == ((), None, False)
        assert await contents(runs) == ["a", "one"]
        with pytest.raises(Conflict, match="already answered"):
            await runs.start(StartRun(KEY, (result(call_id),)))
        await runs.switch(KEY, MessageId("b"))
        closed = (await record(runs))[-1]
        assert isinstance(closed, ToolMessage)
        assert (closed.call_id, closed.synthetic, closed.run_id) == (
            call_id,
            "superseded",
            run.run_id,
        )
        assert (await store.inbox(KEY.owner, limit=10)).owing == ()


# ---------------------------------------------------------------- at the limit of forks
async def _fork_up_to_limit(store: Ledger) -> None:
    while len((status := await store.status(KEY)).tree.forks) < MOST_FORKS:
        message = (says("x", f"x{len(status.tree.forks)}"),)
        assert await store.park(Change(KEY, new_nonce(), status.version, message, leaf=NO_MESSAGE))


async def test_at_the_limit_the_newest_branch_goes_on(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([words("1"), words("2"), words("3")])) as runs:
        await answered(runs, "a")
        await _fork_up_to_limit(memory)
        newest = f"x{MOST_FORKS - 1}"
        await runs.switch(KEY, MessageId("a"))
        with pytest.raises(Conflict, match="go on with the newest one"):
            await post(runs, says("b", "b"))
        with pytest.raises(Conflict, match="go on with the newest one"):
            await begin_after(runs, "a")
        assert await contents(runs) == ["a", "1"]
        await edited(runs, newest, "b")
        assert await contents(runs) == ["x", "b", "2"]
        await answered(runs, "c")
        status = await runs.status(KEY)
        assert (len(status.tree.forks), status.stored) == (MOST_FORKS, MOST_FORKS + 6)


async def test_at_the_limit_no_calls_are_closed_on_an_older_branch(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([calls(("paint", {}))])) as runs:
        await outcome(runs, await post(runs, says("a", "a"), tools=[PAINT]))
        owing = await memory.status(KEY)
        await _fork_up_to_limit(memory)
        newest, version = f"x{MOST_FORKS - 1}", (await memory.status(KEY)).version
        back = Change(KEY, new_nonce(), version, leaf=owing.tree.leaf, owed=owing.owed)
        assert await memory.park(back)
        before = await runs.status(KEY)
        with pytest.raises(Conflict, match="go on with the newest one"):
            await runs.switch(KEY, MessageId(newest))
        with pytest.raises(Conflict, match="go on with the newest one"):
            await begin_after(runs, newest, says("b", "b"))
        assert await runs.status(KEY) == before
        assert before.owed == owing.owed != ()
