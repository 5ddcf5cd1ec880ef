"""The tags of the prompt, and words of others that look like them.

What the application wrote stands between tags in a user's message. Words of the user, results of tools (which a client or a
foreign server wrote), what such a server says of its tools, and a summary are shown with `&lt;` where one of these tags would
begin.
"""

import re
from dataclasses import replace
from typing import Final

from pydantic_core import from_json, to_json

from passback.core.messages import Content, DataPart, MediaPart, Part

TAGS: Final = (
    "user_context",
    "time",
    "intent",
    "structured_data",
    "constraints",
    "constraint",
    "instructions",
    "output_schema",
    "mcp_server",
    "earlier-conversation",
    "last-user-message",
    "transcript",
)
"""All tags that `context` and `core.transcript` write."""

_FIRST = "".join(sorted({letter for tag in TAGS for letter in (tag[0], tag[0].upper())}))
# characters that nobody sees: of Unicode's Cc, Cf and Default_Ignorable_Code_Point
_UNSEEN = (
    r"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_GAP = rf"[\s/{_UNSEEN}]*+"
# each letter in both cases: a flag for that would look at every character of the classes between them
_NAMES = "|".join(
    f"[{_UNSEEN}]*+".join(f"[{re.escape(letter)}{letter.upper()}]" for letter in tag)
    for tag in TAGS
)
# The first letter is looked at before the names are: a text may have as many "<" as characters.
_BEGINNING = re.compile(rf"<(?={_GAP}[{_FIRST}])(?={_GAP}(?:{_NAMES})(?![\w-]))")


def escape_tags(text: str, /) -> str:
    """The text with `&lt;` where a tag of the prompt would begin or end, in any case, also with blanks before its name.

    The same object where there is nothing to escape.
    """
    return _BEGINNING.sub("&lt;", text) if "<" in text else text


def escape_content(content: Content, /) -> Content:
    """As `escape_tags`, of all texts in it, the strings of its data and the names of its media."""
    if isinstance(content, str):
        return escape_tags(content)
    parts = tuple(map(_escape_part, content))
    return content if parts == content else parts


def _escape_part(part: Part) -> Part:
    if isinstance(part, MediaPart):
        return part if part.name is None else replace(part, name=escape_tags(part.name))
    if isinstance(part, DataPart):
        text = to_json(part.data).decode()
        escaped = escape_tags(text)  # outside of its strings JSON has no "<"
        return part if escaped == text else replace(part, data=from_json(escaped))
    return replace(part, text=escape_tags(part.text))
