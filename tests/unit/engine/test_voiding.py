"""Voiding after a worker's death with sub-agents: the log's writer and the heir agree on it."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.support.ledgers import open_ledger
from tests.support.store_values import LONG, begin_run, new_key, user

from passback.core.errors import CursorExpired
from passback.core.events import (
    START,
    Compacted,
    ContextWarned,
    Nested,
    ReasoningDelta,
    Rewound,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolProgressed,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    Message,
    MessageId,
    SummaryMessage,
    ToolCall,
    Usage,
)
from passback.engine.ledger import Ledger
from passback.engine.log import LogWriter, RunLog
from passback.engine.next_run import take_over_events
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3", "P10")]

A, B, C = CallId("a"), CallId("b"), CallId("c")
CALLS = (ToolCall(A, "one", "{}"), ToolCall(B, "two", "{}"))
LEAD = AssistantMessage(MessageId("m0"), "", tool_calls=CALLS)
DONE = ChildMessage(A, AssistantMessage(MessageId("m2"), "done"))
TRIMMED_SOON = 1500  # bytes


@dataclass
class Worker:
    """The log of a run whose agent has called two sub-agents, and what stores it."""

    store: Ledger
    log: RunLog
    writer: LogWriter

    async def says(self, *events: RunEvent, by: CallId | None = None) -> None:
        """Show events, and store each by itself."""
        for event in events:
            self.log.append([event if by is None else Nested(by, event)])
            assert await self.writer.flush()

    async def begins(self, *events: RunEvent, by: CallId) -> None:
        """Show what an agent says before its next commit."""
        self.log.begin_turn([Nested(by, event) for event in events], (by,))
        assert await self.writer.flush()

    async def commits(self, *messages: Message, events: Sequence[RunEvent] = ()) -> None:
        await self.log.commit(messages, tuple(events))

    async def voided(self) -> tuple[RunEvent, ...]:
        """Return the voiding that a take-over would announce."""
        return await take_over_events(
            self.store, self.log.run, await self.store.load(self.log.run.key), ()
        )


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncGenerator[Worker]:
    options = StoreOptions(log_bytes=TRIMMED_SOON)
    url = f"sqlite:///{tmp_path}/store.db"
    with anyio.fail_after(20):
        async with open_ledger(url, options=options) as store:
            held = await begin_run(store, new_key(), user("hello"))
            writer = LogWriter(store, delay=0.001, lease=LONG, write_timeout=5)
            log = RunLog(held, [RunStarted(held.run.run_id)], writer, lambda _: None)
            made = Worker(store, log, writer)
            log.begin_turn([TurnStarted(LEAD.id)])
            await made.commits(LEAD)
            yield made


async def committed(worker: Worker) -> Rewound:
    return Rewound((await worker.store.status(worker.log.run.key)).committed)


async def test_a_log_is_not_read_behind_its_last_commit(worker: Worker) -> None:
    progress = [ToolProgressed(A, f"{number} " + "much " * 100) for number in range(12)]
    await worker.says(*progress)
    with pytest.raises(CursorExpired):
        await worker.store.read_log(worker.log.run, after=(await committed(worker)).to)
    assert await worker.voided() == (await committed(worker),)


async def test_a_log_without_what_followed_an_open_turn_is_void(worker: Worker) -> None:
    await worker.begins(TurnStarted(MessageId("mb")), by=B)
    await worker.begins(TurnStarted(MessageId("m2")), TextDelta("done"), by=A)
    await worker.commits(DONE)
    await worker.says(*[ToolProgressed(A, "much " * 100) for _ in range(12)])
    assert await worker.voided() == (Rewound(START),)


async def test_a_turn_repeated_behind_a_summary_keeps_its_commits(worker: Worker) -> None:
    """The model refused the first request, and a summary made room for the second."""
    summary = ChildMessage(A, SummaryMessage(MessageId("s"), "in short", 0))
    made: list[RunEvent] = [UsageReported(Usage(100, 50)), Compacted("summary", 90, 10)]
    await worker.begins(TurnStarted(MessageId("mb")), TextDelta("half"), by=B)
    await worker.begins(TurnStarted(MessageId("m1")), by=A)
    await worker.commits(summary, events=[Nested(A, event) for event in made])
    await worker.begins(TurnStarted(MessageId("m2")), TextDelta("half"), by=A)
    first: list[RunEvent] = [TurnStarted(MessageId("m1")), *made]
    seen: list[RunEvent] = [Nested(A, event) for event in first]
    assert await worker.voided() == (await committed(worker), *seen)
    await worker.commits(DONE)
    seen += [Nested(A, TurnStarted(MessageId("m2"))), Nested(A, TextDelta("half"))]
    assert await worker.voided() == (await committed(worker), *seen)


async def test_a_turn_without_a_word_is_committed_with_its_usage(worker: Worker) -> None:
    usage = UsageReported(Usage(100, 0))
    await worker.begins(TurnStarted(MessageId("mb")), by=B)
    await worker.begins(TurnStarted(MessageId("m1")), by=A)
    await worker.commits(events=[Nested(A, usage)])
    said = [Nested(A, TurnStarted(MessageId("m1"))), Nested(A, usage)]
    assert await worker.voided() == (await committed(worker), *said)


async def test_what_was_shown_before_a_turn_that_broke_off_is_void_with_it(worker: Worker) -> None:
    """The run that goes on finds it out once more."""
    await worker.begins(TurnStarted(MessageId("mb")), by=B)
    await worker.begins(ContextWarned(90, 100), by=A)
    await worker.begins(TurnStarted(MessageId("m2")), TextDelta("half"), by=A)
    await worker.commits(ChildMessage(B, AssistantMessage(MessageId("mb"), "")))
    last = ChildMessage(B, AssistantMessage(MessageId("mc"), "out"))
    await worker.begins(TurnStarted(MessageId("mc")), TextDelta("out"), by=B)
    await worker.commits(last)
    seen: list[RunEvent] = [TurnStarted(MessageId("mc")), TextDelta("out")]
    assert await worker.voided() == (await committed(worker), *(Nested(B, event) for event in seen))


async def test_what_is_said_again_is_said_in_one_piece(worker: Worker) -> None:
    """Another one may have spoken between the pieces; uncommitted text is not repeated."""
    await worker.begins(TurnStarted(MessageId("mc")), by=C)
    for event in (ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("do"), TextDelta("ne")):
        await worker.says(event, by=A)
        await worker.says(TextDelta("x"), by=B)
    arguments = [ToolCallArguments(C, "{"), ToolCallArguments(C, "}"), ToolCallArguments(A, "{}")]
    await worker.says(*arguments, by=A)
    await worker.commits(DONE)
    await worker.says(TextDelta("late"), by=A)
    said: list[tuple[CallId, RunEvent]] = [
        (A, ReasoningDelta("hm")),
        (B, TextDelta("xxxx")),
        (A, TextDelta("done")),
        (A, ToolCallArguments(C, "{}")),
        (A, ToolCallArguments(A, "{}")),
    ]
    assert await worker.voided() == (
        await committed(worker),
        *(Nested(call, event) for call, event in said),
    )
