"""Requests encoded for Anthropic's service, and messages and parts to make them of."""

import base64
import json
from typing import Any

from pydantic import JsonValue
from tests.support.anthropic_rules import breaches_of

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    CallId,
    Content,
    DataPart,
    MediaPart,
    MessageId,
    ModelMessage,
    Part,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.models.anthropic.encoding import EncodedMessage, encode_message

ID = MessageId("m")
CACHED = {"cache_control": {"type": "ephemeral"}}
NOTHING = {"type": "text", "text": "(no message)"}
HI = UserMessage(ID, "hi")
OBJECT: dict[str, JsonValue] = {"type": "object", "properties": {}}


def encoded(*messages: ModelMessage, **fields: Any) -> EncodedMessage:
    return encode_message("claude-test", "anthropic", ModelRequest(messages, **fields))


def body(*messages: ModelMessage, **fields: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(encoded(*messages, **fields).body)
    assert breaches_of(parsed) == []
    return parsed


def sent(*messages: ModelMessage, **fields: Any) -> list[tuple[str, list[Any]]]:
    """Return the turns, without their cache_control."""
    turns = body(*messages, **fields)["messages"]
    for block in (block for turn in turns for block in turn["content"]):
        block.pop("cache_control", None)
    return [(turn["role"], turn["content"]) for turn in turns]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def call(call_id: str, provider_id: str | None = None, arguments: str = '{"a": 1}') -> ToolCall:
    return ToolCall(CallId(call_id), "add", arguments, provider_id=provider_id)


def tool_use(wire_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": wire_id, "name": "add", "input": {"a": 1}}


def result(call_id: str, content: Content = "2", *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(ID, CallId(call_id), content, is_error=is_error)


def base64_of(words: bytes) -> str:
    return base64.b64encode(words).decode()


PNG = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}
PARTS: list[tuple[Part, dict[str, Any]]] = [
    (TextPart("a"), text("a")),
    (DataPart({"b": "ä"}), text('{"b": "ä"}')),
    (RefusalPart("c"), text("c")),
    (
        MediaPart("image", "https://x/y.png"),
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
    ),
    (MediaPart("image", "data:image/PNG;base64,QUJD"), {"type": "image", "source": PNG}),
    (MediaPart("image", "data:image/svg+xml;base64,QUJD"), text("[image]")),
    (MediaPart("image", "ftp://x/y.png"), text("[image: ftp://x/y.png]")),
    (MediaPart("audio", "data:audio/wav;base64,QUJD"), text("[audio]")),
    (MediaPart("audio", "https://x/y.mp3"), text("[audio: https://x/y.mp3]")),
    (
        MediaPart("file", "data:application/pdf;base64,QUJD", name="a.pdf"),
        {"type": "document", "source": PDF, "title": "a.pdf"},
    ),
    (
        MediaPart("file", "https://x/A.PDF?x=1"),
        {"type": "document", "source": {"type": "url", "url": "https://x/A.PDF?x=1"}},
    ),
    (
        MediaPart("file", "https://x/a", media_type="application/pdf"),
        {"type": "document", "source": {"type": "url", "url": "https://x/a"}},
    ),
    (MediaPart("file", "https://x/a.zip", name="a"), text("[file a: https://x/a.zip]")),
    (MediaPart("file", "ftp://x/a.pdf"), text("[file: ftp://x/a.pdf]")),
    (
        MediaPart("file", f"data:text/csv;base64,{base64_of(b'a,b' + bytes([255]))}"),
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "a,b\ufffd"},
        },
    ),
    (MediaPart("file", f"data:text/plain;base64,{base64_of(b' ')}"), text("[file]")),
    (MediaPart("file", "data:text/plain;base64,?"), text("[file]")),
    (MediaPart("file", "data:text/plain,abc"), text("[file]")),
    (MediaPart("file", "data:application/zip;base64,QUJD"), text("[file]")),
]
