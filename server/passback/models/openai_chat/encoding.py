"""The encoder of requests: the JSON body of a chat completion."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    ANY_TOOL,
    AssistantMessage,
    MediaPart,
    Part,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from passback.core.values import value
from passback.models.http.bodies import (
    WireIds,
    generation_fields,
    inline_data,
    json_bytes,
    plain_text,
    reasoning_option,
    wire_ids,
)

_Json: TypeAlias = dict[str, JsonValue]

_ARTICLES = {"audio": "a sound", "file": "a file"}
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_REPLAYED_FIELD = "reasoning_content"
"""The one reasoning field that services want back, within the answers to one user message."""


@value
class CallExtras:
    """Additions to calls that a service wants back with them: Gemini's signatures of thoughts.

    Attributes:
        by_number: the `extra_content` of calls, by their numbers in the answer.
    """

    by_number: Mapping[int, _Json]

    def dump(self) -> str:
        return json.dumps({"calls": list(self.by_number.items())}, ensure_ascii=False)

    @classmethod
    def load(cls, record: str, /) -> "CallExtras":
        """Return what `dump` wrote; nothing for the name of a field of reasoning."""
        if not record.startswith("{"):
            return cls({})
        kept: dict[str, Any] = from_json(record)
        return cls(dict(kept["calls"]))


def is_thought(extra: JsonValue, /) -> bool:
    """Return True if the `extra_content` beside a text says that it is a thought of Gemini."""
    google = extra.get("google") if isinstance(extra, dict) else None
    return isinstance(google, dict) and google.get("thought") is True


def encode_request(model: str, provider: str, request: ModelRequest, /) -> bytes:
    """Return the body; reasoning is sent back if it is from `provider`."""
    asked = generation_fields(request.generation)
    if "max_completion_tokens" in request.options and "max_tokens" in asked:
        asked["max_completion_tokens"] = asked.pop("max_tokens")  # newer models know only this name
    effort = asked.pop("effort", None)
    # a model whose options name no effort may refuse the field
    if effort is not None and request.options.get("reasoning_effort"):
        asked["reasoning_effort"] = effort
    if reasoning := reasoning_option(request.options, request.generation.effort):
        asked["reasoning"] = reasoning  # gateways have the field of the Responses API
    body: _Json = {
        **request.options,
        **asked,
        "model": model,
        "messages": list(_encode_messages(provider, request)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.output_schema is not None:
        # The options win: some services have another mode only, or none.
        # Not `strict`, which takes a part of JSON Schema only.
        schema: _Json = {"name": "output", "schema": dict(request.output_schema)}
        body.setdefault("response_format", {"type": "json_schema", "json_schema": schema})
    if request.tools:
        functions: list[_Json] = [
            {
                "name": spec.name,
                "parameters": dict(spec.parameters),
                **({"description": spec.description} if spec.description else {}),
            }
            for spec in request.tools
        ]
        body["tools"] = [{"type": "function", "function": function} for function in functions]
    if (name := request.must_call) is not None:
        forced: _Json = {"type": "function", "function": {"name": name}}
        body["tool_choice"] = "required" if name == ANY_TOOL else forced
    return json_bytes(body)


def _encode_messages(provider: str, request: ModelRequest) -> Iterable[_Json]:
    ids = wire_ids(request.messages)
    last_asked = max(
        (at for at, m in enumerate(request.messages) if isinstance(m, UserMessage)), default=0
    )
    if request.system:
        yield {"role": "system", "content": request.system}
    for position, message in enumerate(request.messages):
        match message:
            case SystemMessage():
                yield {"role": "system", "content": plain_text(message.content)}
            case UserMessage():
                parts = () if isinstance(message.content, str) else message.content
                has_media = any(isinstance(part, MediaPart) for part in parts)
                # A string where it will do: many services take nothing else.
                content: JsonValue = (
                    [_encode_part(part) for part in parts]
                    if has_media
                    else plain_text(message.content)
                )
                yield {"role": "user", "content": content}
            case ToolMessage():
                text = plain_text(message.content)
                yield {
                    "role": "tool",
                    "tool_call_id": ids.get(message.call_id, message.call_id),
                    # The protocol has no field for a failure.
                    "content": f"Error: {text}" if message.is_error else text,
                }
            case AssistantMessage():
                kept = {
                    reasoning.opaque: reasoning.text
                    for reasoning in message.reasoning
                    if reasoning.provider == provider and reasoning.opaque
                }
                answer = _encode_answer(message, ids, kept)
                if _REPLAYED_FIELD in kept and position > last_asked:
                    answer[_REPLAYED_FIELD] = kept[_REPLAYED_FIELD]
                yield answer


def _encode_answer(message: AssistantMessage, ids: WireIds, kept: Iterable[str]) -> _Json:
    """Return the message of an answer; `kept` has what its service wants back."""
    text = plain_text(message.content)
    if not message.tool_calls:
        return {"role": "assistant", "content": text}
    extras: dict[int, _Json] = {}
    for record in kept:
        extras |= CallExtras.load(record).by_number
    calls: list[JsonValue] = [
        {
            "id": ids[call.id],
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
            **({"extra_content": extras[number]} if number in extras else {}),
        }
        for number, call in enumerate(message.tool_calls)
    ]
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _encode_part(part: Part) -> _Json:
    """Return the protocol's part, a text with the label of an attachment if there is none."""
    if isinstance(part, MediaPart):
        if part.type == "image":
            return {"type": "image_url", "image_url": {"url": part.url}}
        carried = inline_data(part)
        if carried and part.type == "file":
            file: _Json = {"filename": part.name or "file", "file_data": part.url}
            return {"type": "file", "file": file}
        if carried and (audio_format := _AUDIO_FORMATS.get(carried[0])):
            return {
                "type": "input_audio",
                "input_audio": {"data": carried[1], "format": audio_format},
            }
    return {"type": "text", "text": plain_text((part,))}


def attachment_objection(part: MediaPart, /) -> str | None:
    """Return the reason why the protocol cannot carry an attachment, None if it can."""
    if part.type == "image":
        return None
    carried = inline_data(part)
    if carried is None:
        return f"{_ARTICLES[part.type]} has to be posted itself, not by its address"
    if part.type == "audio" and carried[0] not in _AUDIO_FORMATS:
        return "a sound has to be wav or mp3"
    return None
