"""From the data of server-sent events to `Event` values."""

from collections.abc import Callable, Mapping

from passback_client.events import (
    AgentText,
    ContextUse,
    Event,
    Failure,
    Interrupt,
    JsonObject,
    Left,
    MessageStart,
    Output,
    Owed,
    OwedCall,
    Plan,
    PlanEntry,
    Reasoning,
    Rewind,
    RunEnd,
    RunQueued,
    RunStart,
    Text,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolProgress,
    ToolResult,
    Unknown,
    Usage,
)
from passback_client.fields import (
    as_object,
    count,
    objects,
    optional_count,
    optional_number,
    optional_text,
    read_object,
    text,
)


def parse_event(data: str, place: str) -> Event:
    """Read one event; unknown fields are passed over.

    Raises:
        BadAnswer: it is no event, or lacks a field of its kind.
    """
    fields = read_object(data)
    kind = text(fields, "type")
    read = _KINDS.get(kind)
    return read(fields, place) if read else Unknown(kind, fields, id=place)


def owed_calls(fields: JsonObject, name: str) -> tuple[OwedCall, ...]:
    return tuple(
        OwedCall(
            id=text(each, "id"),
            name=text(each, "name"),
            arguments=text(each, "arguments"),
            kind=text(each, "kind"),
            reason=optional_text(each, "reason") or "",
            parent_call_id=optional_text(each, "parentToolCallId"),
            deadline=optional_text(each, "deadline"),
            claimed_until=optional_text(each, "claimedUntil"),
        )
        for each in objects(fields, name)
    )


def plan_entries(fields: JsonObject, name: str) -> tuple[PlanEntry, ...]:
    return tuple(
        PlanEntry(text(each, "content"), text(each, "priority"), text(each, "status"))
        for each in objects(fields, name)
    )


def read_usage(fields: JsonObject, place: str = "") -> Usage:
    names = ("inputTokens", "outputTokens", "cachedTokens", "reasoningTokens")
    given, said, cached, thought = (count(fields, name) for name in names)
    estimated = fields.get("estimated") is True
    left = read_left(as_object(fields["left"])) if "left" in fields else None
    parent = _parent(fields)
    model = optional_text(fields, "model") or ""
    return Usage(
        input_tokens=given,
        output_tokens=said,
        cached_tokens=cached,
        reasoning_tokens=thought,
        estimated=estimated,
        left=left,
        model=model,
        id=place,
        parent_call_id=parent,
    )


def read_left(fields: JsonObject) -> Left:
    return Left(
        optional_count(fields, "turns"),
        optional_count(fields, "tokens"),
        optional_number(fields, "seconds"),
        optional_number(fields, "cost"),
    )


def _parent(fields: JsonObject) -> str | None:
    return optional_text(fields, "parentToolCallId")


def _interrupt(fields: JsonObject, place: str) -> Interrupt:
    payload = as_object(fields.get("payload", {}))
    names = ("kind", "toolCallName", "arguments")
    kind, name, arguments = (optional_text(payload, each) or "" for each in names)
    reason = optional_text(fields, "reason") or ""
    return Interrupt(text(fields, "id"), reason, kind, name, arguments, id=place)


def _failure(fields: JsonObject, place: str) -> Failure:
    return Failure(
        text(fields, "error"),
        optional_text(fields, "code") or "unknown",
        retryable=fields.get("retryable") is True,
        retry_after=optional_number(fields, "retryAfter"),
        id=place,
    )


def _result(fields: JsonObject, place: str) -> ToolResult:
    return ToolResult(
        text(fields, "toolCallId"),
        text(fields, "result"),
        fields.get("isError") is True,
        optional_text(fields, "synthetic"),
        id=place,
        parent_call_id=_parent(fields),
    )


def _context(fields: JsonObject, place: str) -> ContextUse:
    window, before = (optional_count(fields, name) for name in ("window", "before"))
    step = optional_text(fields, "step")
    used, parent = count(fields, "used"), _parent(fields)
    return ContextUse(used, window, step, before, id=place, parent_call_id=parent)


_KINDS: Mapping[str, Callable[[JsonObject, str], Event]] = {
    "text": lambda it, place: Text(text(it, "content"), id=place),
    "reasoning": lambda it, place: Reasoning(
        text(it, "delta"), id=place, parent_call_id=_parent(it)
    ),
    "tool-call-start": lambda it, place: ToolCallStart(
        text(it, "toolCallId"), text(it, "toolCallName"), id=place, parent_call_id=_parent(it)
    ),
    "tool-call-args": lambda it, place: ToolCallArgs(
        text(it, "toolCallId"), text(it, "delta"), id=place, parent_call_id=_parent(it)
    ),
    "tool-call-end": lambda it, place: ToolCallEnd(
        text(it, "toolCallId"), id=place, parent_call_id=_parent(it)
    ),
    "tool-result": _result,
    "tool-progress": lambda it, place: ToolProgress(
        text(it, "toolCallId"), text(it, "text"), id=place, parent_call_id=_parent(it)
    ),
    "agent-text": lambda it, place: AgentText(
        text(it, "parentToolCallId"), text(it, "delta"), id=place
    ),
    "plan": lambda it, place: Plan(
        plan_entries(it, "entries"), id=place, parent_call_id=_parent(it)
    ),
    "owed": lambda it, place: Owed(owed_calls(it, "toolCalls"), id=place),
    "run-queued": lambda it, place: RunQueued(text(it, "runId"), id=place),
    "run-start": lambda it, place: RunStart(text(it, "runId"), id=place),
    "run-end": lambda it, place: RunEnd(
        text(it, "outcome"), optional_text(it, "reason"), optional_text(it, "model"), id=place
    ),
    "rewind": lambda it, place: Rewind(text(it, "to"), id=place),
    "interrupt": _interrupt,
    "error": _failure,
    "usage": read_usage,
    "output": lambda it, place: Output(it.get("value"), id=place),
    "context": _context,
    "message": lambda it, place: MessageStart(
        text(it, "messageId"), id=place, parent_call_id=_parent(it)
    ),
}
