"""What the encoders of all services have in common: ids of calls, texts of parts, data URLs, JSON."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    Generation,
    MediaPart,
    ModelMessage,
    as_text,
)
from passback.core.text import mended

WireIds: TypeAlias = Mapping[CallId, str]

_GENERATION = tuple(field.name for field in fields(Generation))
_ANY = re.compile(r".+", re.DOTALL)


def written(body: JsonValue, /) -> bytes:
    """JSON, with U+FFFD in place of lone surrogates."""
    try:
        return to_json(body)
    except PydanticSerializationError:
        return mended(json.dumps(body, ensure_ascii=False)).encode()


def wire_ids(messages: Sequence[ModelMessage], /, allowed: re.Pattern[str] = _ANY) -> WireIds:
    """The id that each call has for the service: a provider's where it is unique in the request and allowed, else ours."""
    calls = [
        call
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    ]
    uses = Counter([call.provider_id for call in calls] + [str(call.id) for call in calls])
    return {
        call.id: call.provider_id
        if call.provider_id and uses[call.provider_id] == 1 and allowed.fullmatch(call.provider_id)
        else call.id
        for call in calls
    }


def said(generation: Generation, /) -> dict[str, JsonValue]:
    """What a post says of how its answer is to be written."""
    values = ((name, getattr(generation, name)) for name in _GENERATION)
    return {name: value for name, value in values if value is not None}


def text_of(content: Content, /) -> str:
    """All of it as one text; media are named."""
    return as_text(content, media=_named)


def data_of(part: MediaPart, /) -> tuple[str, str] | None:
    """Media type, in lower case and without parameters, and base64 of a part that carries its data with it."""
    head, comma, data = part.url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return None
    return head.removeprefix("data:").partition(";")[0].lower(), data


def _named(part: MediaPart) -> str:
    label = " ".join(filter(None, (part.type, part.name)))
    return f"[{label}]" if part.url.startswith("data:") else f"[{label}: {part.url}]"
