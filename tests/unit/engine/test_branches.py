"""Edit, regenerate and switch: what stood behind stays in the record as another branch."""

import anyio
import pytest
from tests.support.runs import (
    KEY,
    PAINT,
    at_once,
    call_ids,
    contents,
    events,
    let_pass,
    outcome,
    over,
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
    InvalidRequest,
    NothingToDo,
    Reused,
    UnknownConversation,
    UnknownMessage,
)
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.ids import new_nonce
from passback.core.messages import MessageId, RunRef, ToolMessage, Usage
from passback.core.posts import OnBusy, Parked, StartRun
from passback.core.runs import BranchPoint
from passback.engine.branching import MOST_FORKS
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    """A server tool."""
    return "seen"


BEHIND_OTHERS: list[OnBusy] = ["enqueue", "interrupt"]


def half() -> list[Step]:
    return ["half", anyio.Event()]


# ---------------------------------------------------------------- edits
@pytest.mark.parametrize(
    ("after", "kept"), [("", []), ("one", ["a", "one"]), ("two", ["a", "one", "b", "two"])]
)
async def test_a_message_may_follow_any_earlier_one(
    store: Ledger, after: str, kept: list[str]
) -> None:
    model = ScriptedModel([words("one"), words("two"), words("three"), words("new")])
    async with worker(store, model) as runs:
        for text in ("a", "b", "c"):
            await answered(runs, text)
        place = await id_of(runs, after) if after else ""

        await edited(runs, place, "other")

        assert shown(model) == [*kept, "other"]
        assert await contents(runs) == [*kept, "other", "new"]
        status = await runs.status(KEY)
        assert (status.message_count, status.stored) == (len(kept) + 2, 8)
        first = {"": "a", "one": "b", "two": "c"}[after]
        assert await runs.branches(KEY) == [
            BranchPoint(
                MessageId(place) if place else None,
                (MessageId(first), MessageId("other")),
                MessageId("other"),
            )
        ]


async def test_the_last_message_is_no_other_branch(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one"), words("two")])) as runs:
        await answered(runs, "a")
        run = await begin_after(runs, await id_of(runs, "one"), says("b", "b"))
        seen = await events(runs, run)
        assert isinstance(seen[0], RunStarted)
        assert not seen[0].rolled_back
        assert await contents(runs) == ["a", "one", "b", "two"]
        assert await runs.branches(KEY) == []
        assert not (await runs.status(KEY)).tree.forks


async def test_a_run_tells_its_readers_from_where_on_the_messages_are_others(
    store: Ledger,
) -> None:
    async with worker(store, ScriptedModel([words(each) for each in "12345"])) as runs:
        for text in ("a", "b", "c"):
            await answered(runs, text)
        started = (await events(runs, await begin_after(runs, "b")))[0]
        assert isinstance(started, RunStarted)
        # the message that is answered anew is posted again, as far as readers can tell
        assert (started.first, started.posted, started.rolled_back) == (2, 1, True)
        await runs.switch(KEY, MessageId("c"))
        started = (await events(runs, await post(runs, says("d", "d"))))[0]
        assert isinstance(started, RunStarted)
        # the switch had no run of its own: its messages come with the next one
        assert (started.first, started.posted, started.rolled_back) == (3, 4, True)
        assert await contents(runs) == ["a", "1", "b", "2", "c", "3", "d", "5"]
        assert (await runs.status(KEY)).unchanged is None


async def test_a_place_may_be_on_a_branch_that_was_left(store: Ledger) -> None:
    model = ScriptedModel([counted(each) for each in "1234"])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        await answered(runs, "b")
        left = await id_of(runs, "2")
        await edited(runs, "", "x")
        assert (await runs.status(KEY)).state.usage == Usage(10, 1)

        await edited(runs, left, "c")

        assert shown(model) == ["a", "1", "b", "2", "c"]
        assert await contents(runs) == ["a", "1", "b", "2", "c", "4"]
        status = await runs.status(KEY)
        assert status.state.usage == Usage(30, 3)
        assert status.unchanged is None
        [point] = await runs.branches(KEY)
        assert point == BranchPoint(None, (MessageId("a"), MessageId("x")), MessageId("a"))


async def test_a_message_may_have_many_versions(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words(each) for each in "123"])) as runs:
        await answered(runs, "a")
        await edited(runs, "", "b")
        await edited(runs, "", "c")
        [point] = await runs.branches(KEY)
        assert (point.versions, point.current) == (("a", "b", "c"), "c")


