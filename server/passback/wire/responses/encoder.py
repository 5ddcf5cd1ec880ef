"""Encoder of run events as the events of one response. No I/O.

Each event has the next number, and a worker that takes the run over begins at the next million: so
a client reads on behind a number, and a replay of the log gives every event its number again. The
response keeps what it has said, because the protocol repeats it in the last event.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, Literal, assert_never

from typing_extensions import override

from passback.core.errors import CursorExpired
from passback.core.events import (
    START,
    Completed,
    Cursor,
    Failed,
    HandedBack,
    Outcome,
    OutputAccepted,
    Position,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallStarted,
    ToolResulted,
    TurnEnded,
    TurnStarted,
    UsageReported,
    innermost_event,
)
from passback.core.messages import (
    CallId,
    JsonObject,
    MessageId,
    Owed,
    RunId,
    Usage,
    add_usages,
)
from passback.native.earlier import Calls
from passback.streams.frames import PlacedEncoder
from passback.wire.responses.items import (
    Item,
    accepted_text,
    final_text,
    is_cut,
    item_id,
    message_item,
    owed_item,
    reasoning_item,
    refusal_id,
    refusal_part,
    response_object,
    server_call_item,
    status_of,
    text_part,
    with_result,
)

DONE: Final = "[DONE]"
LEASE_NUMBERS: Final = 1_000_000
"""The numbers of the events of one lease, at most; those of the next one follow them."""

_CLOSING_EVENTS: Final = 3  # of a message, and of a reasoning
REFUSED: Final = "The model refuses to answer."
_encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def frame_data(data: str, /) -> str:
    """Return a server-sent event from what the encoder gives: its type and its JSON, or `DONE`."""
    return f"data: {DONE}\n\n" if data == DONE else f"event: {data}\n\n"


def frame_event(_event_id: str, data: str, /) -> str:
    """Return the same, for a stream: its events have no ids."""
    return frame_data(data)


class _Text:
    """A message, or a reasoning, that is being sent."""

    def __init__(self, kind: Literal["msg", "rs"], identity: str, index: int) -> None:
        self.kind = kind
        self.id = identity
        self.index = index
        self.pieces: list[str] = []
        place = f'"item_id":{quoted(identity)},"output_index":{index}'
        name, more = (
            ("response.output_text.delta", ',"content_index":0,"logprobs":[]')
            if kind == "msg"
            else ("response.reasoning_summary_text.delta", ',"summary_index":0')
        )
        # most events are deltas: written by hand, which is faster
        self.head = f'{name}\ndata: {{"type":"{name}",{place}{more},"delta":'


class _ServerCall:
    """A call that the server makes."""

    def __init__(self, name: str, arguments: str = "") -> None:
        self.name = name
        self.arguments = arguments


class ResponseEncoder(PlacedEncoder):
    """Encoder of one response, also a `Gatherer`.

    Attributes:
        number: of the next event.

    Args:
        run_id: of the run.
        note: what the request has asked for, as `reading.note_of` gives it.
        known: calls that were made before this run.
        mcp_servers: names of MCP servers. Their tools' names begin with them.
        most: characters of a response, at most.
        after: the number of the last event that the client has; -1: it has none.
    """

    def __init__(
        self,
        run_id: RunId,
        note: JsonObject,
        *,
        known: Calls | None = None,
        mcp_servers: Collection[str] = (),
        most: int = 16 * 1024 * 1024,
        after: int = -1,
    ) -> None:
        self.chars = 0
        self._run_id = run_id
        self._note = note
        self._servers = mcp_servers
        self._most_chars = most
        self._after = after
        self._holds_text = wants_schema(note)
        self.number = 0
        self._place = START
        self._first_epoch: int | None = None  # of the worker that began the run
        self._frames: list[str] = []
        self._begun = False
        self._added = 0  # items that were announced
        self._items: list[tuple[Position, Item]] = []
        self._usage: list[tuple[Position, Usage]] = []
        self._ended: list[tuple[Position, int]] = []  # turns, and when they ended in milliseconds
        self._turn = MessageId(run_id)
        self._begun_at = 0
        self._texts: dict[str, int] = {}  # of this turn, by kind
        self._held: list[str] = []  # the text of this turn, which may be a draft
        # of the open text, when its turn has ended: the number and the place of its end
        self._ending: tuple[int, Position] | None = None
        self._open: _Text | None = None
        self._calls = {
            call.id: _ServerCall(call.name, call.arguments)
            for call in (known or {}).values()
            if not call.client
        }
        self._live: tuple[CallId, int] | None = None  # the call that is shown, and its place
        self._waiting: list[ToolResulted] = []  # of calls that are shown behind it
        self._final: Item | Failed = {}

    # ---------------------------------------------------------------- the encoder
    @override
    def feed_at(self, position: Position, event: RunEvent, /) -> Sequence[str]:
        """Return the events of a run event.

        Raises:
            CursorExpired: the response is longer than one may be.
        """
        if isinstance(event, RunStarted):
            self._first_epoch = position.epoch
        elif self._first_epoch is not None and position.epoch != self._place.epoch:
            # not by counting: a replay does not show the workers whose events are all void
            leases = position.epoch - self._first_epoch
            self.number = max(self.number, leases * LEASE_NUMBERS)
        self._place = position
        return self.feed(event)

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        """Return the events of a run event, for readers without a place. Raises as `feed_at`."""
        if isinstance(event, TextDelta):
            if self._holds_text:
                self._count(event.text)
                self._held.append(event.text)
            else:
                self._add_text("msg", event.text)
        elif isinstance(event, ReasoningDelta):
            self._add_text("rs", event.text)
        else:
            self._feed_other(event)
        return self._take()

    @override
    def rewind(self, to: Cursor, /) -> Sequence[str]:
        """Take back what is void: an item that goes on ends, and is no part of the response."""
        kept = to.position
        if kept == START:  # the beginning is lost, too
            return ()
        self._close_text(cut=self._ending is None or self._ending[1] > kept)
        self._stop_calls()
        self._items = [each for each in self._items if each[0] <= kept]
        self._usage = [each for each in self._usage if each[0] <= kept]
        self._ended = [each for each in self._ended if each[0] <= kept]
        self._send("response.in_progress", {"response": self._response("in_progress")})
        return self._take()

    @override
    def fail(self, failed: Failed, /) -> Sequence[str]:
        self._finish(failed)
        return self._take()

    @override
    def end(self) -> Sequence[str]:
        return (DONE,)

    def document(self, last: Cursor, /) -> Mapping[str, object] | Failed:
        return self._final

    def _take(self) -> Sequence[str]:
        frames, self._frames = self._frames, []
        return frames

    def _send(self, kind: str, body: Mapping[str, Any]) -> None:
        """Send an event, unless the client has it already."""
        if self.number > self._after:
            event = {"type": kind, "sequence_number": self.number, **body}
            self._frames.append(f"{kind}\ndata: {_encode_json(event)}")
        self.number += 1

    # ---------------------------------------------------------------- the response
    def _feed_other(self, event: RunEvent) -> None:
        match event:
            case RunQueued():
                self._begin("queued")
                self._send("response.queued", {"response": self._response("queued")})
            case RunStarted():
                self._begin("in_progress")
                self._send("response.in_progress", {"response": self._response("in_progress")})
            case RunFinished(outcome):
                self._finish(outcome)
            case ToolCallStarted() | ToolCallArguments() | ToolBegan() | ToolResulted():
                self._feed_call(event)
            case TurnStarted() | TurnEnded() | OutputAccepted():
                self._feed_turn(event)
            case _:
                if isinstance(reported := innermost_event(event), UsageReported):
                    self._usage.append((self._place, reported.usage))

    def _feed_turn(self, event: TurnStarted | TurnEnded | OutputAccepted) -> None:
        match event:
            case TurnStarted(message_id, started):
                self._close_text(cut=self._ending is None)
                self._turn, self._begun_at, self._texts = message_id, started, {}
                self._held = []
            case TurnEnded():
                self._ended.append((self._place, self._begun_at + event.duration))
                if self._open is not None:
                    # only what comes next tells whether it was cut; its numbers are fixed here,
                    # because a worker's next turn may become void
                    self._ending = self.number, self._place
                    self.number += _CLOSING_EVENTS
            case OutputAccepted(value):
                if self._holds_text:  # otherwise it was shown as it came
                    self._held = [accepted_text(value)]
            case _:
                assert_never(event)

    def _feed_call(
        self, event: ToolCallStarted | ToolCallArguments | ToolBegan | ToolResulted
    ) -> None:
        match event:
            case ToolCallStarted(call_id, name, client):
                if not client:
                    self._calls[call_id] = _ServerCall(name)
            case ToolCallArguments(call_id, delta):
                if call_id in self._calls:
                    self._calls[call_id].arguments += delta
            case ToolBegan(call_id):
                self._begin_call(call_id)
            case ToolResulted():
                self._end_call(event)
            case _:
                assert_never(event)

    def _begin(self, status: str) -> None:
        if not self._begun:
            self._begun = True
            self._send("response.created", {"response": self._response(status)})

    def _finish(self, outcome: Outcome) -> None:
        status = status_of(outcome)
        self._begin("in_progress")
        # a turn that an earlier worker ended is whole, whatever ends the run
        is_whole = self._ending is not None and self._ending[1].epoch < self._place.epoch
        self._close_text(cut=is_cut(outcome) and not is_whole)
        self._stop_calls(waits=isinstance(outcome, HandedBack))
        match outcome:
            case HandedBack(owed):
                for call in owed:
                    self._add_owed(call)
            case Completed(reason):
                self._end_answer(reason)
            case _:
                pass
        response = self._response(status, outcome)
        self._final = outcome if isinstance(outcome, Failed) else response
        # there is no event of its own for a cancelled response
        last = status if status in {"completed", "failed"} else "incomplete"
        self._send(f"response.{last}", {"response": response})

    def _end_answer(self, reason: str) -> None:
        """Send what was held back of the last turn, or that the model refuses to answer."""
        held = final_text("".join(self._held))
        if reason == "refusal" and "msg" not in self._texts:
            self._add_refusal(held or REFUSED)
        elif reason == "end_turn" and held:
            self._show_text("msg", held)
            self._close_text()

    def _response(self, status: str, outcome: Outcome | None = None) -> Item:
        usage: Usage | None = None
        for _, each in self._usage:
            usage = add_usages(usage, each)
        return response_object(
            self._run_id,
            self._note,
            status=status,
            output=[item for _, item in self._items],
            outcome=outcome,
            usage=usage if outcome and usage and not usage.is_nothing else None,
            completed=self._ended[-1][1] // 1000 if self._ended else None,
        )

    # ---------------------------------------------------------------- text and reasoning
    def _count(self, text: str) -> None:
        self.chars += len(text)
        if self.chars > self._most_chars:
            raise CursorExpired(
                "this answer is too long for one response: read it from the conversation's messages"
            )

    def _add_text(self, kind: Literal["msg", "rs"], text: str) -> None:
        self._count(text)
        self._show_text(kind, text)

    def _show_text(self, kind: Literal["msg", "rs"], text: str) -> None:
        shown = self._open
        if shown is None or shown.kind != kind or self._ending is not None:
            self._close_text()
            shown = self._open_text(kind)
        shown.pieces.append(text)
        if self.number > self._after:
            self._frames.append(f'{shown.head}{quoted(text)},"sequence_number":{self.number}}}')
        self.number += 1

    def _open_text(self, kind: Literal["msg", "rs"]) -> _Text:
        count = self._texts[kind] = self._texts.get(kind, 0) + 1
        self._open = shown = _Text(kind, item_id(kind, self._turn, count), self._added)
        if kind == "msg":
            self._announce(message_item(shown.id, "in_progress", ()))
            name, place = "response.content_part.added", {"content_index": 0}
            part = text_part("")
        else:
            self._announce(reasoning_item(shown.id, None))
            name, place = "response.reasoning_summary_part.added", {"summary_index": 0}
            part = {"type": "summary_text", "text": ""}
        self._send(name, {"item_id": shown.id, "output_index": shown.index, **place, "part": part})
        return shown

    def _close_text(self, *, cut: bool = False) -> None:
        """End the message, or the reasoning, that goes on: what follows begins another one."""
        shown, self._open = self._open, None
        ending, self._ending = self._ending, None
        if shown is None:
            return
        here = self.number, self._place
        if ending is not None:
            self.number, self._place = ending
        self._send_end(shown, "incomplete" if cut else "completed")
        if ending is not None:
            self.number, self._place = here

    def _send_end(self, shown: _Text, status: str) -> None:
        """Send the `_CLOSING_EVENTS` of a text."""
        text = "".join(shown.pieces)
        place = {"item_id": shown.id, "output_index": shown.index}
        if shown.kind == "msg":
            at = {**place, "content_index": 0}
            part = text_part(text)
            self._send("response.output_text.done", {**at, "text": text, "logprobs": []})
            self._send("response.content_part.done", {**at, "part": part})
            item = message_item(shown.id, status, [part])
        else:
            at = {**place, "summary_index": 0}
            item = reasoning_item(shown.id, text)
            self._send("response.reasoning_summary_text.done", {**at, "text": text})
            self._send("response.reasoning_summary_part.done", {**at, "part": item["summary"][0]})
        self._complete(item, shown.index)

    def _add_refusal(self, text: str) -> None:
        identity, index = refusal_id(self._run_id), self._added
        self._announce(message_item(identity, "in_progress", ()))
        at = {"item_id": identity, "output_index": index, "content_index": 0}
        self._send("response.content_part.added", {**at, "part": refusal_part("")})
        self._send("response.refusal.delta", {**at, "delta": text})
        self._send("response.refusal.done", {**at, "refusal": text})
        part = refusal_part(text)
        self._send("response.content_part.done", {**at, "part": part})
        self._complete(message_item(identity, "completed", [part]), index)

    # ---------------------------------------------------------------- calls
    def _add_owed(self, call: Owed) -> None:
        """Send the whole call, or the request for approval: what may still be void is not shown."""
        item, index = owed_item(call, self._servers), self._added
        if item["type"] == "function_call":
            self._announce({**item, "status": "in_progress", "arguments": ""})
            self._send_arguments("function_call_arguments", item, index, {"name": item["name"]})
        else:
            self._announce(item)
        self._complete(item, index)

    def _begin_call(self, call_id: CallId) -> None:
        """Show a call of the server's while it works; of several at once, the first one."""
        call = self._calls.get(call_id)
        if call is None or self._live is not None:
            return
        self._live = call_id, self._announce_call(call_id, call)

    def _end_call(self, result: ToolResulted) -> None:
        call = self._calls.get(result.call_id)
        if call is None:  # a call of the client's
            return
        is_live = self._live is not None and self._live[0] == result.call_id
        if result.synthetic == "invalid" and not is_live:  # it was never a call
            return
        if self._live is not None and not is_live:
            self._waiting.append(result)
            return
        index = self._announce_call(result.call_id, call) if self._live is None else self._live[1]
        self._live = None
        self._complete_call(result.call_id, call, result, index)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._end_call(each)

    def _stop_calls(self, *, waits: bool = False) -> None:
        """End the call that is shown, whose result will not come, and show those behind it.

        `waits`: it comes in a later run, because its sub-agent waits for the client.
        """
        if self._live is not None:
            call_id, index = self._live
            call, self._live = self._calls[call_id], None
            if waits:
                item = server_call_item(call_id, call.name, call.arguments, self._servers)
                self._complete({**item, "status": "incomplete"}, index)
            else:
                self._complete_call(call_id, call, None, index)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._end_call(each)

    def _complete_call(
        self, call_id: CallId, call: _ServerCall, result: ToolResulted | None, index: int
    ) -> None:
        item = server_call_item(call_id, call.name, call.arguments, self._servers)
        item = with_result(item, None if result is None else result.content, _is_error(result))
        at = {"item_id": item["id"], "output_index": index}
        self._send(f"response.mcp_call.{item['status']}", at)
        self._complete(item, index)

    def _announce_call(self, call_id: CallId, call: _ServerCall) -> int:
        self._close_text()
        index = self._added
        item = server_call_item(call_id, call.name, call.arguments, self._servers)
        self._announce({**item, "arguments": ""})
        self._send("response.mcp_call.in_progress", {"item_id": item["id"], "output_index": index})
        self._send_arguments("mcp_call_arguments", item, index, {})
        return index

    def _send_arguments(self, kind: str, item: Item, index: int, more: Mapping[str, Any]) -> None:
        at = {"item_id": item["id"], "output_index": index}
        self._send(f"response.{kind}.delta", {**at, "delta": item["arguments"]})
        self._send(f"response.{kind}.done", {**at, **more, "arguments": item["arguments"]})

    # ---------------------------------------------------------------- items
    def _announce(self, item: Item) -> None:
        self._send("response.output_item.added", {"output_index": self._added, "item": item})
        self._added += 1

    def _complete(self, item: Item, index: int) -> None:
        self._send("response.output_item.done", {"output_index": index, "item": item})
        self._items.append((self._place, item))


def _is_error(result: ToolResulted | None) -> bool:
    return result is None or result.is_error


def wants_schema(note: JsonObject, /) -> bool:
    """Return whether the answer has to be JSON. Its text is shown once it is accepted."""
    text = note.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return isinstance(form, dict) and form.get("type") != "text"
