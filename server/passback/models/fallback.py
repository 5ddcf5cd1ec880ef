"""Several models in a row: the next one is asked when one fails before it has said anything."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from passback.core.deltas import ModelDelta, ModelRequest, UsageChunk
from passback.core.errors import ModelError, ModelIncomplete
from passback.core.messages import MediaPart
from passback.core.ports import ModelClient

Batches: TypeAlias = AsyncIterator[Sequence[ModelDelta]]
Answering: TypeAlias = AbstractAsyncContextManager[Batches]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Begun:
    """An answer: what was read of it to see that it begins, and the rest."""

    first: Sequence[ModelDelta]
    rest: Batches


class Fallback:
    """Models in the order in which they are asked, each with its own attempts and its own patience.

    The next one is asked when one fails retryably, or ends, before its first delta that says something; what it
    reported of its usage by then is forgotten. The last one's answer is passed on as it comes.

    Args:
        models: at least one; they are closed with this one.
    """

    def __init__(self, models: Sequence[ModelClient]) -> None:
        self._models = tuple(models)

    @property
    def name(self) -> str:
        return ",".join(model.name for model in self._models)

    def stream(self, request: ModelRequest, /) -> Answering:
        return self._stream(request, self._models[0].stream(request))

    @asynccontextmanager
    async def _stream(self, request: ModelRequest, answering: Answering) -> AsyncGenerator[Batches]:
        async with AsyncExitStack() as stack:
            begun = await self._begin(stack, request, answering)
            yield await stack.enter_async_context(aclosing(_whole(begun)))

    def refuses(self, part: MediaPart, /) -> str | None:
        """What one of them cannot be shown, none is: any of them may have to answer."""
        return next((why for model in self._models if (why := model.refuses(part))), None)

    async def check(self) -> None:
        """Whether each of them can be used.

        Raises:
            ModelError: one cannot.
        """
        for model in self._models:
            await model.check()

    async def aclose(self) -> None:
        async with AsyncExitStack() as stack:
            for model in self._models:
                stack.push_async_callback(model.aclose)

    async def _begin(
        self, stack: AsyncExitStack, request: ModelRequest, answering: Answering
    ) -> _Begun:
        """The first answer that begins, held open by the stack."""
        for model, following in pairwise(self._models):
            try:
                async with AsyncExitStack() as attempt:
                    begun = await _awaited(await attempt.enter_async_context(answering))
                    stack.push_async_exit(attempt.pop_all())
                    return begun
            except ModelError as failure:
                if not failure.retryable:
                    raise
                logger.warning(
                    "model=%s failed code=%s next=%s", model.name, failure.code, following.name
                )
            answering = following.stream(request)
        return _Begun((), await stack.enter_async_context(answering))


async def _awaited(batches: Batches) -> _Begun:
    """Read until the answer says something.

    Raises:
        ModelError: it failed, or ended, before that.
    """
    usage: Sequence[ModelDelta] = ()
    async for batch in batches:
        if not all(isinstance(delta, UsageChunk) for delta in batch):
            return _Begun((*usage, *batch), batches)
        usage = batch[-1:]
    raise ModelIncomplete("the model's answer broke off")


async def _whole(begun: _Begun) -> AsyncGenerator[Sequence[ModelDelta]]:
    if begun.first:
        yield begun.first
    async for batch in begun.rest:
        yield batch
