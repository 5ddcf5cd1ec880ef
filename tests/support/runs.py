"""Workers, posts and logs for the tests of the engine."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
from tests.support.transcript_rules import said_in
from tests.support.waiting import moment

from passback.core.context import ContextPolicy, Unbounded
from passback.core.events import (
    START,
    Logged,
    Outcome,
    Position,
    Rewound,
    RunEvent,
    RunFinished,
    TextDelta,
)
from passback.core.messages import (
    ApprovalMessage,
    CallId,
    Content,
    ConversationId,
    ConversationKey,
    Message,
    MessageId,
    OwnerId,
    PostedMessage,
    RunRef,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.permissions import Rule
from passback.core.ports import ModelClient
from passback.core.posts import OnBusy, OnDisconnect, Parked, StartRun
from passback.core.toolsets import Toolset
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.judging import CallJudge, OutputJudge
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.supervisor import Timing
from passback.engine.toolbox import ToolSources
from passback.schemas.arguments import find_objection
from passback.toolsets.functions import FunctionTool, FunctionTools

KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
OTHER = ConversationKey(OwnerId("owner"), ConversationId("other"))

QUICK = Timing(
    lease=30, heartbeat=0.01, log_delay=0.001, early_result=5, final_commit_timeout=2, scan=3600
)
"""Everything soon, and nothing lost; it looks for lost runs only where a test asks."""

RECOVERING = replace(QUICK, scan=0.01)
"""A worker that looks for lost runs by itself."""

EXPIRING = Timing(
    lease=0, heartbeat=3600, log_delay=3600, early_result=5, final_commit_timeout=0.05, scan=3600
)
"""A worker whose leases are over as soon as they are taken, and that does not notice."""

EXPIRING_FLUSHED = replace(EXPIRING, log_delay=0.001)
"""A dying worker whose text reaches readers elsewhere."""

FAILING_LOST = replace(QUICK, max_attempts=1)
"""A worker that goes on with nobody's run: it ends those that were lost."""

PAINT = ToolSpec("paint", "Paint it.", {"type": "object", "properties": {}})
ASK = ToolSpec("ask", "Ask.", {"type": "object", "properties": {}})


@asynccontextmanager
async def worker(
    store: Ledger,
    model: ModelClient,
    *tools: FunctionTool,
    timing: Timing = QUICK,
    toolsets: Sequence[Toolset] = (),
    rules: Sequence[Rule] = (),
    offers: Sequence[ToolSpec] = (),
    context: ContextPolicy | None = None,
    models: Sequence[ModelClient] = (),
    seconds: float = 30,
    **spec_fields: Any,
) -> AsyncGenerator[RunService]:
    """A worker on a store that is open. A hang in the test is a failure after `seconds`.

    `offers` are client tools that its agent offers also where no client has declared them, `models`
    are those that a post may choose.
    """
    functions = [FunctionTools(tools)] if tools else []
    judge = CallJudge(find_objection, rules)
    spec = AgentSpec(model, "be brief", 4, judge=judge, context=context or Unbounded())
    spec = replace(spec, **{"output": OutputJudge(find_objection), **spec_fields})
    tool_sources = ToolSources([*functions, *toolsets], offers)
    chosen = {one.name: replace(spec, model=one) for one in models}
    service = RunService(store, Agents([ServedAgent(spec, tool_sources, models=chosen)]), timing)
    with anyio.fail_after(seconds):
        async with service.running():
            yield service


def says(text: str = "hi", message_id: str = "u") -> UserMessage:
    return UserMessage(MessageId(message_id), text)


def result(call_id: CallId, content: Content = "done", message_id: str = "t") -> ToolMessage:
    return ToolMessage(MessageId(message_id), call_id, content)


def approval(call_id: CallId, *, always: bool = False) -> ApprovalMessage:
    return ApprovalMessage(MessageId("yes"), call_id, True, always=always)


