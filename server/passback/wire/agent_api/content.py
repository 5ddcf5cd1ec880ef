"""The protocol's parts as those of core."""

import mimetypes
from typing import Final, TypeAlias, assert_never

from pydantic import JsonValue

from passback.core.errors import InvalidRequest
from passback.core.messages import DataPart, Part, RefusalPart, TextPart
from passback.transport.parts import PostedMedia, data_url, read_media
from passback.transport.requests import validated
from passback.wire.agent_api import posted

_KNOWN_NAMES: Final = mimetypes.MimeTypes(())
"""Without what a machine knows besides: a post means the same everywhere."""
_Media: TypeAlias = posted.AgentImage | posted.AgentVideo | posted.AgentAudio | posted.AgentFile
_AUDIO: Final = {"mp3": "audio/mpeg"}


def read_part(part: posted.Part, /) -> Part:
    """Raises InvalidRequest: it has neither data nor an address, or one that is none."""
    match part:
        case posted.AgentText(text=text):
            return TextPart(text or "")
        case posted.AgentRefusal(refusal=refusal):
            return RefusalPart(refusal)
        case posted.AgentData(data=data):
            return DataPart(data or {})
        case _:
            return _read_media(part)


def _read_media(part: _Media) -> Part:
    match part:
        case posted.AgentImage(image_url=url):
            return _by_url("image", "image_url", url)
        case posted.AgentVideo(video_url=url):
            return _by_url("file", "video_url", url)
        case posted.AgentAudio():
            return _audio(part)
        case posted.AgentFile():
            return _file(part)
        case _:
            assert_never(part)


def _by_url(kind: str, field: str, url: str | None, name: str | None = None) -> Part:
    if not url:
        raise InvalidRequest(f"{field} is missing")
    try:
        part = read_media(validated(PostedMedia, {"type": kind, "url": url, "name": name}))
    except InvalidRequest:
        raise InvalidRequest(
            f"{field} has to be an http:, https: or data: URL, without control characters"
        ) from None
    if url.startswith("data:") and data_url(url) is None:
        raise InvalidRequest(f"{field} is a data: URL that is not base64")
    return part


def _by_data(kind: str, field: str, data: str, media_type: str, name: str | None = None) -> Part:
    body = dict[str, JsonValue](type=kind, data=data, media_type=media_type, name=name)
    try:
        return read_media(validated(PostedMedia, body))
    except InvalidRequest:
        raise InvalidRequest(f"{field} has to be base64, and its type a plain word") from None


def _audio(part: posted.AgentAudio) -> Part:
    if not part.data or _is_address(part.data):
        return _by_url("audio", "data", part.data)
    audio_format = (part.format or "").lower()
    if not audio_format:
        raise InvalidRequest("format is missing: what kind of sound data is, such as wav")
    media_type = _AUDIO.get(audio_format, f"audio/{audio_format}")
    return _by_data("audio", "data", part.data, media_type)


def _file(part: posted.AgentFile) -> Part:
    name = part.filename or part.file_name
    if part.file_url or (part.file_data and _is_address(part.file_data)):
        return _by_url("file", "file_url", part.file_url or part.file_data, name)
    if part.file_data:
        media_type = _KNOWN_NAMES.guess_type(name or "")[0] or "application/octet-stream"
        return _by_data("file", "file_data", part.file_data, media_type, name)
    if part.file_id:
        raise InvalidRequest("file_id: this server keeps no files; send file_url or file_data")
    raise InvalidRequest("file_url is missing")


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://", "data:"))
