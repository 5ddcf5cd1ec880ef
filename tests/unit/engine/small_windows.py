"""Conversations that become too large for their model's window."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from tests.support.runs import QUICK, events, post, says, worker

from passback.context.compaction import Compaction
from passback.core.deltas import ModelRequest
from passback.core.events import Compacted, ContextWarned, RunEvent, UsageReported
from passback.core.messages import Message, SummaryMessage
from passback.core.ports import ModelClient
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.supervisor import Timing
from passback.toolsets.functions import FunctionTool, tool

WINDOW = 2_000
"""Tokens: 8,000 characters."""


@tool
def look(size: int) -> str:
    """Look at something large."""
    return "x" * size


def small_window_worker(
    store: Ledger,
    model: ModelClient,
    *tools: FunctionTool,
    window: int = WINDOW,
    timing: Timing = QUICK,
) -> AbstractAsyncContextManager[RunService]:
    """A worker whose model has a small window."""
    return worker(store, model, *tools, timing=timing, context=Compaction(window), max_turns=20)


def window_events(seen: Sequence[RunEvent]) -> list[RunEvent]:
    return [each for each in seen if isinstance(each, ContextWarned | Compacted | UsageReported)]


def shown(request: ModelRequest) -> list[object]:
    return [message.content for message in request.messages]


def summary_in(messages: Sequence[Message]) -> SummaryMessage:
    (found,) = [each for each in messages if isinstance(each, SummaryMessage)]
    return found


async def talk(runs: RunService, *sizes: int) -> list[RunEvent]:
    """Post messages of so many characters, one run each; gives what the last run said."""
    seen: list[RunEvent] = []
    for number, size in enumerate(sizes):
        seen = await events(runs, await post(runs, says(f"{number}" * size, f"u{number}")))
    return seen
