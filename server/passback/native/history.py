"""A conversation as clients see it, and its messages: in the forms in which the protocol posts them."""

from datetime import UTC, datetime
from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field, JsonValue
from typing_extensions import TypedDict

from passback.core.changes import Status
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    ChildMessage,
    ConversationId,
    Message,
    OwedKind,
    SummaryMessage,
    Synthetic,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.permissions import LastingPermission
from passback.core.state import seen_by_owner
from passback.native.encoder import owed_call
from passback.native.message_context import BriefView, show_brief
from passback.native.parts import show_content
from passback.native.shapes import PlanEntryView, UsageView, plan_entry, usage_view


# ---------------------------------------------------------------- the conversation
class RunningView(TypedDict):
    """The run that goes on.

    `firstMessage` counts the messages that were there before it: those behind them are what was posted for it and what
    it has said so far, which its stream, read from the start, says again. `attempt` is more than 1 when a worker was
    lost, and another one took the run over.
    """

    runId: str
    firstMessage: int
    attempt: int


class OwedView(TypedDict):
    """A call that the client has to answer; `reason` is why an approval is asked for.

    Where `kind` is `question`, `arguments` is the JSON text of `Questions`, and `Answers` is the content of the result.
    Both times are RFC 3339, in UTC: `deadline` is until when it can be answered, null for ever; `claimedUntil` is until
    when one of the clients has claimed it, null when none has.
    """

    id: str
    name: str
    arguments: str
    kind: OwedKind
    reason: NotRequired[str]
    parentToolCallId: NotRequired[str]
    deadline: str | None
    claimedUntil: str | None


class RefusalView(TypedDict):
    """A call that was denied, by a person or by a rule; `reason` is what the model was told."""

    toolCallId: str
    name: str
    reason: str


class PermissionView(TypedDict):
    """A person's answer for all calls to come of a tool; `reason` is why they are denied."""

    name: str
    decision: Literal["allow", "deny"]
    reason: NotRequired[str]


class ConversationView(TypedDict):
    """A conversation without its messages.

    `runId` is the newest run that has begun; `owed` is what the client has to answer; `queued` are the runs of those
    posts that wait, in their order. `usage` is that of all messages together, `cost` of all model calls, in the currency of
    the server's prices, `seconds` for how long runs have worked on it; `plan` is what the agent means to do. `refusals` are
    the newest calls that were denied, `permissions` what was answered for good. `structuredData` is there when it was
    asked for: what counts of the data that was posted.
    """

    id: str
    status: Literal["idle", "running"]
    runId: str | None
    running: RunningView | None
    queued: list[str]
    owed: list[OwedView]
    messageCount: int
    usage: UsageView
    cost: float
    seconds: float
    plan: list[PlanEntryView]
    refusals: list[RefusalView]
    permissions: list[PermissionView]
    structuredData: NotRequired[JsonValue]


def conversation_view(conversation_id: ConversationId, status: Status, /) -> ConversationView:
    """The view without structured data."""
    state = seen_by_owner(status.state)
    return {
        "id": conversation_id,
        "status": "running" if status.running else "idle",
        "runId": status.run_id,
        "running": _running(status),
        "queued": list(status.queued),
        "owed": owed_views(status),
        "messageCount": status.message_count,
        "usage": usage_view(state.usage),
        "cost": state.cost,
        "seconds": state.seconds,
        "plan": [plan_entry(each) for each in state.plan],
        "refusals": [
            {"toolCallId": each.call_id, "name": each.tool, "reason": each.reason}
            for each in state.refusals
        ],
        "permissions": [_permission(each) for each in state.permissions],
    }


def _permission(answered: LastingPermission) -> PermissionView:
    shown: PermissionView = {
        "name": answered.tool,
        "decision": "allow" if answered.approved else "deny",
    }
    if answered.reason:
        shown["reason"] = answered.reason
    return shown


def owed_views(status: Status, /) -> list[OwedView]:
    deadline = None if status.answer_by is None else instant(status.answer_by)
    claimed = {claim.call_id: instant(claim.until) for claim in status.claims}
    return [
        {**owed_call(owed), "deadline": deadline, "claimedUntil": claimed.get(owed.id)}
        for owed in status.owed
    ]


