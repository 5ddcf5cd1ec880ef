"""The encoder of requests: the JSON body of the Messages API, and its content blocks.

By the rules of the API, user and assistant take turns, and the user has the first and the last.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeAlias, assert_never

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    ANY_TOOL,
    AssistantMessage,
    Content,
    MediaPart,
    ModelMessage,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.values import value
from passback.models.anthropic.outputs import output_config
from passback.models.http.bodies import (
    WireIds,
    generation_fields,
    inline_data,
    json_bytes,
    plain_text,
    wire_ids,
)

Block: TypeAlias = dict[str, JsonValue]

MAX_TOKENS = 32_000
"""Tokens of an answer, thinking included, by default: all current models can write as many."""

_THOUGHT_TYPES = frozenset({"thinking", "redacted_thinking"})

_EMPTY_MESSAGE = "(no message)"  # the text of a user's turn that the API demands

_ALLOWED_ID = re.compile(r"[A-Za-z0-9_-]+")
_REFUSED_AT_TOP_LEVEL = frozenset({"oneOf", "anyOf", "allOf"})
_CACHED_TURNS = 2  # of the user, from the last one on
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF_TYPE = "application/pdf"


@value
class EncodedMessage:
    """The body of a request, and the digest that thoughts in its answer are bound to."""

    body: bytes
    prefix: str


def encode_message(model: str, provider: str, request: ModelRequest, /) -> EncodedMessage:
    """Return the encoded request; thoughts are sent back if they are from `provider`."""
    system_texts = [
        plain_text(message.content)
        for message in request.messages
        if isinstance(message, SystemMessage)
    ]
    system = "\n\n".join(filter(str.strip, [request.system, *system_texts]))
    tools = [_encode_tool(spec) for spec in request.tools]
    # Thinking with a budget is the way of older models. They do not bind thoughts to the request,
    # and demand one before calls that are being answered.
    thinking = request.options.get("thinking")
    has_budget = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    transcript = _Transcript(
        provider, wire_ids(request.messages, _ALLOWED_ID), bound=not has_budget
    )
    transcript.prefix.add(system, list[JsonValue](tools))
    for message in request.messages:
        transcript.add(message)
    body: Block = {
        "max_tokens": MAX_TOKENS,
        **request.options,
        **_generation_options(request),
        "model": model,
        "messages": list[JsonValue](transcript.encoded_turns()),
        "stream": True,
    }
    if has_budget and transcript.answers_without_thought:
        del body["thinking"]  # such a request would be refused
    body.pop("output_config", None)
    if config := output_config(request.options, request.output_schema, request.generation.effort):
        body["output_config"] = config
    if tools:
        _mark_for_cache(tools[-1])
        body["tools"] = list[JsonValue](tools)
    if (name := request.must_call) is not None:
        body["tool_choice"] = (
            {"type": "any"} if name == ANY_TOOL else {"type": "tool", "name": name}
        )
        body.pop("thinking", None)  # the service forces no call of a model that thinks
    if system:
        # the part that every run shares is a block of its own, and is cached
        end = request.static or len(system)
        blocks = [*text_block(system[:end]), *text_block(system[end:])]
        _mark_for_cache(blocks[0])
        body["system"] = list[JsonValue](blocks)
    return EncodedMessage(json_bytes(body), transcript.prefix.digest())


def _generation_options(request: ModelRequest) -> Block:
    """Return the generation parameters under the service's names."""
    # It has neither a seed nor penalties, and the effort is in `output_config`.
    asked = generation_fields(
        replace(
            request.generation,
            seed=None,
            frequency_penalty=None,
            presence_penalty=None,
            effort=None,
        )
    )
    if request.generation.temperature is not None:
        asked["temperature"] = min(request.generation.temperature, 1.0)  # the service's largest
    if "stop" in asked:
        asked["stop_sequences"] = asked.pop("stop")
    return asked


def _encode_tool(spec: ToolSpec) -> Block:
    schema = {k: v for k, v in spec.parameters.items() if k not in _REFUSED_AT_TOP_LEVEL}
    tool: Block = {"name": spec.name, "input_schema": {"type": "object", **schema}}
    if spec.description.strip():
        tool["description"] = spec.description
    return tool


