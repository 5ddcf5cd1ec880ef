"""What a whole turn of a model adds to the transcript and to the log. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from passback.core.errors import ModelAstray, OutputInvalid
from passback.core.events import (
    CompletedReason,
    RunEvent,
    ToolCallEnded,
    ToolResulted,
    UsageReported,
)
from passback.core.ids import new_message_id
from passback.core.messages import (
    AssistantMessage,
    Message,
    SummaryMessage,
    Synthetic,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
)
from passback.engine.assembler import Turn


def committed(turn: Turn) -> tuple[list[Message], list[RunEvent]]:
    """What a whole turn adds: its message, the answers to its invalid calls, and what may be seen of them now."""
    append: list[Message] = []
    if turn.message.content or turn.message.tool_calls:
        append.append(turn.message)
    events: list[RunEvent] = []
    if turn.spent is not None:
        events.append(UsageReported(turn.spent, model=turn.message.model))
    for invalid in turn.invalid:
        refusal = ToolResult(invalid.reason, is_error=True)
        answer = replace(tool_message(invalid.call, refusal), synthetic=invalid.synthetic)
        append.append(answer)
        if invalid.announced:
            events.append(resulted(answer))
    events.extend(ToolCallEnded(call.id) for call in turn.server)
    return append, events


def tool_message(call: ToolCall, result: ToolResult) -> ToolMessage:
    synthetic: Synthetic | None = "invalid" if result.invalid else None
    return ToolMessage(new_message_id(), call.id, result.content, result.is_error, synthetic)


def resulted(answer: ToolMessage) -> ToolResulted:
    return ToolResulted(answer.call_id, answer.content, answer.is_error, answer.synthetic)


def reason(turn: Turn) -> CompletedReason:
    match turn.finish:
        case "length":
            return "max_tokens"
        case "refusal":
            return "refusal"
        case _:
            return "end_turn"


def last_model(messages: Sequence[Message], /) -> str:
    """Return the name of the model that spoke last in messages, empty where none did."""
    spoken = (each.model for each in reversed(messages) if isinstance(each, AssistantMessage))
    return next((name for name in spoken if name), "")


def in_vain(messages: Sequence[Message], /) -> ModelAstray | OutputInvalid:
    """Why a run fails whose model was told the same again and again."""
    last = next(each for each in reversed(messages) if not isinstance(each, SummaryMessage))
    if isinstance(last, SystemMessage):
        return OutputInvalid("the model's answer did not fit the output schema, again and again")
    return ModelAstray("the model made nothing but invalid tool calls, again and again")