def instant(milliseconds: int, /) -> str:
    """A time of the store's clock, such as `2026-01-31T12:00:00.000Z`."""
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _running(status: Status) -> RunningView | None:
    if not status.running or status.run_id is None:
        return None
    return {"runId": status.run_id, "firstMessage": status.run_start, "attempt": status.attempt}


# ---------------------------------------------------------------- its messages
class InputView(BriefView, TypedDict):
    """What was said to the agent. `content` is a text, or a list of parts as they are posted.

    `agentId` names the agent that was asked, where the server has several. A user's message has what its post said beside
    it, and where the agent is told the time, `at` is when it came. `synthetic` says that the server wrote a message itself:
    the answer before it did not fit its output schema. `imported`, here and below, is there in a history that a client brought
    along.
    """

    id: str
    role: Literal["user", "system"]
    content: JsonValue
    synthetic: NotRequired[Literal["invalid"]]
    agentId: NotRequired[str]
    imported: NotRequired[bool]


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
    """One answer of the model; `partial` when it was cut short.

    `usage` is there where the provider told it, `model` where it is known which one spoke.
    """

    id: str
    role: Literal["assistant"]
    content: JsonValue
    toolCalls: NotRequired[list[ToolCallView]]
    partial: NotRequired[bool]
    usage: NotRequired[UsageView]
    imported: NotRequired[bool]
    model: NotRequired[str]


class ToolView(TypedDict):
    """The answer to one call; `synthetic` says why the server wrote it itself."""

    id: str
    role: Literal["tool"]
    toolCallId: str
    content: JsonValue
    isError: NotRequired[bool]
    synthetic: NotRequired[Synthetic]
    imported: NotRequired[bool]


class ApprovalView(TypedDict):
    """A person's answer to a call that needed approval; the call's result says what became of it."""

    id: str
    role: Literal["approval"]
    toolCallId: str
    approved: bool
    reason: NotRequired[str]
    always: NotRequired[bool]


class SummaryView(TypedDict):
    """In place of what came before it, the model is shown `content` from here on."""

    id: str
    role: Literal["summary"]
    content: str


class ChildView(TypedDict):
    """What a sub-agent was told or has said, that works on the call `toolCallId`."""

    id: str
    role: Literal["child"]
    toolCallId: str
    message: "MessageView"


MessageView: TypeAlias = Annotated[
    InputView | AssistantView | ToolView | ApprovalView | ChildView | SummaryView,
    Field(discriminator="role"),
]


def view(message: Message, /) -> MessageView:
    match message:
        case AssistantMessage():
            return _assistant(message)
        case ToolMessage():
            return _tool(message)
        case ApprovalMessage():
            return _approval(message)
        case SummaryMessage():
            return {"id": message.id, "role": "summary", "content": message.content}
        case ChildMessage(call_id, inner):
            return {
                "id": message.id,
                "role": "child",
                "toolCallId": call_id,
                "message": view(inner),
            }
        case _:
            return _input(message)


def _input(message: SystemMessage | UserMessage) -> InputView:
    shown: InputView = {
        "id": message.id,
        "role": message.role,
        "content": show_content(message.content),
    }
    if message.imported:
        shown["imported"] = True
    if isinstance(message, SystemMessage):
        if message.synthetic:
            shown["synthetic"] = message.synthetic
        return shown
    if message.agent:
        shown["agentId"] = message.agent
    if message.brief is not None:
        shown = {**shown, **show_brief(message.brief)}
    return shown


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
    if message.usage is not None:
        shown["usage"] = usage_view(message.usage)
    if message.imported:
        shown["imported"] = True
    if message.model:
        shown["model"] = message.model
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
    if message.imported:
        shown["imported"] = True
    return shown


def _approval(message: ApprovalMessage) -> ApprovalView:
    shown: ApprovalView = {
        "id": message.id,
        "role": "approval",
        "toolCallId": message.call_id,
        "approved": message.approved,
    }
    if message.reason:
        shown["reason"] = message.reason
    if message.always:
        shown["always"] = True
    return shown
