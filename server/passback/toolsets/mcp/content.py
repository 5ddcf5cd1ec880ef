"""A result of the protocol as content of ours: bounded, and what does not fit is marked."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

import mcp.types as protocol
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from passback.core.messages import Content, DataPart, MediaPart, Part, TextPart, ToolResult
from passback.core.text import mended, shortened
from passback.toolsets.results import MEDIA_CHARACTERS, MEDIA_TYPE, MediaKind, media_kind

_MOST_PARTS = 100
_NAME_CHARACTERS = 256
_URL_CHARACTERS = 2048
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_WEB: Final = re.compile(r"https?://")


def converted(result: protocol.CallToolResult, limit: int, /) -> ToolResult:
    """Text, data and the names of resources have `limit` characters together; media have a limit of their own."""
    room = _Room(limit)
    parts = [part for block in result.content[:_MOST_PARTS] for part in room.part(block)]
    more = len(result.content) - _MOST_PARTS
    if more > 0:
        parts.append(TextPart(f"[left out: {more} more parts]"))
    structured: JsonValue = result.structured_content
    if structured is not None and not _says_the_same(result.content, structured):
        parts += room.data(structured)
    return ToolResult(_simple(parts), is_error=result.is_error)


def _simple(parts: Sequence[Part]) -> Content:
    """A plain text where that says it all."""
    if not parts:
        return ""
    first = parts[0]
    return first.text if len(parts) == 1 and isinstance(first, TextPart) else tuple(parts)


class _Room:
    """What is left of the limits of one result."""

    def __init__(self, limit: int) -> None:
        self._characters = limit
        self._media = MEDIA_CHARACTERS

    def part(self, block: protocol.ContentBlock) -> Iterator[Part]:
        match block:
            case protocol.TextContent(text=text):
                yield from self.text(text)
            case protocol.ImageContent(data=data, mime_type=media_type):
                yield from self._medium("image", data, media_type, None)
            case protocol.AudioContent(data=data, mime_type=media_type):
                yield from self._medium("audio", data, media_type, None)
            case protocol.ResourceLink():
                yield from self._link(block)
            case protocol.EmbeddedResource():
                yield from self._embedded(block.resource)
            case _:
                assert_never(block)

    def text(self, text: str) -> Iterator[TextPart]:
        """Nothing when there was no room at all: the text before it has said so."""
        if self._characters >= 0:
            yield TextPart(shortened(mended(text), self._characters))
            # below 0 when something was cut, so that it is said once
            self._characters -= len(text) if len(text) <= self._characters else len(text) + 1

    def data(self, data: JsonValue) -> Iterator[Part]:
        text = to_json(data, inf_nan_mode="null").decode()
        if len(text) > self._characters:
            yield from self.text(text)
            return
        self._characters -= len(text)
        yield DataPart(from_json(text))

    def _medium(
        self, kind: MediaKind, data: str, media_type: str | None, name: str | None
    ) -> Iterator[Part]:
        shown = kind if name is None else f"{kind} {name[:_NAME_CHARACTERS]}"
        known = media_type or "application/octet-stream"
        if not (MEDIA_TYPE.fullmatch(known) and _BASE64.fullmatch(data)):
            yield from self.text(f"[left out: {shown}, which is not valid]")
        elif len(data) > self._media:
            yield from self.text(f"[left out: {shown}, which is larger than the limit]")
        else:
            self._media -= len(data)
            label = None if name is None else mended(name[:_NAME_CHARACTERS])
            url = f"data:{known};base64,{data}"
            yield MediaPart(kind, url, known, label)

    def _embedded(
        self, resource: protocol.TextResourceContents | protocol.BlobResourceContents
    ) -> Iterator[Part]:
        address = str(resource.uri)
        if isinstance(resource, protocol.TextResourceContents):
            yield from self.text(f"[{address}]\n{resource.text}")
        else:
            media_type = resource.mime_type
            yield from self._medium(
                media_kind(media_type or ""), resource.blob, media_type, address
            )

    def _link(self, link: protocol.ResourceLink) -> Iterator[Part]:
        """A part only when it leads to the web: what else it may be, nobody here can open."""
        url = str(link.uri)
        if not _WEB.match(url) or len(url) > _URL_CHARACTERS:
            yield from self.text(f"[resource {link.name}: {url}]")
            return
        media_type = link.mime_type
        if media_type is not None and not MEDIA_TYPE.fullmatch(media_type):
            media_type = None
        yield MediaPart("file", mended(url), media_type, mended(link.name[:_NAME_CHARACTERS]))


def _says_the_same(content: Sequence[protocol.ContentBlock], structured: JsonValue) -> bool:
    """Whether the texts of a result are its data once more, for readers that know of texts only."""
    texts = [block.text for block in content if isinstance(block, protocol.TextContent)]
    said = [_read(text) for text in texts]
    alone = [texts[0], said[0]] if len(said) == 1 else []
    return any(structured in (each, {"result": each}) for each in [*alone, texts, said])


def _read(text: str) -> JsonValue:
    try:
        value: JsonValue = from_json(text)
    except ValueError:
        return text
    return value
