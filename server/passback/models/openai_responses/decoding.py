"""The decoder of responses, from the events of the stream to deltas. Sans-IO."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue
from typing_extensions import override

from passback.core.deltas import (
    Finish,
    FinishReason,
    ReasoningBlock,
    ReasoningChunk,
    ToolCallChunk,
)
from passback.core.errors import ModelIncomplete, ModelUnavailable
from passback.core.messages import Reasoning, Usage
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
from passback.models.openai_responses.encoding import Item, KeptItem, phase_marker

MAX_ITEMS: Final = 4 * MAX_CALLS  # in one answer

_READ_KINDS: Final = ("message", "function_call", "reasoning")
_ENDS: Final = ("completed", "incomplete", "failed", "cancelled")
_END_EVENTS: Final = {f"response.{status}": status for status in _ENDS}
_REFUSALS: Final = ("content_filter", "refusal")
_PARAGRAPH: Final = "\n\n"


@dataclass(slots=True)
class _OpenItem:
    """An output item that has begun: its kind, its place, and its content so far.

    Attributes:
        text: the number of characters of the answer's text before it.
        calls: the number of the answer's calls before it; the slot of a call.
        call_id, name: of a call, as far as they are known.
        part: the index of the part that the last piece belongs to.
    """

    kind: str
    id: str | None
    text: int
    calls: int
    call_id: str | None = None
    name: str | None = None
    pieces: list[str] = field(default_factory=list[str])
    part: JsonValue = None
    ended: bool = False


class ResponseDecoder(Decoder):
    """A decoder of a response, streamed or whole.

    Args:
        provider: the provider that reasoning is marked with.
    """

    def __init__(
        self, provider: str, /, *, whole: bool = False, max_answer: int = MAX_ANSWER
    ) -> None:
        super().__init__(whole=whole, max_answer=max_answer)
        self._provider = provider
        self._items: list[_OpenItem] = []
        self._by_id: dict[tuple[int | None, str], _OpenItem] = {}
        self._by_index: dict[int, _OpenItem] = {}
        self._text_size = 0
        self._calls = 0
        self._phase: str | None = None
        self._refused = False
        self._finish: FinishReason | None = None

    @property
    @override
    def done(self) -> bool:
        return self._finish is not None or super().done

    @property
    @override
    def finished(self) -> bool:
        return self.failure is None and self._finish is not None

    @override
    def _add_finish(self) -> None:
        for opened in self._items:
            self._end_item(opened, {})
        reason = self._finish or "stop"
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        elif reason == "stop" and self._refused:
            reason = "refusal"
        self._batch.add(Finish(reason))

    @override
    def _read_chunk(self, chunk: JsonDict) -> None:
        if self._finish is not None:
            return
        match chunk.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                self._read_text(chunk)
            case (
                "response.reasoning_summary_text.delta"
                | "response.reasoning_text.delta"
                | "response.reasoning.delta"
            ):
                self._read_reasoning(chunk)
            case "response.function_call_arguments.delta":
                if opened := self._find_item(chunk, "function_call"):
                    self._read_arguments(opened, chunk.get("delta"))
            case "response.output_item.added" | "response.output_item.done":
                self._read_item_event(chunk)
            case _:
                self._read_report(chunk)

    # ------------------------------------------------------------ the response
    def _read_report(self, chunk: JsonDict) -> None:
        """Read an event of the whole response, a response that is not streamed, or an error."""
        kind = chunk.get("type")
        # an error of a gateway has no type
        error = chunk if "error" in (kind, chunk.get("object")) else None
        if error is not None or (kind is None and chunk.get("error")):
            self._set_failure(reported_failure(chunk.get("error") or error))
            return
        is_whole = kind is None and chunk.get("object") == "response"
        response = chunk if is_whole else chunk.get("response")
        if not isinstance(response, dict):
            return
        self._read_usage(response.get("usage"))
        status = response.get("status")
        if isinstance(kind, str) and kind in _END_EVENTS:
            # the response itself may know better
            self._read_end(response, status if status in _ENDS else _END_EVENTS[kind])
        elif is_whole:
            self._read_end(response, status or "completed")

    def _read_usage(self, usage: JsonValue) -> None:
        if not isinstance(usage, dict) or not usage:
            return
        report = Usage(
            input_tokens=token_count(usage, "input_tokens"),
            output_tokens=token_count(usage, "output_tokens"),
            cached_tokens=token_count(usage, "input_tokens_details", "cached_tokens"),
            reasoning_tokens=token_count(usage, "output_tokens_details", "reasoning_tokens"),
        )
        self._batch.set_usage(report)

    def _read_end(self, response: JsonDict, status: JsonValue) -> None:
        match status:
            case "failed":
                self._set_failure(reported_failure(response.get("error")))
            case "cancelled":
                self._set_failure(ModelUnavailable("the model's service broke its answer off"))
            case "completed" | "incomplete":
                self._read_last_items(response)
                details = response.get("incomplete_details")
                reason = details.get("reason") if isinstance(details, dict) else None
                cut: FinishReason = "refusal" if reason in _REFUSALS else "length"
                self._finish = "stop" if status == "completed" else cut
            case _:
                pass  # it goes on without us, in the background

    def _read_last_items(self, response: JsonDict) -> None:
        """End the items that are open, and read those of a kind that the stream left out."""
        streamed = {opened.kind for opened in self._items}
        for index, item in enumerate(dicts_in(response.get("output"))):
            kind = str(item.get("type"))
            named: JsonDict = {"output_index": index, "item_id": item.get("id")}
            opened = self._find_item(named, kind)
            if opened is None and kind not in streamed:
                opened = self._start_item(index, item)
            if opened is not None:
                self._end_item(opened, item)

    # ------------------------------------------------------------ items
    # Services disagree about what names an item: for some only its id is right, and the index of
    # all is 0; some give it another id in each event, so that only the index is right.
    def _find_item(self, chunk: JsonDict, kind: str) -> _OpenItem | None:
        """Return the item that an event belongs to, or else the newest if it is open."""
        index, item_id = _index_in(chunk), usable_id(chunk.get("item_id"))
        found: _OpenItem | None = None
        if item_id is not None:
            found = self._by_id.get((index, item_id)) or self._by_id.get((None, item_id))
        if found is None and index is not None:
            found = self._by_index.get(index)
        if found is None and self._items and not self._items[-1].ended:
            found = self._items[-1]
        return found if found and found.kind == kind else None

    def _read_item_event(self, chunk: JsonDict) -> None:
        item = chunk.get("item")
        if not isinstance(item, dict):
            return
        index, item_id = _index_in(chunk), usable_id(item.get("id"))
        if chunk["type"] == "response.output_item.added":
            begun = self._by_id.get((index, item_id)) if item_id else None
            if begun is None or begun.ended:  # else its beginning is repeated
                self._start_item(index, item)
            return
        opened = self._find_item({**chunk, "item_id": item_id}, str(item.get("type")))
        if opened is None or (opened.ended and opened.id != item_id):  # it comes whole
            opened = self._start_item(index, item)
        if opened is not None:
            self._end_item(opened, item)

    def _start_item(self, index: int | None, item: Item) -> _OpenItem | None:
        """Return the item that begins; None for one of another kind, or if there are too many."""
        kind, item_id = item.get("type"), usable_id(item.get("id"))
        if not isinstance(kind, str) or kind not in _READ_KINDS:
            return None
        if len(self._items) == MAX_ITEMS:
            self._set_failure(ModelIncomplete("the model's answer makes no sense"))
            return None
        if kind == "function_call" and self._calls == MAX_CALLS:
            self._set_failure(ModelIncomplete("the model called too many tools at once"))
            return None
        opened = _OpenItem(kind, item_id, self._text_size, self._calls)
        self._items.append(opened)
        if index is not None:
            self._by_index[index] = opened
        if item_id is not None:
            self._by_id[index, item_id] = opened
            self._by_id.setdefault((None, item_id), opened)
        if kind == "function_call":
            self._calls += 1
            self._name_call(opened, item)
        elif kind == "message":
            self._read_phase(item)
        return opened

    def _end_item(self, opened: _OpenItem, item: Item) -> None:
        """End an item, once. What its pieces left out is in the `item`, its last event."""
        if opened.ended:
            return
        match opened.kind:
            case "function_call":
                if opened.name is None or opened.call_id is None:
                    self._name_call(opened, item)
                if not opened.pieces:
                    self._read_arguments(opened, item.get("arguments"))
            case "reasoning":
                self._add_reasoning_block(opened, item)
            case _ if not opened.pieces:
                for part in dicts_in(item.get("content")):
                    self._add_message_text(opened, part.get("text"))
                    self._add_message_text(opened, part.get("refusal"), is_refusal=True)
            case _:
                pass
        opened.ended = True

    # ------------------------------------------------------------ messages
    def _read_text(self, chunk: JsonDict) -> None:
        opened = self._find_item(chunk, "message")
        if opened is None:  # its beginning is missing
            opened = self._start_item(_index_in(chunk), {"type": "message"})
        if opened is not None:
            is_refusal = chunk["type"] == "response.refusal.delta"
            self._add_message_text(opened, chunk.get("delta"), is_refusal=is_refusal)

    def _add_message_text(
        self, opened: _OpenItem, piece: JsonValue, *, is_refusal: bool = False
    ) -> None:
        if not isinstance(piece, str) or not piece:
            return
        self._refused = self._refused or is_refusal
        # messages that follow each other are texts of their own
        between = _PARAGRAPH if not opened.pieces and self._text_size else ""
        opened.pieces[:] = (piece,)  # only whether there was one is asked
        self._text_size += len(between) + len(piece)
        self._add_text(between + piece)

    def _read_phase(self, item: Item) -> None:
        """Keep the phase of messages, which newer models want back, where it changes."""
        phase = usable_id(item.get("phase"))
        if phase != self._phase:
            self._phase = phase
            self._add_kept("", phase_marker(phase, self._text_size, self._calls))

    # ------------------------------------------------------------ reasoning
    def _read_reasoning(self, chunk: JsonDict) -> None:
        piece = chunk.get("delta")
        opened = self._find_item(chunk, "reasoning")
        if opened is None:
            opened = self._start_item(_index_in(chunk), {"type": "reasoning"})
        if opened is None or opened.ended or not isinstance(piece, str) or not piece:
            return
        part = chunk.get("summary_index", chunk.get("content_index"))
        is_next = bool(opened.pieces) and part != opened.part
        opened.part = part
        self._add_reasoning(opened, _PARAGRAPH + piece if is_next else piece)

    def _add_reasoning(self, opened: _OpenItem, text: str) -> None:
        opened.pieces.append(text)
        self.size += len(text)
        self._batch.add_text(ReasoningChunk, text)

    def _add_reasoning_block(self, opened: _OpenItem, item: Item) -> None:
        """Add an item of reasoning that has ended, as it is sent back.

        Encrypted, it goes back without its content, which the service would refuse. Services that
        do not encrypt it take the content. Without either it cannot be sent back.
        """
        summary, content = _texts_in(item.get("summary")), _texts_in(item.get("content"))
        if not opened.pieces and (texts := summary or content):
            self._add_reasoning(opened, _PARAGRAPH.join(texts))
        text = "".join(opened.pieces)
        encrypted = item.get("encrypted_content")
        kept: Item = {"type": "reasoning", "summary": _parts_of("summary_text", summary)}
        if (item_id := usable_id(item.get("id"))) is not None:
            kept["id"] = item_id
        size = sum(map(len, summary))
        if isinstance(encrypted, str) and encrypted:
            kept["encrypted_content"] = encrypted
            size += len(encrypted)
        elif content:
            kept["content"] = _parts_of("reasoning_text", content)
            size += sum(map(len, content))
        elif text:
            self._batch.add(ReasoningBlock(Reasoning(text, self._provider)))
            return
        else:
            return
        self.size += max(0, size - len(text))
        self._add_kept(text, KeptItem(kept, opened.text, opened.calls))

    def _add_kept(self, text: str, kept: KeptItem) -> None:
        self._batch.add(ReasoningBlock(Reasoning(text, self._provider, kept.dump())))

    # ------------------------------------------------------------ calls
    def _name_call(self, opened: _OpenItem, item: Item) -> None:
        """Begin a call, or add to its beginning what came late."""
        given = item.get("name")
        name = given if isinstance(given, str) and given and opened.name is None else None
        call_id = usable_id(item.get("call_id")) if opened.call_id is None else None
        opened.name, opened.call_id = opened.name or name, opened.call_id or call_id
        self.size += len(name or "")
        self._batch.add(ToolCallChunk(opened.calls, call_id, name))

    def _read_arguments(self, opened: _OpenItem, piece: JsonValue) -> None:
        if isinstance(piece, str) and piece and not opened.ended:
            opened.pieces[:] = (piece,)  # only whether there was one is asked
            self.size += len(piece)
            self._batch.add(ToolCallChunk(opened.calls, arguments=piece))


def _index_in(chunk: JsonDict) -> int | None:
    index = chunk.get("output_index")
    return index if isinstance(index, int) else None


def _texts_in(parts: JsonValue) -> Sequence[str]:
    return [text for part in dicts_in(parts) if isinstance(text := part.get("text"), str)]


def _parts_of(kind: str, texts: Sequence[str]) -> JsonValue:
    return [{"type": kind, "text": text} for text in texts]
