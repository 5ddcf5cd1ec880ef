"""Where a server is, and how far it is trusted: what an agent's author writes, checked."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus, urlsplit

from passback.core.errors import ConfigurationError
from passback.core.permissions import Permission

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}")
"""No `__` in it and no `_` at its end: so the first `__` of a tool's name ends its server's."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[ \t]*[!-~])*)?")
"""Of ASCII alone: what other bytes mean, servers do not agree on (RFC 9110, section 5.5)."""

_LEAST_SECRET = 4
"""Characters: what is shorter stands in any text, and tells nothing."""

_SHOWN_CHARACTERS = 500
"""Of a line of a server's own."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\uffff]")


@dataclass(frozen=True, slots=True)
class Child:
    """A command whose standard input and output are the connection."""

    command: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None = None

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets that no log shows, should the server say them: values of its environment, and the lines of each."""
        values = self.env.values()
        return _long([*values, *(line for value in values for line in value.splitlines())])


@dataclass(frozen=True, slots=True)
class Address:
    """A URL, asked by streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets that no log shows, should the server say them: headers, the words in them, parts of the URL."""
        url = urlsplit(self.url)
        texts = [url.query, url.password or "", *self.headers.values()]
        return _long([*texts, *(word for text in texts for word in text.split())])


Target: TypeAlias = Child | Address


@dataclass(frozen=True, slots=True)
class Terms:
    """As the arguments of `MCPServer`. Times in seconds."""

    permission: Permission
    trust_hints: bool
    seconds: float
    start_seconds: float
    result_limit: int
    write_permission: Permission | None = None


def check(name: str, target: Target, terms: Terms, /) -> None:
    """Raise ConfigurationError when a server cannot be used so."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"an MCP server cannot be named {name!r}: 1 to 32 letters, digits, '-' and '_', no '__', no '_' at an end"
        )
    if isinstance(target, Child):
        if isinstance(target.command, str) or not target.command or not all(target.command):
            raise ConfigurationError(
                f"the MCP server {name!r} has no command: a program and its arguments, one by one"
            )
    elif not _is_web(target.url):
        raise ConfigurationError(f"the MCP server {name!r} has no URL of http or https")
    elif wrong := [header for header in target.headers.items() if not _is_header(*header)]:
        # the value may be a key: only the name is told
        raise ConfigurationError(
            f"the MCP server {name!r}: the header {wrong[0][0]!r} cannot be sent: names and values are texts of one line, "
            "without control characters and blanks around them"
        )
    if terms.write_permission is not None and not terms.trust_hints:
        raise ConfigurationError(
            f"the MCP server {name!r}: write_permission needs trust_hints=True, as only the server says which of its tools "
            "write; permission holds for all of them"
        )
    if not min(terms.seconds, terms.start_seconds, terms.result_limit) > 0:
        raise ConfigurationError(f"the MCP server {name!r} has a limit that is not above 0")


def redacted(text: str, secrets: Sequence[str], /) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def shown_line(line: bytes, secrets: Sequence[str], /) -> str:
    """Return a line of a server's own as people may see it: without secrets and control characters, and not too long."""
    # a colour may part a secret
    plain = _COLOURS.sub("", line.decode(errors="replace"))
    shown = redacted(plain, secrets)[:_SHOWN_CHARACTERS]
    return _UNPRINTABLE.sub("?", shown.rstrip())


def _is_header(name: object, text: object) -> bool:
    if not isinstance(name, str) or not isinstance(text, str):
        return False
    return bool(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(text))


def _is_web(url: str) -> bool:
    try:
        parsed = urlsplit(url)
        return parsed.scheme in {"http", "https"} and bool(parsed.hostname)
    except ValueError:
        return False


def _long(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts as programs write them, the longest first: one may be a part of another."""
    written = {form for text in texts if len(text) >= _LEAST_SECRET for form in _forms(text)}
    return tuple(sorted(written, key=len, reverse=True))


def _forms(text: str) -> tuple[str, ...]:
    """Return a text, and what it is within quotes of Python or JSON, and in a URL."""
    quoted = (repr(text), json.dumps(text), json.dumps(text, ensure_ascii=False))
    return (
        text,
        *(form[1:-1] for form in quoted),
        quote(text, safe=""),
        quote(text),
        quote_plus(text),
    )
