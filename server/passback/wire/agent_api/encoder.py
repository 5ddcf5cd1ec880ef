"""Encoder of run events as the events of one response. No I/O.

It keeps the whole answer in memory, because the protocol repeats it in the last event.
"""

import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from typing import Final, TypeAlias, assert_never

from passback.builders import Event, ResponseBuilder, encode
from passback.core.errors import CursorExpired, InvalidCursor
from passback.core.events import (
    Cancelled,
    Completed,
    Cursor,
    Failed,
    HandedBack,
    Logged,
    Nested,
    Outcome,
    OutputAccepted,
    Position,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    CallId,
    Owed,
    RunRef,
    Usage,
    add_usages,
    as_text,
)
from passback.core.runs import Runs
from passback.native.earlier import Calls
from passback.streams.frames import EventId, SseEncoder
from passback.wire.agent_api.tracks import (
    CallTrack,
    MessageTrack,
    TextTrack,
    TrackQueue,
    WholeTrack,
)


async def refuse_invented_event(
    runs: Runs, run: RunRef, since: EventId, encoder: SseEncoder, /
) -> None:
    """Refuse an event id that this server did not send.

    One run event becomes several frames, and the id has the number of those that the client has. An
    event with no more frames than that would have had another id.

    Args:
        runs: reads the run's log.
        run: the run.
        since: the id.
        encoder: a fresh one; it is fed the run's events.

    Raises:
        InvalidCursor: this server did not send the id, or the run cannot be followed from there.
        UnknownRun, CursorExpired: there is nothing to follow.
    """
    async with runs.follow(run) as batches:
        frames = await _count_frames(batches, since.cursor.position, encoder)
    if since.frames >= frames:
        raise InvalidCursor("the event id is not one that this server gave")


async def _count_frames(
    batches: AsyncIterator[Sequence[Logged]], place: Position, encoder: SseEncoder
) -> float:
    """Return how many frames the first event after a position has.

    Infinite if another worker has taken the run over since: the log does not say how many the old
    worker's event had.
    """
    async for batch in batches:
        for position, event in batch:
            frames = encoder.feed(event)
            if position > place:
                return len(frames) if position.epoch == place.epoch else float("inf")
    return 0


_CallEvent: TypeAlias = ToolCallStarted | ToolCallArguments | ToolCallEnded | ToolResulted

# upper bound of the average frames of a log event: a message begins and ends with two each
MOST_FRAMES: Final = 8


