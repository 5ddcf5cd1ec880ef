"""Every run ends once, also when it is cancelled, deleted or fails."""

import asyncio
import logging
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
from tests.support.runs import (
    KEY,
    OTHER,
    PAINT,
    QUICK,
    at_once,
    call_ids,
    events,
    followed,
    outcome,
    post,
    record,
    reply,
    says,
    until,
    worker,
)

from passback.core.budgets import Left
from passback.core.changes import Lease
from passback.core.deltas import Finish, ToolCallChunk, UsageChunk
from passback.core.errors import ModelRateLimited, ModelUnavailable, ShuttingDown
from passback.core.events import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    RunFinished,
    TextDelta,
    ToolCallStarted,
    UsageReported,
)
from passback.core.messages import (
    AssistantMessage,
    RunId,
    RunRef,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    Usage,
)
from passback.core.permissions import ALLOWED, Permission
from passback.core.toolsets import ToolContext
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.ledger import Ledger
from passback.engine.loop import Loop
from passback.engine.reader import CONVERSATION_DELETED
from passback.engine.service import RunService
from passback.engine.supervisor import BROKEN_RUN, Run, Supervisor
from passback.engine.toolbox import Toolbox
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


async def last_answer(runs: RunService) -> tuple[object, bool]:
    """The text of the last message and whether it is marked as cut."""
    message = (await record(runs))[-1]
    assert isinstance(message, AssistantMessage)
    return message.content, message.partial


# ---------------------------------------------------------------- cancel
@pytest.mark.promise("P7")
async def test_a_cancelled_run_keeps_its_text_and_closes_the_model(store: Ledger) -> None:
    model = ScriptedModel([["half a", " sentence", anyio.Event()], words("next")])
    async with worker(store, model) as runs:
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert model.open_streams == 0
        assert await last_answer(runs) == ("half a sentence", True)
        assert await reply(runs, says("go on")) == "next"


@pytest.mark.promise("P7")
async def test_any_worker_can_cancel_a_run(store: Ledger) -> None:
    model = ScriptedModel([["half", anyio.Event()]])
    async with worker(store, model) as owner, worker(store, ScriptedModel([])) as other:
        run = await post(owner, says())
        await until(other, run, TextDelta)
        assert await other.cancel(run)
        assert await outcome(other, run) == Cancelled()
        assert await outcome(owner, run) == Cancelled()
        assert model.open_streams == 0


async def test_a_run_is_cancelled_before_its_first_word(memory: Ledger) -> None:
    model = ScriptedModel([[anyio.Event()]])
    async with worker(memory, model) as runs:
        run = await post(runs, says())
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert await record(runs) == [says()]


async def test_a_run_that_has_ended_cannot_be_cancelled(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("done")])) as runs:
        run = await post(runs, says())
        before = await followed(runs, run)
        assert not await runs.cancel(run)
        assert await followed(runs, run) == before
        assert await last_answer(runs) == ("done", False)


async def test_a_cancelled_call_is_void_and_a_servers_call_is_closed(memory: Ledger) -> None:
    started, never = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """A tool that waits for ever."""
        started.set()
        await never.wait()
        return ""

    model = ScriptedModel([["ok", *calls(("wait", {}))], words("next")])
    async with worker(memory, model, wait) as runs:
        run = await post(runs, says())
        await started.wait()
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        closed = (await record(runs))[-1]
        assert isinstance(closed, ToolMessage)
        assert closed.synthetic == "interrupted"
        assert await reply(runs, says("and?")) == "next"


async def test_an_announced_call_of_a_cancelled_answer_is_not_kept(memory: Ledger) -> None:
    chunk = ToolCallChunk(0, name="paint", arguments="{}")
    model = ScriptedModel([["text", chunk, anyio.Event()]])
    async with worker(memory, model) as runs:
        run = await post(runs, says(), tools=[PAINT])
        await until(runs, run, ToolCallStarted)
        await runs.cancel(run)
        await outcome(runs, run)
        assert await last_answer(runs) == ("text", True)
        assert await call_ids(runs) == []


