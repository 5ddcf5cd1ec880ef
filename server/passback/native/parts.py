"""Content in JSON: the parts that clients may post, and the form in which they get parts."""

import mimetypes
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, assert_never, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

from passback.core.errors import (
    AttachmentTooLarge,
    InvalidRequest,
    PassbackError,
    ResultTooLarge,
)
from passback.core.messages import Content, DataPart, MediaPart, Part, TextPart
from passback.core.questions import Answers
from passback.core.values import DEFERRED, Takes

ResultT = TypeVar("ResultT")

_MediaType: TypeAlias = Annotated[
    str,
    Field(pattern=r"^[\w.+-]{1,64}/[\w.+-]{1,64}$"),
    Takes("a media type without parameters, such as image/png"),
]
# a provider's request can hold neither control characters nor an address without a host
_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f/?#][^\s\x00-\x1f\x7f]*|data:[^\x00-\x1f\x7f]*")


def is_address(text: str, /) -> bool:
    """Return whether a text is a URL that a post may have."""
    return _ADDRESS.fullmatch(text) is not None


def _check_address(text: str) -> str:
    if not is_address(text):
        raise ValueError(
            "Input should be an http:, https: or data: URL, without control characters"
        )
    return text


_Url: TypeAlias = Annotated[
    str,
    AfterValidator(_check_address),
    Field(json_schema_extra={"pattern": f"^({_ADDRESS.pattern})$"}),
]
_DATA_URL = re.compile(r"data:([\w.+-]{1,64}/[\w.+-]{1,64}|)(?:;[^,;]{1,64}){0,4};base64,")
_Base64: TypeAlias = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$"), Takes("base64, without blanks or line breaks")
]
# without the machine's own tables, so that a post means the same on every machine
_FILE_TYPES: Final = mimetypes.MimeTypes(())
_BASE64_DIGITS: Final = (string.ascii_letters + string.digits + "+/").encode()


class Posted(BaseModel):
    """The base of posted models: camelCase, no conversion of wrong types, unknown keys ignored."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        defer_build=True,
    )


class SnakeCased(Posted):
    """Base of models whose JSON keys are their field names: the protocol writes underscores."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=str)


class PostedText(Posted):
    type: Literal["text"]
    text: str


class PostedMedia(Posted):
    """An image, a sound or a file: by `url`, or by `data` in base64 with its `mediaType`."""

    type: Literal["image", "audio", "file"]
    url: _Url | None = None
    data: _Base64 | None = None
    media_type: _MediaType | None = None
    name: Annotated[str, Field(max_length=256)] | None = None


class ImageUrl(Posted):
    url: _Url


class PostedImageUrl(Posted):
    """The common chat-completions form of an image."""

    type: Literal["image_url"]
    image_url: ImageUrl | _Url = Field(alias="image_url")


class InputAudio(Posted):
    data: _Base64
    format: Literal["wav", "mp3"]


class PostedInputAudio(Posted):
    """The common chat-completions form of a sound."""

    type: Literal["input_audio"]
    input_audio: InputAudio = Field(alias="input_audio")


class PostedData(Posted):
    """JSON that is data, not text."""

    type: Literal["data"]
    data: JsonValue


PostedPart: TypeAlias = Annotated[
    PostedText | PostedMedia | PostedImageUrl | PostedInputAudio | PostedData,
    Field(discriminator="type"),
]
MAX_ITEMS = 1000  # messages of a post, parts of a message

# validation stops at the first wrong item: to report a million of them takes seconds
_Parts: TypeAlias = Annotated[list[PostedPart], Field(fail_fast=True, max_length=MAX_ITEMS)]
PostedContent: TypeAlias = str | _Parts


def validated_elsewhere(form: Any, /) -> PlainValidator:
    """Mark a value that is validated elsewhere, and described as `form` in the OpenAPI document."""
    return PlainValidator(lambda value: value, json_schema_input_type=form)


PostedResult: TypeAlias = Annotated[
    JsonValue, validated_elsewhere(str | Answers | list[PostedPart | Any] | Any)
]

_parts_adapter: TypeAdapter[list[PostedPart]] = TypeAdapter(_Parts, config=DEFERRED)


def read_content(posted: PostedContent, most: int, /) -> Content:
    """Return the content of a user's message, without blank texts between other parts.

    Raises:
        AttachmentTooLarge: its inline media have more than `most` bytes together.
        InvalidRequest: nothing is left, or media have neither an address nor typed data, or not
            the declared type.
    """
    return check_content(
        posted if isinstance(posted, str) else tuple(map(_read_part, posted)), most
    )


def check_content(content: Content, most: int, /) -> Content:
    """Return content without blank texts between other parts. Raises as `read_content`."""
    if isinstance(content, tuple):
        content = tuple(
            each for each in content if not isinstance(each, TextPart) or each.text.strip()
        )
        size = sum(_inline_bytes(part) for part in content if isinstance(part, MediaPart))
        if size > most:
            raise AttachmentTooLarge(
                f"the inline attachments of a message are larger than {most} bytes "
                "(attachment_bytes in PASSBACK_LIMITS)",
                details={"limit": most},
            )
    if not content or (isinstance(content, str) and not content.strip()):
        raise InvalidRequest("the content of a message is empty")
    return content


