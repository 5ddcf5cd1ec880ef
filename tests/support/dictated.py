"""A model that says what a test dictates, piece by piece, and asks of each request whether a provider would take it."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import anyio
from tests.support.pairing import violations_of
from tests.support.walks import Pick

from passback.core.deltas import ModelDelta, ModelRequest, UsageChunk
from passback.core.messages import MediaPart, Usage
from passback.models.openai_chat.encoding import encode_request


class Dictation:
    """One call of the model. `calls` counts the calls of tools that it was told to make."""

    def __init__(self) -> None:
        self.calls = 0
        self._orders: list[ModelDelta | Exception | None] = []
        self._more = anyio.Event()

    @property
    def waits(self) -> bool:
        """Whether it has said all that it was told to."""
        return not self._orders

    def say(self, *orders: ModelDelta | Exception | None) -> None:
        """An exception is raised there; None ends the answer."""
        self._orders += orders
        self._more.set()

    async def play(self) -> AsyncGenerator[Sequence[ModelDelta]]:
        while True:
            while not self._orders:
                await self._more.wait()
                self._more = anyio.Event()
            order = self._orders[0]
            if isinstance(order, Exception):
                raise order
            if order is None:
                return
            yield [order]
            self._orders.pop(0)


class Dictated:
    """Implements the door `ModelClient`.

    Attributes:
        open: the calls that go on.
        violations: what a provider would have refused, with the messages.
    """

    def __init__(self) -> None:
        self.open: list[Dictation] = []
        self.violations: list[str] = []

    @property
    def name(self) -> str:
        return "dictated"

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        messages = json.loads(encode_request("model", "provider", request))["messages"]
        if wrong := violations_of(messages):
            self.violations.append(f"{wrong}, in {json.dumps(messages, indent=1)}")
        dictation = Dictation()
        self.open.append(dictation)
        try:
            async with aclosing(dictation.play()) as batches:
                yield batches
        finally:
            self.open.remove(dictation)

    def refuses(self, part: MediaPart, /) -> None: ...

    async def check(self) -> None: ...

    async def aclose(self) -> None: ...


def some_usage(pick: Pick) -> UsageChunk:
    return UsageChunk(Usage(1 + pick.below(5), pick.below(5), pick.below(3), pick.below(2)))
