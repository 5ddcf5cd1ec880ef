"""Reads a server-sent event stream by the rules of the WHATWG HTML standard, one chunk of bytes at
a time. No I/O.

A block without `data` dispatches nothing but still moves the last event id, and a block that the
end of the stream cut short is never seen.
"""

import re
from codecs import getincrementaldecoder
from dataclasses import dataclass

from passback_client.errors import LimitExceeded

_UTF8 = getincrementaldecoder("utf-8")
_LINE_END = re.compile(r"\r\n|\r|\n")
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SseEvent:
    """`id` is the last event id when the event was dispatched, empty when there was none."""

    id: str
    event: str
    data: str


class SseDecoder:
    """One stream.

    Attributes:
        last_event_id: the place to resume after: the id of the last finished block.
        comments: number of comments.
        retry: milliseconds that the server asks to wait before a reconnect, None when it did not
            say.

    Args:
        max_chars: that one unfinished event may have.
    """

    def __init__(self, max_chars: int) -> None:
        self.last_event_id = ""
        self.comments = 0
        self.retry: int | None = None
        self._max_chars = max_chars
        self._utf8 = _UTF8("replace")
        self._begun = False
        self._skip_line_feed = False
        self._line: list[str] = []
        self._line_chars = 0
        self._id = ""
        self._event = ""
        self._data: list[str] = []
        self._data_chars = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that these bytes, cut anywhere, complete.

        Raises:
            LimitExceeded: one event is too large.
        """
        *ended, rest = _LINE_END.split(self._text(chunk))
        events: list[SseEvent] = []
        for part in ended:
            self._line.append(part)
            line = "".join(self._line)
            self._line, self._line_chars = [], 0
            if line:
                self._field(line)
            else:
                events += self._dispatch()
        if rest:
            self._line.append(rest)
            self._line_chars += len(rest)
            self._check()
        return events

    def _text(self, chunk: bytes) -> str:
        text = self._utf8.decode(chunk)
        if not text:
            return ""
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._skip_line_feed:
            text = text.removeprefix("\n")
        self._skip_line_feed = text.endswith("\r")
        return text

    def _dispatch(self) -> list[SseEvent]:
        self.last_event_id = self._id
        data, event = self._data, self._event
        self._data, self._data_chars, self._event = [], 0, ""
        return [SseEvent(self._id, event or "message", "\n".join(data))] if data else []

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
                self._data_chars += len(value) + 1
                self._check()
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if _DIGITS.fullmatch(value):
                self.retry = int(value)
            case "":
                self.comments += 1
            case _:
                pass  # what nobody knows

    def _check(self) -> None:
        if self._line_chars + self._data_chars > self._max_chars:
            raise LimitExceeded("one event of the stream is too large")
