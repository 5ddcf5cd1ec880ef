"""What the demo model says of attachments: their type, and their size or address."""

from collections.abc import Sequence
from typing import Final

from passback.core.messages import MediaPart

MOST_LISTED = 20
"""Attachments that are described; of more, how many."""

_NAMES: Final = {"image": "an image", "audio": "a sound", "file": "a file"}
_CHARS = 200  # of a name or an address
_HEAD = 400  # characters of a data: URL in which its data begin


def listed(media: Sequence[MediaPart], /) -> str:
    """Describe them, such as `an image (image/png, 68 bytes) and a file at https://example.com/a.pdf`."""
    texts = [described(part) for part in media[:MOST_LISTED]]
    if len(media) > len(texts):
        texts.append(f"{len(media) - len(texts)} more")
    *before, last = texts
    return f"{', '.join(before)} and {last}" if before else last


def described(part: MediaPart, /) -> str:
    """Describe one: what is inline by its type and its bytes, what is elsewhere by its address."""
    name = f' "{_cut(part.name)}"' if part.name else ""
    if part.url.startswith("data:"):
        media_type, size = _inline(part)
        return f"{_NAMES[part.type]}{name} ({media_type}, {size} bytes)"
    known = f" ({part.media_type})" if part.media_type else ""
    return f"{_NAMES[part.type]}{name} at {_cut(part.url)}{known}"


def _inline(part: MediaPart) -> tuple[str, int]:
    """The type and the bytes of what the part holds itself, in base64. Nothing is copied: it may have millions."""
    comma = part.url.find(",", 0, _HEAD)
    declared = part.url[len("data:") : max(comma, 0)].partition(";")[0]
    size = (len(part.url) - comma - 1) * 3 // 4 - part.url[-2:].count("=")
    return part.media_type or declared or "text/plain", size


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[:_CHARS]}..."
