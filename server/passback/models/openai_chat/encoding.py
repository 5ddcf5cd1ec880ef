"""A request to the JSON body of a chat completion."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    JsonObject,
    MediaPart,
    ModelMessage,
    Part,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
    as_text,
)
from passback.core.text import mended

_Json: TypeAlias = dict[str, JsonValue]
_WireIds: TypeAlias = Mapping[CallId, str]

_ARTICLES = {"audio": "a sound", "file": "a file"}
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_REPLAYED = "reasoning_content"
"""The one field of reasoning whose services want it back, within the turns that answer one user message."""


def request_body(model: str, provider: str, request: ModelRequest, /) -> bytes:
    """The body; `provider` names whose reasoning may be sent back."""
    body: _Json = {
        **request.options,
        "model": model,
        "messages": list(_messages(provider, request)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.output_schema is not None:
        # the options win: some services know another mode only, or none
        body.setdefault("response_format", _response_format(request.output_schema))
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    try:
        return to_json(body)
    except PydanticSerializationError:  # a lone surrogate
        return mended(json.dumps(body, ensure_ascii=False)).encode()


def _response_format(schema: JsonObject) -> _Json:
    # not `strict`: that takes a part of JSON Schema only
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": dict(schema)}}


def wire_ids(messages: Sequence[ModelMessage], /) -> dict[CallId, str]:
    """The id that each call has for the service: its own where that is unique in the request, else ours."""
    calls = [
        call
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    ]
    uses = Counter([call.provider_id for call in calls] + [str(call.id) for call in calls])
    return {
        call.id: call.provider_id if call.provider_id and uses[call.provider_id] == 1 else call.id
        for call in calls
    }


# ---------------------------------------------------------------- messages
def _messages(provider: str, request: ModelRequest) -> Iterable[_Json]:
    ids = wire_ids(request.messages)
    asked = max(
        (at for at, m in enumerate(request.messages) if isinstance(m, UserMessage)), default=0
    )
    if request.system:
        yield {"role": "system", "content": request.system}
    for position, message in enumerate(request.messages):
        match message:
            case SystemMessage():
                yield {"role": "system", "content": _text(message.content)}
            case UserMessage():
                yield {"role": "user", "content": _content(message.content)}
            case ToolMessage():
                yield _result(message, ids)
            case AssistantMessage():
                yield _answer(message, ids) | (
                    _thoughts(message, provider) if position > asked else {}
                )


def _answer(message: AssistantMessage, ids: _WireIds) -> _Json:
    text = _text(message.content)
    if not message.tool_calls:
        return {"role": "assistant", "content": text}
    calls: list[JsonValue] = [
        {
            "id": ids[call.id],
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _thoughts(message: AssistantMessage, provider: str) -> _Json:
    own = [
        reasoning.text
        for reasoning in message.reasoning
        if reasoning.provider == provider and reasoning.opaque == _REPLAYED
    ]
    return {_REPLAYED: "".join(own)} if own else {}


def _result(message: ToolMessage, ids: _WireIds) -> _Json:
    text = _text(message.content)
    return {
        "role": "tool",
        "tool_call_id": ids.get(message.call_id, message.call_id),
        # The protocol has no field for a failure.
        "content": f"Error: {text}" if message.is_error else text,
    }


def _tool(spec: ToolSpec) -> _Json:
    function: _Json = {"name": spec.name, "parameters": dict(spec.parameters)}
    if spec.description:
        function["description"] = spec.description
    return {"type": "function", "function": function}


# ---------------------------------------------------------------- content
def _content(content: Content) -> JsonValue:
    """A string where that says it all, because many services take nothing else."""
    if isinstance(content, str) or not any(isinstance(part, MediaPart) for part in content):
        return _text(content)
    return [_media(part) if isinstance(part, MediaPart) else _text_part(part) for part in content]


def _text(content: Content) -> str:
    return as_text(content, media=_named)


def _text_part(part: Part) -> _Json:
    return {"type": "text", "text": _text((part,))}


def _named(part: MediaPart) -> str:
    label = " ".join(filter(None, (part.type, part.name)))
    return f"[{label}]" if part.url.startswith("data:") else f"[{label}: {part.url}]"


def objection(part: MediaPart, /) -> str | None:
    """Why the protocol has no place for an attachment. None: it has."""
    if part.type == "image":
        return None
    if not part.url.startswith("data:"):
        return f"{_ARTICLES[part.type]} has to be posted itself, not by its address"
    if part.type == "audio" and _audio_format(part.url) is None:
        return "a sound has to be wav or mp3"
    return None


def _media(part: MediaPart) -> _Json:
    """A part of the kind that the protocol has for it; what it has none for is named in a text."""
    if part.type == "image":
        return {"type": "image_url", "image_url": {"url": part.url}}
    head, comma, data = part.url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return _text_part(part)
    if part.type == "file":
        file: _Json = {"filename": part.name or "file", "file_data": part.url}
        return {"type": "file", "file": file}
    audio_format = _audio_format(part.url)
    if audio_format is None:
        return _text_part(part)
    return {"type": "input_audio", "input_audio": {"data": data, "format": audio_format}}


def _audio_format(url: str) -> str | None:
    media_type = url.removeprefix("data:").partition(";")[0].lower()
    return _AUDIO_FORMATS.get(media_type)
