"""An answer's bytes to deltas: the chunks of the stream, and what services make of them. Sans-IO."""

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
from passback.models.http.alike import DeltaTemplate
from passback.models.http.decoding import MAX_ANSWER, Decoder, count, dicts
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
"""All others, also unknown ones, are `stop`, or `tool_calls` when there are calls."""

_BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}
_FUNCTION_CALL_INDEX = -1
_BLANK = b"\n\n"
_STEPS = 8
"""Events of one read that are read one by one, to learn what the others look like."""

_REASONING_FIELDS = ("reasoning_content", "reasoning")


class ChatDecoder(Decoder):
    """Reads chat completions, streamed or whole.

    Args:
        provider: whose reasoning it is.
    """

    def __init__(
        self, provider: str, /, *, whole: bool = False, max_answer: int = MAX_ANSWER
    ) -> None:
        super().__init__(whole=whole, max_answer=max_answer)
        self._provider = provider
        self._delta_field = "message" if whole else "delta"
        self._template = DeltaTemplate(_usual_text)
        self._calls = CallSlots()
        self._finish: str | None = None
        self._refused = False
        self._reasoning: list[str] = []
        self._reasoning_field = ""

    @override
    def feed(self, data: bytes, /) -> Sequence[ModelDelta]:
        data = self._say_alike(data)
        studied = 0
        for _ in range(_STEPS):
            end = data.find(_BLANK, studied) + len(_BLANK)
            if end < len(_BLANK) or not self._template.learns:
                break
            knows = self._template.learn(data[studied:end])
            studied = end
            if knows:
                self._read(data[:studied])
                data, studied = self._say_alike(data[studied:]), 0
        if data:
            self._read(data)
        return self._batch.take()

    @override
    def take_text(self, data: bytes, /) -> str:
        text, behind = self._alike_in(data)
        if behind:
            return ""
        self.size += len(text)
        return text

    def _say_alike(self, data: bytes) -> bytes:
        """Take the texts at the beginning of a read that can be had without parsing; gives what follows them."""
        text, behind = self._alike_in(data)
        if text:
            self._say(text)
        return behind

    def _alike_in(self, data: bytes) -> tuple[str, bytes]:
        """The texts at the beginning of a read that can be had without parsing, and what follows them."""
        if self._events.between and not self.failure:
            text, behind = self._template.take(data)
            if self.size + len(text) <= self._max_answer:
                return text, behind
        return "", data

    @override
    def _is_complete(self) -> bool:
        return self.done or self._finish is not None

    @override
    def _close(self) -> None:
        if self._reasoning:
            text = "".join(self._reasoning)
            block = Reasoning(text, self._provider, self._reasoning_field)
            self._batch.add(ReasoningBlock(block))
        self._batch.add(Finish(self._finish_reason()))

    # ------------------------------------------------------------ chunks
    @override
    def _chunk(self, chunk: JsonDict) -> None:
        error = chunk if chunk.get("object") == "error" else chunk.get("error")
        if error:
            self._fail(reported_failure(error))
            return
        if usage := chunk.get("usage"):
            self._batch.report(_usage(usage))
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            # only one answer was asked for
            if isinstance(choice, dict) and not choice.get("index"):
                self._choice(choice)

    def _choice(self, choice: JsonDict) -> None:
        delta = choice.get(self._delta_field)
        if isinstance(delta, dict):
            content = delta.get("content")
            # the usual one: a text and nothing else
            if len(delta) == 1 and isinstance(content, str):
                self._say(content)
            else:
                self._delta(delta, content)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._finish = reason.lower()
            if self._finish in _BROKEN_OFF:
                self._fail(ModelUnavailable("the model's service broke its answer off"))

    def _delta(self, delta: JsonDict, content: JsonValue) -> None:
        for field in _REASONING_FIELDS:
            if isinstance(thought := delta.get(field), str) and thought:
                self._think(thought, field)
                break  # some send the same text in both
        if isinstance(content, str):
            self._say(content)
        elif content:
            self._say_parts(content)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            self._say(refusal)
        if calls := delta.get("tool_calls"):
            self._call(calls)
        if isinstance(function := delta.get("function_call"), dict):
            self._call([{"index": _FUNCTION_CALL_INDEX, "function": function}])

    def _say_parts(self, parts: JsonValue) -> None:
        """Content in parts: texts, and thoughts that are parts again."""
        for part in dicts(parts):
            if isinstance(text := part.get("text"), str):
                self._say(text)
            for thought in dicts(part.get("thinking")):
                self._think(str(thought.get("text") or ""), "thinking")

    def _think(self, text: str, field: str) -> None:
        self.size += len(text)
        self._reasoning.append(text)
        self._reasoning_field = field
        self._batch.add_text(ReasoningChunk, text)

    def _call(self, calls: JsonValue) -> None:
        try:
            chunks = self._calls.feed(dicts(calls))
        except TooManyCalls:
            self._fail(ModelIncomplete("the model called too many tools at once"))
            return
        for chunk in chunks:
            self.size += len(chunk.arguments) + len(chunk.name or "")
            self._batch.add(chunk)

    def _finish_reason(self) -> FinishReason:
        """What the service said, unless what it sent says otherwise."""
        said = FINISH_REASONS.get(self._finish or "stop")
        if said:
            return said
        if self._calls:
            return "tool_calls"
        return "refusal" if self._refused else "stop"


# ---------------------------------------------------------------- reading the JSON
def _usual_text(chunk: Any) -> str | None:
    """The text of a chunk that is one piece of text and nothing else."""
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


def _usage(value: JsonValue) -> Usage:
    cached = count(value, "prompt_tokens_details", "cached_tokens")
    return Usage(
        input_tokens=count(value, "prompt_tokens"),
        output_tokens=count(value, "completion_tokens"),
        cached_tokens=cached or count(value, "prompt_cache_hit_tokens"),
        reasoning_tokens=count(value, "completion_tokens_details", "reasoning_tokens"),
    )
