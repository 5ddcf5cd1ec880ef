"""The decoder of chat completions, from bytes to deltas, with services' variants. Sans-IO."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json
from typing_extensions import override

from passback.core.deltas import (
    Finish,
    FinishReason,
    ModelDelta,
    ReasoningBlock,
    ReasoningChunk,
    ToolCallChunk,
)
from passback.core.errors import ModelIncomplete, ModelUnavailable
from passback.core.messages import Reasoning, Usage
from passback.core.values import value
from passback.hotpath.templates import DeltaTemplate
from passback.models.http.decoding import (
    MAX_ANSWER,
    MAX_CALLS,
    Decoder,
    JsonDict,
    dicts_in,
    token_count,
    usable_id,
)
from passback.models.http.failures import reported_failure
from passback.models.openai_chat.encoding import CallExtras, is_thought

FINISH_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
}
"""Any other reason is read as `stop`, or as `tool_calls` if there are calls."""

_BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}
_FUNCTION_CALL_INDEX = -1
_BLANK_LINE = b"\n\n"
_MAX_STUDIED = 8  # events of one read that are studied one by one
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_THOUGHT = "<thought>", "</thought>"  # of Gemini, around the content that is one
_MAX_JSON_CHECKS = 64  # of one call


class ChatDecoder(Decoder):
    """A decoder of a chat completion, streamed or whole.

    Args:
        provider: the provider that reasoning is marked with.
    """

    def __init__(
        self, provider: str, /, *, whole: bool = False, max_answer: int = MAX_ANSWER
    ) -> None:
        super().__init__(whole=whole, max_answer=max_answer)
        self._provider = provider
        self._delta_field = "message" if whole else "delta"
        self._template = DeltaTemplate(_text_of_plain_chunk)
        self._calls = CallSlots()
        self._finish: str | None = None
        self._refused = False
        self._reasoning: list[str] = []
        self._reasoning_field = ""
        self._in_thought = False

    @override
    def feed(self, data: bytes, /) -> Sequence[ModelDelta]:
        data = self._add_templated_text(data)
        studied = 0
        for _ in range(_MAX_STUDIED):
            end = data.find(_BLANK_LINE, studied) + len(_BLANK_LINE)
            if end < len(_BLANK_LINE) or not self._template.can_learn:
                break
            knows = self._template.learn(data[studied:end])
            studied = end
            if knows:
                self._read_data(data[:studied])
                data, studied = self._add_templated_text(data[studied:]), 0
        if data:
            self._read_data(data)
        return self._batch.take()

    def _add_templated_text(self, data: bytes) -> bytes:
        """Add the text of the first events if they need no parsing; return the remaining bytes."""
        if not self._events.is_between_events or self.failure or self._in_thought:
            return data
        text, behind = self._template.take(data)
        # An answer that would grow too long takes the way of `_read_data`, which notices it.
        if not text or self.size + len(text) > self._max_answer:
            return data
        self._add_text(text)
        return behind

    @property
    @override
    def finished(self) -> bool:
        return self.failure is None and (self.done or self._finish is not None)

    @override
    def _add_finish(self) -> None:
        if self._reasoning:
            text = "".join(self._reasoning)
            block = Reasoning(text, self._provider, self._reasoning_field)
            self._batch.add(ReasoningBlock(block))
        if extras := self._calls.extras:
            record = CallExtras(extras).dump()
            self._batch.add(ReasoningBlock(Reasoning("", self._provider, record)))
        reason = FINISH_REASONS.get(self._finish or "stop")
        if reason is None:
            # Some services end an answer that has calls, or a refusal, with `stop`.
            other: FinishReason = "refusal" if self._refused else "stop"
            reason = "tool_calls" if self._calls else other
        self._batch.add(Finish(reason))

    @override
    def _read_chunk(self, chunk: JsonDict) -> None:
        error = chunk if chunk.get("object") == "error" else chunk.get("error")
        if error:
            self._set_failure(reported_failure(error))
            return
        if usage := chunk.get("usage"):
            cached = token_count(usage, "prompt_tokens_details", "cached_tokens")
            thought = token_count(usage, "completion_tokens_details", "reasoning_tokens")
            report = Usage(
                input_tokens=token_count(usage, "prompt_tokens"),
                output_tokens=token_count(usage, "completion_tokens"),
                cached_tokens=cached or token_count(usage, "prompt_cache_hit_tokens"),
                reasoning_tokens=thought,
            )
            self._batch.set_usage(report)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            # Only one answer was asked for; choices of another index are none of it.
            if isinstance(choice, dict) and not choice.get("index"):
                self._read_choice(choice)

    def _read_choice(self, choice: JsonDict) -> None:
        delta = choice.get(self._delta_field)
        if isinstance(delta, dict):
            content = delta.get("content")
            # The usual delta has a text and nothing else: spare it the other fields.
            if len(delta) == 1 and isinstance(content, str) and not self._in_thought:
                self._add_text(content)
            else:
                self._read_delta(delta, content)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = reason.lower()
            if self._finish in _BROKEN_OFF:
                self._set_failure(ModelUnavailable("the model's service broke its answer off"))

    def _read_delta(self, delta: JsonDict, content: JsonValue) -> None:
        for name in _REASONING_FIELDS:
            if isinstance(thought := delta.get(name), str) and thought:
                self._add_reasoning(thought, name)
                break  # some services send the same text in both fields
        if isinstance(content, str):
            self._add_content(content, is_thought=is_thought(delta.get("extra_content")))
        elif content:
            self._add_content_parts(content)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            self._add_text(refusal)
        if calls := delta.get("tool_calls"):
            self._add_calls(calls)
        if isinstance(function := delta.get("function_call"), dict):
            self._add_calls([{"index": _FUNCTION_CALL_INDEX, "function": function}])

    def _add_content(self, text: str, *, is_thought: bool) -> None:
        begins, ends = is_thought and not self._in_thought, self._in_thought and not is_thought
        self._in_thought = is_thought
        text = text.removeprefix(_THOUGHT[0] if begins else _THOUGHT[1] if ends else "")
        if is_thought:
            self._add_reasoning(text, "thought")
        else:
            self._add_text(text)

    def _add_content_parts(self, parts: JsonValue) -> None:
        """Add content in parts: texts, and thoughts, which are lists of parts again."""
        for part in dicts_in(parts):
            if isinstance(text := part.get("text"), str):
                self._add_text(text)
            for thought in dicts_in(part.get("thinking")):
                self._add_reasoning(str(thought.get("text") or ""), "thinking")

    def _add_reasoning(self, text: str, field: str) -> None:
        self.size += len(text)
        self._reasoning.append(text)
        self._reasoning_field = field
        self._batch.add_text(ReasoningChunk, text)

    def _add_calls(self, calls: JsonValue) -> None:
        try:
            chunks = self._calls.feed(dicts_in(calls))
        except ModelIncomplete as failure:
            self._set_failure(failure)
            return
        for chunk in chunks:
            self.size += len(chunk.arguments) + len(chunk.name or "")
            self._batch.add(chunk)
        self.size += self._calls.take_extra_size()


def _text_of_plain_chunk(chunk: Any) -> str | None:
    """Return the text of a chunk that holds a piece of text and nothing else, None for others."""
    try:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        text = delta["content"]
        says_more = (
            len(delta) > 1
            or choice.get("index")
            or choice.get("finish_reason")
            or chunk.get("usage")
            or chunk.get("error")
            or chunk.get("object") == "error"
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return text if isinstance(text, str) and not says_more else None


# ---------------------------------------------------------------- tool calls
# Services disagree about indices and ids; here each call has a slot. They send a call whole or in
# many pieces, with an index, without one, or all with index 0. They send the id in every piece,
# only in the first, late, changing, empty, doubled or never. They send the name once or in every
# piece, and the arguments as a string, an object or null. So a piece continues a call unless
# something shows that it begins another one.
@value
class _Piece:
    index: int | None
    id: str | None
    name: str | None
    arguments: str
    extra: JsonDict | None = None

    @classmethod
    def parse(cls, item: Mapping[str, JsonValue]) -> "_Piece":
        inner = item.get("function")
        function = inner if isinstance(inner, dict) else item  # some leave the inner object out
        index, name, arguments = item.get("index"), function.get("name"), function.get("arguments")
        if arguments is None:
            arguments = ""
        return cls(
            index=index if isinstance(index, int) else None,
            id=usable_id(item.get("id")),
            name=name.strip() or None if isinstance(name, str) else None,
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
            extra=extra if isinstance(extra := item.get("extra_content"), dict) else None,
        )


@dataclass(slots=True)
class _Call:
    slot: int
    id: str | None = None
    name: str | None = None
    pieces: list[str] = field(default_factory=list[str])
    size: int = 0
    checks: int = 0
    extra: JsonDict | None = None

    def is_complete(self) -> bool:
        """Return True if the arguments so far are JSON."""
        # Each check reads all arguments, so their number is bounded.
        if self.checks == _MAX_JSON_CHECKS or not self.pieces[-1].rstrip().endswith("}"):
            return False
        self.checks += 1
        return _is_json("".join(self.pieces))

    def is_repeated_by(self, piece: _Piece) -> bool:
        """Return True if a piece repeats the whole call, as some services do at the end."""
        if self.id is None or (self.id, self.name) != (piece.id, piece.name):
            return False
        if self.size != len(piece.arguments):
            return False
        return "".join(self.pieces) == piece.arguments and _is_json(piece.arguments)

    def is_ended_by(self, piece: _Piece) -> bool:
        """Return True if a piece that looks like this call's is the first of another call."""
        if piece.name is None or self.name is None:
            return False
        if piece.name != self.name:
            return True
        # The same name once more: some services repeat it in every piece, so it takes another id or
        # arguments that follow complete ones.
        has_other_id = None not in (self.id, piece.id) and self.id != piece.id
        if self.pieces:
            return bool(piece.arguments or has_other_id) and self.is_complete()
        return has_other_id and (not piece.arguments or _is_json(piece.arguments))

    def add(self, piece: _Piece) -> ToolCallChunk:
        """Add a piece, and return its delta; the id and the name are sent once."""
        new_id = piece.id if self.id is None else None
        new_name = piece.name if self.name is None else None
        self.id, self.name = self.id or new_id, self.name or new_name
        if piece.arguments:
            self.pieces.append(piece.arguments)
            self.size += len(piece.arguments)
        return ToolCallChunk(self.slot, new_id, new_name, piece.arguments)


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


