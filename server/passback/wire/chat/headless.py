"""The result of a headless chat, in the shapes that clients expect. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from passback.core.events import HandedBack, OutputAccepted, RunEvent, RunFinished, TurnStarted
from passback.core.messages import UserMessage
from passback.wire.chat.said import Said

NEEDS_INPUT: Final = "input required"
"""The failure of a headless chat that asks a person."""


def raw_result(result: Mapping[str, Any] | None, /) -> Mapping[str, Any] | None:
    """Return the result of a headless chat in the shape for raw subscribers.

    They look for a text in `result`, and for the fields of a value at the top.
    """
    if result is None or "output" not in result:
        return result
    output = result["output"]
    fields: Mapping[str, Any] = output if "schema" in result else {**result, "result": output}
    return fields


class HeadlessResult:
    """Puts the result into `chat:end`, if the chat is headless.

    Args:
        asked: the user's message that the run answers; None if there is none.
    """

    def __init__(self, asked: UserMessage | None = None, /) -> None:
        context = asked.context if asked else None
        extras = (context and context.extras) or {}
        self._is_headless = extras.get("headless") is True
        self._schema = context.output_schema if context else None
        self._text = ""
        self._accepted: OutputAccepted | None = None
        self._asks_people = False

    def complete(self, event: RunEvent, said: Sequence[Said], /) -> None:
        """Note what an event of the run, and what clients are told of it, say of the result."""
        if not self._is_headless:
            return
        match event:
            case TurnStarted():
                self._accepted = None
            case OutputAccepted():
                self._accepted = event
            case RunFinished(HandedBack(owed)):
                self._asks_people = any(each.kind != "tool_result" for each in owed)
            case _:
                pass
        for each in said:
            if each.name == "turn:end" and _is_answer(each.data):
                blocks = each.data["blocks"]
                self._text = "".join(one["content"] for one in blocks if one["type"] == "text")
            elif each.name == "chat:end":
                self._end(each.data)

    def _end(self, data: dict[str, Any]) -> None:
        if self._asks_people:
            data["status"] = "failed"
            data["result"] = {"err_msg": NEEDS_INPUT}
        elif data["status"] == "failed":
            data["result"] = {"err_msg": data["error"]["message"]}
        elif data["status"] == "completed" and not data["pending_tool_call_ids"]:
            data["result"] = self._output()

    def _output(self) -> dict[str, Any]:
        if self._accepted is None:
            return {"output": self._text}
        return {"output": self._accepted.value, "schema": self._schema}


def _is_answer(data: Mapping[str, Any]) -> bool:
    """Return whether a turn is one of the main agent."""
    return data["role"] == "assistant" and data["parent_fork_tool_call_id"] is None