def _inline_bytes(part: MediaPart) -> int:
    """Return the size of an inline medium, 0 for one at an address.

    Raises:
        InvalidRequest: its data is malformed, or does not have the declared type.
    """
    media_type, size = part.media_type, 0
    if part.url.startswith("data:"):
        found = data_url(part.url)
        if found is None:
            raise InvalidRequest(f"a part of type {part.type!r} has a data: URL that is not base64")
        declared, media_type = media_type, found[1].lower() or "text/plain"  # RFC 2397
        if declared is not None and declared.lower() != media_type:
            raise InvalidRequest(
                f"a part of type {part.type!r} is declared as {declared}, "
                f"and its data as {media_type}"
            )
        size = (len(part.url) - found.end()) * 3 // 4  # 4 digits of base64 are 3 bytes
    if media_type and part.type != "file" and not media_type.lower().startswith(f"{part.type}/"):
        raise InvalidRequest(f"a part of type {part.type!r} cannot be {media_type}")
    return size


def guess_media_type(name: str, /) -> str:
    """Return the media type of a file by its name."""
    return _FILE_TYPES.guess_type(name)[0] or "application/octet-stream"


def data_url(url: str, /) -> re.Match[str] | None:
    """Return the match of a `data:` URL's head, with its type, or None if no base64 follows it."""
    found = _DATA_URL.match(url)
    if found is None or not url.isascii():
        return None
    digits = url[found.end() :].encode("ascii")
    # not by a pattern, which takes longer: there may be millions of digits
    bare = digits.rstrip(b"=")
    is_base64 = bare and len(digits) - len(bare) <= 2 and not bare.translate(None, _BASE64_DIGITS)
    return found if is_base64 else None


def read_result(posted: JsonValue, most: int, /) -> Content:
    """Return the content of a tool's result, complete: text, parts, or any other JSON as data.

    Raises:
        ResultTooLarge: it has more than `most` bytes in UTF-8, as text or as JSON.
    """
    if len(posted.encode() if isinstance(posted, str) else to_json(posted)) > most:
        raise ResultTooLarge(
            f"the result of a tool is larger than {most} bytes", details={"limit": most}
        )
    if isinstance(posted, str):
        return posted
    if isinstance(posted, list) and posted:
        try:
            parts = _parts_adapter.validate_python(posted)
            if all(map(_has_known_keys, posted, parts)):
                return tuple(map(_read_part, parts))
        except (ValidationError, InvalidRequest):
            pass  # a list that is not one of parts is data like any other
    return (DataPart(posted),)


def _has_known_keys(posted: JsonValue, part: PostedPart) -> bool:
    """Return whether a part has all keys that were posted."""
    # a tool may return a list of objects that only look like parts
    fields = type(part).model_fields.items()
    known = {key for name, info in fields for key in (name, info.alias)}
    return isinstance(posted, dict) and posted.keys() <= known


def _read_part(part: PostedPart) -> Part:
    match part:
        case PostedText(text=text):
            return TextPart(text)
        case PostedData(data=data):
            return DataPart(data)
        case PostedImageUrl(image_url=image):
            return MediaPart("image", image if isinstance(image, str) else image.url)
        case PostedInputAudio(input_audio=audio):
            media_type = "audio/wav" if audio.format == "wav" else "audio/mpeg"
            return MediaPart("audio", _build_data_url(media_type, audio.data), media_type)
        case PostedMedia():
            return read_media(part)
        case _:
            assert_never(part)


def read_media(part: PostedMedia, /) -> MediaPart:
    """Return a posted medium.

    Raises:
        InvalidRequest: it has neither an address nor typed data.
    """
    url = part.url
    if url is None and part.data and part.media_type:
        url = _build_data_url(part.media_type, part.data)
    if url is None:
        raise InvalidRequest(f"a part of type {part.type!r} needs a url, or data and mediaType")
    return MediaPart(part.type, url, part.media_type, part.name)


def _build_data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def read_at(place: str, read: Callable[..., ResultT], /, *given: object) -> ResultT:
    """Return `read(*given)`. An error that it raises gets the place in front of its text."""
    try:
        return read(*given)
    except PassbackError as error:
        if type(error) is not InvalidRequest:  # keep the type: its code says more
            raise type(error)(f"{place}: {error.message}", details=error.details) from None
        found = cast(
            "Sequence[Mapping[str, JsonValue]]",
            error.details.get("problems") or [{"problem": error.message}],
        )
        # a problem may have a place of its own, which is below this one
        problems = [
            {**each, "at": f"{place}.{each['at']}" if each.get("at") else place} for each in found
        ]
        first = f"{problems[0]['at']}: {problems[0]['problem']}"
        raise InvalidRequest(first, details={"problems": list[JsonValue](problems)}) from None


def show_content(content: Content, /) -> JsonValue:
    """Return content in the form in which it can be posted."""
    if isinstance(content, str):
        return content
    parts: list[JsonValue] = []
    for part in content:
        shown: dict[str, JsonValue] = {"type": part.type}
        match part:
            case MediaPart(_, url, media_type, name):
                shown["url"] = url
                if media_type is not None:
                    shown["mediaType"] = media_type
                if name is not None:
                    shown["name"] = name
            case DataPart(data):
                shown["data"] = data
            case _:
                shown["text"] = part.text
        parts.append(shown)
    return parts