def denial(call_id: CallId, reason: str = "", *, always: bool = False) -> ApprovalMessage:
    return ApprovalMessage(MessageId("no"), call_id, False, reason, always)


async def post(
    runs: RunService,
    *messages: PostedMessage,
    key: ConversationKey = KEY,
    tools: Sequence[ToolSpec] | None = None,
    on_busy: OnBusy = "reject",
    on_disconnect: OnDisconnect = "continue",
) -> RunRef:
    """Post, and expect a run."""
    declared = None if tools is None else tuple(tools)
    command = StartRun(key, messages, declared, on_busy=on_busy, on_disconnect=on_disconnect)
    started = await runs.start(command)
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
    """Return how a run ended: it has exactly one terminal event, the last (P6)."""
    finished = [event for event in await events(runs, run) if isinstance(event, RunFinished)]
    assert len(finished) == 1
    return finished[0].outcome


async def over(store: Ledger, run: RunRef) -> None:
    """Wait for a run to have begun and ended, without following it."""
    while (status := await store.status(KEY)).running or status.run_id != run.run_id:
        await moment()


async def reply(runs: RunService, *messages: PostedMessage) -> str:
    """Post, and give the text that the run streams."""
    seen = await events(runs, await post(runs, *messages))
    return "".join(event.text for event in seen if isinstance(event, TextDelta))


async def until(runs: RunService, run: RunRef, kind: type[RunEvent]) -> Logged:
    """Read a run's log until there is an event of a kind, then leave."""
    async with runs.follow(run) as batches:
        async for batch in batches:
            for logged in batch:
                if isinstance(logged.event, kind):
                    return logged
    raise AssertionError(f"the run ended without {kind.__name__}")


async def record(runs: RunService, key: ConversationKey = KEY) -> list[Message]:
    """The whole transcript."""
    page = await runs.messages(key, start=0, limit=1000)
    assert len(page.messages) == page.total
    return list(page.messages)


async def contents(runs: RunService, key: ConversationKey = KEY) -> list[object]:
    """Return the contents of the transcript."""
    return [*said_in(await record(runs, key))]


async def call_ids(runs: RunService, key: ConversationKey = KEY) -> list[CallId]:
    """Return the calls that the client owes."""
    return [one.id for one in (await runs.status(key)).owed]


@asynccontextmanager
async def at_once() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """A task group for things that happen together, bounded."""
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            yield tasks


async def let_pass(runs: RunService) -> None:
    """Let the posts that are under way get as far as they can: the store answers in order."""
    for _ in range(20):
        await runs.status(KEY)
        await anyio.lowlevel.checkpoint()


# ---------------------------------------------------------------- readers in the background
class Reading:
    """The events that a reader has been shown so far."""

    def __init__(self) -> None:
        self.seen: list[Logged] = []
        self._more = anyio.Event()

    async def follow(self, runs: RunService, run: RunRef, after: Position) -> None:
        async with runs.follow(run, after=after) as batches:
            async for batch in batches:
                self.seen += batch
                event, self._more = self._more, anyio.Event()
                event.set()

    async def until(self, event: RunEvent) -> None:
        """Wait until the reader was shown an event."""
        with anyio.fail_after(20):
            while event not in self.events:
                await self._more.wait()

    @property
    def events(self) -> list[RunEvent]:
        return [logged.event for logged in self.seen]


@asynccontextmanager
async def reading(
    runs: RunService, run: RunRef, after: Position = START
) -> AsyncGenerator[Reading]:
    """Follow a run in the background; the context ends when the run has."""
    reader = Reading()
    async with at_once() as tasks:
        tasks.start_soon(reader.follow, runs, run, after)
        yield reader


def standing(seen: Sequence[Logged]) -> list[Logged]:
    """Return what is left of what a reader was shown, without what became void."""
    kept: list[Logged] = []
    for logged in seen:
        if isinstance(logged.event, Rewound):
            to = logged.event.to
            kept = [earlier for earlier in kept if earlier.position <= to]
        else:
            kept.append(logged)
    return kept
