"""Which form an `Accept` header chooses."""

import pytest

from passback.core.errors import NotAcceptable
from passback.http.requests import preferred_media_type

A, B, C = "text/event-stream", "application/json", "text/plain"


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", A),
        (" ", A),
        ("*/*", A),
        (A, A),
        (B, B),
        ("TEXT/Plain", C),
        ("text/*", A),
        ("application/*", B),
        ("text/html, application/xhtml+xml, */*;q=0.8", A),
        # what a common client for browsers sends
        ("application/json, text/plain, */*", A),
        ("application/json, text/plain", B),
        ("application/json;q=0.5, text/plain", C),
        ("text/plain;q=0.5, text/event-stream;q=0.4", C),
        ("text/plain; charset=utf-8; Q=0.5 , application/json; q=0.4", C),
        ("*/*, text/event-stream;q=0", B),
        ("*/*;q=0.1, text/*;q=0.2, text/event-stream;q=0", C),
        ("text/*;q=0.9, application/json", B),
        ("text/plain;q=0, text/plain", C),
        ("text/plain;q=0.001", C),
        ("text/plain;q=1.000, application/json;q=0.999", C),
        ("nonsense, , text/plain", C),
        ("text/plain;format=flowed", C),
    ],
)
def test_the_best_form_is_chosen(header: str, chosen: str) -> None:
    assert preferred_media_type(header, [A, B, C]) == chosen


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    "header",
    [
        "text/html",
        "image/*",
        "*/*;q=0",
        "text/*;q=0, application/json;q=0.000",
        "text/plain;q=2",
        "text/plain;q=high",
        "text/plain;q=0.1234",
        "text/plain;q=",
        "text",
        "*",
        "/",
        "text/plain/x",
        "text/plain x",
    ],
)
def test_what_fits_no_form_is_refused_with_the_list(header: str) -> None:
    with pytest.raises(NotAcceptable) as refused:
        preferred_media_type(header, [A, B, C])
    assert refused.value.message == f"the answer can be {A} or {B} or {C}"
    assert refused.value.details == {"available": [A, B, C]}