def _mark_for_cache(block: Block) -> None:
    """Ask the service to cache the request up to the end of this block."""
    block["cache_control"] = {"type": "ephemeral"}


# ---------------------------------------------------------------- thoughts and content
@value
class Thought:
    """A block of thinking as the service sent it, with its place in the answer.

    Attributes:
        text: the number of characters of the answer's text before it.
        calls: the number of the answer's calls before it.
        prefix: the digest of the request that it answers, see `Prefix`.
    """

    block: Block
    text: int
    calls: int
    prefix: str

    def dump(self) -> str:
        kept = {"block": self.block, "text": self.text, "calls": self.calls, "prefix": self.prefix}
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def load(cls, record: str, /) -> "Thought":
        kept: dict[str, Any] = from_json(record)
        return cls(kept["block"], kept["text"], kept["calls"], kept["prefix"])


class Prefix:
    """A digest of a request, built piece by piece: it differs as soon as any piece differs."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, *pieces: JsonValue) -> None:
        # A line for each piece, so that the borders between pieces count too.
        self._hash.update(b"".join(json_bytes(piece) + b"\n" for piece in pieces))

    def digest(self) -> str:
        return self._hash.hexdigest()[:32]


def text_block(text: str, /) -> list[Block]:
    """Return a block for a text, none for a blank one, which the service refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def content_blocks(content: Content, /) -> list[Block]:
    if isinstance(content, str):
        return text_block(content)
    blocks: list[Block] = []
    for part in content:
        block: Block | None = None
        if isinstance(part, MediaPart):
            block = _image_block(part) if part.type == "image" else _document_block(part)
        # An attachment that the service refuses is named in a text.
        blocks += text_block(plain_text((part,))) if block is None else [block]
    return blocks


def attachment_objection(part: MediaPart, /) -> str | None:
    """Return the reason why the service takes no such attachment, None if it does."""
    if part.type == "audio":
        return "this model takes no sounds"
    if part.type == "image":
        return None if _image_block(part) else "an image has to be of type jpeg, png, gif or webp"
    return None if _document_block(part) else "a file has to be a PDF or a text"


def result_block(message: ToolMessage, wire_id: str, /) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": wire_id}
    if message.is_error:  # an error may hold nothing but text
        block["is_error"] = True
    if isinstance(message.content, str) or message.is_error:
        if (text := plain_text(message.content)).strip():
            block["content"] = text
    elif blocks := content_blocks(message.content):
        block["content"] = list[JsonValue](blocks)
    return block


def _image_block(part: MediaPart) -> Block | None:
    source: Block | None = None
    carried = inline_data(part)
    if carried is None:
        source = {"type": "url", "url": part.url} if _has_http_url(part) else None
    elif carried[0] in _IMAGE_TYPES:  # any other would fail the whole request
        source = {"type": "base64", "media_type": carried[0], "data": carried[1]}
    return None if source is None else {"type": "image", "source": source}


def _document_block(part: MediaPart) -> Block | None:
    """Return the block for a PDF or a text; None for other files and sounds, which it refuses."""
    source: Block | None = None
    carried = inline_data(part)
    if carried is None:
        path = part.url.partition("?")[0].partition("#")[0].lower()
        # The ending of the address counts only if no type is given.
        is_pdf = part.media_type == _PDF_TYPE or (part.media_type is None and path.endswith(".pdf"))
        if is_pdf and _has_http_url(part):
            source = {"type": "url", "url": part.url}
    elif carried[0] == _PDF_TYPE:
        source = {"type": "base64", "media_type": carried[0], "data": carried[1]}
    elif carried[0].startswith("text/"):
        with suppress(binascii.Error):
            text = base64.b64decode(carried[1], validate=True).decode("utf-8", "replace")
            if text.strip():
                source = {"type": "text", "media_type": "text/plain", "data": text}
    if source is None:
        return None
    document: Block = {"type": "document", "source": source}
    return {**document, "title": part.name} if part.name else document


def _has_http_url(part: MediaPart) -> bool:
    return part.url.startswith(("https://", "http://"))


