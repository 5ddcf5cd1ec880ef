"""Errors of models' services, translated to `ModelError`, and their lists of models."""

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
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

MAX_RETRY_AFTER = 24 * 3600  # seconds; a longer wait is read as this one

_TRANSIENT = {408, 409, 425, 429, 529}  # statuses below 500, and Anthropic's "overloaded"

_TOO_LONG = "the conversation is too long for the model"
_BAD_CONTENT = "the model's service refused the content of the conversation"
_BAD_IMAGE = "the model's service refused an image of the conversation"

_STATUS_WORDS: Mapping[int, str] = {
    400: "the model's service refused the request",
    401: "the model's service refused the key",
    402: "the account at the model's service has no credit left",
    403: "the model's service does not allow this with the key",
    404: "the model's service does not know the model or the address",
    407: "the proxy to the model's service wants another user or password",
    413: _TOO_LONG,
    422: "the model's service refused the request",
}

_CODE_WORDS: Mapping[str, str] = {
    "billing_hard_limit_reached": "the account at the model's service has no credit left",
    "bio_policy": _BAD_CONTENT,
    "content_filter": _BAD_CONTENT,
    "content_policy_violation": _BAD_CONTENT,
    "context_length_exceeded": _TOO_LONG,
    "empty_image_file": _BAD_IMAGE,
    "exceed_context_size_error": _TOO_LONG,
    "failed_to_download_image": _BAD_IMAGE,
    "image_content_policy_violation": _BAD_CONTENT,
    "image_file_not_found": _BAD_IMAGE,
    "image_file_too_large": _BAD_IMAGE,
    "image_parse_error": _BAD_IMAGE,
    "image_too_large": _BAD_IMAGE,
    "image_too_small": _BAD_IMAGE,
    "insufficient_quota": "the account at the model's service has no credit left",
    "invalid_api_key": "the model's service refused the key",
    "invalid_base64_image": _BAD_IMAGE,
    "invalid_image": _BAD_IMAGE,
    "invalid_image_format": _BAD_IMAGE,
    "invalid_image_mode": _BAD_IMAGE,
    "invalid_image_url": _BAD_IMAGE,
    "invalid_prompt": _BAD_CONTENT,
    "misalignment_policy_violation": _BAD_CONTENT,
    "model_not_found": "the model's service does not know the model",
    "string_above_max_length": _TOO_LONG,
    "unsupported_image_media_type": _BAD_IMAGE,
}
"""Services' own codes for errors that a retry cannot mend, whatever the status is."""

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
"""Phrases in messages that mean the same where the code does not say so."""

_STATUS_OF_TYPE: Mapping[str, int] = {
    "authentication_error": 401,
    "billing_error": 402,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "permission_error": 403,
    "request_too_large": 413,
}
"""Types of errors that are reported in the middle of an answer, and the statuses that they mean."""


def status_failure(status: int, body: bytes, retry_after: str | None, /) -> ModelError:
    """Return the error for a status other than 200.

    `body` and `retry_after` are the body and the `Retry-After` header of the service's answer.
    """
    # The code goes first: services send "no credit left" as 429, which looks like a rate limit.
    parsed: JsonValue = None
    with suppress(ValueError, RecursionError):
        parsed = json.loads(body)
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]  # Gemini's errors are in a list
    if known := _known_refusal(parsed.get("error") if isinstance(parsed, dict) else None):
        return _refusal_error(known)
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
    return _refusal_error(_STATUS_WORDS.get(status, _STATUS_WORDS[400]))


def unexpected_encoding() -> ModelError:
    """Return the error for a compressed answer."""
    # No encoding is accepted, because an answer could unpack to any size.
    return ModelRejected(
        "the model's service answers with a content encoding that was not asked for: "
        "switch its compression off"
    )


def reported_failure(error: JsonValue, /) -> ModelError:
    """Return the error for an error object in the middle of an answer."""
    code = _error_code(error)
    if known := _known_refusal(error):
        return _refusal_error(known)
    if code == "429" or "rate_limit" in code or "too_many_requests" in code:
        return ModelRateLimited("the model's service takes no more requests now")
    status = _STATUS_OF_TYPE.get(code) or (int(code) if code.isdecimal() else 0)
    if status in _STATUS_WORDS:
        return _refusal_error(_STATUS_WORDS[status])
    return ModelUnavailable("the model's service failed in the middle of its answer")


def parse_retry_after(value: str | None, now: datetime, /) -> float | None:
    """Return the seconds to wait by a `Retry-After` header, a number or a date; None for junk."""
    seconds = math.nan
    with suppress(ValueError, OverflowError):
        date = parsedate_to_datetime(value or "")
        # A date without a zone means UTC.
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = date.timestamp() - now.timestamp()
    with suppress(ValueError):
        seconds = float(value or "")
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if math.isfinite(seconds) else None


