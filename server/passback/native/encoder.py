"""The encoder of the native events of `/send-message`, which several routes share."""

import json
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, TypeAlias

from passback.core.events import (
    Compacted,
    ContextWarned,
    Cursor,
    Failed,
    HandedBack,
    Nested,
    OutputAccepted,
    PlanUpdated,
    ReasoningDelta,
    Rewound,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import CallId
from passback.native import shapes
from passback.native.shapes import NativeEvent

# Events that a request may ask for beyond the protocol's own ones.
INCLUDABLE = frozenset(
    {
        *("agents", "context", "message-ids", "output", "owed", "plan", "progress"),
        *("reasoning", "rewind", "run", "usage"),
    }
)

DONE = "[DONE]"

ALWAYS: Final = ""

_Convert: TypeAlias = Callable[[Any], NativeEvent]

# Events that become one native event each: the word of `INCLUDABLE` that a request needs for it,
# and the function that converts it.
CONVERSIONS: Mapping[type[RunEvent], tuple[str, _Convert]] = {
    ToolCallStarted: (ALWAYS, shapes.tool_call_start),
    ToolCallArguments: (ALWAYS, shapes.tool_call_args),
    ToolCallEnded: (ALWAYS, shapes.tool_call_end),
    ToolResulted: (ALWAYS, shapes.tool_result),
    RunQueued: ("run", shapes.run_queued),
    RunStarted: ("run", shapes.run_start),
    OutputAccepted: ("output", shapes.accepted_output),
    TurnStarted: ("message-ids", shapes.message_start),
    ReasoningDelta: ("reasoning", shapes.reasoning),
    ToolProgressed: ("progress", shapes.tool_progress),
    PlanUpdated: ("plan", shapes.plan),
    UsageReported: ("usage", shapes.usage),
    ContextWarned: ("context", shapes.context_warning),
    Compacted: ("context", shapes.compaction),
}

_encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def native_data(event: Mapping[str, object], /) -> str:
    """Return a native event as one line of ASCII."""
    return _encode_json(event)


class NativeEncoder:
    """Encodes run events as native ones. It keeps no state: a stream may begin anywhere in a run.

    Args:
        include: words of `INCLUDABLE`.
    """

    def __init__(self, include: frozenset[str] = frozenset()) -> None:
        self._include = include | {ALWAYS}

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        match event:
            case TextDelta():  # most events are text: written by hand, which is faster
                return (f'{{"type":"text","content":{quoted(event.text)}}}',)
            case RunFinished():
                return [native_data(native) for native in self._ending_events(event)]
            case Nested(call_id, inner):
                return self._feed_nested(call_id, inner)
            case Rewound():  # `rewind` encodes it
                return ()
            case _:
                word, convert = CONVERSIONS[type(event)]
                return (native_data(convert(event)),) if word in self._include else ()

    def _feed_nested(self, parent: CallId, event: RunEvent) -> Sequence[str]:
        """Return the data of a sub-agent's event, if it is included.

        Its calls are sent as all others. Its text is no part of the answer, and has to be asked
        for.
        """
        match event:
            case Nested(call_id, inner):
                return self._feed_nested(call_id, inner)
            case TextDelta(text):
                needed: set[str] = {"agents"}
                native: Mapping[str, object] = shapes.agent_text(text, parent)
            case RunQueued() | RunStarted() | OutputAccepted() | RunFinished() | Rewound():
                return ()  # that run is not one of the client's
            case _:
                word, convert = CONVERSIONS[type(event)]
                # usage even without `agents`, or a sum of it would be too small
                needed = {word} if word in (ALWAYS, "usage") else {word, "agents"}
                native = {**convert(event), "parentToolCallId": parent}
        return (native_data(native),) if needed <= self._include else ()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        if "rewind" not in self._include:
            return ()
        return (native_data(shapes.rewind(to)),)

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return (native_data(shapes.error(failed)),)

    def end(self) -> Sequence[str]:
        return (DONE,)

    def _ending_events(self, end: RunFinished) -> list[NativeEvent]:
        outcome = end.outcome
        endings: list[NativeEvent] = []
        if isinstance(outcome, Failed):
            endings.append(shapes.error(outcome))
        if isinstance(outcome, HandedBack):
            # approvals are among the protocol's own events, other calls have to be included
            endings.extend(
                shapes.interrupt(each) for each in outcome.owed if each.kind == "approval"
            )
            if "owed" in self._include:
                endings.append(shapes.owed_event(outcome.owed))
        if "run" in self._include:
            endings.append(shapes.run_end(end))
        return endings
