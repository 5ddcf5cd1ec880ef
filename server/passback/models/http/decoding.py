"""What the decoders of all services have in common: bytes in, batches of deltas out, within bounds. Sans-IO."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from passback.core.deltas import ModelDelta, ReasoningChunk, TextChunk, UsageChunk
from passback.core.errors import ModelError, ModelIncomplete
from passback.core.messages import Usage
from passback.models.http.events import EventReader, JsonDict, WholeReader


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


MAX_ANSWER = 4 * 1024 * 1024
"""Characters of a whole answer: text, reasoning, names and arguments together."""

MAX_CALLS = 256
"""Calls in one answer; more make no sense."""

_MAX_ID = 256


class Decoder(ABC):
    """Feed it what each read brings; call `end` when the stream is over.

    Args:
        whole: the service answers with one object instead of a stream.
        max_answer: see `MAX_ANSWER`.

    Attributes:
        size: characters of content so far; it grows with everything but keep-alives, usage and junk.
        failure: what is wrong with the answer; the deltas before it are good, what follows is ignored.
    """

    def __init__(self, *, whole: bool = False, max_answer: int = MAX_ANSWER) -> None:
        self.size: int = 0
        self.failure: ModelError | None = None
        self._max_answer = max_answer
        self._events = WholeReader() if whole else EventReader()
        self._batch = Batch()

    @property
    def done(self) -> bool:
        """Whether the service has said that nothing follows."""
        return self._events.done

    @property
    def finished(self) -> bool:
        """Whether the answer is complete, so that `end` will say how."""
        return self.failure is None and self._is_complete()

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self.failure:
            raise self.failure

    def feed(self, data: bytes, /) -> Sequence[ModelDelta]:
        """One read, one pass, one batch: neighbouring texts are joined."""
        self._read(data)
        return self._batch.take()

    def take_text(self, data: bytes, /) -> str:
        """The text of a read that says nothing else and needs no parsing; empty: nothing was taken, `feed` it."""
        return ""

    def end(self) -> Sequence[ModelDelta]:
        """What closes the answer. Without a `Finish` in it the answer broke off."""
        self._chunks(self._events.end())
        if self.finished:
            self._close()
        return self._batch.take()

    # ------------------------------------------------------------ the service's own
    @abstractmethod
    def _chunk(self, chunk: JsonDict) -> None:
        """Take one object of the stream."""

    @abstractmethod
    def _is_complete(self) -> bool:
        """Whether the service has said that the answer is whole."""

    @abstractmethod
    def _close(self) -> None:
        """Add what closes a complete answer, last its `Finish`."""

    # ------------------------------------------------------------ for them
    def _fail(self, failure: ModelError) -> None:
        self.failure = self.failure or failure

    def _say(self, text: str) -> None:
        self.size += len(text)
        self._batch.add_text(TextChunk, text)

    def _read(self, data: bytes) -> None:
        self._chunks(self._events.feed(data))
        if self._events.damaged:
            self._fail(ModelIncomplete("the model's answer is damaged"))

    def _chunks(self, chunks: Iterable[JsonDict]) -> None:
        for chunk in chunks:
            if self.failure:
                return
            self._chunk(chunk)
            if self.size > self._max_answer:
                self._fail(ModelIncomplete("the model's answer is too long"))


def count(value: JsonValue, *path: str) -> int:
    """A number of tokens somewhere in an object; 0 for what is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def dicts(value: JsonValue) -> list[JsonDict]:
    """The objects of a list; none of what is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def usable_id(value: JsonValue) -> str | None:
    """An id that can be sent back, or None."""
    if isinstance(value, str) and 0 < len(value) <= _MAX_ID and value.isprintable():
        return value
    return None
