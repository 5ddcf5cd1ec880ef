"""Events for clients from before AG-UI 1.0, which refuse a stream with what they do not know.

Such a client names no `protocolVersion` in its requests. UI kits are built on them for a while.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

# of a sub-agent: that its agent speaks cannot be told, so its words are left out
_KEPT: Final = frozenset(
    {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "CUSTOM"}
)


def older_fields(kind: str, fields: Mapping[str, JsonValue], /) -> dict[str, JsonValue] | None:
    """Return the fields of an event as such a client takes them; None: it has no such event.

    The calls of sub-agents are shown as the agent's own. A run that was cancelled, or that leaves
    calls to the client, ends without an `outcome`, which means success.
    """
    shown = dict(fields)
    if shown.pop("subagentRunId", None) is not None:
        if kind not in _KEPT:  # its beginning and its end neither
            return None
        shown.pop("parentMessageId", None)
    outcome = shown.get("outcome")
    if isinstance(outcome, dict):
        shown |= _older_outcome(outcome, shown.get("metadata"))
    return shown


def _older_outcome(
    outcome: Mapping[str, JsonValue], metadata: JsonValue
) -> Mapping[str, JsonValue]:
    more = dict(metadata) if isinstance(metadata, dict) else {}
    interrupts = outcome.get("interrupts")
    if isinstance(interrupts, list):
        asked: list[JsonValue] = [
            {name: value for name, value in each.items() if name != "subagentRunId"}
            for each in interrupts
            if isinstance(each, dict)
        ]
        return {"outcome": {"type": "interrupt", "interrupts": asked}}
    if outcome["type"] == "cancelled":
        more["reason"] = "cancelled"
    if "pendingToolCallIds" in outcome:
        more["pendingToolCallIds"] = outcome["pendingToolCallIds"]
    return {"outcome": None, "metadata": more or None}
