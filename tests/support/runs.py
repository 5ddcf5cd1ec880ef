"""Workers, posts and logs for the tests of the engine."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio

from passback.core.events import START, Logged, Outcome, Position, RunEvent, RunFinished, TextDelta
from passback.core.messages import (
    CallId,
    Content,
    ConversationId,
    ConversationKey,
    MessageId,
    OwnerId,
    PostedMessage,
    RunRef,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.ports import ModelClient, Parked, StartRun, Store, Toolset
from passback.engine.loop import Brain
from passback.engine.runs import RunService
from passback.engine.supervisor import Tempo
from passback.toolsets.functions import Functions, FunctionTool

KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
OTHER = ConversationKey(OwnerId("owner"), ConversationId("other"))

QUICK = Tempo(lease=30, heartbeat=0.01, log_delay=0.001, early_result=5, last_words=2)
"""Everything soon, and nothing lost."""

DYING = Tempo(lease=0, heartbeat=3600, log_delay=3600, early_result=5, last_words=0.05)
"""A worker whose leases are over as soon as they are taken, and that does not notice."""

PAINT = ToolSpec("paint", "Paint it.", {"type": "object", "properties": {}})
ASK = ToolSpec("ask", "Ask.", {"type": "object", "properties": {}})


@asynccontextmanager
async def worker(
    store: Store,
    model: ModelClient,
    *tools: FunctionTool,
    tempo: Tempo = QUICK,
    toolsets: Sequence[Toolset] = (),
) -> AsyncGenerator[RunService]:
    """A worker on a store that is open. A hang in the test is a failure after ten seconds."""
    functions = [Functions(tools)] if tools else []
    brain = Brain(model, "be brief", max_turns=4)
    service = RunService(store, brain, [*functions, *toolsets], tempo)
    with anyio.fail_after(10):
        async with service.running():
            yield service


def says(text: str = "hi", message_id: str = "u") -> UserMessage:
    return UserMessage(MessageId(message_id), text)


def result(call_id: CallId, content: Content = "done", message_id: str = "t") -> ToolMessage:
    return ToolMessage(MessageId(message_id), call_id, content)


async def post(
    runs: RunService,
    *messages: PostedMessage,
    key: ConversationKey = KEY,
    tools: Sequence[ToolSpec] | None = None,
) -> RunRef:
    """Post, and expect a run."""
    started = await runs.start(StartRun(key, messages, None if tools is None else tuple(tools)))
    assert isinstance(started, RunRef), started
    return started


async def park(runs: RunService, *messages: PostedMessage) -> Parked:
    """Post, and expect that more is owed."""
    parked = await runs.start(StartRun(KEY, messages))
    assert isinstance(parked, Parked), parked
    return parked


async def followed(runs: RunService, run: RunRef, after: Position = START) -> list[Logged]:
    """A run's log from a position to its end."""
    async with runs.follow(run, after=after) as batches:
        return [logged async for batch in batches for logged in batch]


async def events(runs: RunService, run: RunRef) -> list[RunEvent]:
    return [logged.event for logged in await followed(runs, run)]


async def outcome(runs: RunService, run: RunRef) -> Outcome:
    """How a run ended: it has exactly one terminal event, the last (P6)."""
    finished = [event for event in await events(runs, run) if isinstance(event, RunFinished)]
    assert len(finished) == 1
    return finished[0].outcome


async def reply(runs: RunService, *messages: PostedMessage) -> str:
    """Post, and give the text that the run streams."""
    said = await events(runs, await post(runs, *messages))
    return "".join(event.text for event in said if isinstance(event, TextDelta))


async def until(runs: RunService, run: RunRef, kind: type[RunEvent]) -> Logged:
    """Read a run's log until there is an event of a kind, then leave."""
    async with runs.follow(run) as batches:
        async for batch in batches:
            for logged in batch:
                if isinstance(logged.event, kind):
                    return logged
    raise AssertionError(f"the run ended without {kind.__name__}")


async def call_ids(runs: RunService, key: ConversationKey = KEY) -> list[CallId]:
    """What the client owes."""
    return [one.id for one in (await runs.status(key)).owed]


@asynccontextmanager
async def at_once() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """A task group for things that happen together, bounded."""
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            yield tasks
