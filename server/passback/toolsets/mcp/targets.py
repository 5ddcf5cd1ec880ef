"""The arguments of `MCPServer`: how a server is reached, its limits, and how far it is trusted."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias
from urllib.parse import quote, quote_plus, urlsplit

from pydantic import Field

from passback.core.messages import fold_name
from passback.core.permissions import Permission
from passback.core.values import Takes, check_arguments

# No `__` inside and no `_` at the end: so the first `__` in a tool's name ends the server's name.
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}")

_MAX_SERVER_NAME: Final = 32  # characters

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# ASCII only: servers do not agree on the meaning of other bytes (RFC 9110, section 5.5).
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[ \t]*[!-~])*)?")


def _is_web_url(url: str) -> bool:
    try:
        parsed = urlsplit(url)
        return parsed.scheme in {"http", "https"} and bool(parsed.hostname)
    except ValueError:
        return False


ServerName: TypeAlias = Annotated[
    str,
    Takes(
        "1 to 32 letters, digits, '-' and '_', with no '__', and no '_' at an end",
        lambda name: _SERVER_NAME.fullmatch(name) is not None,
    ),
]
Command: TypeAlias = Annotated[
    Sequence[str],
    Takes("a program and its arguments, one by one", lambda words: words and all(words)),
]
WebUrl: TypeAlias = Annotated[str, Takes("a URL of http or https", _is_web_url)]
_HeaderName: TypeAlias = Annotated[
    str, Takes("the name of a header", lambda name: _HEADER_NAME.fullmatch(name) is not None)
]
_HeaderValue: TypeAlias = Annotated[
    str,
    Takes(
        "a text of one line in ASCII, without control characters and blanks around it",
        lambda text: _HEADER_VALUE.fullmatch(text) is not None,
    ),
]
HttpHeaders: TypeAlias = Mapping[_HeaderName, _HeaderValue]
Seconds: TypeAlias = Annotated[float, Field(gt=0)]
Characters: TypeAlias = Annotated[int, Field(gt=0)]

# A shorter text occurs anywhere, and redacting it would garble everything.
_MIN_SECRET_CHARACTERS = 4

_MAX_LINE_CHARACTERS = 500  # of a line that a server's process wrote

_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\uffff]")


@dataclass(frozen=True, slots=True)
class StdioTarget:
    """A command whose standard input and output are the connection."""

    command: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None = None

    def secrets(self) -> tuple[str, ...]:
        """Return the texts that no log may show: environment values, and the lines of each."""
        values = self.env.values()
        return _secret_spellings(
            [*values, *(line for value in values for line in value.splitlines())]
        )


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A URL that is reached by streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    def secrets(self) -> tuple[str, ...]:
        """Return the texts that no log may show: headers, the words in them, parts of the URL."""
        url = urlsplit(self.url)
        texts = [url.query, url.password or "", *self.headers.values()]
        return _secret_spellings([*texts, *(word for text in texts for word in text.split())])


Target: TypeAlias = StdioTarget | HttpTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of `MCPServer`; times are in seconds."""

    permission: Permission
    write_permission: Permission | None
    trust_hints: bool
    seconds: float
    start_seconds: float
    result_limit: int

    def check(self, owner: Callable[..., object], /, **others: object) -> None:
        """Check them, and other arguments of their owner, by its annotations.

        Raises:
            ConfigurationError: names the first one that does not fit.
        """
        names = ("trust_hints", "seconds", "start_seconds", "result_limit")
        check_arguments(owner, **others, **{name: getattr(self, name) for name in names})


def legal_server_name(name: str, taken: Collection[str], /) -> str:
    """Return a name for a server: the given one, changed where it is no `ServerName`, and numbered
    if it is taken.
    """
    if _SERVER_NAME.fullmatch(name) is None:
        words = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name))
        name = _shorten_name(words.strip("_-"), _MAX_SERVER_NAME) or "server"
    folded, chosen, number = {fold_name(each) for each in taken}, name, 1
    while fold_name(chosen) in folded:
        number += 1
        suffix = f"-{number}"
        chosen = _shorten_name(name, _MAX_SERVER_NAME - len(suffix)) + suffix
    return chosen


def _shorten_name(name: str, most: int) -> str:
    return name[:most].rstrip("_")


def redacted(text: str, secrets: Sequence[str], /) -> str:
    """Return the text with `***` for each secret."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def shown_line(line: bytes, secrets: Sequence[str], /) -> str:
    """Return a line of output, shortened, without secrets and control characters."""
    # colours go first: one may stand inside a secret
    plain = _COLOURS.sub("", line.decode(errors="replace"))
    shown = redacted(plain, secrets)[:_MAX_LINE_CHARACTERS]
    return _UNPRINTABLE.sub("?", shown.rstrip())


def _secret_spellings(texts: Iterable[str]) -> tuple[str, ...]:
    """Return all spellings of the secrets, the longest first: one may be a part of another."""
    written: set[str] = set()
    for text in texts:
        if len(text) >= _MIN_SECRET_CHARACTERS:
            quoted = (repr(text), json.dumps(text), json.dumps(text, ensure_ascii=False))
            written |= {text, *(form[1:-1] for form in quoted)}
            written |= {quote(text, safe=""), quote(text), quote_plus(text)}  # as in a URL
    return tuple(sorted(written, key=len, reverse=True))
