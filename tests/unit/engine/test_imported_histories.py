"""Conversations that begin with a history: stored with the post, unchanged, not to be answered."""

from dataclasses import replace

import anyio
import pytest
from tests.support.runs import (
    EXPIRING,
    KEY,
    QUICK,
    contents,
    outcome,
    post,
    record,
    reply,
    result,
    says,
    worker,
)

from passback.core.errors import (
    Conflict,
    HistoryTooLarge,
    ModelUnavailable,
    UnknownToolCall,
    UnsupportedAttachment,
)
from passback.core.events import Cancelled, Completed, Failed
from passback.core.imported import split_history
from passback.core.messages import (
    AssistantMessage,
    CallId,
    HistoryMessage,
    MediaPart,
    MessageId,
    RunRef,
    SideMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.permissions import pattern_rule
from passback.core.posts import StartRun
from passback.engine.commands import Commands
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio

CALL = ToolCall(CallId("x"), "erase", "{}")
HISTORY: tuple[HistoryMessage, ...] = (
    UserMessage(MessageId("h1"), "look"),
    AssistantMessage(MessageId("h2"), "", (CALL, replace(CALL, id=CallId("y")))),
    ToolMessage(MessageId("h3"), CallId("x"), "seen"),
    AssistantMessage(MessageId("h4"), "so"),
)
CLOSED = "The history of this conversation has no result of this call."


@tool(permission="ask")
def erase() -> str:
    return "erased"


def importing(*, key: str | None = None, history: tuple[HistoryMessage, ...] = HISTORY) -> StartRun:
    """A post that begins a conversation; what is new has the text `go on`."""
    posted = [("", each) for each in (*history, says("go on", "new"))]
    imported = split_history(posted)
    return StartRun(KEY, imported.new, idempotency_key=key, history=imported.history)


async def start(runs: RunService, what: StartRun) -> RunRef:
    started = await runs.start(what)
    assert isinstance(started, RunRef)
    return started


@pytest.mark.promise("P5", "P13")
async def test_a_run_begins_behind_a_history_that_is_only_history(store: Ledger) -> None:
    """Its calls reach no rule and no client, and nobody can answer them later."""
    model = ScriptedModel([words("yes"), words("well")])
    async with worker(store, model, erase, rules=[pattern_rule({"*": "ask"})]) as runs:
        run = await start(runs, importing())
        assert await outcome(runs, run) == Completed()
        stored = await record(runs)
        expected = ["look", "", "seen", CLOSED, "so", "go on", "yes"]
        assert [each.content for each in stored if not isinstance(each, SideMessage)] == expected
        assert [each.imported for each in stored if isinstance(each, AssistantMessage)] == [
            *(True, True, False)
        ]
        status = await runs.status(KEY)
        assert (status.owed, status.run_start, status.state.refusals) == ((), 5, ())
        for call_id in ("x", "y", "imported_1", "imported_2"):
            with pytest.raises(UnknownToolCall):
                await post(runs, result(CallId(call_id)))
        assert await reply(runs, says("and?", "u3")) == "well"
    [first, _] = model.requests
    assert [each.content for each in first.messages] == expected[:-1]


@pytest.mark.promise("P8")
async def test_a_repeat_on_another_worker_is_the_same_run(store: Ledger) -> None:
    model = ScriptedModel([words("yes")])
    async with worker(store, model) as one, worker(store, model) as other:
        run = await start(one, importing(key="k"))
        assert await start(other, importing(key="k")) == run
        assert await outcome(other, run) == Completed()
        assert await start(one, importing(key="k")) == run
        assert len(await record(one)) == 7
        with pytest.raises(Conflict):
            await start(other, importing())
        assert len(await record(one)) == 7


async def test_a_history_stays_when_its_run_is_taken_back(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([["a", gate], words("two")])
    async with worker(store, model) as runs:
        first = await start(runs, importing())
        second = await post(runs, says("instead", "u2"), on_busy="rollback")
        assert await outcome(runs, first) == Cancelled()
        assert await outcome(runs, second) == Completed()
        expected = ["look", "", "seen", CLOSED, "so", "instead", "two"]
        assert await contents(runs) == expected


@pytest.mark.promise("P10")
async def test_a_worker_that_takes_over_has_the_history(store: Ledger) -> None:
    gate = anyio.Event()
    next_model = ScriptedModel([words("yes")])
    async with worker(store, ScriptedModel([["a", gate]]), timing=EXPIRING, max_turns=1) as dying:
        run = await start(dying, importing())
        async with worker(store, next_model, max_turns=1) as runs:
            assert await outcome(runs, run) == Completed()
            assert (await contents(runs))[-3:] == ["so", "go on", "yes"]


async def test_what_is_too_large_or_cannot_be_shown_is_not_stored(memory: Ledger) -> None:
    image = MediaPart("image", "https://example.org/a.png")
    shown = (UserMessage(MessageId("h1"), (image,)), *HISTORY[1:])
    long = (UserMessage(MessageId("h1"), "x" * 10_000), *HISTORY[1:])
    timing = replace(QUICK, history_bytes=10_000)
    async with worker(memory, ScriptedModel([]), timing=timing) as runs:
        with pytest.raises(HistoryTooLarge):
            await start(runs, importing(history=long))
        with pytest.raises(UnsupportedAttachment):
            await start(runs, importing(history=shown))
        assert (await memory.status(KEY)).version == 0


# ---------------------------------------------------------------- sent again
IMAGE = MediaPart("image", "https://example.org/a.png")
PICTURE = UserMessage(MessageId("h0"), (IMAGE,))


@pytest.mark.parametrize(
    ("history", "new"),
    [
        ((PICTURE, *HISTORY), "and?"),
        ((UserMessage(MessageId("h0"), "x" * 10_000), *HISTORY), "and?"),
        (HISTORY, "/help"),
    ],
)
async def test_a_history_that_is_sent_again_changes_no_answer(
    memory: Ledger, history: tuple[HistoryMessage, ...], new: str
) -> None:
    """The conversation has messages: what could not begin one is not looked at, on no worker."""
    posted = [("", each) for each in (*history, says(new, "new"))]
    imported = split_history(posted)
    again = StartRun(KEY, imported.new, history=imported.history, resends=True)
    timing, enabled = replace(QUICK, history_bytes=10_000), Commands(enabled=True)
    model = ScriptedModel([words("a"), *[words("b")] * 2])
    async with worker(memory, model) as runs:
        await reply(runs, says())
    async with worker(memory, model, timing=timing, commands=enabled) as fresh:
        for _ in range(2):
            assert await outcome(fresh, await start(fresh, again)) == Completed()
        assert not any(
            isinstance(each, UserMessage) and each.imported for each in await record(fresh)
        )


@pytest.mark.parametrize(
    ("stored", "new"), [(says("first", "h1"), "/help"), (PICTURE, "without it")]
)
async def test_what_is_stored_already_is_not_judged_again(
    memory: Ledger, stored: UserMessage, new: str
) -> None:
    """A worker that has not heard of unanswered messages judges only what is new behind them."""
    again = StartRun(KEY, (replace(stored, id=MessageId("r")), says(new, "n")), resends=True)
    async with worker(memory, ScriptedModel([[ModelUnavailable("down")]], media=True)) as runs:
        assert isinstance(await outcome(runs, await post(runs, stored)), Failed)
    commands = Commands(enabled=True)
    async with worker(memory, ScriptedModel([words("b")]), commands=commands) as fresh:
        assert await outcome(fresh, await start(fresh, again)) == Completed()
        ids = [each.id for each in await record(fresh) if isinstance(each, UserMessage)]
        assert ids == [stored.id, "n"]
