"""Joining the pieces in which a text, or the arguments of a call, are said."""

from collections.abc import Sequence

from passback.core.events import ReasoningDelta, RunEvent, TextDelta, ToolCallArguments


def stream_of(event: RunEvent, /) -> object:
    """Return what is equal for events that `join` may join, None for one that stands alone."""
    if isinstance(event, ToolCallArguments):
        return event.call_id
    return type(event) if isinstance(event, TextDelta | ReasoningDelta) else None


def join(events: Sequence[RunEvent], /) -> RunEvent:
    """Return neighbouring pieces of one stream as one event; what stands alone is that event."""
    first = events[0]
    if len(events) == 1:
        return first
    if isinstance(first, ToolCallArguments):
        deltas = [event.delta for event in events if isinstance(event, ToolCallArguments)]
        return ToolCallArguments(first.call_id, "".join(deltas))
    texts = [event.text for event in events if isinstance(event, TextDelta | ReasoningDelta)]
    kind = TextDelta if isinstance(first, TextDelta) else ReasoningDelta
    return kind("".join(texts))
