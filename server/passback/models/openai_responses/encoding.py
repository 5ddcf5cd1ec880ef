"""The encoder of requests: the JSON body of a response, and its input items.

The service keeps nothing: every request has the whole transcript, and the reasoning of earlier
answers, encrypted, in its places.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, assert_never

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    ANY_TOOL,
    AssistantMessage,
    Content,
    MediaPart,
    Part,
    SystemMessage,
    ToolMessage,
    ToolSpec,
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

Item: TypeAlias = dict[str, JsonValue]

MIN_OUTPUT_TOKENS: Final = 16
"""The service refuses to be limited to fewer."""

_ENCRYPTED: Final = "reasoning.encrypted_content"
_PLAIN_MODELS: Final = re.compile(r"(?:ft:)?(?:gpt-[34]|chatgpt-|gpt-5[\d.]*-chat)")
"""Names of models that do not reason: they refuse a request for encrypted reasoning."""

_UNNAMED_FIELDS: Final = ("stop", "seed", "frequency_penalty", "presence_penalty")
"""Generation parameters that the protocol has no field for; some services take them."""

_ALLOWED_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_REFUSED_AT_TOP_LEVEL: Final = frozenset({"oneOf", "anyOf", "allOf", "enum", "not"})
_MESSAGE: Final = "message"


def encode_response(model: str, provider: str, request: ModelRequest, /) -> bytes:
    """Return the body; reasoning is sent back if it is from `provider`."""
    body: Item = {
        **({} if _PLAIN_MODELS.match(model) else {"include": [_ENCRYPTED]}),
        **request.options,
        **_generation_options(request),
        "model": model,
        **({"instructions": request.system} if request.system else {}),
        "input": list[JsonValue](_input_items(provider, request)),
        "stream": True,
        "store": False,
    }
    body.pop("text", None)
    if text := _text_options(request):
        body["text"] = text
    if request.tools:
        body["tools"] = [_encode_tool(spec) for spec in request.tools]
    if (name := request.must_call) is not None:
        forced: Item = {"type": "function", "name": name}
        body["tool_choice"] = "required" if name == ANY_TOOL else forced
    return json_bytes(body)


def _generation_options(request: ModelRequest) -> Item:
    """Return the generation parameters under the service's names."""
    asked = generation_fields(request.generation)
    asked.pop("effort", None)
    if reasoning := reasoning_option(request.options, request.generation.effort):
        asked["reasoning"] = reasoning
    if (limit := request.generation.max_tokens) is not None:
        asked["max_output_tokens"] = max(limit, MIN_OUTPUT_TOKENS)
        del asked["max_tokens"]
    # a service may refuse a field that the options do not have
    for name in _UNNAMED_FIELDS:
        if name not in request.options:
            asked.pop(name, None)
    return asked


def _text_options(request: ModelRequest) -> JsonValue:
    """Return the field `text`, which asks for answers by a schema.

    A `format` in the options wins; if it is null, the field has none.
    """
    options = request.options.get("text") or {}
    if not isinstance(options, dict):
        return options
    text: Item = {name: given for name, given in options.items() if given is not None}
    if request.output_schema is not None and "format" not in options:
        # Not `strict`, which takes a part of JSON Schema only.
        schema: Item = {"name": "output", "schema": dict(request.output_schema)}
        text["format"] = {"type": "json_schema", **schema}
    return text


def _encode_tool(spec: ToolSpec) -> Item:
    schema = {k: v for k, v in spec.parameters.items() if k not in _REFUSED_AT_TOP_LEVEL}
    return {
        "type": "function",
        "name": spec.name,
        **({"description": spec.description} if spec.description else {}),
        "parameters": {"type": "object", "properties": {}, **schema},
        "strict": False,  # left out, the service refuses most schemas
    }


