"""The views of a conversation and of its messages, in the forms in which they are posted."""

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field, JsonValue
from typing_extensions import TypedDict

from passback.core.changes import Status
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    ChildMessage,
    ConversationId,
    ConversationKey,
    Message,
    ModelMessage,
    OwedKind,
    SummaryMessage,
    Synthetic,
    SystemMessage,
    ToolCall,
    ToolKind,
    ToolMessage,
    UserMessage,
)
from passback.core.permissions import LastingPermission
from passback.core.runs import Runs
from passback.core.state import owner_view
from passback.native.message_context import ContextView, context_view
from passback.native.parts import show_content
from passback.native.shapes import PlanEntryView, UsageView, owed_call, plan_entry, usage_view
from passback.native.times import utc_timestamp


class RunningView(TypedDict):
    """The run in progress.

    `firstMessage` is the number of messages before it. Behind them are the messages that were
    posted for it and those of the run so far, which its stream, read from the start, has again.
    `attempt` is more than 1 when a worker was lost, and another one took the run over.
    """

    runId: str
    firstMessage: int
    attempt: int


class OwedView(TypedDict):
    """A call that the client has to answer. `reason` is why an approval is asked for.

    If `kind` is `question`, `arguments` is the JSON text of `Questions`, and the content of the
    result is `Answers`. Both times are RFC 3339, in UTC. `deadline` is the last time for an
    answer, or null if there is none. `claimedUntil` is the end of a client's claim, or null if no
    client has claimed the call.
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
    """A call that a person or a rule denied. `reason` is the text that the model gets."""

    toolCallId: str
    name: str
    reason: str


class PermissionView(TypedDict):
    """A person's answer for all later calls of a tool. `reason` is why they are denied."""

    name: str
    decision: Literal["allow", "deny"]
    reason: NotRequired[str]


class BranchView(TypedDict):
    """A place where the conversation has several versions of what follows the message `after`.

    `after` is null if these are the first messages. `versions` are the ids of the first message of
    each, oldest first, and `current` is the one that `/messages` has, or null if it has none.
    """

    after: str | None
    versions: list[str]
    current: str | None


class ConversationView(TypedDict):
    """A conversation without its messages.

    `title` is a text for people, which may be empty. Both times are RFC 3339, in UTC; `updatedAt`
    is when a client last posted something. `runId` is the newest run that has begun. `owed` are
    the calls that the client has to answer. `queued` are the runs of waiting posts, in their
    order. `usage` is that of all messages and of the title, if a model wrote it, `cost` that of all
    model calls, in the currency of the server's prices, and `seconds` the time that runs have
    worked. `plan` is the agent's plan, `state` what server tools share; a list leaves it out.
    `refusals` are the newest calls that were denied, `permissions` the answers for all later calls.
    `branches` are the places with several versions, in their order; left out if there are none.
    `structuredData` is the posted data that is in force. It is there when it was asked for.
    """

    id: str
    title: str
    createdAt: str
    updatedAt: str
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
    state: NotRequired[dict[str, JsonValue]]
    refusals: list[RefusalView]
    permissions: list[PermissionView]
    branches: NotRequired[list[BranchView]]
    structuredData: NotRequired[JsonValue]


async def read_conversation(runs: Runs, key: ConversationKey, /) -> ConversationView:
    """Return the view of a conversation, with its branches. Raises UnknownConversation."""
    status = await runs.status(key)
    shown = conversation_view(key.id, status)
    shown["state"] = dict(status.state.shared or {})
    if status.has_branches and (points := await runs.branches(key)):
        shown["branches"] = [
            {"after": each.after, "versions": [*each.versions], "current": each.current}
            for each in points
        ]
    return shown


def conversation_view(conversation_id: ConversationId, status: Status, /) -> ConversationView:
    """Return the view of a conversation, without its branches, shared state and structured data."""
    state = owner_view(status.state)
    running: RunningView | None = None
    # `run_id` alone does not tell: it stays that of the last run when none is in progress
    if status.running and status.run_id is not None:
        running = {
            "runId": status.run_id,
            "firstMessage": status.run_start,
            "attempt": status.attempt,
        }
    return {
        "id": conversation_id,
        "title": status.title,
        "createdAt": utc_timestamp(status.created),
        "updatedAt": utc_timestamp(status.updated),
        "status": "running" if status.running else "idle",
        "runId": status.run_id,
        "running": running,
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
        "permissions": [_permission_view(each) for each in state.permissions],
    }


def _permission_view(answered: LastingPermission) -> PermissionView:
    shown: PermissionView = {
        "name": answered.tool,
        "decision": "allow" if answered.approved else "deny",
    }
    if answered.reason:
        shown["reason"] = answered.reason
    return shown


def owed_views(status: Status, /) -> list[OwedView]:
    """Return the views of all calls that the client has to answer."""
    # one deadline for all calls: the conversation goes on without those that are late
    deadline = None if status.answer_by is None else utc_timestamp(status.answer_by)
    claimed = {claim.call_id: utc_timestamp(claim.until) for claim in status.claims}
    return [
        {**owed_call(owed), "deadline": deadline, "claimedUntil": claimed.get(owed.id)}
        for owed in status.owed
    ]


