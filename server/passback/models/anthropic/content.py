"""Content blocks of the Messages API: text, attachments, thinking."""

import base64
import binascii
import json
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.messages import AssistantMessage, Content, MediaPart, ToolMessage
from passback.core.values import value
from passback.models.http.bodies import inline_data, json_bytes, plain_text

Block: TypeAlias = dict[str, JsonValue]

THOUGHT_TYPES = frozenset({"thinking", "redacted_thinking"})


@value
class Thought:
    """A block of thinking as the service sent it, with its place in the answer.

    Attributes:
        text: the number of characters of the answer's text before it.
        calls: the number of the answer's calls before it.
        prefix: the digest of the request that it answers, see `Prefix`.
    """

    block: Block
    text: int
    calls: int
    prefix: str

    def dump(self) -> str:
        kept = {"block": self.block, "text": self.text, "calls": self.calls, "prefix": self.prefix}
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def load(cls, record: str, /) -> "Thought":
        kept: dict[str, Any] = from_json(record)
        return cls(kept["block"], kept["text"], kept["calls"], kept["prefix"])


def replayable_thoughts(message: AssistantMessage, provider: str, /) -> list[Thought]:
    """Return the thoughts in an answer that may be sent back to this provider, in their order."""
    return [
        Thought.load(reasoning.opaque)
        for reasoning in message.reasoning
        if reasoning.provider == provider and reasoning.opaque is not None
    ]


class Prefix:
    """A digest of a request, built piece by piece: it differs as soon as any piece differs."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, *pieces: JsonValue) -> None:
        # A line for each piece, so that the borders between pieces count too.
        self._hash.update(b"".join(json_bytes(piece) + b"\n" for piece in pieces))

    def digest(self) -> str:
        return self._hash.hexdigest()[:32]


_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF_TYPE = "application/pdf"


def text_block(text: str, /) -> list[Block]:
    """Return a block for a text, none for a blank one, which the service refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def content_blocks(content: Content, /) -> list[Block]:
    if isinstance(content, str):
        return text_block(content)
    blocks: list[Block] = []
    for part in content:
        block: Block | None = None
        if isinstance(part, MediaPart):
            block = _image_block(part) if part.type == "image" else _document_block(part)
        # An attachment that the service refuses is named in a text.
        blocks += text_block(plain_text((part,))) if block is None else [block]
    return blocks


def attachment_objection(part: MediaPart, /) -> str | None:
    """Return the reason why the service takes no such attachment, None if it does."""
    if part.type == "audio":
        return "this model takes no sounds"
    if part.type == "image":
        return None if _image_block(part) else "an image has to be of type jpeg, png, gif or webp"
    return None if _document_block(part) else "a file has to be a PDF or a text"


def result_block(message: ToolMessage, wire_id: str, /) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": wire_id}
    if message.is_error:  # an error may hold nothing but text
        block["is_error"] = True
    if isinstance(message.content, str) or message.is_error:
        if (text := plain_text(message.content)).strip():
            block["content"] = text
    elif blocks := content_blocks(message.content):
        block["content"] = list[JsonValue](blocks)
    return block


def _image_block(part: MediaPart) -> Block | None:
    carried = inline_data(part)
    if carried is None:
        return {"type": "image", "source": _url_source(part)} if _has_http_url(part) else None
    media_type, data = carried
    if media_type not in _IMAGE_TYPES:
        return None  # one refused image would fail the whole request
    return {"type": "image", "source": _base64_source(media_type, data)}


def _document_block(part: MediaPart) -> Block | None:
    """Return the block for a PDF or a text; None for other files and sounds, which it refuses."""
    source: Block | None = None
    carried = inline_data(part)
    if carried is None:
        path = part.url.partition("?")[0].partition("#")[0].lower()
        # The ending of the address counts only if no type is given.
        is_pdf = part.media_type == _PDF_TYPE or (part.media_type is None and path.endswith(".pdf"))
        if is_pdf and _has_http_url(part):
            source = _url_source(part)
    elif carried[0] == _PDF_TYPE:
        source = _base64_source(*carried)
    elif carried[0].startswith("text/"):
        with suppress(binascii.Error):
            text = base64.b64decode(carried[1], validate=True).decode("utf-8", "replace")
            if text.strip():
                source = {"type": "text", "media_type": "text/plain", "data": text}
    if source is None:
        return None
    document: Block = {"type": "document", "source": source}
    return {**document, "title": part.name} if part.name else document


def _base64_source(media_type: str, data: str) -> Block:
    return {"type": "base64", "media_type": media_type, "data": data}


def _url_source(part: MediaPart) -> Block:
    return {"type": "url", "url": part.url}


def _has_http_url(part: MediaPart) -> bool:
    return part.url.startswith(("https://", "http://"))