# ---------------------------------------------------------------- reasoning
@value
class KeptItem:
    """An item of an answer that goes back as it came, with its place in the answer.

    Attributes:
        item: the item of reasoning; or one of type `message` that has only the `phase` of the
            messages after it.
        text: the number of characters of the answer's text before it.
        calls: the number of the answer's calls before it.
    """

    item: Item
    text: int
    calls: int

    def dump(self) -> str:
        kept = {"item": self.item, "text": self.text, "calls": self.calls}
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def load(cls, record: str, /) -> "KeptItem":
        kept: dict[str, Any] = from_json(record)
        return cls(kept["item"], kept["text"], kept["calls"])

    @property
    def is_reasoning(self) -> bool:
        return self.item["type"] != _MESSAGE


def phase_marker(phase: JsonValue, text: int, calls: int, /) -> KeptItem:
    """Return what keeps the `phase` of the messages of an answer from this place on."""
    return KeptItem({"type": _MESSAGE, "phase": phase}, text, calls)


# ---------------------------------------------------------------- input items
def _input_items(provider: str, request: ModelRequest) -> Iterable[Item]:
    ids = wire_ids(request.messages, _ALLOWED_ID)
    for message in request.messages:
        match message:
            case SystemMessage():
                yield _message_item("system", plain_text(message.content))
            case UserMessage():
                yield _message_item("user", _encode_content(message.content))
            case ToolMessage():
                yield {
                    "type": "function_call_output",
                    "call_id": ids.get(message.call_id, message.call_id),
                    # The protocol has no field for a failure.
                    "output": f"Error: {plain_text(message.content)}"
                    if message.is_error
                    else _encode_content(message.content),
                }
            case AssistantMessage():
                yield from _answer_items(provider, message, ids)
            case _:
                assert_never(message)


def _message_item(role: str, content: JsonValue) -> Item:
    return {"type": _MESSAGE, "role": role, "content": content}


def _answer_items(provider: str, message: AssistantMessage, ids: WireIds) -> Sequence[Item]:
    """Return the items of text and calls, with reasoning in its places."""
    text = plain_text(message.content)
    calls: list[Item] = [
        {
            "type": "function_call",
            "call_id": ids[call.id],
            "name": call.name,
            "arguments": call.arguments,
        }
        for call in message.tool_calls
    ]
    kept_items = [
        KeptItem.load(reasoning.opaque)
        for reasoning in message.reasoning
        if reasoning.provider == provider and reasoning.opaque is not None
    ]
    items: list[Item] = []
    text_end = calls_end = 0
    phase: JsonValue = None
    # the last one stands for the end of the answer
    for kept in (*kept_items, phase_marker(None, len(text), len(calls))):
        said = text[text_end : kept.text]
        if said.strip():
            with_phase: Item = {"phase": phase} if phase else {}
            items.append(_message_item("assistant", said) | with_phase)
        items += calls[calls_end : kept.calls]
        text_end, calls_end = max(text_end, kept.text), max(calls_end, kept.calls)
        if kept.is_reasoning:
            items.append(kept.item)
        else:
            phase = kept.item["phase"]
    while items and items[-1]["type"] == "reasoning":  # the service refuses it without what follows
        items.pop()
    return items


def _encode_content(content: Content) -> JsonValue:
    """Return content as a string where it will do, else as parts."""
    parts = () if isinstance(content, str) else content
    if any(isinstance(part, MediaPart) for part in parts):
        return [_encode_part(part) for part in parts]
    return plain_text(content)


def _encode_part(part: Part) -> Item:
    """Return the protocol's part, a text with the label of an attachment if there is none."""
    if isinstance(part, MediaPart) and attachment_objection(part) is None:
        if part.type == "image":
            return {"type": "input_image", "image_url": part.url, "detail": "auto"}
        if inline_data(part) is None:
            return {"type": "input_file", "file_url": part.url}
        return {"type": "input_file", "filename": part.name or "file", "file_data": part.url}
    return {"type": "input_text", "text": plain_text((part,))}


def attachment_objection(part: MediaPart, /) -> str | None:
    """Return the reason why the protocol cannot carry an attachment, None if it can."""
    if part.type == "audio":
        return "this model takes no sounds"
    if inline_data(part) or part.url.startswith(("https://", "http://")):
        return None
    named = "an image" if part.type == "image" else "a file"
    return f"{named} has to be at an https: address, or in a data: URL with base64"