class RecordedView(TypedDict):
    """The time of a message, RFC 3339 in UTC, and the run that wrote it or that it began.

    Each is left out if it is not known.
    """

    createdAt: NotRequired[str]
    runId: NotRequired[str]


class InputView(ContextView, RecordedView, TypedDict):
    """A message to the agent. `content` is a text, or a list of parts as they are posted.

    `agentId` names the agent that was asked, where the server has several. A user's message has
    the other fields of its post, and `at`, the time when it arrived, if the agent is given the
    time. `synthetic` means that the server wrote the message itself, because the answer before it
    did not fit its output schema. `imported`, here and below, marks the messages of a history that
    a client has posted.
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
    """A call of a tool.

    `arguments` is JSON text as the model wrote it. `client`: the client executes the call. `title`
    is the tool's name for people, and `kind` what it does. They are left out if it has none.
    """

    id: str
    type: Literal["function"]
    function: FunctionView
    client: bool
    title: NotRequired[str]
    kind: NotRequired[ToolKind]


class AssistantView(RecordedView):
    """One answer of the model. `partial`: it was stopped early.

    `usage` is there if the provider reported it, `model` if it is known which one answered, and
    `durationMs` if it is known how long the model took.
    """

    id: str
    role: Literal["assistant"]
    content: JsonValue
    toolCalls: NotRequired[list[ToolCallView]]
    partial: NotRequired[bool]
    usage: NotRequired[UsageView]
    imported: NotRequired[bool]
    model: NotRequired[str]
    durationMs: NotRequired[int]


class ToolView(RecordedView):
    """The result of one call. `synthetic` is the reason why the server wrote it itself.

    `durationMs` is how long a tool of the server worked, left out if that is not known.
    """

    id: str
    role: Literal["tool"]
    toolCallId: str
    content: JsonValue
    isError: NotRequired[bool]
    synthetic: NotRequired[Synthetic]
    imported: NotRequired[bool]
    durationMs: NotRequired[int]


class ApprovalView(RecordedView):
    """A person's answer to a call that needed approval. The call's result has the outcome."""

    id: str
    role: Literal["approval"]
    toolCallId: str
    approved: bool
    reason: NotRequired[str]
    always: NotRequired[bool]


class SummaryView(RecordedView):
    """A summary of the messages before it, which the model is given in their place."""

    id: str
    role: Literal["summary"]
    content: str


class ChildView(TypedDict):
    """A message to or from the sub-agent that works on the call `toolCallId`."""

    id: str
    role: Literal["child"]
    toolCallId: str
    message: "MessageView"


MessageView: TypeAlias = Annotated[
    InputView | AssistantView | ToolView | ApprovalView | ChildView | SummaryView,
    Field(discriminator="role"),
]


def message_view(message: Message, /) -> MessageView:
    """Return the view of a message."""
    if isinstance(message, ChildMessage):
        return {
            "id": message.id,
            "role": "child",
            "toolCallId": message.call_id,
            "message": message_view(message.message),
        }
    shown = _own_view(message)
    if message.created:
        shown["createdAt"] = utc_timestamp(message.created)
    if message.run_id:
        shown["runId"] = message.run_id
    return shown


def _own_view(
    message: ModelMessage | ApprovalMessage | SummaryMessage,
) -> InputView | AssistantView | ToolView | ApprovalView | SummaryView:
    match message:
        case AssistantMessage():
            return _assistant_view(message)
        case ToolMessage():
            return _tool_view(message)
        case ApprovalMessage():
            return _approval_view(message)
        case SummaryMessage():
            return {"id": message.id, "role": "summary", "content": message.content}
        case _:  # a message of the user or of the system
            return _input_view(message)


def _input_view(message: SystemMessage | UserMessage) -> InputView:
    shown: InputView = {
        "id": message.id,
        "role": message.role,
        "content": show_content(message.content),
    }
    if message.imported:
        shown["imported"] = True
    if isinstance(message, SystemMessage):  # only a user's message has an agent and a context
        if message.synthetic:
            shown["synthetic"] = message.synthetic
        return shown
    if message.agent:
        shown["agentId"] = message.agent
    if message.context is not None:
        shown = {**shown, **context_view(message.context)}
    return shown


def _assistant_view(message: AssistantMessage) -> AssistantView:
    shown: AssistantView = {
        "id": message.id,
        "role": "assistant",
        "content": show_content(message.content),
    }
    if message.tool_calls:
        shown["toolCalls"] = [_call_view(call) for call in message.tool_calls]
    if message.partial:
        shown["partial"] = True
    if message.usage is not None:
        shown["usage"] = usage_view(message.usage)
    if message.imported:
        shown["imported"] = True
    if message.model:
        shown["model"] = message.model
    if message.duration:
        shown["durationMs"] = message.duration
    return shown


def _call_view(call: ToolCall) -> ToolCallView:
    shown: ToolCallView = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
        "client": call.client,
    }
    if call.title:
        shown["title"] = call.title
    if call.kind != "other":
        shown["kind"] = call.kind
    return shown


def _tool_view(message: ToolMessage) -> ToolView:
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
    if message.duration:
        shown["durationMs"] = message.duration
    return shown


def _approval_view(message: ApprovalMessage) -> ApprovalView:
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
