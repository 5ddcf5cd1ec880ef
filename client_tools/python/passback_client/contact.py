"""Errors of the first contact: no answer, or one that is not a passback server's."""

import json
import re
from dataclasses import dataclass

import httpx

from passback_client.errors import BadAnswer
from passback_client.limits import Retry

FIRST_CONTACT = 2.0  # seconds
TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
"""Statuses of a gateway or a server that a retry may cure."""
_QUOTED = 80  # characters of a foreign answer
_NAMED_BY = {"text/event-stream": "X-Conversation-Id", "application/json": "X-Request-Id"}
"""The header by which a passback server's answer of each type is recognized."""
_BEARER = re.compile("bearer", re.IGNORECASE)
_FOREIGN = (
    "the address or the port is wrong; "
    "a proxy there does not reach the server, or changes its answers"
)


@dataclass(slots=True)
class Contact:
    """The state of the first contact: made by any answer of a passback server."""

    is_made: bool = False

    def bound(self, retry: Retry) -> float | None:
        """Return the seconds for a request and its retries while no server has ever answered."""
        return None if self.is_made or retry.attempts is not None else FIRST_CONTACT


def no_answer_message(base: str, error: httpx.RequestError) -> str:
    """Return the message for a server that has never answered, with likely causes."""
    reason = str(error) if isinstance(error, httpx.ConnectError) else type(error).__name__
    return (
        f"{base} did not answer ({reason})."
        " Likely causes: nobody listens there; the address is wrong"
    )


def foreign_answer_error(
    base: str, response: httpx.Response, body: bytes, *, key: str | None, retry_after: float | None
) -> BadAnswer:
    """Return the error for an answer that is not a passback server's.

    Args:
        base: the server's address.
        response: the answer.
        body: the part of its body that was read.
        key: never quoted.
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
        retryable=status in TRANSIENT_STATUSES,
        retry_after=retry_after,
    )


def is_events(response: httpx.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.startswith("text/event-stream")


def _quote(text: str, key: str | None) -> str:
    # a server that echoes the request echoes the key
    return "" if _BEARER.search(text) or (key and key in text) else _short(text)


def _short(text: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(shown.split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"
