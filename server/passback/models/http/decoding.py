"""The decoding of answers: bytes, server-sent events, JSON objects, batches of deltas. Sans-IO."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.deltas import ModelDelta, ReasoningChunk, TextChunk, UsageChunk
from passback.core.errors import ModelError, ModelIncomplete
from passback.core.messages import Usage
from passback.core.text import replace_surrogates

JsonDict: TypeAlias = dict[str, JsonValue]

MAX_EVENT = 4 * 1024 * 1024  # bytes of one line, and of one event

_BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """A splitter of bytes into lines, which end in LF, CR or CRLF, and in nothing else.

    Attributes:
        pending: the number of bytes of the line whose end has not arrived.
    """

    def __init__(self) -> None:
        self.pending = 0
        self._pieces: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    @property
    def is_between_lines(self) -> bool:
        """True if the next byte begins a line, except for the first line."""
        # The first line is left out because it may begin with a byte order mark.
        return not (self._pieces or self._after_cr or self._at_start)

    def feed(self, data: bytes, /) -> list[bytes]:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")  # the second half of a CRLF
            self._after_cr = False
        if not data:
            return []
        lines = data.splitlines()  # of bytes, unlike of str, it splits at CR and LF only
        rest = b"" if data.endswith((b"\n", b"\r")) else lines.pop()
        self._after_cr = data.endswith(b"\r")
        if lines:
            if self._pieces:
                lines[0] = b"".join((*self._pieces, lines[0]))
                self._pieces.clear()
                self.pending = 0
            if self._at_start:
                self._at_start = False
                lines[0] = lines[0].removeprefix(_BOM)
        if rest:
            self._pieces.append(rest)
            self.pending += len(rest)
        return lines


class EventReader:
    """A reader of a stream of events: feed it the bytes of each read.

    Attributes:
        done: True after `[DONE]`; what follows is ignored.
        damaged: True after an event that should be an object and is not, or that does not end; what
            follows is ignored.
    """

    def __init__(self) -> None:
        self.done = False
        self.damaged = False
        self._lines = LineSplitter()
        self._event: list[bytes] = []
        self._event_size = 0

    @property
    def is_between_events(self) -> bool:
        """True if the next byte begins an event, except for the first event."""
        return self._lines.is_between_lines and not (self._event or self.done or self.damaged)

    def feed(self, data: bytes, /) -> list[JsonDict]:
        objects: list[JsonDict] = []
        if self._has_stopped:
            return objects
        for line in self._lines.feed(data):
            if line.startswith(b"data:"):
                self._read_data(line[5:], objects)
            elif not line and self._event:
                self._finish_event(objects)
            if self.done or self.damaged:  # `_has_stopped` would be a call for each line
                break
        if self._lines.pending > MAX_EVENT or self._event_size > MAX_EVENT:
            self.damaged = True
        return objects

    def end(self) -> list[JsonDict]:
        """Return the last event if the stream stopped before its blank line, unless it is torn."""
        if self._has_stopped:
            return []
        objects = self.feed(b"\n\n")
        self.damaged = False
        return objects

    @property
    def _has_stopped(self) -> bool:
        return self.done or self.damaged

    def _read_data(self, value: bytes, objects: list[JsonDict]) -> None:
        # Parse at once: some services leave out the blank line, and waiting for it gains nothing.
        if not self._event:
            try:
                parsed: JsonValue = from_json(value)
            except ValueError:
                parsed = None
            if isinstance(parsed, dict):
                objects.append(parsed)
                return
            if value.strip() == b"[DONE]":
                self.done = True
                return
        self._event.append(value)
        self._event_size += len(value) + 1

    def _finish_event(self, objects: list[JsonDict]) -> None:
        """Read an event whose first line is not an object.

        It has several lines, bad UTF-8, lone surrogates, or is junk.
        """
        value = b"\n".join(self._event).strip()
        self._event.clear()
        self._event_size = 0
        parsed = lenient_json(value)
        if isinstance(parsed, dict):
            objects.append(parsed)
        elif value.startswith(b"{"):  # other junk between events does no harm
            self.damaged = True


class WholeReader:
    """A reader of one object, the answer of a service that does not stream.

    It has the methods of `EventReader`.
    """

    def __init__(self) -> None:
        self.done = False
        self.damaged = False
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def is_between_events(self) -> bool:
        return False

    def feed(self, data: bytes, /) -> list[JsonDict]:
        self._pieces.append(data)
        self._size += len(data)
        self.damaged = self._size > MAX_EVENT
        return []

    def end(self) -> list[JsonDict]:
        whole = lenient_json(b"".join(self._pieces))
        return [whole] if isinstance(whole, dict) else []


def lenient_json(value: bytes, /) -> JsonValue:
    """Parse JSON, with U+FFFD in place of bad UTF-8 and lone surrogates; None if it is not JSON."""
    try:
        loaded: JsonValue = json.loads(value.decode("utf-8", "replace"))
        clean: JsonValue = from_json(replace_surrogates(json.dumps(loaded, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return clean


# ---------------------------------------------------------------- deltas
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
