"""A run's log as plain text, for people at a shell: the words, and one last line where these are not all."""

import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from passback.core.events import (
    Cancelled,
    Completed,
    Cursor,
    Failed,
    HandedBack,
    Outcome,
    RunEvent,
    RunFinished,
    TextDelta,
)
from passback.transport.native import owed_call
from passback.transport.sse import Form

MARK = "\x1e"
"""ASCII's record separator, in front of the last line as in JSON text sequences (RFC 7464). No text holds it."""


def _plain(_: str, text: str, /) -> str:
    return text


TEXT = Form("text/plain; charset=utf-8", _plain)


class PlainEncoder:
    """Run events to text: pieces of the answer, a newline at its end.

    An outcome other than the end of an answer is one more line: the mark, then a JSON object.
    """

    def __init__(self) -> None:
        self._last = "\n"

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        if isinstance(event, TextDelta):
            return self._words(event.text)
        return self._ending(event.outcome) if isinstance(event, RunFinished) else ()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        return ()

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return self._ending(failed)

    def end(self) -> Sequence[str]:
        return ()

    def _words(self, text: str) -> Sequence[str]:
        words = text.replace(MARK, "")
        self._last = words[-1:] or self._last
        return (words,) if words else ()

    def _ending(self, outcome: Outcome) -> Sequence[str]:
        newline = "" if self._last == "\n" else "\n"
        told = _told(outcome)
        return (f"{newline}{MARK}{json.dumps(told)}\n",) if told else (newline,)


def _told(outcome: Outcome) -> Mapping[str, object] | None:
    """What is said of an outcome; nothing of an answer that ended by itself."""
    match outcome:
        case Completed("end_turn"):
            return None
        case Completed(reason):
            return {"outcome": "completed", "reason": reason}
        case HandedBack(owed):
            return {"outcome": "handed-back", "owed": [owed_call(each) for each in owed]}
        case Cancelled():
            return {"outcome": "cancelled"}
        case Failed(code, message, retryable):
            return {"outcome": "failed", "code": code, "message": message, "retryable": retryable}
        case _:
            assert_never(outcome)
