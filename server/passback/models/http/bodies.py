"""Functions that the encoders of all services share: call ids, texts of parts, data URLs, JSON."""

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
    JsonObject,
    MediaPart,
    ModelMessage,
    as_text,
)
from passback.core.text import replace_surrogates

WireIds: TypeAlias = Mapping[CallId, str]

# the tool that has to be called depends on the request (`ModelRequest.must_call`)
_GENERATION_FIELDS = tuple(field.name for field in fields(Generation) if field.name != "must_call")
_ANY_ID = re.compile(r".+", re.DOTALL)


def json_bytes(body: JsonValue, /) -> bytes:
    """Return JSON in UTF-8, with U+FFFD in place of lone surrogates."""
    try:
        return to_json(body)
    except PydanticSerializationError:  # a lone surrogate has no UTF-8
        return replace_surrogates(json.dumps(body, ensure_ascii=False)).encode()


def wire_ids(messages: Sequence[ModelMessage], /, allowed: re.Pattern[str] = _ANY_ID) -> WireIds:
    """Return the id that each call has for the service.

    It is the provider's own id if that is allowed and unique in the request, else passback's.
    """
    calls = [
        call
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    ]
    uses = Counter([call.provider_id for call in calls] + [str(call.id) for call in calls])
    # Ids of several providers may meet in one conversation, and some services number the calls of
    # each answer from 0; in one request no two calls may have the same id.
    return {
        call.id: call.provider_id
        if call.provider_id and uses[call.provider_id] == 1 and allowed.fullmatch(call.provider_id)
        else call.id
        for call in calls
    }


def generation_fields(generation: Generation, /) -> dict[str, JsonValue]:
    """Return the generation parameters that the post gives, by name; those left out are missing."""
    return {
        name: given
        for name in _GENERATION_FIELDS
        if (given := getattr(generation, name)) is not None
    }


def reasoning_option(options: JsonObject, effort: str | None, /) -> dict[str, JsonValue] | None:
    """Return the option `reasoning` with the effort that was chosen in place of its own.

    None if none was chosen, or if the option names none: the model may refuse the field.
    """
    reasoning = options.get("reasoning")
    if effort is None or not isinstance(reasoning, dict) or not reasoning.get("effort"):
        return None
    return {**reasoning, "effort": effort}


def plain_text(content: Content, /) -> str:
    """Return the content as one text, with a label in place of each attachment."""

    def label(part: MediaPart) -> str:
        named = " ".join(filter(None, (part.type, part.name)))
        return f"[{named}]" if part.url.startswith("data:") else f"[{named}: {part.url}]"

    return as_text(content, media=label)


def inline_data(part: MediaPart, /) -> tuple[str, str] | None:
    """Return the media type and the base64 data of a part with a `data:` URL, None for others.

    The media type is in lower case and without parameters.
    """
    head, comma, data = part.url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return None
    return head.removeprefix("data:").partition(";")[0].lower(), data
