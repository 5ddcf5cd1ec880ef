"""A chain of models: the next one is asked if a model fails before its answer has content."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
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
from passback.core.messages import MediaPart, Usage, add_usages
from passback.core.ports import ModelClient

Batches: TypeAlias = AsyncIterator[Sequence[ModelDelta]]

logger = logging.getLogger(__name__)


class Fallback:
    """Models in the order in which they are asked, each with its own retries and timeouts.

    The next model is asked if one fails with a retryable error, or ends, before its first delta
    with content. The usage that it reported by then is passed on as lost. The last model's answer
    is passed on as it comes. Each answer begins with the name of the model that gives it.

    Args:
        models: at least one; they are closed with this one.
    """

    def __init__(self, models: Sequence[ModelClient]) -> None:
        self._models = tuple(models)

    @property
    def models(self) -> Sequence[ModelClient]:
        """The models in the order in which they are asked."""
        return self._models

    @property
    def name(self) -> str:
        return ",".join(model.name for model in self._models)

    @asynccontextmanager
    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[Batches]:
        async with AsyncExitStack() as stack:
            yield await stack.enter_async_context(aclosing(self._read_answers(stack, request)))

    def refuses(self, part: MediaPart, /) -> str | None:
        """Return the first model's reason to refuse an attachment, None if all of them take it."""
        # Any of them may have to answer, so what one cannot take is sent to none.
        return next((why for model in self._models if (why := model.refuses(part))), None)

    async def check(self) -> Sequence[str]:
        """Check that each model can be used, and return the warnings of all.

        Raises:
            ModelError: a model cannot be used.
        """
        warnings: list[str] = []
        for model in self._models:
            warnings += await model.check() or ()
        return warnings

    async def aclose(self) -> None:
        async with AsyncExitStack() as stack:
            for model in self._models:
                stack.push_async_callback(model.aclose)

    async def _read_answers(
        self, stack: AsyncExitStack, request: ModelRequest
    ) -> AsyncGenerator[Sequence[ModelDelta]]:
        """Yield the lost usage of failed attempts, then the first answer with content.

        The stack holds that answer open.

        Raises:
            ModelError: a model failed with an error that is not retryable, or the last one failed.
        """
        for model, following in pairwise(self._models):
            attempt = _Attempt(model)
            answer = await attempt.begin(stack, request)
            if not isinstance(answer, ModelError):
                yield attempt.first
                async for batch in answer:
                    yield batch
                return
            if (spent := add_usages(attempt.lost, attempt.usage)) is not None:
                yield (LostUsageChunk(spent),)  # it is paid for all the same
            if not answer.retryable:
                raise answer
            logger.warning(
                "model=%s failed code=%s next=%s", model.name, answer.code, following.name
            )
        last = self._models[-1]
        batches = await stack.enter_async_context(last.stream(request))
        # After the last model nothing can follow, so its answer need not be held back.
        yield (AnsweredBy(last.name),)
        async for batch in batches:
            yield batch


class _Attempt:
    """A model's answer until its first content.

    Attributes:
        usage: the usage that it has reported.
        lost: the usage of attempts of its own that failed.
        first: all deltas up to the first content, as one batch.
    """

    def __init__(self, model: ModelClient) -> None:
        self._model = model
        self._answered_by = AnsweredBy(model.name)
        self.usage: Usage | None = None
        self.lost: Usage | None = None
        self.first: Sequence[ModelDelta] = ()

    async def begin(self, stack: AsyncExitStack, request: ModelRequest) -> Batches | ModelError:
        """Read up to the first content, and return what follows it, which the stack holds open.

        Without any content, return the error.
        """
        try:
            async with AsyncExitStack() as attempt:
                batches = await attempt.enter_async_context(self._model.stream(request))
                async for batch in batches:
                    if not self.add_report(batch):
                        # The caller's stack closes the answer from here on.
                        stack.push_async_exit(attempt.pop_all())
                        lost = () if self.lost is None else (LostUsageChunk(self.lost),)
                        usage = () if self.usage is None else (UsageChunk(self.usage),)
                        self.first = (self._answered_by, *lost, *usage, *batch)
                        return batches
                # An end without content counts as a failure, so that the next model is asked.
                raise ModelIncomplete("the model's answer broke off")
        except ModelError as error:
            return error

    def add_report(self, batch: Sequence[ModelDelta]) -> bool:
        """Add a batch, or return False and add nothing if the batch has content."""
        if not all(isinstance(delta, UsageChunk | LostUsageChunk | AnsweredBy) for delta in batch):
            return False
        for delta in batch:
            if isinstance(delta, AnsweredBy):
                self._answered_by = delta
            elif isinstance(delta, UsageChunk):
                self.usage = delta.usage
            elif isinstance(delta, LostUsageChunk):
                self.lost = add_usages(self.lost, delta.usage)
        return True
