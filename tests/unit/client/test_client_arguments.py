"""What a client is made with is checked when it is made: the error names the argument, and what it takes."""

import math
from typing import Any, cast

import httpx
import pytest

from passback_client import BadSetup, Client, Limits, Retry, Tool
from passback_client import sync as plain

ADDRESS = "give the server's address, such as 'http://127.0.0.1:8000'"
EXECUTE = "give a function that takes the arguments and a `ToolContext`"


@pytest.mark.parametrize("kind", [Client, plain.Client])
@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ({"url": 5}, f"url is 5: {ADDRESS}"),
        ({"url": None}, f"url is None: {ADDRESS}"),
        ({"url": b"http://host"}, f"url is a bytes: {ADDRESS}"),
        ({"url": httpx.URL("http://host")}, f"url is a URL: {ADDRESS}"),
        ({"api_key": 5}, "api_key is 5: give a text, or None"),
        ({"api_key": b"secret"}, "api_key is a bytes: give a text, or None"),
        ({"tools": 5}, "tools is 5: give a list of functions or `Tool`s"),
        ({"tools": "paint"}, "tools is a str: give a list of functions or `Tool`s"),
        ({"tools": {"price": print}}, "tools is a dict: give a list of functions or `Tool`s"),
        (
            {"tools": math.floor},
            "tools is a builtin_function_or_method: give a list of functions or `Tool`s",
        ),
        ({"approve": True}, "approve is True: give a function that takes an `Approval`, or None"),
        ({"claims": "no"}, "claims is a str: give True or False"),
        ({"limits": {"rounds": 3}}, "limits is a dict: give `Limits`, or None"),
        ({"limits": Limits}, "limits is a type: give `Limits`, or None"),
        ({"retry": 3}, "retry is 3: give a `Retry`, or None"),
        (
            {"transport": httpx.HTTPTransport()},
            "transport is a HTTPTransport: give an `httpx.AsyncBaseTransport`, or None",
        ),
    ],
)
def test_an_argument_of_another_kind_is_named(
    kind: type[Client] | type[plain.Client], argument: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadSetup) as caught:
        kind(**{"url": "http://host", **argument})
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: Limits(rounds=cast("Any", "3")),
            "Limits: rounds is a str: give a whole number of at least 0",
        ),
        (
            lambda: Limits(body_bytes=-1),
            "Limits: body_bytes is -1: give a whole number of at least 0",
        ),
        (
            lambda: Limits(frame_chars=True),
            "Limits: frame_chars is True: give a whole number of at least 0",
        ),
        (
            lambda: Retry(attempts=0),
            "Retry: attempts is 0: give a whole number of at least 1, or None",
        ),
        (lambda: Retry(first=math.nan), "Retry: first is nan: give seconds, at least 0"),
        (
            lambda: Retry(silence=cast("Any", None)),
            "Retry: silence is None: give seconds, at least 0",
        ),
        (lambda: Retry(claim=601), "Retry: claim is 601: give whole seconds, at most 600"),
        (lambda: Tool(cast("Any", 5), "", {}, print), "a tool cannot be named 5"),
        (
            lambda: Tool("t", cast("Any", None), {}, print),
            "tool 't': description is None: give a text",
        ),
        (
            lambda: Tool("t", "", cast("Any", "{}"), print),
            "tool 't': parameters is a str: give a JSON Schema as a dict, or None",
        ),
        (lambda: Tool("t", "", {}, cast("Any", "print")), f"tool 't': execute is a str: {EXECUTE}"),
        (
            lambda: Tool("t", "", {}, print, needs_approval=cast("Any", print)),
            "tool 't': needs_approval is a builtin_function_or_method: give True or False",
        ),
    ],
)
def test_what_goes_into_an_argument_is_checked_too(make: Any, told: str) -> None:
    with pytest.raises(BadSetup) as caught:
        make()
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "no http: or https: address with a host"),
        ("host", "no http: or https: address with a host"),
        ("localhost:8000", "no http: or https: address with a host"),
        ("ftp://host", "no http: or https: address with a host"),
        ("http://", "no http: or https: address with a host"),
        ("http://a:b", "no URL"),
        ("http://a:99999", "has a port beyond 65535"),
        ("http://\ud800", "no URL"),
        ("http://me:pw@host", "holds a user or a password"),
        ("ftp://me:pw@", "holds a user or a password"),
        ("http://host?a", "no query or fragment"),
        ("http://host#a", "no query or fragment"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, told: str) -> None:
    with pytest.raises(BadSetup, match=r"^url ") as caught:
        Client(url)
    assert told in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "a b", "secret\r\nx: y", "sécret"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(BadSetup, match=r"^api_key ") as caught:
        Client("http://host", api_key=key)
    assert "cret" not in str(caught.value)
