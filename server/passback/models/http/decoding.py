"""The base of all decoders: bytes in, batches of deltas out, within bounds. Sans-IO."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from passback.core.deltas import ModelDelta, ReasoningChunk, TextChunk, UsageChunk
from passback.core.errors import ModelError, ModelIncomplete
from passback.core.messages import Usage
from passback.models.http.events import EventReader, JsonDict, WholeReader


class DeltaBatch:
    """A collector of deltas: it joins adjacent texts and keeps the last usage report."""

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._deltas: list[ModelDelta] = []
        self._kind: type[TextChunk | ReasoningChunk] = TextChunk
        self._texts: list[str] = []

    def add_text(self, kind: type[TextChunk | ReasoningChunk], text: str, /) -> None:
        if self._kind is not kind:
            self._flush_text()
            self._kind = kind
        self._texts.append(text)

    def add(self, delta: ModelDelta, /) -> None:
        self._flush_text()
        self._deltas.append(delta)

    def set_usage(self, usage: Usage, /) -> None:
        self._usage = usage

    def take(self) -> Sequence[ModelDelta]:
        """Return the deltas collected since the last call, the usage last."""
        self._flush_text()
        if self._usage:
            self._deltas.append(UsageChunk(self._usage))
            self._usage = None
        deltas, self._deltas = self._deltas, []
        return deltas

    def _flush_text(self) -> None:
        if self._texts:
            if text := "".join(self._texts):
                self._deltas.append(self._kind(text))
            self._texts.clear()


MAX_ANSWER = 4 * 1024 * 1024  # characters: text, reasoning, names and arguments together
MAX_CALLS = 256  # in one answer

_MAX_ID = 256  # characters


class Decoder(ABC):
    """A decoder of one answer: feed it the bytes of each read, and call `end` after the last.

    Args:
        whole: True if the service answers with one object instead of a stream.
        max_answer: the most characters of content.

    Attributes:
        size: characters of content so far; all but keep-alives, usage and junk count.
        failure: the first thing that is wrong with the answer. The deltas before it are good, what
            follows is ignored.
    """

    def __init__(self, *, whole: bool = False, max_answer: int = MAX_ANSWER) -> None:
        self.size: int = 0
        self.failure: ModelError | None = None
        self._max_answer = max_answer
        self._events = WholeReader() if whole else EventReader()
        self._batch = DeltaBatch()

    @property
    def done(self) -> bool:
        """True if the service has said that nothing follows."""
        return self._events.done

    @property
    @abstractmethod
    def finished(self) -> bool:
        """True if nothing is wrong and the service has said that the answer is complete.

        Then `end` will return a `Finish`.
        """

    def check(self) -> None:
        """Raise the failure.

        Raises:
            ModelError: the answer has failed.
        """
        if self.failure:
            raise self.failure

    def feed(self, data: bytes, /) -> Sequence[ModelDelta]:
        """Return the deltas in the bytes of one read, with adjacent texts joined."""
        self._read_data(data)
        return self._batch.take()

    def end(self) -> Sequence[ModelDelta]:
        """Return the last deltas. If there is no `Finish` among them, the answer broke off."""
        self._read_chunks(self._events.end())
        if self.finished:
            self._add_finish()
        return self._batch.take()

    @abstractmethod
    def _read_chunk(self, chunk: JsonDict) -> None:
        """Read one object of the stream."""

    @abstractmethod
    def _add_finish(self) -> None:
        """Add the deltas that close a complete answer, the last of them its `Finish`."""

    def _set_failure(self, failure: ModelError) -> None:
        # The first failure is the cause; a later one may only follow from it.
        self.failure = self.failure or failure

    def _add_text(self, text: str) -> None:
        self.size += len(text)
        self._batch.add_text(TextChunk, text)

    def _read_data(self, data: bytes) -> None:
        self._read_chunks(self._events.feed(data))
        if self._events.damaged:
            self._set_failure(ModelIncomplete("the model's answer is damaged"))

    def _read_chunks(self, chunks: Iterable[JsonDict]) -> None:
        for chunk in chunks:
            if self.failure:
                return
            self._read_chunk(chunk)
            if self.size > self._max_answer:
                self._set_failure(ModelIncomplete("the model's answer is too long"))


def token_count(value: JsonValue, *path: str) -> int:
    """Return the positive integer at a path of keys, 0 if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def dicts_in(value: JsonValue) -> list[JsonDict]:
    """Return the objects in a list; an empty list for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def usable_id(value: JsonValue) -> str | None:
    """Return an id that can be sent back, or None if the value is not fit for one."""
    # A bad id would make the service refuse every later request of the conversation.
    if isinstance(value, str) and 0 < len(value) <= _MAX_ID and value.isprintable():
        return value
    return None
