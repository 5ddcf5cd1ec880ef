"""A shortcut without JSON parsing for events that differ from an earlier one in their text only."""

import re
from collections.abc import Callable
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

TextOf: TypeAlias = Callable[[JsonValue], str | None]
"""A function that returns the text of an object that has nothing else in it, None for any other."""

# A service that changes more than the text from event to event never gets a template.
_TRIES = 8  # events of an answer that are studied
_SHORT = 4  # events of an answer before the first is studied: a short answer is not worth it
_PLACES = 4  # places of an event in which the text is looked for
_PROBE = "a probe"
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')


class DeltaTemplate:
    """The beginning and the end that an answer's events have in common, learned from one of them.

    Bytes between that beginning and that end which are the inside of a JSON string are the text. No
    other value can differ, so the result equals that of parsing. Most events of most services are
    like this, and parsing them is most of the cost of reading a burst.
    """

    def __init__(self, text_of: TextOf, /) -> None:
        self._text_of = text_of
        self._tries = _TRIES
        self._shown = 0
        self._head = self._tail = b""

    @property
    def can_learn(self) -> bool:
        """True as long as more events may be studied."""
        return self._tries > 0

    def learn(self, event: bytes, /) -> bool:
        """Study a whole event: `data:`, an object, a blank line.

        Return True if the template is known.
        """
        self._shown += 1
        if self._shown < _SHORT or not (event.startswith(b"data:") and event.endswith(b"}\n\n")):
            return bool(self._head)
        text = self._text_in_event(event)
        if not text:
            return bool(self._head)
        self._tries -= 1
        inside = text.encode()
        at = -1
        for _ in range(_PLACES):
            at = event.find(b'"%b"' % inside, at + 1)
            if at < 0:
                break
            head, tail = event[: at + 1], event[at + 1 + len(inside) :]
            # The text may occur elsewhere too, as in an id: a probe shows its own place.
            if self._text_in_event(b"%b%b%b" % (head, _PROBE.encode(), tail)) == _PROBE:
                self._head, self._tail = head, tail
                break
        return bool(self._head)

    def take(self, data: bytes, /) -> tuple[str, bytes]:
        """Return the text of the events at the start of `data` that fit, and the rest."""
        if not (self._head and data.startswith(self._head)):
            return "", data
        # The usual case is one event in one read; the general case below gives the same.
        inside = data[len(self._head) : -len(self._tail)]
        if inside and data.endswith(self._tail) and _is_plain_text(inside):
            return inside.decode("ascii"), b""
        *texts, rest = data[len(self._head) :].split(self._tail + self._head)
        last, ends, behind = rest.partition(self._tail)
        if ends:
            texts.append(last)
        else:
            behind = self._head + rest
        whole = b"".join(texts)
        if _is_plain_text(whole):
            return whole.decode("ascii"), behind
        try:
            return "".join([from_json(b'"%b"' % text) for text in texts]), behind
        except ValueError:  # one of the events differs in more than its text, or is damaged
            return "", data

    def _text_in_event(self, event: bytes) -> str | None:
        try:
            return self._text_of(from_json(event[5:]))
        except ValueError:
            return None


def _is_plain_text(inside: bytes) -> bool:
    """Return True if the inside of a JSON string equals its text, with no escape and no quote."""
    return inside.isascii() and _PLAIN.fullmatch(inside) is not None
