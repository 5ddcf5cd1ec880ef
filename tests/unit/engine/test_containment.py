"""Failures of one run, tool or write end neither the others nor the server."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    FAILING_LOST,
    KEY,
    OTHER,
    PAINT,
    QUICK,
    RECOVERING,
    at_once,
    events,
    outcome,
    post,
    reply,
    says,
    until,
    worker,
)
from tests.support.waiting import moment
from typing_extensions import override

from passback.core.changes import Commit, LeaseState, LogWrite
from passback.core.deltas import Finish, ReasoningChunk, TextChunk, ToolCallChunk
from passback.core.errors import ModelRateLimited, StoreError, UnknownConversation
from passback.core.events import (
    START,
    Completed,
    Failed,
    HandedBack,
    RunFinished,
    TextDelta,
    ToolCallArguments,
    ToolResulted,
)
from passback.core.messages import Content, DataPart, TextPart, ToolCall, ToolResult, ToolSpec
from passback.core.permissions import ALLOWED, Permission
from passback.core.toolsets import ToolContext
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.ledger import Ledger
from passback.engine.next_run import LOST_RUN
from passback.engine.service import RunService
from passback.engine.toolbox import RESULT_BYTES
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.native.responses import NativeEncoder
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


class Foreign:
    """A toolset with one tool, `look`, that gives or raises what it was made with."""

    def __init__(self, answer: Content | BaseException) -> None:
        self._answer = answer

    async def specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec("look", "", {"type": "object"})]

    def is_read_only(self, name: str, /) -> bool:
        return True

    def is_repeatable(self, name: str, /) -> bool:
        return False

    def permission(self, call: ToolCall, /) -> Permission:
        return ALLOWED

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return ToolResult(self._answer)


class Wrapped:
    """A store of which a test replaces some methods."""

    def __init__(self, store: Ledger) -> None:
        self.real = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


# ---------------------------------------------------------------- text that cannot be written
async def test_half_a_character_from_a_model_becomes_a_mark(store: Ledger) -> None:
    script: list[Step] = [
        TextChunk("a\ud83d"),
        ReasoningChunk("\udc00b"),
        ToolCallChunk(0, name="paint", arguments='{"x":"\ud83d"}'),
        Finish("tool_calls"),
    ]
    async with worker(store, ScriptedModel([script])) as runs:
        run = await post(runs, says(), tools=[PAINT])
        seen = await events(runs, run)
        assert TextDelta("a\ufffd") in seen
        assert [e.delta for e in seen if isinstance(e, ToolCallArguments)] == ['{"x":"\ufffd"}']
        assert isinstance(await outcome(runs, run), HandedBack)


@pytest.mark.parametrize(
    ("answer", "shown", "is_error"),
    [
        ("a\ud83d", "a\ufffd", False),
        ((DataPart({"n": cast("Any", object())}),), "The tool failed.", True),
        ((TextPart("\ud83d"),), "The tool failed.", True),
        ("x" * RESULT_BYTES, "The tool's result is too large.", True),
        (SystemExit(2), "The tool failed.", True),
        (RuntimeError("secret"), "The tool failed.", True),
    ],
    ids=["half a character", "no JSON", "half a character in a part", "large", "exit", "broken"],
)
@pytest.mark.promise("P11")
async def test_whatever_a_toolset_does_is_a_result(
    memory: Ledger, answer: Content | BaseException, shown: str, is_error: bool
) -> None:
    model = ScriptedModel([calls(("look", {})), words("so")])
    async with worker(memory, model, toolsets=[Foreign(answer)]) as runs:
        run = await post(runs, says())
        results = [e for e in await events(runs, run) if isinstance(e, ToolResulted)]
        assert [(one.content, one.is_error) for one in results] == [(shown, is_error)]
        assert await outcome(runs, run) == Completed()


async def test_a_tool_that_exits_is_a_tool_that_failed(memory: Ledger) -> None:
    @tool
    def leave() -> None:
        sys.exit(2)

    model = ScriptedModel([calls(("leave", {})), words("still here")])
    async with worker(memory, model, leave) as runs:
        assert await reply(runs, says()) == "still here"


# ---------------------------------------------------------------- one write among many
async def test_a_log_that_cannot_be_written_does_not_hold_up_the_others(memory: Ledger) -> None:
    faulty = Refuses(memory)
    gate = anyio.Event()
    model = ScriptedModel([["bad", gate, *words("x")], ["good", gate, *words("y")]])
    async with worker(cast("Ledger", faulty), model) as runs, worker(memory, model) as elsewhere:
        bad = await post(runs, says())
        await until(runs, bad, TextDelta)
        good = await post(runs, says(), key=OTHER)
        assert (await until(elsewhere, good, TextDelta)).event == TextDelta("good")
        assert faulty.refused > 0
        faulty.mended = True
        gate.set()
        assert await outcome(runs, bad) == Completed()


async def test_text_that_came_during_a_failed_write_is_stored_soon(memory: Ledger) -> None:
    faults = Faults(memory)
    more, never = anyio.Event(), anyio.Event()

    async def say_more() -> None:
        more.set()
        await anyio.wait_all_tasks_blocked()

    faults.first["append"] = say_more
    faults.plan["append"] = ["refuse"]
    model = ScriptedModel([["one", more, "two", never]])
    async with worker(faults.store, model) as runs, worker(memory, model) as elsewhere:
        run = await post(runs, says())
        async with elsewhere.follow(run) as batches:
            seen: list[object] = []
            async for batch in batches:
                seen += [one.event for one in batch]
                if TextDelta("two") in seen:
                    break
        assert await runs.cancel(run)
        await outcome(runs, run)


@pytest.mark.parametrize("method", ["renew", "append"])
async def test_an_error_that_nobody_expects_ends_no_run(memory: Ledger, method: str) -> None:
    class Broken(Wrapped):
        broken = 0

        @override
        def __getattr__(self, name: str) -> Any:
            if name != method or self.broken:
                return super().__getattr__(name)
            self.broken += 1

            async def fail(*_: object, **__: object) -> None:
                raise RuntimeError("unexpected")

            return fail

    store = Broken(memory)
    gate = anyio.Event()
    model = ScriptedModel([["a", gate, *words("b")], words("c")])
    async with worker(cast("Ledger", store), model) as runs:
        run = await post(runs, says())
        while not store.broken:
            await anyio.wait_all_tasks_blocked()
        gate.set()
        assert await outcome(runs, run) == Completed()
        assert await reply(runs, says()) == "c"


class Refuses(Wrapped):
    """A store that refuses the log of one conversation, until it is mended."""

    refused = 0
    mended = False

    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        answers: list[LeaseState | StoreError] = []
        for write in writes:
            if write.lease.run.key == KEY and not self.mended:
                self.refused += 1
                answers.append(StoreError("damaged"))
            else:
                answers += await self.real.append([write], lease=lease)
        return answers


async def test_a_commit_waits_for_the_text_before_it_to_be_stored(memory: Ledger) -> None:
    faulty = Refuses(memory)
    gate = anyio.Event()
    async with worker(cast("Ledger", faulty), ScriptedModel([["bad", gate, *words("x")]])) as runs:
        run = await post(runs, says())
        while not faulty.refused:
            await anyio.wait_all_tasks_blocked()
        gate.set()
        seen = faulty.refused
        while faulty.refused < seen + 3:
            await anyio.wait_all_tasks_blocked()
        faulty.mended = True
        assert await outcome(runs, run) == Completed()


async def test_a_write_that_the_store_never_answers_times_out(
    memory: Ledger,
) -> None:
    faults = Faults(memory)
    faults.first["commit"] = anyio.sleep_forever
    timing = replace(QUICK, write_timeout=0.05)
    async with worker(faults.store, ScriptedModel([words("x")]), timing=timing) as runs:
        run = await post(runs, says())
        assert await outcome(runs, run) == Completed()
        assert faults.calls["commit"] == 1  # the one that came back


async def test_a_heartbeat_that_comes_too_late_changes_no_outcome(memory: Ledger) -> None:
    faults = Faults(memory)
    gate = anyio.Event()

    async def end_first() -> None:
        gate.set()
        await faults.until("commit", 1)

    faults.first["renew"] = end_first
    async with worker(faults.store, ScriptedModel([["a", gate, *words("b")]])) as runs:
        run = await post(runs, says())
        await faults.until("renew", 1)
        assert await outcome(runs, run) == Completed()


async def test_an_end_that_cannot_be_written_ends_only_its_own_run(memory: Ledger) -> None:
    class Broken(Wrapped):
        async def commit(self, commit: Commit, /, *, lease: float) -> bool:
            if commit.log.lease.run.key == KEY:
                raise RuntimeError("unexpected")
            return await self.real.commit(commit, lease=lease)

    store = cast("Ledger", Broken(memory))
    timing = replace(FAILING_LOST, lease=0.3)
    async with worker(store, ScriptedModel([words("x"), words("y")]), timing=timing) as runs:
        run = await post(runs, says())
        assert await outcome(runs, run) == LOST_RUN
        other = await post(runs, says(), key=OTHER)
        assert await outcome(runs, other) == Completed()


async def test_a_conversation_that_cannot_be_taken_over_does_not_hold_up_the_others(
    store: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    class Fragile(Foreign):
        """A toolset that breaks when it is asked for the second time."""

        asked = 0

        @override
        async def specs(self) -> Sequence[ToolSpec]:
            self.asked += 1
            if self.asked == 2:
                raise RuntimeError("secret")
            return await super().specs()

    async with worker(store, ScriptedModel([["half", anyio.Event()]] * 2)) as leaving:
        for key in (KEY, OTHER):
            await until(leaving, await post(leaving, says(), key=key), TextDelta)
    model = ScriptedModel([words("one")])
    async with worker(store, model, timing=RECOVERING, toolsets=[Fragile("seen")]):
        while all([(await store.status(key)).running for key in (KEY, OTHER)]):
            await moment()
        assert "conversation broken" in caplog.messages
        assert len(model.requests) == 1


async def test_a_conversation_that_was_forgotten_is_found_again(memory: Ledger) -> None:
    model = ScriptedModel([words(text) for text in "abcd"])
    service = RunService(memory, Agents([ServedAgent(AgentSpec(model))]), QUICK, heard_of=1)
    with anyio.fail_after(5):
        async with service.running():
            for key in (KEY, OTHER, KEY, OTHER):
                assert await outcome(service, await post(service, says(), key=key)) == Completed()
    assert [len(request.messages) for request in model.requests] == [1, 1, 3, 3]


# ---------------------------------------------------------------- the end, whatever else
async def test_deleting_a_conversation_stops_its_run_at_once(store: Ledger) -> None:
    never = anyio.Event()
    model = ScriptedModel([["half", never], ["other", never]])
    slow = replace(QUICK, heartbeat=3600, log_delay=3600)
    async with worker(store, model, timing=slow) as runs:
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        await until(runs, await post(runs, says(), key=OTHER), TextDelta)
        async with at_once() as tasks, runs.follow(run, after=START) as batches:
            tasks.start_soon(runs.delete, KEY)
            last = [one async for batch in batches for one in batch][-1].event
        assert getattr(last, "outcome", None) == Failed(
            "run_not_found", "the conversation was deleted during this run"
        )
        assert model.open_streams == 1
        assert (await runs.status(OTHER)).running
        with pytest.raises(UnknownConversation):
            await runs.status(KEY)


async def test_a_model_that_says_when_to_come_back_is_quoted(memory: Ledger) -> None:
    error = ModelRateLimited("too many requests", retry_after=120)
    async with worker(memory, ScriptedModel([[error]])) as runs:
        run = await post(runs, says())
        failed = Failed("model_rate_limited", "too many requests", retryable=True, retry_after=120)
        assert await outcome(runs, run) == failed
        (frame,) = NativeEncoder().feed(RunFinished(failed))
        assert json.loads(frame) == {
            "type": "error",
            "error": "too many requests",
            "code": "model_rate_limited",
            "retryable": True,
            "retryAfter": 120,
        }
