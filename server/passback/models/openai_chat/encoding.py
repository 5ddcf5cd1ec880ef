"""A request to the JSON body of a chat completion."""

from collections.abc import Iterable
from typing import TypeAlias

from pydantic import JsonValue

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    AssistantMessage,
    Content,
    JsonObject,
    MediaPart,
    Part,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.models.http.bodies import WireIds, data_of, said, text_of, wire_ids, written

_Json: TypeAlias = dict[str, JsonValue]

_ARTICLES = {"audio": "a sound", "file": "a file"}
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_REPLAYED = "reasoning_content"
"""The one field of reasoning whose services want it back, within the turns that answer one user message."""


def request_body(model: str, provider: str, request: ModelRequest, /) -> bytes:
    """The body; `provider` names whose reasoning may be sent back."""
    body: _Json = {
        **request.options,
        **_generation(request),
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
    return written(body)


def _generation(request: ModelRequest) -> _Json:
    asked = said(request.generation)
    if "max_completion_tokens" in request.options and "max_tokens" in asked:
        asked["max_completion_tokens"] = asked.pop("max_tokens")  # newer models know only this name
    return asked


def _response_format(schema: JsonObject) -> _Json:
    # not `strict`: that takes a part of JSON Schema only
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": dict(schema)}}


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
                yield {"role": "system", "content": text_of(message.content)}
            case UserMessage():
                yield {"role": "user", "content": _content(message.content)}
            case ToolMessage():
                yield _result(message, ids)
            case AssistantMessage():
                yield _answer(message, ids) | (
                    _thoughts(message, provider) if position > asked else {}
                )


def _answer(message: AssistantMessage, ids: WireIds) -> _Json:
    text = text_of(message.content)
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


def _result(message: ToolMessage, ids: WireIds) -> _Json:
    text = text_of(message.content)
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
        return text_of(content)
    return [_media(part) if isinstance(part, MediaPart) else _text_part(part) for part in content]


def _text_part(part: Part) -> _Json:
    return {"type": "text", "text": text_of((part,))}


def objection(part: MediaPart, /) -> str | None:
    """Why the protocol has no place for an attachment. None: it has."""
    if part.type == "image":
        return None
    carried = data_of(part)
    if carried is None:
        return f"{_ARTICLES[part.type]} has to be posted itself, not by its address"
    if part.type == "audio" and carried[0] not in _AUDIO_FORMATS:
        return "a sound has to be wav or mp3"
    return None


def _media(part: MediaPart) -> _Json:
    """A part of the kind that the protocol has for it; what it has none for is named in a text."""
    if part.type == "image":
        return {"type": "image_url", "image_url": {"url": part.url}}
    carried = data_of(part)
    if carried is None:
        return _text_part(part)
    media_type, data = carried
    if part.type == "file":
        file: _Json = {"filename": part.name or "file", "file_data": part.url}
        return {"type": "file", "file": file}
    audio_format = _AUDIO_FORMATS.get(media_type)
    if audio_format is None:
        return _text_part(part)
    return {"type": "input_audio", "input_audio": {"data": data, "format": audio_format}}
