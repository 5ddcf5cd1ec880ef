"""Content blocks of the Messages API: text, attachments, thinking."""

import base64
import binascii
import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.messages import AssistantMessage, Content, MediaPart, Part, ToolMessage
from passback.core.values import value
from passback.models.http.bodies import data_of, text_of, written

Block: TypeAlias = dict[str, JsonValue]

KINDS = frozenset({"thinking", "redacted_thinking"})


@value
class Thought:
    """A block, just as the service gave it.

    Attributes:
        text: characters of the answer's text before it.
        calls: calls of the answer before it.
        prefix: what the request was that it answers, see `Prefix`.
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


def thoughts_of(message: AssistantMessage, provider: str, /) -> list[Thought]:
    """The thoughts in an answer that may go back to this provider, in the order in which they came."""
    return [
        Thought.load(reasoning.opaque)
        for reasoning in message.reasoning
        if reasoning.provider == provider and reasoning.opaque is not None
    ]


class Prefix:
    """Takes a request in, piece by piece; its `digest` is another one as soon as a piece is."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, *pieces: JsonValue) -> None:
        self._hash.update(b"".join(_framed(pieces)))

    def digest(self) -> str:
        return self._hash.hexdigest()[:32]


def _framed(pieces: Iterable[JsonValue]) -> Iterable[bytes]:
    for piece in pieces:
        yield written(piece)
        yield b"\n"


_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"


def text_block(text: str, /) -> list[Block]:
    """One block; none for a blank text."""
    return [{"type": "text", "text": text}] if text.strip() else []


def content_blocks(content: Content, /) -> list[Block]:
    if isinstance(content, str):
        return text_block(content)
    return [block for part in content for block in _part(part)]


def objection(part: MediaPart, /) -> str | None:
    """Why the service cannot be sent an attachment. None: it can."""
    if part.type == "audio":
        return "this model takes no sounds"
    if part.type == "image":
        return None if _image(part) else "an image has to be of type jpeg, png, gif or webp"
    return None if _document(part) else "a file has to be a PDF or a text"


def result_block(message: ToolMessage, wire_id: str, /) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": wire_id}
    if message.is_error:  # then nothing but text may be in it
        block["is_error"] = True
    if isinstance(message.content, str) or message.is_error:
        if (text := text_of(message.content)).strip():
            block["content"] = text
    elif blocks := content_blocks(message.content):
        block["content"] = list[JsonValue](blocks)
    return block


def _part(part: Part) -> Iterable[Block]:
    if isinstance(part, MediaPart):
        source = _image(part) if part.type == "image" else _document(part)
        if source is not None:
            return [source]
    return text_block(text_of((part,)))


def _image(part: MediaPart) -> Block | None:
    carried = data_of(part)
    if carried is None:
        return {"type": "image", "source": _address(part)} if _is_address(part) else None
    media_type, data = carried
    if media_type not in _IMAGES:
        return None
    return {"type": "image", "source": _data(media_type, data)}


def _document(part: MediaPart) -> Block | None:
    """A PDF or a text; the service knows no other files, and no sounds."""
    source: Block | None = None
    carried = data_of(part)
    if carried is None:
        if _is_address(part) and _is_pdf(part):
            source = _address(part)
    elif carried[0] == _PDF:
        source = _data(*carried)
    elif carried[0].startswith("text/"):
        source = _plain(carried[1])
    if source is None:
        return None
    document: Block = {"type": "document", "source": source}
    return {**document, "title": part.name} if part.name else document


def _plain(data: str) -> Block | None:
    try:
        text = base64.b64decode(data, validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return None
    return {"type": "text", "media_type": "text/plain", "data": text} if text.strip() else None


def _data(media_type: str, data: str) -> Block:
    return {"type": "base64", "media_type": media_type, "data": data}


def _address(part: MediaPart) -> Block:
    return {"type": "url", "url": part.url}


def _is_address(part: MediaPart) -> bool:
    return part.url.startswith(("https://", "http://"))


def _is_pdf(part: MediaPart) -> bool:
    path = part.url.partition("?")[0].partition("#")[0]
    return part.media_type == _PDF or (part.media_type is None and path.lower().endswith(".pdf"))
