"""Messages of a conversation as clients see them: the forms in which the protocol posts them."""

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field, JsonValue
from typing_extensions import TypedDict

from passback.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
)
from passback.transport.parts import show_content


class InputView(TypedDict):
    """What was said to the agent. `content` is a text, or a list of parts as they are posted."""

    id: str
    role: Literal["user", "system"]
    content: JsonValue


class FunctionView(TypedDict):
    name: str
    arguments: str


class ToolCallView(TypedDict):
    """`arguments` is JSON text as the model wrote it; `client` says that the client executes the call."""

    id: str
    type: Literal["function"]
    function: FunctionView
    client: bool


class AssistantView(TypedDict):
    """One answer of the model; `partial` when it was cut short."""

    id: str
    role: Literal["assistant"]
    content: JsonValue
    toolCalls: NotRequired[list[ToolCallView]]
    partial: NotRequired[bool]


class ToolView(TypedDict):
    """The answer to one call; `synthetic` says why the server wrote it itself."""

    id: str
    role: Literal["tool"]
    toolCallId: str
    content: JsonValue
    isError: NotRequired[bool]
    synthetic: NotRequired[str]


MessageView: TypeAlias = Annotated[
    InputView | AssistantView | ToolView, Field(discriminator="role")
]


def view(message: Message, /) -> MessageView:
    match message:
        case AssistantMessage():
            return _assistant(message)
        case ToolMessage():
            return _tool(message)
        case _:
            content = show_content(message.content)
            return {"id": message.id, "role": message.role, "content": content}


def _assistant(message: AssistantMessage) -> AssistantView:
    shown: AssistantView = {
        "id": message.id,
        "role": "assistant",
        "content": show_content(message.content),
    }
    if message.tool_calls:
        shown["toolCalls"] = [_call(call) for call in message.tool_calls]
    if message.partial:
        shown["partial"] = True
    return shown


def _call(call: ToolCall) -> ToolCallView:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
        "client": call.client,
    }


def _tool(message: ToolMessage) -> ToolView:
    shown: ToolView = {
        "id": message.id,
        "role": "tool",
        "toolCallId": message.call_id,
        "content": show_content(message.content),
    }
    if message.is_error:
        shown["isError"] = True
    if message.synthetic:
        shown["synthetic"] = message.synthetic
    return shown
