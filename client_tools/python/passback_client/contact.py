"""First contact: the errors for an address where something else than a passback server answers, or
nobody does.
"""

import json
import re
from dataclasses import dataclass

import httpx

from passback_client.errors import BadAnswer
from passback_client.limits import Retry

FIRST_CONTACT = 2.0  # seconds
PASSING = frozenset({429, 502, 503, 504})
"""Statuses of a gateway, or of a server, that may be another one soon."""
_QUOTED = 80  # characters of an answer that is not ours
_NAMED_BY = {"text/event-stream": "X-Conversation-Id", "application/json": "X-Request-Id"}
"""The header that names each kind of answer of a passback server."""
_BEARER = re.compile("bearer", re.IGNORECASE)
_FOREIGN = (
    "the address or the port is wrong; "
    "a proxy there does not reach the server, or changes its answers"
)


@dataclass(slots=True)
class Contact:
    """Remembers that a passback server has answered a client, be it with a refusal."""

    is_made: bool = False

    def bound(self, retry: Retry) -> float | None:
        """Seconds that one request, with its repeats, may take as long as nobody may be there."""
        return None if self.is_made or retry.attempts is not None else FIRST_CONTACT


def never_answered(base: str, error: httpx.RequestError) -> str:
    """Say why there may never have been an answer at an address."""
    reason = str(error) if isinstance(error, httpx.ConnectError) else type(error).__name__
    return (
        f"{base} did not answer ({reason})."
        " Likely causes: nobody listens there; the address is wrong"
    )


def foreign_answer(
    base: str, response: httpx.Response, body: bytes, *, key: str | None, retry_after: float | None
) -> BadAnswer:
    """Return the error for an answer that no passback server gives.

    Args:
        base: the server's address.
        response: the answer.
        body: what of its body was read.
        key: is not quoted.
        retry_after: seconds, as the answer says.
    """
    status, headers = response.status_code, response.headers
    kind = headers.get("content-type") or "no Content-Type"
    name = next((name for begins, name in _NAMED_BY.items() if kind.startswith(begins)), None)
    is_unnamed = response.is_success and name is not None and name not in headers
    lacks = f" without the header {name}" if is_unnamed else ""
    quoted = _quote(body.decode(errors="replace"), key)
    begins = f"; it begins with {json.dumps(quoted, ensure_ascii=False)}" if quoted else ""
    return BadAnswer(
        f"{base} did not answer as a passback server: status {status} and {_short(kind)}{lacks}"
        f"{begins}. Likely causes: {_FOREIGN}",
        status=status,
        retryable=status in PASSING,
        retry_after=retry_after,
    )


def is_events(response: httpx.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.startswith("text/event-stream")


def _quote(text: str, key: str | None) -> str:
    # a server that gives back what it was sent gives back the key
    return "" if _BEARER.search(text) or (key and key in text) else _short(text)


def _short(text: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(shown.split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"
