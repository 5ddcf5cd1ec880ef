"""What does not fit is told by places in what was posted, in words that name none of our classes."""

from typing import Any

import pytest
from pydantic import JsonValue

from passback.core.errors import InvalidRequest
from passback.http.requests import validate_model
from passback.wire.send_message import SendMessage

pytestmark = pytest.mark.promise("P12")

AN_OBJECT = "Input should be an object"
A_LIST = "Input should be a valid list"
A_TEXT = "Input should be a valid string"
MISSING = "Field required"
ROLES = "Input should be one of 'user', 'system', 'assistant', 'tool'"
AN_ADDRESS = "Input should be an http:, https: or data: URL, without control characters"
PARTS = "'text', 'image', 'audio', 'file', 'image_url', 'input_audio', 'data'"


def problems(posted: dict[str, JsonValue]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRequest) as refused:
        validate_model(SendMessage, posted)
    details: Any = refused.value.details
    told = [(each["at"], each["problem"]) for each in details["problems"]]
    assert refused.value.message == ": ".join(told[0])
    return told


def said(content: JsonValue) -> dict[str, JsonValue]:
    return {"messages": [{"role": "user", "content": content}]}


UNFIT: dict[str, tuple[dict[str, JsonValue], list[tuple[str, str]]]] = {
    "neither form": ({"resume": 7}, [("resume", A_LIST), ("resume", AN_OBJECT)]),
    "in a list": ({"resume": [7]}, [("resume.0", AN_OBJECT)]),
    "of an item": (
        {"resume": [{"payload": True}]},
        [("resume.0.interruptId", MISSING)],
    ),
    "of the one": (
        {"resume": {"interruptId": 5}},
        [("resume.interruptId", A_TEXT), ("resume.payload", MISSING)],
    ),
    "no object": ({"messages": ["hi"]}, [("messages.0", AN_OBJECT)]),
    "no role": ({"messages": [{"content": "x"}]}, [("messages.0.role", MISSING)]),
    "another role": ({"messages": [{"role": "robot"}]}, [("messages.0.role", ROLES)]),
    "no content": ({"messages": [{"role": "user"}]}, [("messages.0.content", MISSING)]),
    "a key like the role": (
        {"messages": [{"role": "user", "user": {"content": "x"}, "content": 7}]},
        [("messages.0.content", A_TEXT), ("messages.0.content", A_LIST)],
    ),
    "an id": (
        {"messages": [{"role": "user", "content": "x", "id": "\0"}]},
        [("messages.0.id", "has characters that cannot be printed")],
    ),
    "another part": (
        said([{"type": "smell"}]),
        [("messages.0.content.0.type", f"Input should be one of {PARTS}")],
    ),
    "a part without a key like its type": (
        said([{"type": "text"}]),
        [("messages.0.content.0.text", MISSING)],
    ),
    "a key like the type": (
        said([{"type": "text", "text": 5}]),
        [("messages.0.content.0.text", A_TEXT)],
    ),
    "one of two forms": (
        said([{"type": "image_url", "image_url": "ftp:x"}]),
        [("messages.0.content.0.image_url", AN_ADDRESS)],
    ),
    "within one of two forms": (
        said([{"type": "image_url", "image_url": {"url": "ftp:x"}}]),
        [("messages.0.content.0.image_url.url", AN_ADDRESS)],
    ),
    "a setting": (
        {"onDisconnect": "x"},
        [("onDisconnect", "Input should be 'continue' or 'cancel'")],
    ),
}


@pytest.mark.parametrize(("posted", "told"), UNFIT.values(), ids=UNFIT)
def test_it_is_told_where_and_why(
    posted: dict[str, JsonValue], told: list[tuple[str, str]]
) -> None:
    assert problems(posted) == told
