"""Several models in a row: the next one is asked when one fails before it has said anything."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from passback.core.deltas import (
    AnsweredBy,
    LostUsageChunk,
    ModelDelta,
    ModelRequest,
    UsageChunk,
)
from passback.core.errors import ModelError, ModelIncomplete
from passback.core.messages import MediaPart, Usage, together
from passback.core.ports import ModelClient
from passback.core.values import value

Batches: TypeAlias = AsyncIterator[Sequence[ModelDelta]]
Answering: TypeAlias = AbstractAsyncContextManager[Batches]

logger = logging.getLogger(__name__)


@value
class _Begun:
    """An answer: what was read of it to see that it begins, and the rest."""

    first: Sequence[ModelDelta]
    rest: Batches


@value
class _Failed:
    """An attempt that came to nothing, and what it cost as far as is known."""

    error: ModelError
    spent: Usage | None


class Fallback:
    """Models in the order in which they are asked, each with its own attempts and its own patience.

    The next one is asked when one fails retryably, or ends, before its first delta that says something; what it
    reported of its usage by then is told as lost. The last one's answer is passed on as it comes. Each answer begins with
    the name of the model that gives it.

    Args:
        models: at least one; they are closed with this one.
    """

    def __init__(self, models: Sequence[ModelClient]) -> None:
        self._models = tuple(models)

    @property
    def models(self) -> Sequence[ModelClient]:
        """In the order in which they are asked."""
        return self._models

    @property
    def name(self) -> str:
        return ",".join(model.name for model in self._models)

    def stream(self, request: ModelRequest, /) -> Answering:
        return self._stream(request, self._models[0].stream(request))

    @asynccontextmanager
    async def _stream(self, request: ModelRequest, answering: Answering) -> AsyncGenerator[Batches]:
        async with AsyncExitStack() as stack:
            yield await stack.enter_async_context(aclosing(self._read(stack, request, answering)))

    def refuses(self, part: MediaPart, /) -> str | None:
        """What one of them cannot be shown, none is: any of them may have to answer."""
        return next((why for model in self._models if (why := model.refuses(part))), None)

    async def check(self) -> Sequence[str]:
        """Whether each of them can be used; gives the warnings of all.

        Raises:
            ModelError: one cannot.
        """
        warnings: list[str] = []
        for model in self._models:
            warnings += await model.check() or ()
        return warnings

    async def aclose(self) -> None:
        async with AsyncExitStack() as stack:
            for model in self._models:
                stack.push_async_callback(model.aclose)

    async def _read(
        self, stack: AsyncExitStack, request: ModelRequest, answering: Answering
    ) -> AsyncGenerator[Sequence[ModelDelta]]:
        """The first answer that begins, held open by the stack, behind what was lost before it."""
        for model, following in pairwise(self._models):
            tried = await _tried(stack, answering, AnsweredBy(model.name))
            if isinstance(tried, _Begun):
                yield tried.first
                async for batch in tried.rest:
                    yield batch
                return
            if tried.spent is not None:
                yield (LostUsageChunk(tried.spent),)
            if not tried.error.retryable:
                raise tried.error
            logger.warning(
                "model=%s failed code=%s next=%s", model.name, tried.error.code, following.name
            )
            answering = following.stream(request)
        batches = await stack.enter_async_context(answering)
        yield (AnsweredBy(self._models[-1].name),)
        async for batch in batches:
            yield batch


async def _tried(
    stack: AsyncExitStack, answering: Answering, answers: AnsweredBy
) -> _Begun | _Failed:
    """Read an answer until it says something; if it does, the stack holds it open."""
    counted = _Counted(answers)
    try:
        async with AsyncExitStack() as attempt:
            batches = await attempt.enter_async_context(answering)
            async for batch in batches:
                if not counted.take(batch):
                    stack.push_async_exit(attempt.pop_all())
                    return _Begun((*counted.told(), *batch), batches)
            raise ModelIncomplete("the model's answer broke off")
    except ModelError as error:
        return _Failed(error, together(counted.lost, counted.usage))


@dataclass(slots=True)
class _Counted:
    """What an answer has told of its model and its usage so far."""

    answers: AnsweredBy
    usage: Usage | None = None
    lost: Usage | None = None

    def take(self, batch: Sequence[ModelDelta]) -> bool:
        """False, and nothing is taken: the batch says something."""
        if not all(isinstance(delta, UsageChunk | LostUsageChunk | AnsweredBy) for delta in batch):
            return False
        for delta in batch:
            if isinstance(delta, AnsweredBy):
                self.answers = delta
            elif isinstance(delta, UsageChunk):
                self.usage = delta.usage
            elif isinstance(delta, LostUsageChunk):
                self.lost = together(self.lost, delta.usage)
        return True

    def told(self) -> Sequence[ModelDelta]:
        lost = () if self.lost is None else (LostUsageChunk(self.lost),)
        usage = () if self.usage is None else (UsageChunk(self.usage),)
        return (self.answers, *lost, *usage)
