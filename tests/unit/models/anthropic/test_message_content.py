"""Encoding of each kind of content."""

from typing import Any

import pytest
from tests.unit.models.anthropic.asking import HI, ID, PARTS, PNG, call, result, sent, text

from passback.core.messages import AssistantMessage, Content, MediaPart, Part, TextPart, UserMessage
from passback.models.anthropic import Anthropic


def encoded_content(content: Content) -> Any:
    [(_, blocks)] = sent(UserMessage(ID, content))
    return blocks


@pytest.mark.parametrize(("part", "block"), PARTS, ids=str)
def test_a_part_has_a_block_of_its_own_or_is_named(part: Part, block: dict[str, Any]) -> None:
    assert encoded_content((TextPart("see"), TextPart(" "), part)) == [text("see"), block]


@pytest.mark.parametrize(
    ("content", "is_error", "inner"),
    [
        ("2", False, {"content": "2"}),
        ("", False, {}),
        (" ", True, {"is_error": True}),
        ((TextPart(" "),), False, {}),
        (
            (TextPart("a"), PARTS[4][0]),
            False,
            {"content": [text("a"), {"type": "image", "source": PNG}]},
        ),
        ((TextPart("a"), PARTS[4][0]), True, {"is_error": True, "content": "a\n[image]"}),
    ],
)
def test_a_result_is_text_or_blocks_and_an_error_is_text(
    content: Content, is_error: bool, inner: dict[str, Any]
) -> None:
    tool_message = result("c1", content, is_error=is_error)
    turns = sent(HI, AssistantMessage(ID, "", (call("c1"),)), tool_message)
    assert turns[2][1] == [{"type": "tool_result", "tool_use_id": "c1"} | inner]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (MediaPart("image", "https://x/a.png"), None),
        (MediaPart("image", "data:image/png;base64,QUJD"), None),
        (MediaPart("file", "data:application/pdf;base64,QUJD"), None),
        (MediaPart("file", "data:text/plain;base64,QUJD"), None),
        (
            MediaPart("image", "data:image/tiff;base64,QUJD"),
            "an image has to be of type jpeg, png, gif or webp",
        ),
        (MediaPart("audio", "data:audio/wav;base64,QUJD"), "this model takes no sounds"),
        (MediaPart("file", "data:application/zip;base64,QUJD"), "a file has to be a PDF or a text"),
    ],
)
def test_media_that_the_service_does_not_take_are_refused(part: MediaPart, why: str | None) -> None:
    assert Anthropic("claude-test").refuses(part) == why
