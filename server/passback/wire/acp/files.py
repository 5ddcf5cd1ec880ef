"""The file state cache: what the model knows of files, so that no write undoes a change unseen.

It is the file state cache of source document 004. Pure.
"""

import difflib
from collections import OrderedDict
from hashlib import sha256
from typing import Final

_MOST_CHARACTERS: Final = 16 * 1024 * 1024  # of all files of a session
_MOST_OF_FILE: Final = 1024 * 1024  # characters; of a larger file only the digest is kept
_DIFF_LINES: Final = 200  # of a change, as the model is told it


class FileCache:
    """The text of files when the model last read or wrote them, the oldest dropped first."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, tuple[str, str | None]] = OrderedDict()
        self._held = 0

    def note(self, path: str, text: str, /) -> None:
        """Record that the model knows this text of a file, all of it."""
        self._drop(path)
        kept = text if len(text) <= _MOST_OF_FILE else None
        self._files[path] = (_digest(text), kept)
        self._held += len(kept or "")
        while self._held > _MOST_CHARACTERS:
            self._drop(next(iter(self._files)))

    def text(self, path: str, /) -> str | None:
        """Return the text that the model knows; None if it is unknown or too large to be kept."""
        known = self._files.get(path)
        return None if known is None else known[1]

    def find_objection(self, path: str, current: str | None, /) -> str | None:
        """Return why a file may not be written, in words for the model; None if it may.

        What has changed counts as known from then on, as the words tell it.

        Args:
            path: of the file.
            current: its text now; None if there is no such file.
        """
        known = self._files.get(path)
        if current is None:
            if known is None:
                return None
            self._drop(path)
            return "Not written: the file was there when you last saw it, and is gone now."
        if known is None:
            return "Not written: the file exists, and you have not read it. Read it first."
        change = "" if known[0] == _digest(current) else self._take_change(path, known[1], current)
        return (
            f"Not written: the file has changed since you last saw it{change}" if change else None
        )

    def _take_change(self, path: str, before: str | None, after: str) -> str:
        """Return a change in words, and take it as known if they tell it."""
        change = None
        if before is not None and len(after) <= _MOST_OF_FILE:
            change = _describe_change(before, after)
        if change is None:
            self._drop(path)
            return ", more than can be told here. Read it again."
        self.note(path, after)
        return f":\n\n{change}"

    def _drop(self, path: str) -> None:
        known = self._files.pop(path, None)
        if known is not None:
            self._held -= len(known[1] or "")


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