# ---------------------------------------------------------------- the turns
@value
class _RoleTurn:
    """The blocks of one role, between two turns of the other."""

    role: str
    blocks: list[Block]


class _Transcript:
    """The turns of a request: add the messages in their order.

    Later messages never change the encoding of earlier ones, because thoughts are bound to it.

    Args:
        bound: True if thoughts are sent back only while everything before them is unchanged.
    """

    def __init__(self, provider: str, ids: WireIds, *, bound: bool) -> None:
        self.prefix = Prefix()
        self._provider = provider
        self._ids = ids
        self._bound = bound
        self._turns: list[_RoleTurn] = []

    def add(self, message: ModelMessage) -> None:
        match message:
            case UserMessage():
                self._add_user_blocks(content_blocks(message.content))
            case ToolMessage():
                wire_id = self._ids.get(message.call_id, message.call_id)
                self._add_user_blocks([result_block(message, wire_id)])
            case AssistantMessage():
                thoughts = [
                    Thought.load(reasoning.opaque)
                    for reasoning in message.reasoning
                    if reasoning.provider == self._provider and reasoning.opaque is not None
                ]
                prefix = self.prefix.digest()
                # The service refuses a thought that is not bound to just the messages before it. If
                # one is left out, all later ones are bound to another prefix, and left out too.
                if self._bound and any(thought.prefix != prefix for thought in thoughts):
                    thoughts = []
                if blocks := self._answer_blocks(message, thoughts):
                    self._open_user_turn()
                    self._turns.append(_RoleTurn("assistant", blocks))
                    self.prefix.add("assistant", list[JsonValue](blocks))
            case SystemMessage():
                pass  # its text is in the system prompt
            case _:
                assert_never(message)

    def encoded_turns(self) -> list[Block]:
        """Return the turns as the API takes them, the user's last ones marked for the cache."""
        self._open_user_turn()
        asked = [turn for turn in self._turns if turn.role == "user"]
        for turn in asked:
            turn.blocks.extend([] if turn.blocks else text_block(_EMPTY_MESSAGE))
        for turn in asked[-_CACHED_TURNS:]:
            _mark_for_cache(turn.blocks[-1])
        return [
            {"role": turn.role, "content": list[JsonValue](turn.blocks)} for turn in self._turns
        ]

    @property
    def answers_without_thought(self) -> bool:
        """True if the last turn answers calls of an answer that did not begin with a thought."""
        if len(self._turns) < 2:
            return False
        before, last = self._turns[-2:]
        answers = any(block["type"] == "tool_result" for block in last.blocks)
        return answers and before.blocks[0]["type"] not in _THOUGHT_TYPES

    def _open_user_turn(self) -> list[Block]:
        """Return the blocks of the last turn, after a new one of the user if it is not his."""
        if not self._turns or self._turns[-1].role != "user":
            self._turns.append(_RoleTurn("user", []))
        return self._turns[-1].blocks

    def _add_user_blocks(self, blocks: list[Block]) -> None:
        self._open_user_turn().extend(blocks)
        self.prefix.add("user", list[JsonValue](blocks))

    def _answer_blocks(self, message: AssistantMessage, thoughts: Sequence[Thought]) -> list[Block]:
        """Return the blocks of text and calls, with each thought in its place."""
        text = plain_text(message.content)
        calls: list[Block] = []
        for call in message.tool_calls:
            try:
                parsed: JsonValue = from_json(call.arguments)
            except ValueError:
                parsed = None  # a model may have written bad JSON, and the service takes objects
            given = parsed if isinstance(parsed, dict) else {}
            calls.append(
                {"type": "tool_use", "id": self._ids[call.id], "name": call.name, "input": given}
            )
        blocks: list[Block] = []
        text_end = calls_end = 0
        for thought in thoughts:
            blocks += text_block(text[text_end : thought.text]) + calls[calls_end : thought.calls]
            blocks.append(thought.block)
            text_end = max(text_end, thought.text)
            calls_end = max(calls_end, thought.calls)
        blocks += text_block(text[text_end:]) + calls[calls_end:]
        while blocks and blocks[-1]["type"] in _THOUGHT_TYPES:  # an answer may not end in thought
            blocks.pop()
        return blocks
