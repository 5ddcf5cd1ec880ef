"""The file state cache: what the model knows of files, so that no write undoes a change unseen.

It is the file state cache of source document 004. Pure.
"""

import difflib
import re
from collections import OrderedDict
from hashlib import sha256
from typing import Final

from passback.core.values import value

_MOST_CHARACTERS: Final = 16 * 1024 * 1024  # of all files of a session
_MOST_OF_FILE: Final = 1024 * 1024  # characters; of a larger file only the digest is kept
_DIFF_LINES: Final = 200  # of a change, as the model is told it
_BARE_LF: Final = re.compile(r"(?<!\r)\n")


@value
class _Known:
    """A file as the model knows it.

    Attributes:
        text: None if it is too large to be kept.
        is_whole: the model has seen all of it.
    """

    digest: str
    text: str | None
    is_whole: bool


class FileCache:
    """The text of files when the model last read or wrote them, the oldest dropped first."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, _Known] = OrderedDict()
        self._held = 0

    def note(self, path: str, text: str, /) -> None:
        """Record that the model knows this text of a file, all of it."""
        self._keep(path, text, is_whole=True)

    def note_part(self, path: str, text: str, /) -> None:
        """Record that the model knows a part of a file, of which this is the whole text.

        If it has known all of the same text before, it still does.
        """
        known = self._files.get(path)
        knew_all = known is not None and known.is_whole and known.digest == _digest(text)
        self._keep(path, text, is_whole=knew_all)

    def note_change(self, path: str, text: str, /) -> None:
        """Record that the model knows what has changed in a file, of which this is the text now."""
        known = self._files.get(path)
        self._keep(path, text, is_whole=known is not None and known.is_whole)

    def _keep(self, path: str, text: str, *, is_whole: bool) -> None:
        self._drop(path)
        kept = text if len(text) <= _MOST_OF_FILE else None
        self._files[path] = _Known(_digest(text), kept, is_whole)
        self._held += len(kept or "")
        while self._held > _MOST_CHARACTERS:
            self._drop(next(iter(self._files)))

    def text(self, path: str, /) -> str | None:
        """Return the text of a file that the model knows, or knows a part of.

        None if it is unknown or too large to be kept.
        """
        known = self._files.get(path)
        return None if known is None else known.text

    def find_objection(
        self, path: str, current: str | None, /, *, replaces: bool = True
    ) -> str | None:
        """Return why a file may not be written, in words for the model; None if it may.

        What has changed counts as known from then on, as the words tell it.

        Args:
            path: of the file.
            current: its text now; None if there is no such file.
            replaces: all of it is replaced, so that all of it has to be known.
        """
        known = self._files.get(path)
        if current is None:
            if known is None:
                return None
            self._drop(path)
            return "Not written: the file was there when you last saw it, and is gone now."
        if known is None:
            return "Not written: the file exists, and you have not read it. Read it first."
        if known.digest != _digest(current):
            change = self._take_change(path, known.text, current)
            return f"Not written: the file has changed since you last saw it{change}"
        if replaces and not known.is_whole:
            return (
                "Not written: you have read a part of the file only. Read all of it first, "
                "or edit a piece of it."
            )
        return None

    def _take_change(self, path: str, before: str | None, after: str) -> str:
        """Return a change in words, and take it as known if they tell it."""
        change = None
        if before is not None and len(after) <= _MOST_OF_FILE:
            change = _describe_change(before, after)
        if change is None:
            self._drop(path)
            return ", more than can be told here. Read it again."
        self.note_change(path, after)
        return f":\n\n{change}"

    def _drop(self, path: str) -> None:
        known = self._files.pop(path, None)
        if known is not None:
            self._held -= len(known.text or "")


def replace_piece(text: str, old: str, new: str, /) -> tuple[str, int]:
    """Return a text with a piece replaced, and how often the piece stands in it.

    A text whose lines end with CRLF keeps that: there a piece may be given with LF.
    """
    count = text.count(old)
    if count == 0:
        old, new = _with_crlf(old), _with_crlf(new)
        count = text.count(old)
    elif "\r\n" in text and _BARE_LF.search(text) is None:
        new = _with_crlf(new)
    return text.replace(old, new), count


def _with_crlf(text: str) -> str:
    return _BARE_LF.sub("\r\n", text)


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _describe_change(before: str, after: str) -> str | None:
    """Return a change as a unified diff; None if it is too long."""
    lines = list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "now", lineterm="")
    )
    if len(lines) > _DIFF_LINES:
        return None
    return "\n".join(lines) or "(only line ends or white space at the end)"
