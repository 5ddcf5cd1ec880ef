"""An answer's bytes to deltas: the events of a message. Sans-IO."""

import json
from dataclasses import dataclass, field

from pydantic import JsonValue
from typing_extensions import override

from passback.core.deltas import (
    Finish,
    FinishReason,
    ReasoningBlock,
    ReasoningChunk,
    ToolCallChunk,
)
from passback.core.errors import ModelIncomplete
from passback.core.messages import Reasoning, Usage
from passback.models.anthropic.content import Block, Thought
from passback.models.http.decoding import (
    MAX_ANSWER,
    MAX_CALLS,
    Decoder,
    count,
    dicts,
    usable_id,
)
from passback.models.http.events import JsonDict
from passback.models.http.failures import reported_failure

FINISH_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
"""All others, also unknown ones, are `stop`, or `tool_calls` when there are calls."""


@dataclass(slots=True)
class _Open:
    """A content block that has begun, where it stands, and what came of it."""

    start: Block
    text: int
    calls: int
    pieces: list[str] = field(default_factory=list[str])
    signature: str = ""

    @property
    def kind(self) -> JsonValue:
        return self.start.get("type")


class MessageDecoder(Decoder):
    """Reads messages, streamed or whole.

    Args:
        provider: whose thoughts they are.
        prefix: what they are bound to, see `thoughts.Prefix`.
    """

    def __init__(
        self, provider: str, prefix: str, /, *, whole: bool = False, max_answer: int = MAX_ANSWER
    ) -> None:
        super().__init__(whole=whole, max_answer=max_answer)
        self._provider = provider
        self._prefix = prefix
        self._open: dict[int, _Open] = {}
        self._said = 0
        self._calls = 0
        self._usage: JsonDict = {}
        self._stop_reason: str | None = None
        self._stopped = False

    @property
    @override
    def done(self) -> bool:
        return self._stopped or super().done

    @override
    def _is_complete(self) -> bool:
        return self._stopped or self._stop_reason is not None

    @override
    def _close(self) -> None:
        for index in list(self._open):
            self._end_block(index)
        reason = FINISH_REASONS.get(self._stop_reason or "")
        self._batch.add(Finish(reason or ("tool_calls" if self._calls else "stop")))

    # ------------------------------------------------------------ events
    @override
    def _chunk(self, chunk: JsonDict) -> None:
        if self._stopped:
            return
        match chunk.get("type"):
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                self._block(chunk)
            case "message_start":
                self._head(chunk.get("message"))
            case "message_delta":
                self._stop(chunk.get("delta"))
                self._count(chunk.get("usage"))
            case "message_stop":
                self._stopped = True
            case "message":
                self._whole(chunk)
            case "error":
                self._fail(reported_failure(chunk.get("error")))
            case _:
                pass

    def _whole(self, message: JsonDict) -> None:
        """A message that is not streamed is a head whose blocks need no deltas."""
        for index, block in enumerate(dicts(message.get("content"))):
            self._start_block(index, block)
            self._end_block(index)
        self._head(message)
        self._stopped = True

    def _head(self, message: JsonValue) -> None:
        if isinstance(message, dict):
            self._stop(message)
            self._count(message.get("usage"))

    def _stop(self, delta: JsonValue) -> None:
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        if isinstance(reason, str) and reason:
            self._stop_reason = reason

    def _count(self, usage: JsonValue) -> None:
        """Each report has the counts so far, and may leave out those that it does not change."""
        if not isinstance(usage, dict) or not usage:
            return
        self._usage |= {name: value for name, value in usage.items() if value is not None}
        cached = count(self._usage, "cache_read_input_tokens")
        written = count(self._usage, "cache_creation_input_tokens")
        report = Usage(
            input_tokens=count(self._usage, "input_tokens") + cached + written,
            output_tokens=count(self._usage, "output_tokens"),
            cached_tokens=cached,
            reasoning_tokens=count(self._usage, "output_tokens_details", "thinking_tokens"),
        )
        self._batch.report(report)

    # ------------------------------------------------------------ blocks
    def _block(self, chunk: JsonDict) -> None:
        index = chunk.get("index")
        place = index if isinstance(index, int) else 0
        match chunk["type"]:
            case "content_block_start":
                self._start_block(place, chunk.get("content_block"))
            case "content_block_delta":
                self._delta(place, chunk.get("delta"))
            case _:
                self._end_block(place)

    def _start_block(self, index: int, block: JsonValue) -> None:
        self._end_block(index)  # where its end is missing
        if not isinstance(block, dict):
            return
        if len(self._open) == MAX_CALLS:
            self._fail(ModelIncomplete("the model's answer makes no sense"))
            return
        begun = self._open[index] = _Open(block, self._said, self._calls)
        match begun.kind:
            case "text":
                self._text(block.get("text"))
            case "thinking":
                self._think(begun, block.get("thinking"))
                self._sign(begun, block.get("signature"))
            case "redacted_thinking":
                self.size += len(str(block.get("data")))
            case "tool_use":
                self._call(block)
            case _:
                pass

    def _delta(self, index: int, delta: JsonValue) -> None:
        begun = self._open.get(index)
        if not isinstance(delta, dict):
            return
        match delta.get("type"), begun:
            case "text_delta", _:
                self._text(delta.get("text"))
            case "thinking_delta", _Open(kind="thinking"):
                self._think(begun, delta.get("thinking"))
            case "signature_delta", _Open(kind="thinking"):
                self._sign(begun, delta.get("signature"))
            case "input_json_delta", _Open(kind="tool_use"):
                self._argue(begun, delta.get("partial_json"))
            case _:
                pass

    def _end_block(self, index: int) -> None:
        begun = self._open.pop(index, None)
        if begun is None:
            return
        match begun.kind:
            case "thinking":
                text = "".join(begun.pieces)
                block = {**begun.start, "thinking": text, "signature": begun.signature}
                self._keep(begun, text, block if begun.signature else None)
            case "redacted_thinking":
                self._keep(begun, "", begun.start)
            case "tool_use":
                if not begun.pieces and (whole := begun.start.get("input")):
                    self._argue(begun, json.dumps(whole))
            case _:
                pass

    def _text(self, text: JsonValue) -> None:
        if isinstance(text, str):
            self._said += len(text)
            self._say(text)

    def _think(self, begun: _Open, text: JsonValue) -> None:
        if isinstance(text, str) and text:
            begun.pieces.append(text)
            self.size += len(text)
            self._batch.add_text(ReasoningChunk, text)

    def _sign(self, begun: _Open, signature: JsonValue) -> None:
        if isinstance(signature, str) and signature:
            begun.signature = signature
            self.size += len(signature)

    def _keep(self, begun: _Open, text: str, block: Block | None) -> None:
        """A thought that is whole; without its signature it cannot go back."""
        opaque = None
        if block is not None:
            opaque = Thought(block, begun.text, begun.calls, self._prefix).dump()
        if text or opaque:
            self._batch.add(ReasoningBlock(Reasoning(text, self._provider, opaque)))

    def _call(self, block: Block) -> None:
        if self._calls == MAX_CALLS:
            self._fail(ModelIncomplete("the model called too many tools at once"))
            return
        name = block.get("name")
        said = name if isinstance(name, str) else ""
        self.size += len(said)
        self._batch.add(ToolCallChunk(self._calls, usable_id(block.get("id")), said or None))
        self._calls += 1

    def _argue(self, begun: _Open, piece: JsonValue) -> None:
        if isinstance(piece, str) and piece:
            begun.pieces.append("")  # that there was one is all that has to be known
            self.size += len(piece)
            self._batch.add(ToolCallChunk(begun.calls, arguments=piece))
