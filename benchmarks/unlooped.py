"""The product with its agent's loop off: one model call, streamed through the same log and wire, and nothing besides.

    python -m benchmarks.unlooped serve --store redis://127.0.0.1:6379/0 ...

All is `passback serve` as it comes, but what works in a run is another: the text of the model's one answer goes to the
log as it comes, and the whole message is committed together with the run's end. So what is left out is all that makes
an agent of it: watching the context, pairing the transcript, assembling calls and thoughts and judging them, tools,
commands, output schemas, turns, counting what is spent, and the conversation's state. The post, the lease, the supervisor with its
deadlines, the log and the wire are there. It answers with text only, and an answer that breaks off ends as if it were whole.
"""

import sys
from collections.abc import Callable, Sequence
from typing import cast

from passback import cli
from passback.core.deltas import ModelRequest, TextChunk, UsageChunk
from passback.core.events import (
    Completed,
    Outcome,
    RunEvent,
    RunFinished,
    TextDelta,
    TurnStarted,
    UsageReported,
)
from passback.core.ids import new_message_id
from passback.core.messages import AssistantMessage, ModelMessage, Usage
from passback.engine import supervisor
from passback.engine.agents import Answering
from passback.engine.children import Journal
from passback.engine.log import End
from passback.engine.loop import RunWork
from passback.engine.spending import Meter


class OneAnswer:
    """A run of one model call; at the door of `passback.engine.loop.Loop`."""

    def __init__(
        self, work: RunWork, log: Journal, _leaving: Callable[[], bool], _meter: Meter
    ) -> None:
        self._work = work
        self._log = log

    async def run(self) -> None:
        message_id, log = new_message_id(), self._log
        log.append([TurnStarted(message_id)])
        text: list[str] = []
        usage: Usage | None = None
        async with self._work.prepared or _ask(self._work) as batches:
            async for deltas in batches:
                events: list[RunEvent] = []
                for delta in deltas:
                    if isinstance(delta, TextChunk):
                        text.append(delta.text)
                        events.append(TextDelta(delta.text))
                    elif isinstance(delta, UsageChunk):
                        usage = delta.usage
                if events:
                    log.append(events)
        message = AssistantMessage(message_id, "".join(text), usage=usage)
        reported = () if usage is None else (UsageReported(usage),)
        await log.commit((message,), (*reported, RunFinished(Completed())), End(()))

    async def stop(self, outcome: Outcome) -> None:
        await self._log.commit((), (RunFinished(outcome),), End((), cut=True))


def _ask(work: RunWork) -> Answering:
    messages = cast("Sequence[ModelMessage]", work.messages)
    return work.spec.model.stream(ModelRequest(messages, work.spec.prompt))


def _prepare(work: RunWork) -> None:
    work.prepared = _ask(work)


if __name__ == "__main__":
    vars(supervisor)["Loop"] = OneAnswer  # the one place that makes them
    RunWork.prepare = _prepare  # type: ignore[assignment, method-assign]  # its first request is left out, too
    sys.exit(cli.main())
