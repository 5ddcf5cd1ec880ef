"""A request to the JSON body of the Messages API, by its rules: users and assistant take turns, the user first and last."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    AssistantMessage,
    ModelMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.values import value
from passback.models.anthropic.content import (
    KINDS,
    Block,
    Prefix,
    Thought,
    content_blocks,
    result_block,
    text_block,
    thoughts_of,
)
from passback.models.anthropic.outputs import output_config
from passback.models.http.bodies import WireIds, said, text_of, wire_ids, written

MAX_TOKENS = 32_000
"""Of an answer, thinking included, where the options do not say it: what every model in service can."""

_NOTHING = "(no message)"
"""What a user says who has to have a turn."""

_ID = re.compile(r"[A-Za-z0-9_-]+")
_REFUSED_AT_THE_TOP = frozenset({"oneOf", "anyOf", "allOf"})
_CACHED_TURNS = 2


@value
class Request:
    """The body, and what thoughts in its answer are bound to."""

    body: bytes
    prefix: str


def encode(model: str, provider: str, request: ModelRequest, /) -> Request:
    """The request; `provider` names whose thoughts may go back."""
    system = "\n\n".join(filter(str.strip, _system_texts(request)))
    tools = [_tool(spec) for spec in request.tools]
    manual = _thinks_by_budget(request.options)
    transcript = _Transcript(provider, wire_ids(request.messages, _ID), bound=not manual)
    transcript.prefix.add(system, list[JsonValue](tools))
    for message in request.messages:
        transcript.add(message)
    body: Block = {
        "max_tokens": MAX_TOKENS,
        **request.options,
        **_generation(request),
        "model": model,
        "messages": list[JsonValue](transcript.turns()),
        "stream": True,
    }
    if manual and transcript.answers_without_thought:
        del body["thinking"]
    body.pop("output_config", None)
    if config := output_config(request.options, request.output_schema):
        body["output_config"] = config
    if tools:
        _mark(tools[-1])
        body["tools"] = list[JsonValue](tools)
    if system:
        body["system"] = list[JsonValue](_system_blocks(system, request.static))
    return Request(written(body), transcript.prefix.digest())


def _generation(request: ModelRequest) -> Block:
    """What the service has a word for: it knows neither a seed nor penalties."""
    asked = said(
        replace(request.generation, seed=None, frequency_penalty=None, presence_penalty=None)
    )
    if request.generation.temperature is not None:
        asked["temperature"] = min(request.generation.temperature, 1.0)  # here, it ends at 1
    if "stop" in asked:
        asked["stop_sequences"] = asked.pop("stop")
    return asked


def _thinks_by_budget(options: Mapping[str, JsonValue]) -> bool:
    """Whether a model of the older kind is asked to think: it binds no thoughts, and wants one before open calls."""
    thinking = options.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def _system_texts(request: ModelRequest) -> Sequence[str]:
    said = [text_of(m.content) for m in request.messages if isinstance(m, SystemMessage)]
    return [request.system, *said]


def _system_blocks(system: str, static: int | None) -> Sequence[Block]:
    """What is the same in every run is a block of its own, and that is kept in the cache."""
    end = static or len(system)
    blocks = [block for text in (system[:end], system[end:]) for block in text_block(text)]
    _mark(blocks[0])
    return blocks


def _tool(spec: ToolSpec) -> Block:
    schema = {k: v for k, v in spec.parameters.items() if k not in _REFUSED_AT_THE_TOP}
    tool: Block = {"name": spec.name, "input_schema": {"type": "object", **schema}}
    if spec.description.strip():
        tool["description"] = spec.description
    return tool


def _mark(block: Block) -> None:
    """All up to here is worth keeping in the service's cache."""
    block["cache_control"] = {"type": "ephemeral"}


# ---------------------------------------------------------------- messages
@value
class _Turn:
    role: str
    blocks: list[Block]


class _Transcript:
    """Takes the messages in order. What it makes of them never changes by what comes later: thoughts are bound to it.

    Args:
        bound: thoughts go back only as long as all before them is unchanged.
    """

    def __init__(self, provider: str, ids: WireIds, *, bound: bool) -> None:
        self.prefix = Prefix()
        self._provider = provider
        self._ids = ids
        self._bound = bound
        self._turns: list[_Turn] = []

    def add(self, message: ModelMessage) -> None:
        match message:
            case UserMessage():
                self._ask(content_blocks(message.content))
            case ToolMessage():
                wire_id = self._ids.get(message.call_id, message.call_id)
                self._ask([result_block(message, wire_id)])
            case AssistantMessage():
                self._answer(message)
            case SystemMessage():
                pass  # it is in the system
            case _:
                assert_never(message)

    def turns(self) -> list[Block]:
        """The messages; the last turns of the user are marked for the cache."""
        self._turn_to_user()
        asked = [turn for turn in self._turns if turn.role == "user"]
        for turn in asked:
            turn.blocks.extend([] if turn.blocks else text_block(_NOTHING))
        for turn in asked[-_CACHED_TURNS:]:
            _mark(turn.blocks[-1])
        return [
            {"role": turn.role, "content": list[JsonValue](turn.blocks)} for turn in self._turns
        ]

    @property
    def answers_without_thought(self) -> bool:
        """Whether the last turn answers calls of an answer that did not begin with a thought."""
        if len(self._turns) < 2:
            return False
        before, last = self._turns[-2:]
        answers = any(block["type"] == "tool_result" for block in last.blocks)
        return answers and before.blocks[0]["type"] not in KINDS

    def _turn_to_user(self) -> list[Block]:
        if not self._turns or self._turns[-1].role != "user":
            self._turns.append(_Turn("user", []))
        return self._turns[-1].blocks

    def _ask(self, blocks: list[Block]) -> None:
        self._turn_to_user().extend(blocks)
        self.prefix.add("user", list[JsonValue](blocks))

    def _answer(self, message: AssistantMessage) -> None:
        blocks = self._answered(message, self._fresh_thoughts(message))
        if blocks:
            self._turn_to_user()
            self._turns.append(_Turn("assistant", blocks))
            self.prefix.add("assistant", list[JsonValue](blocks))

    def _fresh_thoughts(self, message: AssistantMessage) -> list[Thought]:
        """Those that the service takes back: bound to just what stands before. Without them what follows is another."""
        thoughts = thoughts_of(message, self._provider)
        prefix = self.prefix.digest()
        if self._bound and any(thought.prefix != prefix for thought in thoughts):
            return []
        return thoughts

    def _answered(self, message: AssistantMessage, thoughts: Sequence[Thought]) -> list[Block]:
        """Text and calls, with each thought in its place."""
        text, calls = text_of(message.content), [self._call(call) for call in message.tool_calls]
        blocks: list[Block] = []
        said = called = 0
        for thought in thoughts:
            blocks += text_block(text[said : thought.text]) + calls[called : thought.calls]
            blocks.append(thought.block)
            said, called = max(said, thought.text), max(called, thought.calls)
        blocks += text_block(text[said:]) + calls[called:]
        while blocks and blocks[-1]["type"] in KINDS:  # an answer may not end in thought
            blocks.pop()
        return blocks

    def _call(self, call: ToolCall) -> Block:
        return {
            "type": "tool_use",
            "id": self._ids[call.id],
            "name": call.name,
            "input": _object(call.arguments),
        }


def _object(text: str) -> JsonValue:
    try:
        parsed: JsonValue = from_json(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {}
