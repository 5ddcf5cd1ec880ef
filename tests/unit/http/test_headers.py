"""A request's headers are found by name, doubled ones in their order."""

from passback.http.headers import Headers, headers_of

DOUBLED = Headers([(b"accept", b"text/plain"), (b"host", b"localhost"), (b"accept", b"caf\xe9")])


def test_a_header_that_comes_twice_is_given_whole_or_first() -> None:
    assert DOUBLED.all(b"accept") == ["text/plain", "caf\xe9"]
    assert DOUBLED.get(b"accept") == "text/plain"


def test_a_header_that_is_not_there_is_nothing_or_the_default() -> None:
    assert DOUBLED.all(b"origin") == []
    assert DOUBLED.get(b"origin") == ""
    assert DOUBLED.get(b"origin", "none") == "none"
    assert b"origin" not in DOUBLED


def test_a_header_may_be_there_and_empty() -> None:
    headers = Headers([(b"content-encoding", b"")])
    assert b"content-encoding" in headers
    assert headers.get(b"content-encoding", "identity") == ""


def test_the_headers_of_a_request_are_sorted_once() -> None:
    scope = {"type": "http", "headers": [(b"host", b"localhost")]}
    assert headers_of(scope) is headers_of(scope)
    assert headers_of(scope).get(b"host") == "localhost"
