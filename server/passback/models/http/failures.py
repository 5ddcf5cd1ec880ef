"""Failures of a model's service, and lists of the models it has: what went wrong, and whether to retry."""

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx
from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.errors import (
    ModelContextExceeded,
    ModelError,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)
from passback.core.values import value

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


_PRINTABLE_NAME = re.compile(r"[\w.:/@+-]{1,80}")

_VERSION = "/v1"
_DATE = re.compile(r"-\d{8}$")
_UNDATED = re.compile(r"-(latest|0)$")
"""What stands in the place of a date, for the newest."""


@value
class Listing:
    """The answer to `GET /models`: its status, and the names of models in it; none where it is no such list."""

    status: int
    names: Sequence[str]

    @property
    def is_refused(self) -> bool:
        """Whether the key was refused, or lacked."""
        return self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}

    @property
    def is_broken(self) -> bool:
        """Whether the service cannot answer now."""
        return (
            self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            and self.status != HTTPStatus.NOT_IMPLEMENTED
        )


def read_listing(status: int, body: bytes, /) -> Listing:
    return Listing(status, _names(_parsed(body)) if status == HTTPStatus.OK else [])


def likely_bases(base: httpx.URL, models: httpx.URL, /) -> Sequence[httpx.URL]:
    """Return the addresses that a base URL without its list of models may stand for: at most 3, of the same service.

    `models` is where the list was looked for: one that is below `/v1` already is looked for nowhere else.
    """
    path = base.path.rstrip("/")
    if models.path != f"{path}/models" or path.endswith(_VERSION):
        return ()
    upto, version, _ = path.partition(f"{_VERSION}/")
    paths = [*([upto + _VERSION] if version else []), path + _VERSION, _VERSION]
    return [base.copy_with(path=each) for each in dict.fromkeys(paths)]


def is_within(base: httpx.URL, given: str, /) -> bool:
    """Return whether an address as it was given leads further than the base URL."""
    return len(httpx.URL(given.strip()).path.rstrip("/")) > len(base.path.rstrip("/"))


def shown(base: httpx.URL, /) -> str:
    """Return an address as people may see it: some services have their keys in the query."""
    return str(base.copy_with(query=None)).rstrip("/")


def objection(base_url: str, model: str, listing: Listing, /) -> ModelError | None:
    """What is wrong when `GET /models` is answered so; a service that has no such list is fine."""
    status, names = listing.status, listing.names
    if status == HTTPStatus.UNAUTHORIZED:
        return ModelRejected(f"{base_url} refuses the key, or wants one")
    if status == HTTPStatus.FORBIDDEN:
        return ModelRejected(f"{base_url} does not allow this key to list its models")
    if listing.is_broken:
        return ModelUnavailable(f"{base_url} answers with the error {status}")
    if not names or any(_is_meant(name, model) for name in names):
        return None
    near = difflib.get_close_matches(model, names, 3, 0.3) or names[:3]
    return ModelRejected(f"{base_url} has no model {model!r}; it has {', '.join(near)}")


def _parsed(body: bytes) -> JsonValue:
    try:
        parsed: JsonValue = from_json(body)
    except ValueError:
        return None
    return parsed


def _names(listing: JsonValue) -> list[str]:
    """The names in the list; what could be anything but a name is left out."""
    models = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(models, list):
        return []
    names = [str(model.get("id") or "") for model in models if isinstance(model, dict)]
    return [name for name in names if "*" in name or _PRINTABLE_NAME.fullmatch(name)]


def _is_meant(name: str, model: str) -> bool:
    """Whether the list's name is the model: with a folder before it, a tag or a date behind it, or a wildcard."""
    if "*" in name:
        return True
    if _UNDATED.sub("", model) == _DATE.sub("", name):
        return True
    return model in (name, name.rpartition("/")[2], name.partition(":")[0])
