"""The decoder of messages, from the events of the stream to deltas. Sans-IO."""

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
from passback.models.anthropic.encoding import Block, Thought
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

FINISH_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
"""Any other reason is read as `stop`, or as `tool_calls` if there are calls."""


@dataclass(slots=True)
class _OpenBlock:
    """A content block that has begun: its first event, its place, and its content so far.

    Attributes:
        start: the block as its first event has it.
        text: the number of characters of the answer's text before it.
        calls: the number of the answer's calls before it.
    """

    start: Block
    text: int
    calls: int
    pieces: list[str] = field(default_factory=list[str])
    signature: str = ""

    @property
    def kind(self) -> JsonValue:
        return self.start.get("type")


class MessageDecoder(Decoder):
    """A decoder of a message, streamed or whole.

    Args:
        provider: the provider that thoughts are marked with.
        prefix: the digest of the request that they are bound to, see `content.Prefix`.
    """

    def __init__(
        self, provider: str, prefix: str, /, *, whole: bool = False, max_answer: int = MAX_ANSWER
    ) -> None:
        super().__init__(whole=whole, max_answer=max_answer)
        self._provider = provider
        self._prefix = prefix
        self._open_blocks: dict[int, _OpenBlock] = {}
        self._text_size = 0
        self._calls = 0
        self._usage: JsonDict = {}
        self._stop_reason: str | None = None
        self._stopped = False

    @property
    @override
    def done(self) -> bool:
        return self._stopped or super().done

    @property
    @override
    def finished(self) -> bool:
        return self.failure is None and (self._stopped or self._stop_reason is not None)

    @override
    def _add_finish(self) -> None:
        for index in list(self._open_blocks):
            self._end_block(index)
        reason = FINISH_REASONS.get(self._stop_reason or "")
        self._batch.add(Finish(reason or ("tool_calls" if self._calls else "stop")))

    @override
    def _read_chunk(self, chunk: JsonDict) -> None:
        if self._stopped:
            return
        match chunk.get("type"):
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                self._read_block_event(chunk)
            case "message_start":
                head = chunk.get("message")
                self._read_report(head, head)
            case "message_delta":
                self._read_report(chunk.get("delta"), chunk)
            case "message_stop":
                self._stopped = True
            case "message":
                self._read_whole_message(chunk)
            case "error":
                self._set_failure(reported_failure(chunk.get("error")))
            case _:
                pass  # `ping`, and types that the service adds later

    def _read_whole_message(self, message: JsonDict) -> None:
        """Read a message that is not streamed: a head, and blocks that are complete."""
        for index, block in enumerate(dicts_in(message.get("content"))):
            self._start_block(index, block)
            self._end_block(index)
        self._read_report(message, message)
        self._stopped = True

    def _read_report(self, end: JsonValue, report: JsonValue) -> None:
        """Read the reason for the end from one object, and add the usage in another."""
        reason = end.get("stop_reason") if isinstance(end, dict) else None
        if isinstance(reason, str) and reason:
            self._stop_reason = reason
        # Each report has the counts so far, and may leave out those that it does not change.
        usage = report.get("usage") if isinstance(report, dict) else None
        if not isinstance(usage, dict) or not usage:
            return
        self._usage |= {name: value for name, value in usage.items() if value is not None}
        cached = token_count(self._usage, "cache_read_input_tokens")
        written = token_count(self._usage, "cache_creation_input_tokens")
        # The service counts cached input apart; `Usage.input_tokens` includes it.
        known = Usage(
            input_tokens=token_count(self._usage, "input_tokens") + cached + written,
            output_tokens=token_count(self._usage, "output_tokens"),
            cached_tokens=cached,
            reasoning_tokens=token_count(self._usage, "output_tokens_details", "thinking_tokens"),
        )
        self._batch.set_usage(known)

    def _read_block_event(self, chunk: JsonDict) -> None:
        given = chunk.get("index")
        index = given if isinstance(given, int) else 0
        opened = self._open_blocks.get(index)
        match chunk["type"], chunk.get("delta"), opened:
            case "content_block_start", _, _:
                self._start_block(index, chunk.get("content_block"))
            case "content_block_stop", _, _:
                self._end_block(index)
            case _, {"type": "text_delta", "text": text}, _:
                self._read_text(text)
            case _, {"type": "thinking_delta", "thinking": text}, _OpenBlock(kind="thinking"):
                self._read_thinking(opened, text)
            case _, {"type": "signature_delta", "signature": text}, _OpenBlock(kind="thinking"):
                self._read_signature(opened, text)
            case _, {"type": "input_json_delta", "partial_json": text}, _OpenBlock(kind="tool_use"):
                self._read_arguments(opened, text)
            case _:
                pass

    def _start_block(self, index: int, block: JsonValue) -> None:
        self._end_block(index)  # if the end of the block before it is missing
        if not isinstance(block, dict):
            return
        # The service ends a block before it begins the next; others must not fill the memory.
        if len(self._open_blocks) == MAX_CALLS:
            self._set_failure(ModelIncomplete("the model's answer makes no sense"))
            return
        opened = self._open_blocks[index] = _OpenBlock(block, self._text_size, self._calls)
        match opened.kind:
            case "text":
                self._read_text(block.get("text"))
            case "thinking":
                self._read_thinking(opened, block.get("thinking"))
                self._read_signature(opened, block.get("signature"))
            case "redacted_thinking":
                self.size += len(str(block.get("data")))
            case "tool_use" if self._calls == MAX_CALLS:
                self._set_failure(ModelIncomplete("the model called too many tools at once"))
            case "tool_use":
                name = block.get("name")
                tool_name = name if isinstance(name, str) else ""
                self.size += len(tool_name)
                call_id = usable_id(block.get("id"))
                self._batch.add(ToolCallChunk(self._calls, call_id, tool_name or None))
                self._calls += 1
            case _:
                pass

    def _end_block(self, index: int) -> None:
        opened = self._open_blocks.pop(index, None)
        if opened is None:
            return
        match opened.kind:
            case "thinking":
                text = "".join(opened.pieces)
                block = {**opened.start, "thinking": text, "signature": opened.signature}
                self._add_reasoning_block(opened, text, block if opened.signature else None)
            case "redacted_thinking":
                self._add_reasoning_block(opened, "", opened.start)
            case "tool_use":
                # Whole messages, and some services' streams, have the input in the block itself.
                if not opened.pieces and (whole := opened.start.get("input")):
                    self._read_arguments(opened, json.dumps(whole))
            case _:
                pass

    def _read_text(self, text: JsonValue) -> None:
        if isinstance(text, str):
            self._text_size += len(text)
            self._add_text(text)

    def _read_thinking(self, opened: _OpenBlock, text: JsonValue) -> None:
        if isinstance(text, str) and text:
            opened.pieces.append(text)
            self.size += len(text)
            self._batch.add_text(ReasoningChunk, text)

    def _read_signature(self, opened: _OpenBlock, signature: JsonValue) -> None:
        if isinstance(signature, str) and signature:
            opened.signature = signature
            self.size += len(signature)

    def _add_reasoning_block(self, opened: _OpenBlock, text: str, block: Block | None) -> None:
        """Add a thought that has ended. Without its signature it cannot be sent back."""
        opaque = None
        if block is not None:
            opaque = Thought(block, opened.text, opened.calls, self._prefix).dump()
        if text or opaque:
            self._batch.add(ReasoningBlock(Reasoning(text, self._provider, opaque)))

    def _read_arguments(self, opened: _OpenBlock, piece: JsonValue) -> None:
        if isinstance(piece, str) and piece:
            opened.pieces.append("")  # `_end_block` only asks if there was a piece
            self.size += len(piece)
            self._batch.add(ToolCallChunk(opened.calls, arguments=piece))
