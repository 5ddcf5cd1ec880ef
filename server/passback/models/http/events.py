"""Server-sent events: from bytes to the JSON objects that they carry. Sans-IO."""

import json
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

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
