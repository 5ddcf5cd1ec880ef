"""The arguments of `MCPServer`: how a server is reached, its limits, and how far it is trusted."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus, urlsplit

from passback.core.errors import ConfigurationError
from passback.core.permissions import Permission

# No `__` inside and no `_` at the end: so the first `__` in a tool's name ends the server's name.
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}")

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# ASCII only: servers do not agree on the meaning of other bytes (RFC 9110, section 5.5).
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[ \t]*[!-~])*)?")

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


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of `MCPServer`; times are in seconds."""

    permission: Permission
    trust_hints: bool
    seconds: float
    start_seconds: float
    result_limit: int
    write_permission: Permission | None = None


def check_options(name: str, target: Target, options: ServerOptions, /) -> None:
    """Raise ConfigurationError for arguments of `MCPServer` that cannot work."""
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigurationError(
            f"an MCP server cannot be named {name!r}: 1 to 32 letters, digits, '-' and '_', "
            "no '__', no '_' at an end"
        )
    if isinstance(target, StdioTarget):
        if isinstance(target.command, str) or not target.command or not all(target.command):
            raise ConfigurationError(
                f"the MCP server {name!r} has no command: a program and its arguments, one by one"
            )
    elif not _is_web_url(target.url):
        raise ConfigurationError(f"the MCP server {name!r} has no URL of http or https")
    elif wrong := [header for header in target.headers.items() if not _is_valid_header(*header)]:
        # the message has the name only: the value may be a key
        raise ConfigurationError(
            f"the MCP server {name!r}: the header {wrong[0][0]!r} cannot be sent: names and values "
            "are texts of one line, without control characters and blanks around them"
        )
    if options.write_permission is not None and not options.trust_hints:
        raise ConfigurationError(
            f"the MCP server {name!r}: write_permission needs trust_hints=True, as only the server "
            "says which of its tools write; permission holds for all of them"
        )
    if not min(options.seconds, options.start_seconds, options.result_limit) > 0:
        raise ConfigurationError(f"the MCP server {name!r} has a limit that is not above 0")


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


def _is_valid_header(name: object, text: object) -> bool:
    if not isinstance(name, str) or not isinstance(text, str):
        return False
    return bool(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(text))


def _is_web_url(url: str) -> bool:
    try:
        parsed = urlsplit(url)
        return parsed.scheme in {"http", "https"} and bool(parsed.hostname)
    except ValueError:
        return False


def _secret_spellings(texts: Iterable[str]) -> tuple[str, ...]:
    """Return all spellings of the secrets, the longest first: one may be a part of another."""
    written: set[str] = set()
    for text in texts:
        if len(text) >= _MIN_SECRET_CHARACTERS:
            quoted = (repr(text), json.dumps(text), json.dumps(text, ensure_ascii=False))
            written |= {text, *(form[1:-1] for form in quoted)}
            written |= {quote(text, safe=""), quote(text), quote_plus(text)}  # as in a URL
    return tuple(sorted(written, key=len, reverse=True))