# ---------------------------------------------------------------- regenerate
async def test_a_message_is_answered_anew(store: Ledger) -> None:
    model = ScriptedModel([words("one"), words("two"), words("three")])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        first = await id_of(runs, "one")
        await anew(runs, "a")
        second = await id_of(runs, "two")
        await anew(runs, "a")
        assert shown(model) == ["a"]
        assert await contents(runs) == ["a", "three"]
        third = await id_of(runs, "three")
        assert await runs.branches(KEY) == [
            BranchPoint(MessageId("a"), (first, second, third), third)
        ]


async def test_results_are_answered_anew(store: Ledger) -> None:
    model = ScriptedModel([calls(("look", {})), words("one"), words("two")])
    async with worker(store, model, look) as runs:
        await answered(runs, "a")
        [seen] = [each for each in await record(runs) if isinstance(each, ToolMessage)]
        await anew(runs, seen.id)
        assert await contents(runs) == ["a", "", "seen", "two"]


async def test_an_answer_that_failed_may_be_asked_for_again(store: Ledger) -> None:
    model = ScriptedModel([half(), words("one")])
    async with worker(store, model) as runs:
        run = await post(runs, says("a", "a"))
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        await anew(runs, "a")
        assert await contents(runs) == ["a", "one"]


@pytest.mark.parametrize("place", ["", "one"])
async def test_there_has_to_be_something_to_answer(store: Ledger, place: str) -> None:
    async with worker(store, ScriptedModel([words("one"), words("two")])) as runs:
        await answered(runs, "a")
        await answered(runs, "b")
        with pytest.raises(NothingToDo):
            await begin_after(runs, await id_of(runs, place) if place else "")


