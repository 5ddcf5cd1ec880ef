"""The deltas of one read."""

from collections.abc import Sequence

from passback.core.deltas import ModelDelta, ReasoningChunk, TextChunk, UsageChunk
from passback.core.messages import Usage


class Batch:
    """Collects deltas; neighbouring texts become one, and of several reports of usage the last is told."""

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._deltas: list[ModelDelta] = []
        self._kind: type[TextChunk | ReasoningChunk] = TextChunk
        self._texts: list[str] = []

    def add_text(self, kind: type[TextChunk | ReasoningChunk], text: str, /) -> None:
        if self._kind is not kind:
            self._join()
            self._kind = kind
        self._texts.append(text)

    def add(self, delta: ModelDelta, /) -> None:
        self._join()
        self._deltas.append(delta)

    def report(self, usage: Usage, /) -> None:
        self._usage = usage

    def take(self) -> Sequence[ModelDelta]:
        """What was collected since the last time."""
        self._join()
        if self._usage:
            self._deltas.append(UsageChunk(self._usage))
            self._usage = None
        deltas, self._deltas = self._deltas, []
        return deltas

    def _join(self) -> None:
        if self._texts:
            if text := "".join(self._texts):
                self._deltas.append(self._kind(text))
            self._texts.clear()