class CallSlots:
    """The calls of one answer: feed it the `tool_calls` of each chunk, in order.

    Its length is the number of calls.
    """

    def __init__(self) -> None:
        self._extra_size = 0
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def feed(self, items: Sequence[Mapping[str, JsonValue]], /) -> list[ToolCallChunk]:
        """Return the deltas of one chunk's pieces, each with the slot of its call.

        Raises:
            ModelIncomplete: there are more than `MAX_CALLS` calls.
        """
        # Pieces without index and id continue the newest calls, in their order.
        newest = self._calls[-len(items) :] if len(items) <= len(self._calls) else []
        chunks: list[ToolCallChunk] = []
        seen_slots: set[int] = set()
        for position, piece in enumerate(map(_Piece.parse, items)):
            call = self._find_call(piece, newest[position] if newest else None)
            if call and call.is_repeated_by(piece):
                continue
            # One chunk never has two first pieces of one call.
            is_second = call is not None and piece.name and call.slot in seen_slots
            if call is None or is_second or call.is_ended_by(piece):
                if len(self._calls) == MAX_CALLS:
                    raise ModelIncomplete("the model called too many tools at once")
                call = _Call(len(self._calls))
                self._calls.append(call)
            if piece.index is not None:
                self._by_index[piece.index] = call
            if piece.id is not None:
                self._by_id[piece.index, piece.id] = call
                # Some services send the index in the first piece only, and the id in all.
                self._by_id.setdefault((None, piece.id), call)
            if piece.extra:
                call.extra = piece.extra
                self._extra_size += len(json.dumps(piece.extra))
            seen_slots.add(call.slot)
            chunks.append(call.add(piece))
        return chunks

    @property
    def extras(self) -> Mapping[int, JsonDict]:
        """The `extra_content` of calls that have one, by their numbers among those with a name."""
        named = [call for call in self._calls if call.name]
        return {number: call.extra for number, call in enumerate(named) if call.extra}

    def take_extra_size(self) -> int:
        """Return the characters of what came with calls since the last time."""
        size, self._extra_size = self._extra_size, 0
        return size

    def _find_call(self, piece: _Piece, newest: _Call | None) -> _Call | None:
        """Return the call with the piece's index and id, or with its index, or else the newest."""
        if piece.index is not None and piece.index not in self._by_index:
            return None
        if piece.id is not None and (call := self._by_id.get((piece.index, piece.id))):
            return call
        if piece.index is not None:
            return self._by_index[piece.index]
        return newest or (self._calls[-1] if self._calls else None)
