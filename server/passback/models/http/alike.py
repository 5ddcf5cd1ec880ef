"""Events that differ from an earlier one in nothing but their text: known by their bytes, without parsing them."""

import re
from collections.abc import Callable
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

TextOf: TypeAlias = Callable[[JsonValue], str | None]
"""The text of an object that says nothing else; None: it says something else."""

_TRIES = 8
"""Events of an answer that are studied: a service that changes more than the text each time is not worth more."""

_SHORT = 4
"""Events after which studying one is worth while."""

_PLACES = 4
_PROBE = "a probe"
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')


class DeltaTemplate:
    """Learns from one event how the next ones will begin and end.

    What stands between the same beginning and the same end, and is the inside of a JSON string, is the text: no other
    value can differ, so the result is that of parsing. A service's events mostly are so, and parsing them costs most
    of what reading a burst does.
    """

    def __init__(self, text_of: TextOf, /) -> None:
        self._text_of = text_of
        self._tries = _TRIES
        self._shown = 0
        self._head = self._tail = b""

    @property
    def learns(self) -> bool:
        """Whether it is worth while to show it more events."""
        return self._tries > 0

    def learn(self, event: bytes, /) -> bool:
        """Study one whole event: `data:`, an object, and a blank line. Gives whether it knows what to look for."""
        self._shown += 1
        if self._shown >= _SHORT and event.startswith(b"data:") and event.endswith(b"}\n\n"):
            self._study(event)
        return bool(self._head)

    def take(self, data: bytes, /) -> tuple[str, bytes]:
        """The text of the events at the beginning of `data` that are alike, and what follows them."""
        if not (self._head and data.startswith(self._head)):
            return "", data
        inside = data[len(self._head) : -len(self._tail)]
        if inside and data.endswith(self._tail) and _is_plain(inside):
            return inside.decode("ascii"), b""
        *texts, rest = data[len(self._head) :].split(self._tail + self._head)
        last, ends, behind = rest.partition(self._tail)
        if ends:
            texts.append(last)
        else:
            behind = self._head + rest
        whole = b"".join(texts)
        if _is_plain(whole):
            return whole.decode("ascii"), behind
        try:
            return "".join([from_json(b'"%b"' % text) for text in texts]), behind
        except ValueError:  # some event is another one, or damaged
            return "", data

    def _study(self, event: bytes) -> None:
        text = self._read(event)
        if not text:
            return
        self._tries -= 1
        inside = text.encode()
        at = -1
        for _ in range(_PLACES):
            at = event.find(b'"%b"' % inside, at + 1)
            if at < 0:
                return
            head, tail = event[: at + 1], event[at + 1 + len(inside) :]
            if self._read(b"%b%b%b" % (head, _PROBE.encode(), tail)) == _PROBE:
                self._head, self._tail = head, tail
                return

    def _read(self, event: bytes) -> str | None:
        try:
            return self._text_of(from_json(event[5:]))
        except ValueError:
            return None


def _is_plain(inside: bytes) -> bool:
    """Whether the inside of a JSON string is its text, and nothing in it can end the string."""
    return inside.isascii() and _PLAIN.fullmatch(inside) is not None
