"""The errors of a model's service, and the attempts that follow."""

import json
from datetime import UTC, datetime

import httpx
import pytest

from passback.core.errors import (
    ModelContextExceeded,
    ModelError,
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)
from passback.models.http.failures import MAX_RETRY_AFTER, parse_retry_after, status_failure
from passback.models.http.service import Bounds

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
SECRET = "sk-1234567890"


def error(**fields: object) -> bytes:
    return json.dumps({"error": {"message": f"key {SECRET} is wrong", **fields}}).encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, ModelUnavailable) for status in (408, 409, 425, 500, 502, 503, 504, 529)),
        (429, ModelRateLimited),
        *((status, ModelRejected) for status in (301, 307, 400, 401, 402, 403, 404, 418, 422)),
        (413, ModelContextExceeded),
    ],
)
def test_each_status_has_an_error_without_the_services_text(
    status: int, kind: type[ModelError]
) -> None:
    failure = status_failure(status, error(code="whatever"), None)
    assert type(failure) is kind
    assert SECRET not in repr(failure)
    assert failure.details == {}


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, error(type="content_filter", code=None), "refused the content"),
        (400, error(code="invalid_prompt"), "refused the content"),
        (400, error(code="image_too_large"), "refused an image"),
        (429, error(code="insufficient_quota"), "no credit"),
        (500, error(code="invalid_api_key"), "refused the key"),
        (401, b"", "refused the key"),
        (404, b"not JSON", "does not know the model"),
        (422, b'{"error": "text"}', "refused the request"),
        (418, b'{"detail": 1}', "refused the request"),
        (400, b"[" * 100_000, "refused the request"),
        (302, b"", "redirects"),
        (400, b'{"error": {"message": "Your credit balance is too low"}}', "no credit"),
    ],
)
def test_known_codes_have_texts_of_their_own(status: int, body: bytes, words: str) -> None:
    failure = status_failure(status, body, None)
    assert type(failure) is ModelRejected
    assert words in failure.message


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error(code="context_length_exceeded")),
        (400, error(type="exceed_context_size_error", code=400)),
        (400, error(code="string_above_max_length")),
        (400, b'{"error": {"message": "This model\'s maximum context length is 4096 tokens."}}'),
        (400, b'{"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}'),
        (400, b'{"error": {"message": "It exceeds the maximum number of tokens allowed."}}'),
        (500, b'{"error": "the context size has been exceeded"}'),
        (400, b'{"error": {"message": "max_tokens exceed context limit: 9"}}'),
        (413, b"[1]"),
    ],
)
def test_a_context_that_is_too_long_has_an_error_of_its_own(status: int, body: bytes) -> None:
    failure = status_failure(status, body, None)
    assert type(failure) is ModelContextExceeded
    assert failure.message == "the conversation is too long for the model"


@pytest.mark.parametrize("status", [429, 503])
def test_an_error_has_the_retry_after_of_the_service(status: int) -> None:
    assert status_failure(status, b"", "30").retry_after == 30
    assert status_failure(status, b"", None).retry_after is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3),
        (" 1.5 ", 1.5),
        ("0", 0),
        ("-4", 0),
        ("1e9", MAX_RETRY_AFTER),
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0),
        ("Fri, 20 Nov 2026 12:00:30 -0000", 30),
        ("Fri, 20 Nov 2099 12:00:30 GMT", MAX_RETRY_AFTER),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("Fri, 99 Nov 2026 12:00:30 GMT", None),
        (None, None),
    ],
)
def test_retry_after_in_all_its_forms(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


# ---------------------------------------------------------------- attempts
BOUNDS = Bounds(retries=2, retry_delay=1.0, max_retry_after=5.0)


@pytest.mark.parametrize("attempt", [0, 1])
def test_the_pause_doubles_and_varies(attempt: int) -> None:
    pauses = {BOUNDS.retry_pause(ModelUnavailable("x"), attempt) for _ in range(50)}
    assert len(pauses) > 1
    assert all(pause and 0.5 * 2**attempt <= pause <= 2**attempt for pause in pauses)


@pytest.mark.parametrize(
    ("failure", "attempt", "pause"),
    [
        (ModelRateLimited("x", retry_after=5), 0, 5),
        (ModelRateLimited("x", retry_after=0), 1, 0),
        (ModelRateLimited("x", retry_after=5.1), 0, None),
        (ModelUnavailable("x", retry_after=3), 2, None),
        (ModelRejected("x"), 0, None),
    ],
)
def test_another_attempt_is_made_within_the_bounds(
    failure: ModelError, attempt: int, pause: float | None
) -> None:
    assert BOUNDS.retry_pause(failure, attempt) == pause


def test_a_service_that_was_silent_too_long_is_not_asked_again() -> None:
    failure = ModelUnavailable("x")
    failure.__cause__ = httpx.ReadTimeout("silent")
    assert BOUNDS.retry_pause(failure, 0) is None
    failure.__cause__ = httpx.ConnectTimeout("no connection")
    assert BOUNDS.retry_pause(failure, 0) is not None


def test_an_incomplete_answer_is_retryable_and_a_refusal_is_not() -> None:
    assert (ModelIncomplete.retryable, ModelRejected.retryable) == (True, False)
