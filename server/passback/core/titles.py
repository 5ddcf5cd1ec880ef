"""Titles of conversations: from the first words of their user, or as a person gives them."""

import unicodedata
from collections.abc import Callable, Iterable
from typing import Final

from passback.core.errors import InvalidRequest
from passback.core.messages import Content, Message, TextPart, UserMessage
from passback.core.text import replace_surrogates

MAX_TITLE: Final = 200  # characters of a title that a person gives
_MAX_DERIVED = 100  # characters of one that is made of a message
_MAX_READ = 4000  # characters of a message that are looked at
_SHORTEST_CUT = 60  # characters that a cut at a word leaves; otherwise it is within the word
_JOINERS = "\u200c\u200d"  # they make one character of two, in emoji and in several scripts


def fold_title(text: str, /) -> str:
    """Return a text as one line: white space folded, no control or other invisible character."""
    kept = (each for each in replace_surrogates(text) if each.isspace() or not _is_hidden(each))
    return " ".join("".join(kept).split()).strip(f" {_JOINERS}")


def _is_hidden(character: str) -> bool:
    # direction marks are among them: they would reorder what stands around a title
    return character not in _JOINERS and unicodedata.category(character) in {"Cc", "Cf"}


def first_title(messages: Iterable[Message], /) -> str:
    """Return the beginning of the first text of a user, in at most 100 characters.

    A slash command counts as text. Empty if no user has written any.
    """
    texts = (_text_of(each.content) for each in messages if isinstance(each, UserMessage))
    titles = (fold_title(text.lstrip()[:_MAX_READ]) for text in texts)
    return _shorten(next(filter(None, titles), ""))


def _text_of(content: Content) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.text for part in content if isinstance(part, TextPart))


def _shorten(line: str) -> str:
    if len(line) <= _MAX_DERIVED:
        return line
    end = line.rfind(" ", 0, _MAX_DERIVED)
    if end < _SHORTEST_CUT:
        end = _character_end(line, _MAX_DERIVED - 1)
    return f"{line[:end]}…"


def _character_end(line: str, end: int) -> int:
    """Return the last place up to `end` that is not within what is shown as one character."""
    for place in range(end, _SHORTEST_CUT, -1):
        before, behind = line[place - 1], line[place]
        if not (before in _JOINERS or behind in _JOINERS or _modifies(behind)):
            return place
    return end


def _modifies(character: str) -> bool:
    """Return whether a character changes the one before it: an accent, or the tone of an emoji."""
    return unicodedata.category(character).startswith("M") or "🏻" <= character <= "🏿"


def check_title(text: str, /) -> str:
    """Return a title that a person gives, folded. Raise InvalidRequest if it cannot be one."""
    title = fold_title(text)
    if not title:
        raise InvalidRequest("title: it needs at least one character that can be seen")
    if len(title) > MAX_TITLE:
        raise InvalidRequest(f"title: it has {len(title)} characters, {MAX_TITLE} at most")
    return title


def title_filter(search: str, /) -> Callable[[str], bool]:
    """Return a function that tells whether a title contains a text, in upper or lower case."""
    part = fold_title(search).casefold()
    return lambda title: part in title.casefold()