class AgentEncoder:
    """Encoder of one response. Implements `SseEncoder`, with a memory, and `Gatherer`.

    Args:
        session_id: id of the conversation.
        response_id: id of the response.
        known: calls that were made before this run.
        mcp_servers: names of MCP servers. Their tools' names begin with them.
        most: characters of an answer, at most.
        seen: for a client that comes back: events of the run's log that it has seen, at most.
        clock: returns seconds since 1970.
    """

    def __init__(
        self,
        session_id: str,
        response_id: str,
        *,
        known: Calls | None = None,
        mcp_servers: Collection[str] = (),
        most: int = 16 * 1024 * 1024,
        seen: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.chars = 0
        self._response = ResponseBuilder(session_id, response_id, clock=clock)
        self._tracks = TrackQueue[MessageTrack]()
        self._words: TextTrack | None = None
        self._calls: dict[CallId, CallTrack] = {}
        self._known = known or {}
        self._mcp_servers = mcp_servers
        self._most_chars = most
        self._seen = seen
        self._turn = response_id
        self._text_count = 0
        self._usage: Usage | None = None
        self._final: Event | Failed = {}

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        """Return the frames of an event.

        Raises:
            CursorExpired: the answer is longer than one response may be.
        """
        if isinstance(event, TextDelta):
            return self._add_text("message", event.text)
        if isinstance(event, ReasoningDelta):
            return self._add_text("reasoning", event.text)
        if isinstance(event, RunQueued | RunStarted):
            return self._begin_response(event)
        if isinstance(event, RunFinished):
            return self._finish_response(event.outcome, event.model)
        self._feed_other(event)
        return self._send_ready()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        # The protocol cannot take back what was sent. The log has no trace of void events, but
        # their sequence numbers were sent and must not come again.
        self._response.skip_numbers(self._seen * MOST_FRAMES)
        return ()

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return self._finish_response(failed)

    def end(self) -> Sequence[str]:
        return ()  # the response's last event ends the stream

    def document(self, last: Cursor, /) -> Mapping[str, object] | Failed:
        return self._final

    def _add_text(self, kind: str, text: str) -> Sequence[str]:
        self._count_chars(text)
        words = self._words
        if words is not None and words.type == kind:
            if self._tracks.is_first(words):  # the common case: no other message is sent
                return (words.encode_delta(text),)
            words.add_text(text)
            return ()
        self._end_text()
        self._text_count += 1
        place = "" if self._text_count == 1 else f"_{self._text_count}"
        self._words = words = TextTrack(self._response, f"{self._turn}{place}", kind)
        words.add_text(text)
        self._tracks.add(words)
        return self._send_ready()

    def _end_text(self) -> None:
        """End the message of text: text that follows begins another one."""
        if self._words is not None:
            self._words.done, self._words = True, None

    def _count_chars(self, text: str) -> None:
        self.chars += len(text)
        if self.chars > self._most_chars:
            raise CursorExpired(
                "this answer is too long for one response: read it from the conversation's messages"
            )

    def _feed_other(self, event: RunEvent) -> None:
        match event:
            case TurnStarted(message_id):
                self._end_text()
                self._turn, self._text_count = message_id, 0
            case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | ToolResulted():
                self._feed_call(event, None)
            case Nested(call_id, inner):
                self._feed_nested(call_id, inner)
            case UsageReported(usage):
                self._usage = add_usages(self._usage, usage)
                if self._words is not None and self._words.usage is None:
                    self._words.usage = _usage_view(usage)
            case OutputAccepted(value):
                self._end_text()
                data: Event = value if isinstance(value, dict) else {"value": value}
                self._tracks.add(
                    WholeTrack(self._response, f"{self._turn}_output", "message", "assistant", data)
                )
            case _:  # the protocol has no event for it
                pass

    def _feed_nested(self, parent: CallId, event: RunEvent) -> None:
        """Show a sub-agent's calls and count its usage. Its text is not part of the answer."""
        match event:
            case Nested(call_id, inner):
                self._feed_nested(call_id, inner)
            case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | ToolResulted():
                self._feed_call(event, {"parent_call_id": parent})
            case UsageReported(usage):
                self._usage = add_usages(self._usage, usage)
            case _:
                pass

    def _feed_call(self, event: _CallEvent, metadata: Event | None) -> None:
        self._end_text()
        call_id = event.call_id
        match event:
            case ToolCallStarted(_, name, client):
                self._start_call(call_id, name, client, metadata)
            case ToolCallArguments(_, delta):
                self._count_chars(delta)
                self._calls[call_id].add_arguments(delta)
            case ToolCallEnded():
                known = self._known.get(call_id)
                # an approved call, which an earlier run asked for: this run has only its end
                if known is not None and call_id not in self._calls:
                    made = self._start_call(call_id, known.name, known.client, metadata)
                    made.add_arguments(known.arguments)
                if call := self._calls.get(call_id):
                    call.done = True
            case ToolResulted():
                self._feed_result(event, metadata)
            case _:
                assert_never(event)

    def _start_call(
        self, call_id: CallId, name: str, client: bool, metadata: Event | None
    ) -> CallTrack:
        label = self._server_label(name)
        kind = "function_call" if client else "mcp_call" if label else "plugin_call"
        data: Event = {"call_id": call_id, "name": name}
        if kind == "mcp_call":
            data["server_label"] = label
        call = CallTrack(self._response, f"msg_{call_id}", kind, data, metadata)
        self._calls[call_id] = call
        self._tracks.add(call)
        return call

    def _server_label(self, name: str) -> str:
        """Return the MCP server whose tool has this name, or an empty text."""
        return next((each for each in self._mcp_servers if name.startswith(f"{each}__")), "")

    def _feed_result(self, result: ToolResulted, metadata: Event | None) -> None:
        call_id = result.call_id
        call = self._calls.get(call_id)
        if call is not None and not call.done:
            # a result before the end of the arguments: they are not valid, nothing was executed
            call.stop_early("rejected")
        data: Event = {"call_id": call_id}
        if call is not None:
            data["name"], kind = call.data["name"], f"{call.type}_output"
        elif known := self._known.get(call_id):
            label = self._server_label(known.name)
            data["name"], kind = known.name, "mcp_call_output" if label else "plugin_call_output"
        else:
            kind = "plugin_call_output"
        output = as_text(result.content, media=lambda part: part.url)
        self._count_chars(output)
        whole: Event = {**data, "output": output}
        if result.is_error:
            whole["is_error"] = True
        if result.synthetic:
            whole["synthetic"] = result.synthetic
        first: Event = {**data, "output": ""}
        self._tracks.add(
            WholeTrack(
                self._response,
                f"msg_{call_id}_output",
                kind,
                "tool",
                whole,
                first=first,
                metadata=metadata,
            )
        )

    def _begin_response(self, event: RunQueued | RunStarted | None = None) -> Sequence[str]:
        frames: list[str] = []
        if self._response.status == "new":
            frames.append(encode(self._response.created()))
        if isinstance(event, RunQueued):
            frames.append(encode(self._response.queued()))
        elif self._response.status != "in_progress":
            frames.append(encode(self._response.in_progress()))
        return frames

    def _send_ready(self) -> Sequence[str]:
        """Return the events that may be sent, those of the response's begin before them."""
        if not self._tracks:
            return ()
        begun = () if self._response.status == "in_progress" else self._begin_response()
        return [*begun, *self._tracks.ready_events()]

    def _finish_response(self, outcome: Outcome, model: str = "") -> Sequence[str]:
        if isinstance(outcome, Completed | HandedBack) and outcome != Completed("max_tokens"):
            self._end_text()
        # what is still open was interrupted: a text that is complete was ended above
        for track in self._tracks:
            if not track.done:
                track.stop_early("incomplete")
        if isinstance(outcome, HandedBack):
            self._add_requests(outcome.owed)
        frames = [*self._send_ready()]
        # a response may fail or be cancelled while it is queued, but completes in progress only
        if self._response.status == "new" or isinstance(outcome, Completed | HandedBack):
            frames += self._begin_response()
        final = {**self._terminal_event(outcome), **({"model": model} if model else {})}
        self._final = outcome if isinstance(outcome, Failed) else final
        return (*frames, encode(final))

    def _add_requests(self, owed: Sequence[Owed]) -> None:
        for each in owed:
            if each.kind == "approval":
                data: Event = {
                    "id": each.id,
                    "name": each.name,
                    "arguments": each.arguments,
                    "server_label": self._server_label(each.name),
                    **({"reason": each.reason} if each.reason else {}),
                }
                metadata = _parent_metadata(each)
                self._tracks.add(
                    WholeTrack(
                        self._response,
                        f"msg_{each.id}_approval",
                        "mcp_approval_request",
                        "assistant",
                        data,
                        metadata=metadata,
                    )
                )
            elif each.id not in self._calls:  # an earlier run made it: this response lacks it
                call = self._start_call(
                    each.id, each.name, client=True, metadata=_parent_metadata(each)
                )
                call.add_arguments(each.arguments)
                call.done = True

    def _terminal_event(self, outcome: Outcome) -> Event:
        usage = None if self._usage is None else _usage_view(self._usage)
        response = self._response
        match outcome:
            case HandedBack(owed):
                return response.completed(usage=usage, metadata=requires_action(owed))
            case Completed("end_turn"):
                return response.completed(usage=usage)
            case Completed("refusal"):
                return response.rejected(usage=usage)
            case Completed(reason):
                return response.incomplete(usage=usage, metadata={"reason": reason})
            case Cancelled():
                return response.canceled(usage=usage)
            case Failed(code, message, retryable, retry_after):
                more: Event = {"retryable": retryable}
                if retry_after is not None:
                    more["retry_after"] = retry_after
                return response.failed(code, message, usage=usage, **more)
            case _:
                assert_never(outcome)


def requires_action(owed: Sequence[Owed], /) -> Event:
    """Return the response metadata that names the calls the client has to answer."""
    return {"requires_action": [each.id for each in owed]}


def _parent_metadata(owed: Owed) -> Event | None:
    return None if owed.parent_id is None else {"parent_call_id": owed.parent_id}


def _usage_view(usage: Usage) -> Event:
    view: Event = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    return view | ({"estimated": True} if usage.estimated else {})