async def test_the_end_of_the_branch_has_nothing_to_answer_either(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one"), calls(("paint", {}))])) as runs:
        await answered(runs, "a")
        with pytest.raises(NothingToDo):
            await begin_after(runs, await id_of(runs, "one"))
        await outcome(runs, await post(runs, says("b", "b"), tools=[PAINT]))
        with pytest.raises(NothingToDo):
            await begin_after(runs, (await record(runs))[-1].id)
        assert await runs.branches(KEY) == []


async def test_a_rollback_takes_back_the_message_that_is_answered_anew(store: Ledger) -> None:
    model = ScriptedModel([words("one"), half(), words("two")])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        run = await begin_after(runs, "a")
        await until(runs, run, TextDelta)
        assert (await runs.status(KEY)).run_start == 0
        second = await post(runs, says("b", "b"), on_busy="rollback")
        assert await outcome(runs, second) == Completed()
        assert await contents(runs) == ["b", "two"]


# ---------------------------------------------------------------- places that cannot be
async def test_an_unknown_message_is_refused(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one")])) as runs:
        with pytest.raises(UnknownMessage):
            await begin_after(runs, "nothing", says())
        with pytest.raises(UnknownConversation):
            await runs.status(KEY)
        await answered(runs, "a")
        with pytest.raises(UnknownMessage):
            await begin_after(runs, "nothing", says())
        assert await contents(runs) == ["a", "one"]


async def test_the_first_message_may_come_before_the_first(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one")])) as runs:
        await edited(runs, "", "a")
        assert await contents(runs) == ["a", "one"]
        assert await runs.branches(KEY) == []


async def test_no_message_may_stand_between_calls_and_their_results(store: Ledger) -> None:
    model = ScriptedModel([calls(("look", {}), ("look", {})), words("one"), words("two")])
    async with worker(store, model, look) as runs:
        await answered(runs, "a")
        _, asks, first, last, _ = await record(runs)
        for place in (asks.id, first.id):
            with pytest.raises(InvalidRequest, match="name the last answer"):
                await begin_after(runs, place, says("b", "b"))
        await edited(runs, last.id, "b")
        assert await contents(runs) == ["a", "", "seen", "seen", "b", "two"]


async def test_there_are_no_more_branches_than_the_limit_allows(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([words("1"), words("2"), [gate, *words("3")]])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        for number in range(MOST_FORKS - 1):
            version = (await store.status(KEY)).version
            message = (says("x", f"x{number}"),)
            assert await store.park(Change(KEY, new_nonce(), version, message, leaf=NO_MESSAGE))
        last = await begin_after(runs, "", says("b", "b"), named=["b"])
        assert await outcome(runs, last) == Completed()
        assert len((await runs.status(KEY)).tree.forks) == MOST_FORKS
        # a repeat begins no branch
        assert await begin_after(runs, "", says("b", "b"), named=["b"]) == last
        with pytest.raises(Conflict, match="1000 times"):
            await begin_after(runs, "", says("c", "c"))
        # a switch only reads; what is posted behind an older message would be one jump more
        await runs.switch(KEY, MessageId("a"))
        assert await contents(runs) == ["a", "1"]
        with pytest.raises(Conflict, match="1000 times"):
            await post(runs, says("c", "c"))
        await runs.switch(KEY, MessageId("b"))
        run = await post(runs, says("d", "d"))
        for on_busy in BEHIND_OTHERS:
            with pytest.raises(Conflict, match="1000 times"):
                await begin_after(runs, "b", says("c", "c"), on_busy=on_busy)
        with pytest.raises(Conflict, match="1000 times"):
            await post(runs, says("c", "c"), on_busy="rollback")
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["b", "2", "d", "3"]
        [point] = await runs.branches(KEY)
        assert len(point.versions) == MOST_FORKS + 1


# ---------------------------------------------------------------- owed calls
async def test_what_is_owed_is_closed_on_the_branch_that_is_left(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {}), ("paint", {})), words("one"), words("two")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says("a", "a"), tools=[PAINT]))
        first, second = await call_ids(runs)
        parked = await runs.start(StartRun(KEY, (result(first, "red"),)))
        assert isinstance(parked, Parked)

        await edited(runs, "", "b")

        status = await runs.status(KEY)
        assert status.owed == ()
        assert await contents(runs) == ["b", "one"]
        await runs.switch(KEY, MessageId("a"))
        *_, painted, closed = await record(runs)
        assert isinstance(painted, ToolMessage)
        assert isinstance(closed, ToolMessage)
        assert (painted.content, painted.synthetic) == ("red", None)
        assert (closed.call_id, closed.synthetic) == (second, "superseded")
        with pytest.raises(Conflict, match="already answered"):
            await runs.start(StartRun(KEY, (result(second, "late"),)))
        # what was answered is known as before
        await runs.start(StartRun(KEY, (result(first, "red"),)))
        await answered(runs, "c")
        assert shown(model)[0] == "a"
        assert len(await contents(runs)) == 6


async def test_results_do_not_go_with_a_message_that_leaves_their_calls(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), words("one")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says("a", "a"), tools=[PAINT]))
        [call_id] = await call_ids(runs)
        with pytest.raises(InvalidRequest, match="without `after`"):
            await begin_after(runs, "", result(call_id), says("b", "b"))
        assert await call_ids(runs) == [call_id]
        # at the end of the branch they do
        last = (await record(runs))[-1].id
        await outcome(runs, await begin_after(runs, last, result(call_id), says("b", "b")))
        assert await contents(runs) == ["a", "", "done", "b", "one"]


