"""Conversion of MCP results to `ToolResult`, within limits; a mark stands for what is left out."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, assert_never

import mcp.types as protocol
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from passback.core.messages import Content, DataPart, MediaPart, Part, TextPart, ToolResult
from passback.core.text import replace_surrogates, shorten_result
from passback.toolsets.results import MEDIA_CHARACTERS, MEDIA_TYPE, MediaKind, media_kind

_MAX_PARTS = 100
_NAME_CHARACTERS = 256
_URL_CHARACTERS = 2048
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_WEB_URL: Final = re.compile(r"https?://")


def to_tool_result(result: protocol.CallToolResult, limit: int, /) -> ToolResult:
    """Return a result of the protocol as a `ToolResult`.

    Text, data and the names of resources share `limit` characters; media have a limit of their own.
    """
    budget = _ResultBudget(limit)
    parts = [part for block in result.content[:_MAX_PARTS] for part in budget.parts_of(block)]
    more = len(result.content) - _MAX_PARTS
    if more > 0:
        parts.append(TextPart(f"[left out: {more} more parts]"))
    structured: JsonValue = result.structured_content
    if structured is not None and not _repeats_data(result.content, structured):
        parts += budget.data_parts(structured)
    content: Content = tuple(parts) or ""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        content = parts[0].text
    return ToolResult(content, is_error=result.is_error)


class _ResultBudget:
    """The remaining room of one result: characters of text, and characters of media in base64."""

    def __init__(self, limit: int) -> None:
        self._characters = limit
        self._media = MEDIA_CHARACTERS

    def parts_of(self, block: protocol.ContentBlock) -> Iterator[Part]:
        match block:
            case protocol.TextContent(text=text):
                yield from self.text_parts(text)
            case protocol.ImageContent(data=data, mime_type=media_type):
                yield from self._media_part("image", data, media_type, None)
            case protocol.AudioContent(data=data, mime_type=media_type):
                yield from self._media_part("audio", data, media_type, None)
            case protocol.ResourceLink():
                yield from self._link_part(block)
            case protocol.EmbeddedResource(resource=resource):
                if isinstance(resource, protocol.TextResourceContents):
                    yield from self.text_parts(f"[{resource.uri}]\n{resource.text}")
                else:
                    kind, address = media_kind(resource.mime_type or ""), str(resource.uri)
                    yield from self._media_part(kind, resource.blob, resource.mime_type, address)
            case _:
                assert_never(block)

    def text_parts(self, text: str) -> Iterator[TextPart]:
        """Yield a text, cut if need be, or nothing if an earlier text was cut already."""
        if self._characters >= 0:
            yield TextPart(shorten_result(replace_surrogates(text), self._characters))
            # below 0 once a text was cut, so that the mark of the cut appears only once
            self._characters -= len(text) if len(text) <= self._characters else len(text) + 1

    def data_parts(self, data: JsonValue) -> Iterator[Part]:
        text = to_json(data, inf_nan_mode="null").decode()
        if len(text) > self._characters:
            yield from self.text_parts(text)
            return
        self._characters -= len(text)
        yield DataPart(from_json(text))

    def _media_part(
        self, kind: MediaKind, data: str, media_type: str | None, name: str | None
    ) -> Iterator[Part]:
        shown = kind if name is None else f"{kind} {name[:_NAME_CHARACTERS]}"
        known = media_type or "application/octet-stream"
        if not (MEDIA_TYPE.fullmatch(known) and _BASE64.fullmatch(data)):
            yield from self.text_parts(f"[left out: {shown}, which is not valid]")
        elif len(data) > self._media:
            yield from self.text_parts(f"[left out: {shown}, which is larger than the limit]")
        else:
            self._media -= len(data)
            label = None if name is None else replace_surrogates(name[:_NAME_CHARACTERS])
            url = f"data:{known};base64,{data}"
            yield MediaPart(kind, url, known, label)

    def _link_part(self, link: protocol.ResourceLink) -> Iterator[Part]:
        """Yield a media part for a web address, and text for schemes that only the server knows."""
        url = str(link.uri)
        if not _WEB_URL.match(url) or len(url) > _URL_CHARACTERS:
            yield from self.text_parts(f"[resource {link.name}: {url}]")
            return
        media_type = link.mime_type
        if media_type is not None and not MEDIA_TYPE.fullmatch(media_type):
            media_type = None
        yield MediaPart(
            "file",
            replace_surrogates(url),
            media_type,
            replace_surrogates(link.name[:_NAME_CHARACTERS]),
        )


def _repeats_data(content: Sequence[protocol.ContentBlock], structured: JsonValue) -> bool:
    """Return True if the texts of a result repeat its data, for clients that know texts only."""
    texts = [block.text for block in content if isinstance(block, protocol.TextContent)]
    values = list[JsonValue](texts)
    for at, text in enumerate(texts):
        with suppress(ValueError):
            values[at] = from_json(text)
    single = [texts[0], values[0]] if len(values) == 1 else []
    # MCP libraries wrap a value that is no object as {"result": value}
    return any(structured in (each, {"result": each}) for each in [*single, texts, values])