def _known_refusal(error: JsonValue) -> str | None:
    """Return passback's text for an error that a retry cannot mend, None for any other error."""
    if words := _CODE_WORDS.get(_error_code(error)):
        return words
    message = error.get("message") if isinstance(error, dict) else error
    text = message.lower() if isinstance(message, str) else ""
    return next((words for phrase, words in _PHRASES.items() if phrase in text), None)


def _refusal_error(words: str) -> ModelError:
    """Return an error that is not retried. A conversation that is too long can be compacted."""
    return ModelContextExceeded(words) if words == _TOO_LONG else ModelRejected(words)


def _error_code(error: JsonValue) -> str:
    """Return the code of an error in lower case, empty if there is none.

    Services put it into `code` or `type`.
    """
    if not isinstance(error, dict):
        return ""
    codes = [str(error.get(key) or "").lower() for key in ("code", "type")]
    return next((code for code in codes if code in _CODE_WORDS), codes[0] or codes[1])


_MODEL_NAME = re.compile(r"[\w.:/@+-]{1,80}")

_VERSION = "/v1"
_DATE = re.compile(r"-\d{8}$")
_UNDATED = re.compile(r"-(latest|0)$")  # stands for the newest date


@value
class Listing:
    """The answer to `GET /models`: its status, and the names in it, none if there is no list."""

    status: int
    names: Sequence[str]

    @property
    def is_refused(self) -> bool:
        """True if the key is refused or missing."""
        return self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}

    @property
    def is_broken(self) -> bool:
        """True if the service has failed."""
        # 501 is the answer of a service that works and has no list of models.
        return (
            self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            and self.status != HTTPStatus.NOT_IMPLEMENTED
        )


def read_listing(status: int, body: bytes, /) -> Listing:
    """Return the listing in the answer to `GET /models`."""
    if status != HTTPStatus.OK:
        return Listing(status, [])
    try:
        parsed: JsonValue = from_json(body)
    except ValueError:
        return Listing(status, [])
    models = parsed.get("data") if isinstance(parsed, dict) else None
    each = models if isinstance(models, list) else []
    names = [str(model.get("id") or "") for model in each if isinstance(model, dict)]
    # People are shown these names: what cannot be one is left out.
    return Listing(status, [name for name in names if "*" in name or _MODEL_NAME.fullmatch(name)])


def likely_bases(base: httpx.URL, models: httpx.URL, /) -> Sequence[httpx.URL]:
    """Return up to 3 addresses of the same service that a wrong base URL may have been meant as.

    `models` is the URL that had no list of models. If it is below `/v1` already, there are none.
    """
    path = base.path.rstrip("/")
    if models.path != f"{path}/models" or path.endswith(_VERSION):
        return ()
    upto, version, _ = path.partition(f"{_VERSION}/")
    paths = [*([upto + _VERSION] if version else []), path + _VERSION, _VERSION]
    return [base.copy_with(path=each) for each in dict.fromkeys(paths)]


def has_longer_path(base: httpx.URL, given: str, /) -> bool:
    """Return True if the path of an address, as it was given, is longer than the base URL's."""
    return len(httpx.URL(given.strip()).path.rstrip("/")) > len(base.path.rstrip("/"))


def without_query(base: httpx.URL, /) -> str:
    """Return an address as people may see it: some services take the key in the query."""
    return str(base.copy_with(query=None)).rstrip("/")


def listing_error(base_url: str, model: str, listing: Listing, /) -> ModelError | None:
    """Return the error that a listing shows, None if it shows none or the service has no list."""
    status, names = listing.status, listing.names
    if status == HTTPStatus.UNAUTHORIZED:
        return ModelRejected(f"{base_url} refuses the key, or wants one")
    if status == HTTPStatus.FORBIDDEN:
        return ModelRejected(f"{base_url} does not allow this key to list its models")
    if listing.is_broken:
        return ModelUnavailable(f"{base_url} answers with the error {status}")
    if not names or any(_is_same_model(name, model) for name in names):
        return None
    near = difflib.get_close_matches(model, names, 3, 0.3) or names[:3]
    return ModelRejected(f"{base_url} has no model {model!r}; it has {', '.join(near)}")


def _is_same_model(name: str, model: str) -> bool:
    """Return True if a name in the list means the model.

    The name may have a folder before it, or a date behind it. A model without a tag is the one with
    the tag `latest`, as Ollama has it.
    """
    # A gateway's wildcard, such as `openai/*`: the models that it stands for are unknown.
    if "*" in name:
        return True
    if _UNDATED.sub("", model) == _DATE.sub("", name):
        return True
    return model in (name, name.rpartition("/")[2], name.removesuffix(":latest"))
