"""Posts that say after which message they go on."""

from collections.abc import Sequence

from tests.support.runs import (
    KEY,
    outcome,
    post,
    record,
    says,
)

from passback.core.deltas import Finish, UsageChunk
from passback.core.events import Completed
from passback.core.messages import (
    MessageId,
    PostedMessage,
    RunRef,
    Usage,
)
from passback.core.posts import OnBusy, StartRun
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step


async def begin_after(
    runs: RunService,
    after: str,
    *messages: PostedMessage,
    key: str | None = None,
    on_busy: OnBusy = "reject",
    named: Sequence[str] = (),
) -> RunRef:
    """Post after a message, and expect a run."""
    started = await runs.start(
        StartRun(
            KEY,
            messages,
            idempotency_key=key,
            named=frozenset(map(MessageId, named)),
            on_busy=on_busy,
            after=MessageId(after),
        )
    )
    assert isinstance(started, RunRef)
    return started


async def answered(runs: RunService, text: str) -> None:
    """Post a message whose id is its text, and wait for the answer."""
    assert await outcome(runs, await post(runs, says(text, text))) == Completed()


async def edited(runs: RunService, after: str, text: str) -> None:
    """Post a message after another one, and wait for the answer."""
    run = await begin_after(runs, after, says(text, text))
    assert await outcome(runs, run) == Completed()


async def anew(runs: RunService, after: str) -> None:
    """Have a message answered anew."""
    assert await outcome(runs, await begin_after(runs, after)) == Completed()


async def id_of(runs: RunService, text: str) -> MessageId:
    """The id of the message of the branch with this text."""
    return next(each.id for each in await record(runs) if getattr(each, "content", "") == text)


def shown(model: ScriptedModel, call: int = -1) -> list[object]:
    return [each.content for each in model.requests[call].messages]


def counted(text: str) -> list[Step]:
    """An answer with its tokens."""
    return [text, UsageChunk(Usage(10, 1)), Finish("stop")]
