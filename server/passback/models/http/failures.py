"""What went wrong at the model's service, in our own words.

What a service says is never passed on: its messages may hold keys, names of organisations or of hosts. Only codes
that are known here change the words.
"""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from pydantic import JsonValue

from passback.core.errors import (
    ModelContextExceeded,
    ModelError,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)

MAX_RETRY_AFTER = 24 * 3600
"""Seconds; what asks for more is read as this."""

_TRANSIENT = {408, 409, 425, 429, 529}

_TOO_LONG = "the conversation is too long for the model"

_STATUS_WORDS: Mapping[int, str] = {
    400: "the model's service refused the request",
    401: "the model's service refused the key",
    402: "the account at the model's service has no credit left",
    403: "the model's service does not allow this with the key",
    404: "the model's service does not know the model or the address",
    413: _TOO_LONG,
    422: "the model's service refused the request",
}

_CODE_WORDS: Mapping[str, str] = {
    "billing_hard_limit_reached": "the account at the model's service has no credit left",
    "content_filter": "the model's service refused the content of the conversation",
    "content_policy_violation": "the model's service refused the content of the conversation",
    "context_length_exceeded": _TOO_LONG,
    "exceed_context_size_error": _TOO_LONG,
    "insufficient_quota": "the account at the model's service has no credit left",
    "invalid_api_key": "the model's service refused the key",
    "model_not_found": "the model's service does not know the model",
    "string_above_max_length": _TOO_LONG,
}
"""The service's own codes: with one of these a repeat cannot help, whatever the status says."""

_PHRASES: Mapping[str, str] = {
    "context length": _TOO_LONG,
    "context limit": _TOO_LONG,
    "context size": _TOO_LONG,
    "context window": _TOO_LONG,
    "credit balance is too low": "the account at the model's service has no credit left",
    "input is too long": _TOO_LONG,
    "maximum number of tokens": _TOO_LONG,
    "prompt is too long": _TOO_LONG,
    "reduce the length of the messages": _TOO_LONG,
}
"""What tells the same where the code does not."""

_TYPES: Mapping[str, int] = {
    "authentication_error": 401,
    "billing_error": 402,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "permission_error": 403,
    "request_too_large": 413,
}
"""Kinds of errors that services report where there is no status, and the status that they would have."""


def status_failure(status: int, body: bytes, retry_after: str | None, /) -> ModelError:
    """What a status that is not 200 means; `body` and `retry_after` are the answer's own."""
    if known := _known(_error_of(body)):
        return _refusal(known)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return ModelRejected(
            "the model's address redirects; the address that it leads to is needed"
        )
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        wait = parse_retry_after(retry_after, datetime.now(UTC))
        return ModelRateLimited("the model's service takes no more requests now", retry_after=wait)
    if status in _TRANSIENT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        wait = parse_retry_after(retry_after, datetime.now(UTC))
        return ModelUnavailable("the model's service cannot answer now", retry_after=wait)
    return _refusal(_STATUS_WORDS.get(status, _STATUS_WORDS[400]))


def encoded_unasked() -> ModelError:
    """An answer that came with a content encoding; none is asked for, as it could unpack to any size."""
    return ModelRejected(
        "the model's service answers with a content encoding that was not asked for: switch its compression off"
    )


def reported_failure(error: JsonValue, /) -> ModelError:
    """What an error object in the middle of an answer means."""
    code = _code(error)
    if known := _known(error):
        return _refusal(known)
    if code == "429" or "rate_limit" in code or "too_many_requests" in code:
        return ModelRateLimited("the model's service takes no more requests now")
    status = _TYPES.get(code) or (int(code) if code.isdecimal() else 0)
    if status in _STATUS_WORDS:
        return _refusal(_STATUS_WORDS[status])
    return ModelUnavailable("the model's service failed in the middle of its answer")


def parse_retry_after(value: str | None, now: datetime, /) -> float | None:
    """Seconds to wait by a `Retry-After` header, in seconds or as a date; None for junk."""
    if value is None:
        return None
    seconds = _seconds(value.strip(), now)
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _seconds(value: str, now: datetime) -> float | None:
    try:
        return float(value)
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(value)
        # A date without a zone is meant as UTC.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    except (ValueError, OverflowError):
        return None


def _error_of(body: bytes) -> JsonValue:
    try:
        parsed: JsonValue = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed.get("error") if isinstance(parsed, dict) else None


def _known(error: JsonValue) -> str | None:
    """Our words for an error that a repeat cannot help."""
    if words := _CODE_WORDS.get(_code(error)):
        return words
    message = error.get("message") if isinstance(error, dict) else error
    said = message.lower() if isinstance(message, str) else ""
    return next((words for phrase, words in _PHRASES.items() if phrase in said), None)


def _refusal(words: str) -> ModelError:
    """What is too long may be made shorter; the rest is for people to mend."""
    return ModelContextExceeded(words) if words == _TOO_LONG else ModelRejected(words)


def _code(error: JsonValue) -> str:
    """The service's code for an error, lower case; services differ in where they put it."""
    if not isinstance(error, dict):
        return ""
    codes = [str(error.get(key) or "").lower() for key in ("code", "type")]
    return next((code for code in codes if code in _CODE_WORDS), codes[0] or codes[1])
