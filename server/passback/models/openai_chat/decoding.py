"""The decoder of chat completions, from bytes to deltas, with services' variants. Sans-IO."""

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue
from typing_extensions import override

from passback.core.deltas import (
    Finish,
    FinishReason,
    ModelDelta,
    ReasoningBlock,
    ReasoningChunk,
)
from passback.core.errors import ModelIncomplete, ModelUnavailable
from passback.core.messages import Reasoning, Usage
from passback.hotpath.templates import DeltaTemplate
from passback.models.http.decoding import MAX_ANSWER, Decoder, dicts_in, token_count
from passback.models.http.events import JsonDict
from passback.models.http.failures import reported_failure
from passback.models.openai_chat.calls import CallSlots, TooManyCalls

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
        if not self._events.is_between_events or self.failure:
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
            if len(delta) == 1 and isinstance(content, str):
                self._add_text(content)
            else:
                self._read_delta(delta, content)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = reason.lower()
            if self._finish in _BROKEN_OFF:
                self._set_failure(ModelUnavailable("the model's service broke its answer off"))

    def _read_delta(self, delta: JsonDict, content: JsonValue) -> None:
        for field in _REASONING_FIELDS:
            if isinstance(thought := delta.get(field), str) and thought:
                self._add_reasoning(thought, field)
                break  # some services send the same text in both fields
        if isinstance(content, str):
            self._add_text(content)
        elif content:
            self._add_content_parts(content)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            self._add_text(refusal)
        if calls := delta.get("tool_calls"):
            self._add_calls(calls)
        if isinstance(function := delta.get("function_call"), dict):
            self._add_calls([{"index": _FUNCTION_CALL_INDEX, "function": function}])

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
        except TooManyCalls:
            self._set_failure(ModelIncomplete("the model called too many tools at once"))
            return
        for chunk in chunks:
            self.size += len(chunk.arguments) + len(chunk.name or "")
            self._batch.add(chunk)


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