# ---------------------------------------------------------------- while a run goes on
async def test_an_edit_is_refused_while_a_run_goes_on(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one"), half()])) as runs:
        await answered(runs, "a")
        run = await post(runs, says("b", "b"))
        for messages in ([says("c", "c")], []):
            with pytest.raises(ConversationBusy):
                await begin_after(runs, "a", *messages)
        with pytest.raises(ConversationBusy):
            await runs.switch(KEY, MessageId("a"))
        await runs.cancel(run)


@pytest.mark.parametrize("on_busy", ["interrupt", "rollback"])
async def test_an_edit_that_stops_a_run_begins_on_its_own_branch(
    store: Ledger, on_busy: OnBusy
) -> None:
    model = ScriptedModel([words("one"), half(), words("two")])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        place = await id_of(runs, "one")
        run = await post(runs, says("b", "b"))
        await until(runs, run, TextDelta)
        edit = await begin_after(runs, place, says("c", "c"), on_busy=on_busy)
        assert await outcome(runs, edit) == Completed()
        assert await outcome(runs, run) == Cancelled()
        assert await contents(runs) == ["a", "one", "c", "two"]
        # whatever stopped it, what it said is in the record
        await runs.switch(KEY, MessageId("b"))
        assert await contents(runs) == ["a", "one", "b", "half"]


async def test_a_rollback_keeps_the_message_that_it_follows(store: Ledger) -> None:
    model = ScriptedModel([[anyio.Event()], words("one")])
    async with worker(store, model) as runs:
        run = await post(runs, says("a", "a"))
        await until(runs, run, TurnStarted)
        edit = await begin_after(runs, "a", says("b", "b"), on_busy="rollback")
        assert await outcome(runs, edit) == Completed()
        assert await contents(runs) == ["a", "b", "one"]


async def test_posts_that_wait_for_results_keep_the_branch(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([words("0"), [gate, *calls(("paint", {}))], words("1"), words("2")])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        run = await post(runs, says("b", "b"), tools=[PAINT])
        waits = await post(runs, says("c", "c"), on_busy="enqueue")
        gate.set()
        assert isinstance(await outcome(runs, run), HandedBack)
        [call_id] = await call_ids(runs)
        with pytest.raises(ConversationBusy):
            await runs.switch(KEY, MessageId("a"))
        assert isinstance(await outcome(runs, await post(runs, result(call_id))), Completed)
        assert await outcome(runs, waits) == Completed()


async def test_edits_that_wait_begin_where_they_said(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([["one", gate, *words("")], words("two"), words("three")])
    async with worker(store, model) as runs:
        run = await post(runs, says("a", "a"))
        await until(runs, run, TextDelta)
        again = await begin_after(runs, "a", on_busy="enqueue")
        edit = await begin_after(runs, "", says("b", "b"), on_busy="enqueue")
        with pytest.raises(UnknownMessage):
            await begin_after(runs, "nothing", says("c", "c"), on_busy="enqueue")
        with pytest.raises(NothingToDo):
            await begin_after(runs, "", on_busy="enqueue")
        with pytest.raises(ConversationBusy):
            await runs.switch(KEY, MessageId("a"))
        gate.set()
        for each in (run, again, edit):
            assert await outcome(runs, each) == Completed()
        assert shown(model, 1) == ["a"]
        assert await contents(runs) == ["b", "three"]
        await runs.switch(KEY, MessageId("a"))
        assert await contents(runs) == ["a", "two"]
        [first, answers] = await runs.branches(KEY)
        assert first.versions == ("a", "b")
        assert len(answers.versions) == 2


async def test_an_edit_within_the_turn_of_the_run_is_refused(store: Ledger) -> None:
    gate = anyio.Event()

    @tool
    async def wait() -> str:
        """Waits."""
        await gate.wait()
        return "done"

    model = ScriptedModel([calls(("wait", {})), words("one")])
    async with worker(store, model, wait) as runs:
        run = await post(runs, says("a", "a"))
        while len(messages := await record(runs)) < 2:
            await let_pass(runs)
        with pytest.raises(InvalidRequest, match="name the last answer"):
            await begin_after(runs, messages[-1].id, says("b", "b"), on_busy="enqueue")
        gate.set()
        assert await outcome(runs, run) == Completed()


async def test_queued_answers_are_kept_on_the_branch_that_is_left(store: Ledger) -> None:
    """A post that waits while calls are owed closes them where they are."""
    model = ScriptedModel([half(), calls(("paint", {})), words("two"), words("three")])
    async with worker(store, model) as runs:
        first = await post(runs, says("a", "a"), tools=[PAINT])
        await until(runs, first, TextDelta)
        second = await post(runs, says("b", "b"), on_busy="enqueue")
        third = await begin_after(runs, "", says("c", "c"), on_busy="enqueue")
        await runs.cancel(first)
        await over(store, second)
        fourth = await begin_after(runs, "", says("d", "d"), on_busy="enqueue")
        for each in (third, fourth):
            assert await outcome(runs, each) == Completed()
        assert await contents(runs) == ["d", "three"]
        await runs.switch(KEY, MessageId("a"))
        last = (await record(runs))[-1]
        assert isinstance(last, ToolMessage)
        assert last.synthetic == "superseded"


async def test_answers_that_wait_are_kept_with_the_calls_that_are_left(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel(
        [[gate, *calls(("paint", {}), ("paint", {}))], words("one"), words("two")]
    )
    async with worker(store, model) as runs:
        run = await post(runs, says("a", "a"), tools=[PAINT])
        edit = await begin_after(runs, "", says("b", "b"), on_busy="enqueue")
        gate.set()
        assert isinstance(await outcome(runs, run), HandedBack)
        first, second = await call_ids(runs)
        last = await post(runs, result(first, "red"), says("c", "c"), on_busy="enqueue")
        for each in (edit, last):
            assert await outcome(runs, each) == Completed()
        assert await contents(runs) == ["b", "one", "c", "two"]
        await runs.switch(KEY, MessageId("a"))
        results = [each for each in await record(runs) if isinstance(each, ToolMessage)]
        assert [(each.call_id, each.synthetic) for each in results] == [
            (first, None),
            (second, "superseded"),
        ]


async def test_the_state_of_a_branch_is_written_when_its_run_begins(store: Ledger) -> None:
    model = ScriptedModel([counted("1"), [anyio.Event()]])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        run = await begin_after(runs, "", says("b", "b"))
        await until(runs, run, TurnStarted)
        assert (await store.load(KEY)).status.state.usage == Usage()
        await runs.cancel(run)


# ---------------------------------------------------------------- repeats
@pytest.mark.promise("P8")
async def test_a_repeated_edit_joins_its_run(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one"), words("two"), words("three")])) as runs:
        await answered(runs, "a")
        edit = await begin_after(runs, "", says("b", "b"), key="key", named=["b"])
        assert await begin_after(runs, "", says("b", "b"), key="key", named=["b"]) == edit
        assert await outcome(runs, edit) == Completed()
        assert await begin_after(runs, "", says("b", "other"), key="key") == edit
        assert await begin_after(runs, "", says("b", "b"), named=["b"]) == edit
        with pytest.raises(Reused):
            await begin_after(runs, "a", says("b", "b"), key="key", named=["b"])
        with pytest.raises(Reused):
            await begin_after(runs, "", says("c", "b"), named=["b"])
        again = await begin_after(runs, "a", key="again")
        assert await outcome(runs, again) == Completed()
        assert await begin_after(runs, "a", key="again") == again
        assert await contents(runs) == ["a", "three"]


async def test_of_two_edits_at_once_one_comes_after_the_other(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("0"), words("1"), words("2")])) as runs:
        await answered(runs, "a")
        done = list[RunRef]()

        async def edit(text: str) -> None:
            done.append(await begin_after(runs, "", says(text, text), on_busy="enqueue"))

        async with at_once() as tasks:
            tasks.start_soon(edit, "b")
            tasks.start_soon(edit, "c")
        for run in done:
            assert await outcome(runs, run) == Completed()
        [point] = await runs.branches(KEY)
        assert sorted(point.versions) == ["a", "b", "c"]


async def test_of_two_edits_on_two_workers_one_is_refused_or_both_are_kept(
    store: Ledger,
) -> None:
    script = [words("0"), words("1")]
    async with (
        worker(store, ScriptedModel(script)) as one,
        worker(store, ScriptedModel(script)) as two,
    ):
        await answered(one, "a")
        begun = list[str]()

        async def edit(runs: RunService, text: str) -> None:
            try:
                run = await begin_after(runs, "", says(text, text))
            except ConversationBusy:
                return
            begun.append(text)
            assert await outcome(runs, run) == Completed()

        async with at_once() as tasks:
            tasks.start_soon(edit, one, "b")
            tasks.start_soon(edit, two, "c")
        assert begun
        [point] = await one.branches(KEY)
        assert sorted(point.versions) == sorted(["a", *begun])
