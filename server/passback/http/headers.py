"""Request headers, indexed by name once, and the headers with the rest of a budget."""

import re
from collections.abc import Iterable

from starlette.types import Scope

from passback.core.budgets import Left

_HEADERS_KEY = "passback.headers"
_PLAIN_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def is_plain_id(text: str, /) -> bool:
    """Return whether an id may stand unquoted in a header or a line of the log.

    All ids that the server makes are plain.
    """
    return _PLAIN_ID.fullmatch(text) is not None


class Headers:
    """The headers of one request. Names are in lower case, as in ASGI."""

    __slots__ = ("_values",)

    def __init__(self, raw: Iterable[tuple[bytes, bytes]], /) -> None:
        self._values: dict[bytes, list[bytes]] = {}
        for name, value in raw:
            self._values.setdefault(name, []).append(value)

    def __contains__(self, name: bytes, /) -> bool:
        return name in self._values

    def get(self, name: bytes, default: str = "", /) -> str:
        """Return the first header of that name."""
        values = self._values.get(name)
        # latin-1 decodes any bytes
        return values[0].decode("latin-1") if values else default

    def all(self, name: bytes, /) -> list[str]:
        """Return every header of that name, in the order of the request."""
        return [value.decode("latin-1") for value in self._values.get(name, ())]


def headers_of(scope: Scope, /) -> Headers:
    """Return the headers of a request, the same object on every call."""
    known: Headers | None = scope.get(_HEADERS_KEY)
    if known is None:
        known = scope[_HEADERS_KEY] = Headers(scope["headers"])
    return known


def left_headers(left: Left | None, /) -> dict[str, str]:
    """Return the headers with the rest of each limit when the answer begins.

    They are plain decimal numbers.
    """
    if left is None:
        return {}
    amounts: dict[str, object] = {
        "turns": left.turns,
        "tokens": left.tokens,
        "seconds": left.seconds,
        "cost": left.cost,
    }
    known = {f"x-budget-left-{kind}": rest for kind, rest in amounts.items() if rest is not None}
    # a float not by `str`, which writes 0.00001 as 1e-05
    return {
        name: f"{rest:f}".rstrip("0").rstrip(".") if isinstance(rest, float) else str(rest)
        for name, rest in known.items()
    }
