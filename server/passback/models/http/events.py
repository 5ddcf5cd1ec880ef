"""Bytes to the JSON objects that a stream of server-sent events carries. Sans-IO."""

import json
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.text import mended

JsonDict: TypeAlias = dict[str, JsonValue]

MAX_EVENT = 4 * 1024 * 1024
"""Bytes of one line, and of one event: what is longer is no answer."""

_BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """Bytes to lines that end in LF, CR or CRLF, and in nothing else.

    Attributes:
        pending: bytes of the line that has no end yet.
    """

    def __init__(self) -> None:
        self.pending = 0
        self._pieces: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    @property
    def between(self) -> bool:
        """Whether what comes begins a line, and not the first one."""
        return not (self._pieces or self._after_cr or self._at_start)

    def feed(self, data: bytes, /) -> list[bytes]:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if not data:
            return []
        lines = data.splitlines()  # of bytes, unlike of str, it splits at CR and LF only
        rest = b"" if data.endswith((b"\n", b"\r")) else lines.pop()
        self._after_cr = data.endswith(b"\r")
        if lines:
            lines[0] = self._whole(lines[0])
        if rest:
            self._pieces.append(rest)
            self.pending += len(rest)
        return lines

    def _whole(self, line: bytes) -> bytes:
        """A line with the pieces of it that came before."""
        if self._pieces:
            line = b"".join((*self._pieces, line))
            self._pieces.clear()
            self.pending = 0
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        return line


class EventReader:
    """Feed it what each read brings.

    Attributes:
        done: `[DONE]` came; what follows is ignored.
        damaged: something that should be an object is none, or does not end; what follows is ignored.
    """

    def __init__(self) -> None:
        self.done = False
        self.damaged = False
        self._lines = LineSplitter()
        self._event: list[bytes] = []
        self._event_size = 0

    @property
    def between(self) -> bool:
        """Whether what comes begins an event, and not the first one."""
        return self._lines.between and not (self._event or self.done or self.damaged)

    def feed(self, data: bytes, /) -> list[JsonDict]:
        objects: list[JsonDict] = []
        if self._over:
            return objects
        for line in self._lines.feed(data):
            if line.startswith(b"data:"):
                self._data(line[5:], objects)
            elif not line and self._event:
                self._event_ends(objects)
            if self.done or self.damaged:  # `_over` would be a call for each line
                break
        if self._lines.pending > MAX_EVENT or self._event_size > MAX_EVENT:
            self.damaged = True
        return objects

    def end(self) -> list[JsonDict]:
        """The last event, when the stream stopped before the blank line; a torn one is nothing."""
        if self._over:
            return []
        objects = self.feed(b"\n\n")
        self.damaged = False
        return objects

    @property
    def _over(self) -> bool:
        return self.done or self.damaged

    def _data(self, value: bytes, objects: list[JsonDict]) -> None:
        # Read at once: some services leave out the blank line, and waiting for it would gain nothing.
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

    def _event_ends(self, objects: list[JsonDict]) -> None:
        """Data that was no object by its first line: several lines, bad UTF-8, lone surrogates, or junk."""
        value = b"\n".join(self._event).strip()
        self._event.clear()
        self._event_size = 0
        parsed = lenient_json(value)
        if isinstance(parsed, dict):
            objects.append(parsed)
        elif value.startswith(b"{"):
            self.damaged = True


class WholeReader:
    """In the place of an `EventReader`: the answer of a service that does not stream, one object."""

    def __init__(self) -> None:
        self.done = False
        self.damaged = False
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def between(self) -> bool:
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
    """JSON, with U+FFFD in place of bad UTF-8 and of lone surrogates. None: it is none."""
    try:
        loaded: JsonValue = json.loads(value.decode("utf-8", "replace"))
        clean: JsonValue = from_json(mended(json.dumps(loaded, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return clean
