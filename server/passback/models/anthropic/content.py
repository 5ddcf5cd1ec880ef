"""Parts of messages to content blocks. The service takes no block that says nothing: those are left out."""

import base64
import binascii
from collections.abc import Iterable

from pydantic import JsonValue

from passback.core.messages import Content, MediaPart, Part, ToolMessage
from passback.models.anthropic.thoughts import Block
from passback.models.http.bodies import data_of, text_of

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
