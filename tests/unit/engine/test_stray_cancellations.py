"""Foreign code that cancels, exits or never ends: its own failure, which ends nothing else."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.support.runs import OTHER, outcome, post, record, reply, until, worker
from tests.support.runs import says as user
from tests.support.transcript_rules import faults_of
from tests.unit.engine.counted_tools import CountedTools, called, results
from typing_extensions import override

from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.events import Cancelled, Completed, Outcome, TextDelta, ToolCallStarted
from passback.core.messages import RunId, RunRef, ToolCall
from passback.core.permissions import Decision
from passback.engine.commands import CommandContext, Commands
from passback.engine.guarding import EXTRA_PROMPT_MISSING, count_left_behind, extra_prompt
from passback.engine.judging import CallJudge
from passback.engine.ledger import Ledger
from passback.engine.supervisor import BROKEN_RUN
from passback.models.scripted import ScriptedModel, Step, says
from passback.schemas.arguments import find_objection
from passback.toolsets.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio


async def stray() -> None:
    """Await a task that somebody has cancelled."""
    task = asyncio.create_task(anyio.sleep_forever())
    task.cancel()
    await task


async def judges(_call: ToolCall, _run: RunRef) -> Decision | None:
    await stray()
    return None


async def tells(_run: RunRef) -> str:
    await stray()
    return ""


async def run_stray(_words: str, _context: CommandContext) -> str:
    await stray()
    return ""


@tool
async def strays() -> None:
    await stray()


class Straying(ScriptedModel):
    """A model that is cancelled by nobody where its script is over."""

    @override
    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        async with super().stream(request) as batches:
            yield batches
            await stray()


async def beside_another(store: Ledger, model: ScriptedModel, **agent: Any) -> Outcome:
    """Return how a failing run ends beside another one, which goes on until it is cancelled."""
    counted = CountedTools()
    async with worker(store, model, strays, counted.tool("pay"), **agent) as runs:
        other = await post(runs, user("other", "u0"), key=OTHER)
        await until(runs, other, TextDelta)
        ending = await outcome(runs, await post(runs, user()))
        assert faults_of(await record(runs), running=False) == []
        assert await runs.cancel(other)
        assert await outcome(runs, other) == Cancelled()
    return ending


def goes_on() -> list[Step]:
    return ["one", anyio.Event()]


async def test_a_rule_that_is_cancelled_by_nobody_denies_its_call(memory: Ledger) -> None:
    model = ScriptedModel([goes_on(), called("pay"), says("so")])
    assert await beside_another(memory, model, rules=[judges]) == Completed()


async def test_a_tool_that_is_cancelled_by_nobody_has_failed(memory: Ledger) -> None:
    model = ScriptedModel([called("strays"), says("so")])
    async with worker(memory, model, strays) as runs:
        assert await reply(runs, user()) == "so"
        assert await results(runs) == ["The tool failed: StrayCancellation."]


async def test_a_command_that_is_cancelled_by_nobody_has_failed(memory: Ledger) -> None:
    commands = Commands({"do": run_stray}, enabled=True)
    async with worker(memory, ScriptedModel([]), commands=commands) as runs:
        assert await reply(runs, user("/do")) == "The command failed: StrayCancellation."


async def test_a_stray_cancelled_context_is_missing_in_one_run(memory: Ledger) -> None:
    model = ScriptedModel([goes_on(), says("so")])
    prompt = extra_prompt(tells)

    async def at_last(run: RunRef) -> str:
        return "" if run.key == OTHER else await prompt(run)

    assert await beside_another(memory, model, extra_prompt=at_last) == Completed()
    assert model.requests[1].system.endswith(EXTRA_PROMPT_MISSING)


async def test_a_model_that_is_cancelled_by_nobody_breaks_its_run_alone(memory: Ledger) -> None:
    model = Straying([goes_on(), says("so")])
    assert await beside_another(memory, model) == BROKEN_RUN


class Panic(BaseException):
    """An exception like those of a library in another language."""


@pytest.mark.parametrize("ending", [Panic, SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_whatever_a_function_raises_is_its_own_failure(
    memory: Ledger, ending: type[BaseException], plain: bool
) -> None:
    def now() -> str:
        raise ending

    def tell(_: RunRef) -> str:
        return now()

    async def later() -> None:
        raise ending

    does = tool(name="raises")(now if plain else later)
    assert await extra_prompt(tell)(RunRef(OTHER, RunId("r"))) == EXTRA_PROMPT_MISSING
    async with worker(memory, ScriptedModel([called("raises"), says("so")]), does) as runs:
        assert await reply(runs, user()) == "so"
        assert await results(runs) == ["The tool failed: StrayExit."]


class Panicking(ScriptedModel):
    """A model that ends as no error does where its script is over."""

    @override
    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        async with super().stream(request) as batches:
            yield batches
            raise Panic


async def test_a_model_that_panics_breaks_its_run_alone(memory: Ledger) -> None:
    assert await beside_another(memory, Panicking([goes_on(), says("so")])) == BROKEN_RUN


@asynccontextmanager
async def ignoring_cancellation(seconds: float) -> AsyncGenerator[FunctionTool]:
    """A tool that goes on whatever comes, until the context ends; it was cancelled once then."""
    tries = 0
    gate = anyio.Event()

    @tool(seconds=seconds)
    async def ignores() -> str:
        nonlocal tries
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                tries += 1
        return "at last"

    yield ignores
    assert (tries, count_left_behind()) == (1, 1)
    gate.set()
    while count_left_behind():
        await anyio.lowlevel.checkpoint()


async def test_a_function_that_outlives_its_deadline_is_left_behind(memory: Ledger) -> None:
    model = ScriptedModel([called("ignores"), says("so")])
    async with ignoring_cancellation(0.01) as ignores, worker(memory, model, ignores) as runs:
        assert await reply(runs, user()) == "so"
        assert await results(runs) == ["The tool did not answer in 0.01 s."]


@pytest.mark.promise("P7")
async def test_an_uncancellable_function_does_not_hold_up_its_run(memory: Ledger) -> None:
    model = ScriptedModel([called("ignores"), says("so")])
    async with ignoring_cancellation(60) as ignores, worker(memory, model, ignores) as runs:
        run = await post(runs, user())
        await until(runs, run, ToolCallStarted)
        await anyio.wait_all_tasks_blocked()
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert await reply(runs, user("again", "u2")) == "so"


async def test_a_stray_cancellation_differs_from_an_earlier_deadline(memory: Ledger) -> None:
    """A deadline's earlier cancellation in a task does not count for later ones."""

    async def hangs_once(call: ToolCall, run: RunRef) -> Decision | None:
        if call.name == "strays":
            return await judges(call, run)
        await anyio.sleep_forever()
        raise AssertionError

    judge = CallJudge(find_objection, [hangs_once], seconds=0.01)
    model = Straying([called("pay", "strays")])
    async with worker(memory, model, strays, CountedTools().tool("pay"), judge=judge) as runs:
        assert await outcome(runs, await post(runs, user())) == BROKEN_RUN
    next_model = ScriptedModel([called("pay", "strays"), says("so")])
    async with worker(memory, next_model, strays, CountedTools().tool("pay"), judge=judge) as runs:
        assert await reply(runs, user("again", "u2")) == "so"
        late, unknown = (str(each) for each in await results(runs))
        assert late.endswith("was not found out in time")
        assert unknown.endswith("could not be found out")
