"""A post's key is read as the draft writes it, or bare, and anything else is refused."""

import pytest

from passback.core.errors import BadRequest
from passback.core.messages import OwnerId
from passback.http.headers import Headers
from passback.http.requests import idempotency_key, keyed_conversation_id

ALICE, BOB = OwnerId("alice"), OwnerId("bob")


def _key(*given: str) -> str | None:
    return idempotency_key(Headers([(b"idempotency-key", each.encode()) for each in given]))


def test_a_post_without_a_key_has_none() -> None:
    assert _key() is None


GOOD_KEYS = [
    ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    ('"8e03978e-40d5-43e8-bc93-6894a57f9324"', "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    ("!#$%&'()*+-./:<=>?@[]^_`{|}~", "!#$%&'()*+-./:<=>?@[]^_`{|}~"),
    ('"a,b;c"', "a,b;c"),
    (r'"a\"b\\c"', r'a"b\c'),
    ("x", "x"),
    ("x" * 256, "x" * 256),
    ('"' + "x" * 256 + '"', "x" * 256),
    ('"' + r"\\" * 256 + '"', "\\" * 256),
]


@pytest.mark.promise("P8")
@pytest.mark.parametrize(("given", "key"), GOOD_KEYS)
def test_a_key_is_the_same_in_quotes_and_without(given: str, key: str) -> None:
    assert _key(given) == key


BAD_KEYS = {
    "empty": "",
    "empty quotes": '""',
    "an open quote": '"a',
    "a quote too many": 'a"',
    "a space": "a b",
    "a space in quotes": '"a b"',
    "a tab": "a\tb",
    "NUL": "a\0b",
    "DEL in quotes": '"a\x7f"',
    "a letter beyond ASCII": "é",
    "two keys in one header": "a,b",
    "two strings in one header": '"a", "b"',
    "a parameter": '"a";b=1',
    "a backslash": r"a\b",
    "an escape of something else": r'"a\b"',
    "a backslash at the end": '"a\\"',
    "257 characters": "x" * 257,
    "257 characters in quotes": '"' + "x" * 257 + '"',
    "257 escapes": '"' + r"\\" * 257 + '"',
    "60000 characters": "x" * 60_000,
}


@pytest.mark.promise("P12")
@pytest.mark.parametrize("given", BAD_KEYS.values(), ids=BAD_KEYS.keys())
def test_any_other_key_is_refused(given: str) -> None:
    with pytest.raises(BadRequest):
        _key(given)


@pytest.mark.parametrize("second", ["a", "b", ""])
def test_two_keys_are_refused(second: str) -> None:
    with pytest.raises(BadRequest):
        _key("a", second)


@pytest.mark.promise("P8", "P13")
def test_a_keyed_posts_conversation_follows_from_owner_and_key() -> None:
    one = keyed_conversation_id(ALICE, "k")
    assert one == keyed_conversation_id(ALICE, "k")
    assert one.startswith("conv_")
    others = {keyed_conversation_id(ALICE, "l"), keyed_conversation_id(BOB, "k")}
    assert len({one, *others}) == 3