# ---------------------------------------------------------------- delete
@pytest.mark.promise("P6")
async def test_a_deleted_conversation_ends_its_run_and_every_reader(store: Ledger) -> None:
    model = ScriptedModel([["half", anyio.Event()], words("anew")])
    async with worker(store, model) as owner, worker(store, ScriptedModel([])) as other:
        run = await post(owner, says())
        ends: list[Outcome] = []

        async def read(reader: RunService, reading: anyio.Event) -> None:
            async with reader.follow(run) as batches:
                async for batch in batches:
                    reading.set()
                    last = batch[-1].event
                    if isinstance(last, RunFinished):
                        ends.append(last.outcome)

        async with at_once() as tasks:
            for reader in (owner, other):
                reading = anyio.Event()
                tasks.start_soon(read, reader, reading)
                await reading.wait()
            await owner.delete(KEY)
        assert ends == [CONVERSATION_DELETED, CONVERSATION_DELETED]
        assert await reply(owner, says("again")) == "anew"
    assert model.open_streams == 0


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize(
    ("script", "failure", "kept"),
    [
        ([ModelUnavailable("gone")], Failed("model_unavailable", "gone", retryable=True), None),
        (
            ["half", ModelRateLimited("slow down")],
            Failed("model_rate_limited", "slow down", retryable=True),
            "half",
        ),
        (
            ["half"],
            Failed("model_incomplete", "the model's answer broke off", retryable=True),
            "half",
        ),
        ([], Failed("model_incomplete", "the model's answer broke off", retryable=True), None),
        (
            ["half", ToolCallChunk(0, name="paint", arguments='{"to":'), Finish("length")],
            Failed(
                "model_incomplete",
                "the model's answer was cut off within a tool call",
                retryable=True,
            ),
            "half",
        ),
    ],
    ids=["before the first word", "in the middle", "broken off", "empty", "within a call"],
)
@pytest.mark.promise("P6", "P12")
async def test_a_failing_model_ends_the_run_and_the_conversation_stays_usable(
    store: Ledger, script: list[Step], failure: Failed, kept: str | None
) -> None:
    model = ScriptedModel([script, words("better")])
    async with worker(store, model) as runs:
        assert await outcome(runs, await post(runs, says(), tools=[PAINT])) == failure
        if kept is None:
            assert await record(runs) == [says()]
        else:
            assert await last_answer(runs) == (kept, True)
        assert await reply(runs, says("again")) == "better"
    assert model.open_streams == 0


async def test_the_usage_of_a_failed_answer_is_reported(memory: Ledger) -> None:
    script: list[Step] = [UsageChunk(Usage(5, 0)), ModelUnavailable("gone")]
    async with worker(memory, ScriptedModel([script])) as runs:
        seen = await events(runs, await post(runs, says()))
    assert seen[-2] == UsageReported(Usage(5, 0, estimated=True), Left(turns=3), "scripted")


async def test_the_usage_of_a_cancelled_answer_is_estimated(memory: Ledger) -> None:
    script: list[Step] = [UsageChunk(Usage(5, 1)), "half an answer", anyio.Event()]
    async with worker(memory, ScriptedModel([script])) as runs:
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        await runs.cancel(run)
        seen = await events(runs, run)
    assert seen[-2:] == [
        UsageReported(Usage(5, 4, estimated=True), Left(turns=3), "scripted"),
        RunFinished(Cancelled()),
    ]


async def test_an_unknown_failure_is_logged_and_clients_do_not_get_its_text(
    memory: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[RuntimeError("secret")], [gate, *words("fine")]])
    async with worker(memory, model) as runs:
        broken = await post(runs, says())
        other = await post(runs, says(), key=OTHER)
        assert await outcome(runs, broken) == BROKEN_RUN
        gate.set()
        assert await outcome(runs, other) == Completed()
    assert "secret" not in BROKEN_RUN.message
    (entry,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert entry.exc_info is not None


class BadToolset:
    """A toolset whose calls answer with text that no store can keep, or raise, which none may."""

    def __init__(self, error: BaseException | None, *, read_only: bool = True) -> None:
        self.error = error
        self.read_only = read_only

    async def specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec("look", "", {})]

    def is_read_only(self, name: str, /) -> bool:
        return self.read_only

    def is_repeatable(self, name: str, /) -> bool:
        return False

    def permission(self, call: ToolCall, /) -> Permission:
        return ALLOWED

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        if self.error:
            raise self.error
        return ToolResult("\ud800")


async def test_what_cannot_be_written_down_does_not_end_the_other_runs(memory: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("fine")], calls(("look", {}))])
    async with worker(memory, model, toolsets=[BadToolset(None, read_only=False)]) as runs:
        other = await post(runs, says(), key=OTHER)
        await anyio.wait_all_tasks_blocked()
        broken = await post(runs, says())
        await until_forgotten(runs, broken.run_id)
        gate.set()
        assert await outcome(runs, other) == Completed()


async def until_forgotten(runs: RunService, run_id: str) -> None:
    """Wait until a run does not go on in its worker any more."""
    while any(task.name == run_id for task in anyio.get_running_tasks()):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("error", [RuntimeError("secret"), asyncio.CancelledError()])
@pytest.mark.promise("P5")
async def test_a_broken_toolset_is_an_error_that_the_model_can_react_to(
    memory: Ledger, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    model = ScriptedModel([calls(("look", {}), ("look", {})), words("pity")])
    async with worker(memory, model, toolsets=[BadToolset(error)]) as runs:
        assert await reply(runs, says()) == "pity"
        answers = [m for m in await record(runs) if isinstance(m, ToolMessage)]
    assert [(one.content, one.is_error) for one in answers] == [("The tool failed.", True)] * 2
    assert "toolset failed" in caplog.messages


async def test_runs_need_their_service_around_them(memory: Ledger) -> None:
    spec = AgentSpec(ScriptedModel([]))
    with pytest.raises(ShuttingDown):
        await post(RunService(memory, Agents([ServedAgent(spec)])), says())
    supervisor = Supervisor(memory, QUICK)

    async def take() -> Lease:
        return Lease(RunRef(KEY, RunId("r")), 1, "fence")

    with pytest.raises(RuntimeError):
        await supervisor.start(KEY.owner, take, Run(Loop(spec, Toolbox({}, ()), ()), ()))
