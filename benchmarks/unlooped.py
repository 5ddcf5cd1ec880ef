"""The product with its agent's loop off: one model call, through the same log and wire.

    python -m benchmarks.unlooped serve --store redis://127.0.0.1:6379/0 ...

All is `passback serve` as it comes, but for the loop of a run: the text of the model's one answer
goes to the log as it comes, and the whole message is committed together with the run's end. So what
is left out is all that makes an agent of it: watching the context, pairing the transcript,
assembling calls and thoughts and judging them, tools, commands, output schemas, turns, counting
what is spent, and the conversation's state. The post, the lease, the supervisor with its deadlines,
the log and the wire are there. It answers with text only, and an answer that breaks off ends as if
it were whole.
"""

import sys
from collections.abc import Callable, Sequence
from typing import cast

from typing_extensions import override

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
from passback.engine import service
from passback.engine.agents import Answering
from passback.engine.children import Journal
from passback.engine.log import End
from passback.engine.loop import Loop
from passback.engine.spending import Meter


class OneAnswer(Loop):
    """A run of one model call."""

    _prepared: Answering | None = None

    @override
    def prepare(self) -> None:
        self._prepared = self._prepared or self._ask()

    @override
    def bind(self, log: Journal, _meter: Meter, _leaving: Callable[[], bool]) -> None:
        self._log = log

    @override
    async def run(self) -> None:
        log = self._log
        message_id = new_message_id(log.run.key)
        log.append([TurnStarted(message_id)])
        text: list[str] = []
        usage: Usage | None = None
        async with self._prepared or self._ask() as batches:
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

    @override
    async def stop(self, outcome: Outcome) -> None:
        await self._log.commit((), (RunFinished(outcome),), End((), stopped_early=True))

    def _ask(self) -> Answering:
        messages = cast("Sequence[ModelMessage]", self.messages)
        return self.spec.model.stream(ModelRequest(messages, self.spec.prompt))


if __name__ == "__main__":
    vars(service)["Loop"] = OneAnswer  # the place that makes those of posts
    sys.exit(cli.main())
